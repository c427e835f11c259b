"""Bundles of benches: everything that a reader needs is there, and nothing that is private."""

from __future__ import annotations

import html
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from ggufspec import publishing, results
from ggufspec.domain import Offload, Sample
from ggufspec.errors import ResultsError
from ggufspec.publishing import Bundle, Identity, bundles as making, copying, derived, redacting
from ggufspec.report import frames
from ggufspec.report.text import formats, tables
from ggufspec.results import ResultSet, archive
from tests.support import published, values
from tests.support.published import IDENTITY, PRIVATE, SECRETS
from tests.support.tokens import TOKENS

OF_TEXTS = ("Ocelot", "overdue", "Wombat", "ministry")


def publish(*benches: ResultSet, folder: Path, with_texts: bool = False, author: str | None = None) -> Bundle:
    return publishing.publish(
        benches, folder, identity=IDENTITY, private=(PRIVATE,), with_texts=with_texts, author=author
    )


def copied(bundle: Bundle) -> ResultSet:
    """Return the first bench of a bundle."""
    return results.load(min((bundle.folder / "benches").iterdir()))


def leaks(folder: Path) -> list[str]:
    """Return where secrets stand: in a file's name or content, in plain or as JSON writes it."""
    places = []
    for file in folder.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        name = file.relative_to(folder).as_posix()
        places += [
            f"{secret} in {name}" for secret in SECRETS if secret.encode() in content or secret in name
        ]
    return places


@pytest.fixture(autouse=True)
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out tables and charts, which take longest, where a test looks at benches and logs alone."""
    monkeypatch.setattr(making, "derive_files", lambda benches, facts: {"README.md": b""})


@pytest.fixture
def with_pages(without_pages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "derive_files", derived.derive_files)


def figures(bench: ResultSet) -> list[Sample]:
    """What does not follow from texts, in which names may be replaced."""
    of_text = {"text": None, "tokens": None, "by_segment": None, "segment_s": None}
    return [replace(run.sample, **of_text) for run in bench.runs]


@pytest.mark.parametrize("engine", ["binary", "server", "inprocess"])
def test_secrets_go_and_figures_stay(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if engine == "binary":  # pages are made of the copies, whose words are compared below
        request.getfixturevalue("with_pages")
    bench = published.bench(engine)
    everywhere = " ".join(leaks(bench.folder))
    assert all(f"{secret} in " in everywhere for secret in SECRETS)
    bundle = publish(bench, folder=tmp_path / "bundle")
    assert leaks(bundle.folder) == []
    with zipfile.ZipFile(bundle.zip) as archive:
        archive.extractall(tmp_path / "unpacked")
    hashes = [place / "bundle" / "verify.txt" for place in (tmp_path, tmp_path / "unpacked")]
    assert hashes[0].read_bytes() == hashes[1].read_bytes()
    copy = copied(bundle)
    assert {run.spec.prompt.text for run in copy.runs} == {""}  # the system prompt stands in every text
    assert (bundle.left_out, bundle.verification.findings) == (2, ())
    assert figures(copy) == figures(bench)
    for now, run in zip(copy.runs, bench.runs, strict=True):
        for name in ("text_identical", "repeat", "conditions"):
            assert getattr(now, name) == getattr(run, name)
        assert now.spec.role == run.spec.role
    before, after = (formats.records(frames.summary(stored)) for stored in (bench, copy))
    for old, new in zip(before, after, strict=True):
        assert all(new[name] == old[name] for name in ("gen_tps", "speedup", "accept_rate", "verdict"))
    shown = publish(bench, folder=tmp_path / "with-texts", with_texts=True)
    assert not [leak for leak in leaks(shown.folder) if not leak.startswith(OF_TEXTS)]
    assert {published.TEXT} < {run.spec.prompt.text for run in copied(shown).runs}
    assert any("user-1" in (run.sample.text or "") for run in copied(shown).runs)
    assert shown.left_out == 0


def test_a_token_in_a_path_hides_no_other_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = (*TOKENS.values(), published.PROJECT)
    monkeypatch.setattr(published, "PROJECT", "/".join(secrets))
    bench = published.bench()
    stored = [file.read_text() for file in bench.folder.rglob("*") if file.is_file()]
    assert any(f"/data/{published.PROJECT}" in text for text in stored)
    bundle = publish(bench, folder=tmp_path / "bundle")
    everything = "\n".join(file.read_text() for file in bundle.folder.rglob("*") if file.is_file())
    assert [secret for secret in secrets if secret in everything] == []
    assert leaks(bundle.folder) == []


@pytest.mark.parametrize("with_texts", [False, True])
def test_requests_and_checksums_of_prompts_are_published_like_texts(with_texts: bool, tmp_path: Path) -> None:
    bench = published.bench("server", runs_of=(published.BUILT_IN, published.ASKED))
    results.close(results.amend(results.reopen(bench.meta.id), suite_sha256="5" * 64))
    bundle = publish(results.load(bench.meta.id), folder=tmp_path / "bundle", with_texts=with_texts)
    of_texts = OF_TEXTS if with_texts else ("never",)
    assert not [leak for leak in leaks(bundle.folder) if not leak.startswith(of_texts)]
    copy = copied(bundle)
    asked = [run for run in copy.runs if run.spec.prompt.id == "asked"]
    assert {run.spec.prompt.request is not None for run in asked} == {with_texts}
    assert all(with_texts == ("says user-1" in (run.sample.text or "")) for run in asked)
    assert figures(copy) == figures(bench)
    assert copy.meta.suite_sha256 == ("5" * 64 if with_texts else None)


def test_texts_that_are_built_in_are_published(tmp_path: Path) -> None:
    bench = published.bench(name="plain")
    results.close(results.amend(results.reopen("plain"), command=("ggufspec", "bench")))
    bundle = publish(results.load("plain"), folder=tmp_path / "bundle")
    copy = copied(bundle)
    texts = {run.spec.prompt.id: run.spec.prompt.text for run in copy.runs}
    assert texts == {published.BUILT_IN.id: published.BUILT_IN.text, "letter-user-1": ""}
    assert bundle.left_out == 1
    answers = {run.spec.prompt.id: run.sample.text for run in copy.runs}
    assert answers["letter-user-1"] is None
    assert str(answers[published.BUILT_IN.id]).startswith(published.ANSWER)
    assert len({run.spec.key for run in copy.runs}) == len({run.spec.key for run in bench.runs})


@pytest.mark.usefixtures("with_pages")
def test_a_bundle_has_what_a_reader_needs(tmp_path: Path) -> None:
    bench, other = published.bench(), values.bench(name="empty")
    results.close(other)
    bundle = publish(bench, results.load("empty"), folder=tmp_path / "two", author="Ada Lovelace and {NASA}")
    ours = "of-user-1"
    assert archive.list_files(bundle.folder).keys() >= {
        *("README.md", "methods.md", "citation.bib", "report.html", "verify.txt", "bundle.json"),
        *(f"tables/{ours}.md", f"tables/{ours}.tex", f"charts/{ours}-curve.svg"),
        *(f"tables/{ours}-{name}.{end}" for name in ("arms", "runs") for end in ("json", "parquet")),
        *(f"benches/{ours}/meta.json", f"benches/{ours}/runs.jsonl", "benches/empty/meta.json"),
    }
    rows = json.loads((bundle.folder / "tables" / f"{ours}-arms.json").read_text())
    assert [row["role"] for row in rows] == ["target", "drafting"]
    for file, parts in {
        "citation.bib": ("  author = {Ada Lovelace and {NASA}},\n", "model-1-Q4\\_K\\_M.gguf"),
        "methods.md": (
            *(published.HASHES["target"], "llama-cpp-python 0.3.36", "A Processor, 2 cores", "Satterthwaite"),
            "2 prompts × 2 repeats, 32 tokens each, 1 thread, greedy",
        ),
        "README.md": (f"`ggufspec show benches/{ours}` prints this again",),
    }.items():
        text = (bundle.folder / file).read_text()
        for part in parts:
            assert part in text


def test_the_same_folder_gives_the_same_zip(tmp_path: Path) -> None:
    bundle = publish(published.bench(), folder=tmp_path / "bundle")
    archive.write_zip(bundle.folder, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == bundle.zip.read_bytes()


@pytest.mark.parametrize("name", ["eval", "tokens", "llama", "content", "root"])
def test_a_user_whose_name_is_a_word_of_logs_changes_no_figure(name: str, tmp_path: Path) -> None:
    identity = Identity(users=(name,), homes=(f"/srv/{name}",))
    bench = published.bench("server" if name == "content" else "binary", name="theirs")
    for log in (bench.folder / "logs").glob("*.err"):
        log.write_text(f"main: {name}@box: /srv/{name}/models /mnt/{name}/x\n{log.read_text()}")
    bundle = publishing.publish((bench,), tmp_path / "bundle", identity=identity, private=(PRIVATE,))
    copy = copied(bundle)
    assert figures(copy) == figures(bench)
    logs = [log.read_text() for log in (copy.folder / "logs").glob("*.err")]
    assert all(f"/{name}" not in log and f"{name}@" not in log for log in logs)


def test_a_bench_whose_logs_are_gone_is_not_published(tmp_path: Path) -> None:
    bench = published.bench()
    for log in (bench.folder / "logs").iterdir():
        log.unlink()
    with pytest.raises(ResultsError, match="raw logs are missing"):
        publish(bench, folder=tmp_path / "bundle")
    assert list(tmp_path.glob("*bundle*")) == []


PIECES = st.sampled_from(
    [
        *(
            "/home/wilhelmina/",
            "/data/client-zebra/models/",
            "wilhelmina",
            "quillbox",
            "https://10.1.2.3:80/",
        ),
        *("https://a:b@host/", "?x=", "&", "=", ":", " ", "\n", '"', "%2F"),
        *("\\n", "-m", "word", "_", "\x1b[1m"),
    ]
)


@given(before=st.lists(PIECES), after=st.lists(PIECES), form=st.sampled_from(sorted(TOKENS)))
def test_no_token_survives_whatever_is_around_it(before: list[str], after: list[str], form: str) -> None:
    redact = redacting.make_redactor([], (), IDENTITY, (PRIVATE,))
    assert TOKENS[form] not in redact("".join((*before, TOKENS[form], *after)))


@given(
    before=st.lists(PIECES),
    after=st.lists(PIECES),
    secret=st.text(alphabet="aB1/+=&<>'\"\\ %äwilhelmina", min_size=8),
)
def test_no_value_of_the_environment_survives(before: list[str], after: list[str], secret: str) -> None:
    redact = redacting.Redactor(patterns=(("wilhelmina", "user-1"), ("/home/[a-z]+", "~")), secrets=(secret,))
    in_quotes = (json.dumps(secret)[1:-1], repr(secret)[1:-1])
    for written in (secret, *in_quotes, quote(secret), quote(secret, safe=""), html.escape(secret)):
        assert written not in redact("".join((*before, written, *after)))


def test_a_users_identity_has_values_for_access(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    identity = publishing.read_identity(
        {"USER": "wilhelmina", "API_KEY": "0123456789", "LEVEL": "debug-level", "PIN_TOKEN": "1234"}
    )
    assert "wilhelmina" in identity.users
    assert str(home) in identity.homes
    assert identity.secrets == ("0123456789",)


def test_repositories_are_found_in_records_paths_and_logs() -> None:
    bench = published.bench()
    assert redacting.find_repositories((bench,), copying.all_logs(bench)) == (PRIVATE,)


def test_the_hosts_of_workers_are_replaced() -> None:
    run = values.run()
    offload = Offload(rpc=("192.168.0.7:50052", "big.lan:1", "127.0.0.1:2"))
    bench = values.bench(replace(run, spec=replace(run.spec, offload=offload)))
    redact = redacting.make_redactor([bench], (), Identity(), ())
    assert redact("--rpc 192.168.0.7:50052,big.lan:1,127.0.0.1:2 and 192.168.0.71") == (
        "--rpc host-2:50052,host-3:1,127.0.0.1:2 and 192.168.0.71"  # host-1 is the machine that measured
    )
    assert redact("RPC0[192.168.0.7:50052] model buffer") == "RPC0[host-2:50052] model buffer"


def test_a_table_for_latex_needs_no_package() -> None:
    table = tables.grid(
        ("model_name", "γ", "speed-up"), [["a&b#1 {x}", "3", "1.5× [1.4×, 1.6×]"]], tables.LATEX
    )
    assert table == (
        "\\begin{tabular}{lrr}\n\\hline\nmodel\\_name & $\\gamma$ & speed-up \\\\\n\\hline\n"
        "a\\&b\\#1 \\{x\\} & 3 & 1.5$\\times$ {[}1.4$\\times$, 1.6$\\times${]} \\\\\n\\hline\n\\end{tabular}"
    )
