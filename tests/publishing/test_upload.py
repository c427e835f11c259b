"""Bundles as datasets on the Hub: one commit, private unless asked, and nothing without confirmation."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard

import ggufspec
from ggufspec import publishing, results
from ggufspec.errors import BadTokenError, ConsentNeededError, GgufspecError
from ggufspec.results import archive
from tests.support import published
from tests.support.hub_server import Fault, Hub
from tests.support.published import IDENTITY, PRIVATE
from tests.support.shell import run

pytestmark = pytest.mark.filterwarnings(  # huggingface_hub 2.4 calls the HTTP library in an older way
    "ignore:Use 'content=:DeprecationWarning"
)
REPO = "datasets/me/speeds"
UPLOAD = ("publish", "--to-hub", "me/speeds")
AGREED = (*UPLOAD, "--yes", "--token", "hf_good")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loopback: Hub) -> Hub:
    """A hub, a stored bench, and a folder to write its bundle into."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    published.leave_out_pages(monkeypatch)
    published.bench(name="mine")
    return loopback


def test_a_bundle_becomes_a_private_dataset_in_one_commit(mine: Hub, home: Path) -> None:
    code, out, err = run(*AGREED)
    assert (code, "Upload" in err) == (0, False)
    assert out.endswith(f"Uploaded: {mine.url}/datasets/me/speeds (private).\n")
    (commit,) = mine.commits
    files = archive.list_files(Path("mine-bundle"))
    assert commit.repo == REPO
    assert commit.message == f"Publish measurements, SHA-256 {archive.hash_file(files['verify.txt'])}"
    assert commit.lfs | commit.regular == files.keys()
    assert commit.lfs == {name for name in files if name.endswith(".parquet")} != set()
    repo = mine.repos[REPO]
    assert repo.private
    for name, file in files.items():
        assert repo.files[name].content.read_bytes() == file.read_bytes()
    kept = (file.read_text(errors="replace") for file in home.rglob("*") if file.is_file())
    assert "hf_good" not in "".join(kept)
    assert all("authorization" not in seen.headers for seen in mine.content_requests())


def test_everybody_sees_it_only_if_asked(mine: Hub) -> None:
    assert run(*AGREED, "--public")[0] == 0
    assert not mine.repos[REPO].private


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("--to-hub", "me/speeds", "--token", "hf_good"),
            32,
            "me/speeds needs confirmation\nhint: add --yes",
        ),
        (("--to-hub", "speeds", "--yes"), 30, "'speeds' is not the name of a dataset"),
        (("--to-hub", "../x", "--yes"), 30, "is not the name of a dataset"),
        (("--to-hub", "a/b/c", "--yes"), 30, "is not the name of a dataset"),
        (("--to-hub", "me/speeds", "--yes"), 24, "needs an access token"),
        (("--to-hub", "me/speeds", "--offline"), 2, "use either --to-hub or --offline"),
        (("--public",), 2, "--public needs --to-hub"),
        (("--yes",), 2, "--yes needs --to-hub"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    mine: Hub, words: tuple[str, ...], code: int, message: str
) -> None:
    ended, out, err = run("publish", *words)
    assert (ended, out) == (code, "")
    assert message in err
    assert mine.seen == []
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("token", ["hf_no_access", "hf_unknown"])
def test_a_token_that_may_not_write_is_named(mine: Hub, token: str) -> None:
    code, _, err = run(*UPLOAD, "--yes", "--token", token)
    assert code == BadTokenError.exit_code
    assert "access token" in err
    assert token not in err
    assert mine.commits == []


@pytest.mark.parametrize(
    ("file", "private", "message"),
    [
        ("README.md", True, "error: the dataset me/speeds has files already\nhint: name a new one\n"),
        (".gitattributes", False, "the dataset me/speeds exists and is public"),
    ],
)
def test_a_dataset_that_is_there_is_not_changed(mine: Hub, file: str, private: bool, message: str) -> None:
    mine.add(REPO, {file: b"theirs"}, private=private)
    code, _, err = run(*AGREED)
    assert (code, mine.commits) == (1, [])
    assert message in err


def test_an_interrupted_upload_is_repeated(mine: Hub) -> None:
    mine.faults = [Fault("", method="PUT", status=400), Fault("/commit/", status=400)]
    for attempt in ("one", "two"):
        code, _, err = run(*AGREED, "--out", attempt)
        assert (code, "answers 400" in err) == (27, True)
    assert mine.commits == []
    assert run(*AGREED, "--out", "three")[0] == 0
    assert len(mine.commits) == 1


def test_the_token_is_removed_from_what_is_published(mine: Hub, tmp_path: Path) -> None:
    token = "tok-Zx81Qw72"
    stored = results.amend(results.reopen("mine"), command=("ggufspec", "bench", "--note", token))
    results.close(stored)
    bundle = ggufspec.publish(results.load("mine"), out=tmp_path / "bundle", token=token, offline=True)
    assert token not in (bundle.folder / "benches" / "mine" / "meta.json").read_text()
    assert mine.seen == []


def test_the_api_uploads_only_with_consent(mine: Hub, tmp_path: Path) -> None:
    bench = results.load("mine")
    with pytest.raises(ConsentNeededError, match="needs confirmation"):
        ggufspec.publish(bench, out=tmp_path / "no", to_hub="me/speeds", token="hf_good")
    assert not (tmp_path / "no").exists()
    with pytest.raises(GgufspecError, match="--public needs --to-hub"):
        ggufspec.publish(bench, public=True)
    bundle = ggufspec.publish(bench, out=tmp_path / "yes", to_hub="me/speeds", token="hf_good", yes=True)
    assert bundle.address == f"{mine.url}/datasets/me/speeds"
    assert len(mine.commits) == 1


def test_datasets_loads_every_table_of_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benches = [published.bench(name="first"), published.bench("server", name="2026.10")]
    bundle = publishing.publish(benches, tmp_path / "bundle", identity=IDENTITY, private=(PRIVATE,))
    configs = DatasetCard.load(bundle.folder / "README.md").data.to_dict()["configs"]
    names = [f"{bench}-{table}" for bench in ("first", "2026.10") for table in ("arms", "runs")]
    assert [config["config_name"] for config in configs] == names
    assert [config.get("default", False) for config in configs] == [True, False, False, False]
    for config in configs:
        file = bundle.folder / config["data_files"]
        assert pq.read_table(file).num_rows == len(json.loads(file.with_suffix(".json").read_text())) > 0
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: pip install datasets")
    for name in datasets.get_dataset_config_names(str(bundle.folder)):
        loaded = datasets.load_dataset(str(bundle.folder), name, cache_dir=str(tmp_path / "cache"))
        rows = json.loads((bundle.folder / "tables" / f"{name}.json").read_text())
        assert loaded["train"].num_rows == len(rows)
