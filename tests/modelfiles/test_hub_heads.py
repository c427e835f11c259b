"""Heads on the Hub: beside a target, in a repository of their own, and as layers of the target."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import ggufspec
from ggufspec.domain import Chain, Method
from ggufspec.errors import RemoteFileNotFoundError
from ggufspec.measure import prepare_session, with_head
from ggufspec.modelfiles import hub as modelhub
from ggufspec.modelfiles.hub import choice
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.options import BenchOptions
from tests.support import fakes, models, shell
from tests.support.hub_server import Hub
from tests.support.shell import run

TARGET = "me/Model-3-8B-GGUF:Q4_K_M"
WITH_MTP = "me/Model-3-8B-MTP-GGUF:Q4_K_M"
SIDECAR = "me/Model-3-8B-GGUF/eagle3-m-Q8_0.gguf"
HEADS = "a/Model-3-8B-EAGLE3-GGUF"
DRY = ("bench", "--dry-run", "-p", "Hi", "-n", "32")


@pytest.fixture
def served(loopback: Hub, tmp_path: Path) -> Hub:
    """A Hub with a target, heads for it beside it and elsewhere, and a draft model."""
    written = {
        "target": models.llama(n_ff=4096),
        "with-mtp": models.with_mtp(n_ff=4096),
        "head": models.eagle3(),
        "wide": models.eagle3(width=128),
        "drafter": models.llama(n_layers=1),
    }
    files = {name: models.write_model(tmp_path / f"{name}.gguf", *model) for name, model in written.items()}
    base = {"cardData": {"base_model": "acme/Model-3-8B-Instruct"}}
    beside: dict[str, bytes | Path] = {
        "m-Q4_K_M.gguf": files["target"],
        "eagle3-m-Q8_0.gguf": files["head"],
        "mmproj-m.gguf": b"x",
    }
    loopback.add("me/Model-3-8B-GGUF", beside, info=base)
    loopback.add("me/Model-3-8B-MTP-GGUF", {"m-Q4_K_M.gguf": files["with-mtp"]}, info=base)
    for name, file, architecture in (
        (HEADS, "head", "eagle3"),
        ("b/Model-3-8B-other-GGUF", "wide", "eagle3"),
        ("c/Model-3-1B-EAGLE3-GGUF", "head", "eagle3"),
        ("d/Model-3-1B-GGUF", "drafter", "llama"),
    ):
        marked = "eagle3-d-Q8_0.gguf" if architecture == "eagle3" else "d-Q8_0.gguf"
        loopback.add(name, {marked: files[file]})
        loopback.repos[name].info = {"downloads": 900, "gguf": {"architecture": architecture}}
    return loopback


def _listed(names: str) -> list[RepoFile]:
    return [RepoFile(path=f"{name}.gguf", size_bytes=1, digest="0" * 40) for name in names.split()]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("t-Q8_0", ""),
        ("t-Q8_0 mtp-t-Q8_0", "mtp-t-Q8_0"),
        ("t-Q8_0 eagle3-t dflash-t dspark-t mtp-t mmproj-t", "mtp-t dspark-t dflash-t eagle3-t"),
        ("t-Q5_K_M mtp-t-Q8_0 mtp-t-Q4_0 mtp-t-BF16", "mtp-t-Q4_0"),
        ("t-Q4_K_M mtp-t-Q4_0 mtp-t-Q4_K_M", "mtp-t-Q4_K_M"),
        ("a/t-Q8_0 mtp-t-Q8_0 a/mtp-t-Q4_0 b/mtp-t-Q8_0", "a/mtp-t-Q4_0"),
        ("t-Q8_0 mtp-t-Q8_0-00001-of-00002", ""),  # a part is missing
    ],
)
def test_a_sidecar_is_llama_cpps_choice(names: str, expected: str) -> None:
    """The target is the first of the names."""
    listed = _listed(names)
    model = choice.choose_files(listed, repo="me/T", filename=listed[0].path)
    assert [head.filename for head in choice.sidecars(listed, model)] == [
        file.path for file in _listed(expected)
    ]


def test_a_repository_of_heads_alone_means_the_head() -> None:
    chosen = choice.choose_files(_listed("eagle3-t-Q8_0 eagle3-t-F16"), repo="me/H")
    assert chosen.filename == "eagle3-t-Q8_0.gguf"
    beside = choice.choose_files(_listed("eagle3-t-Q8_0 t-Q8_0"), repo="me/T")
    assert beside.filename == "t-Q8_0.gguf"
    with pytest.raises(RemoteFileNotFoundError, match="has 2 models"):
        choice.choose_files(_listed("eagle3-t-Q8_0 dflash-t-Q8_0"), repo="me/H")


def test_a_fetch_names_the_head_beside_a_target(served: Hub, llama_server: Path) -> None:
    err = shell.done("fetch", "--target", TARGET).stderr
    note = err.splitlines()[-1]
    advice, _, command = note.partition("; get it: ")
    assert advice == "note: its repository has a head that may draft for it"
    program, *words = shlex.split(command)
    assert (program, words[-1]) == ("ggufspec", SIDECAR)
    code, out, err = run(*words)
    assert code == 0
    assert "eagle3-m-Q8_0.gguf" in out
    assert err.endswith("\nmeasure it: ggufspec bench\n")
    session = prepare_session(BenchOptions(prompt=("Hello",), chat=False, n_predict=32))
    drafting = {str(arm.drafting.chain) for arm in session.suite.blocks[0].arms if arm.drafting}
    assert drafting == {"draft-eagle3"}
    assert session.engine.name == "binary-simple"


def test_a_dry_run_names_the_head_too(served: Hub) -> None:
    code, out, err = run("fetch", "--target", TARGET, "--dry-run")
    assert (code, "to download" in out) == (0, True)
    assert err.startswith("note: its repository has a head that may draft for it; get it: ggufspec fetch ")


def test_a_fetch_says_that_layers_of_the_target_draft(served: Hub, llama_server: Path) -> None:
    err = shell.done("fetch", "me/Model-3-8B-MTP-GGUF").stderr
    assert err.endswith("measure it: ggufspec bench --method draft-mtp\n")
    assert "no drafter" not in err
    asked = BenchOptions(method="draft-mtp", prompt=("Hello",), chat=False, n_predict=32)
    arms = prepare_session(asked).suite.blocks[0].arms
    assert [str(arm.drafting.chain) for arm in arms if arm.drafting] == ["draft-mtp"]


def test_a_drafter_can_be_a_repository_of_heads(served: Hub, llama_server: Path) -> None:
    out = shell.done("check", "-m", TARGET, "-md", HEADS).stdout
    assert out.startswith("accepted (server of builds ")
    assert "eagle3" in out
    code, out, err = run(*DRY, "-m", TARGET, "-md", HEADS)
    assert code == 0, err
    assert "--spec-type draft-eagle3" in out
    assert "eagle3-d-Q8_0.gguf" in out


def test_another_targets_head_is_refused_before_it_is_downloaded(served: Hub, home: Path) -> None:
    code, _, err = run("fetch", "--target", TARGET, "--draft-model", "b/Model-3-8B-other-GGUF")
    assert code == 7
    assert "reads states of width 128" in err
    assert not [*home.rglob("*.gguf")]


@pytest.mark.parametrize("build", ["0.2.63", "0.3.16"])
def test_odd_heads_are_refused(served: Hub, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install = fakes.numbered_install(build)
    monkeypatch.setattr("ggufspec.llama.install.installs.find_install", lambda: install)
    code, _, err = run("fetch", "--target", TARGET, "--draft-model", HEADS)
    assert code == 7
    assert f"build {install.build_number} cannot draft by draft-eagle3" in err
    assert "b9606" in err


def test_suggest_finds_heads_and_layers_of_the_target(served: Hub) -> None:
    code, out, err = run("suggest", TARGET, "-o", "json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["drafter"].partition("/e")[0], row["method"], row["outcome"]) for row in rows] == [
        (HEADS, "draft-eagle3", "accepted"),
        ("me/Model-3-8B-GGUF", "draft-eagle3", "accepted"),
        ("d/Model-3-1B-GGUF/d-Q8_0.gguf", "draft-model", "accepted"),
        ("b/Model-3-8B-other-GGUF", "draft-eagle3", "refused"),
    ]
    assert err.splitlines()[1] == (
        f"ggufspec fetch --target {TARGET} --draft-model {SIDECAR} && ggufspec bench"
    )
    code, out, err = run("suggest", WITH_MTP)
    assert code == 0
    layers = next(line for line in out.splitlines() if " draft-mtp " in line)
    assert layers.startswith("me/Model-3-8B-MTP-GGUF/m-Q4_K_M.gguf")
    command = f"ggufspec fetch --target {WITH_MTP} && ggufspec bench --method draft-mtp"
    assert command in err.splitlines()
    found = ggufspec.suggest(WITH_MTP)
    assert {drafter.method for drafter in found if drafter.in_target} == {Method.DRAFT_MTP}
    assert all(0 < drafter.ratio < 1 for drafter in found)


def test_suggest_offline_knows_heads_in_the_cache(served: Hub) -> None:
    run("fetch", "-q", "--target", TARGET, "--draft-model", HEADS)
    out = shell.done("suggest", TARGET, "--offline", "-o", "json").stdout
    [row] = json.loads(out)
    assert (row["method"], row["outcome"]) == ("draft-eagle3", "accepted")


def test_check_asks_a_target_alone_for_its_layers(served: Hub) -> None:
    code, out, _ = run("check", WITH_MTP)
    assert (code, out.splitlines()[0]) == (0, "accepted (server of builds 9548 and newer)")
    code, out, _ = run("check", WITH_MTP, "--build", "9000")
    assert code == 7
    assert "build 9000 cannot draft by draft-mtp" in out
    code, out, err = run("check", TARGET)
    assert (code, out) == (2, "")
    assert f"has no drafter: name a head of its repository, {SIDECAR}" in " ".join(err.split())


def test_plan_knows_which_head_a_drafter_is(served: Hub) -> None:
    planned = ggufspec.plan(target=TARGET, draft_model=HEADS, vram="24G")
    assert planned.method == Chain(Method.DRAFT_EAGLE3)
    assert planned.draft.architecture == "eagle3"
    alone = ggufspec.plan(target=TARGET, vram="24G")
    assert alone.method is None
    assert planned.shown.gpu_bytes + planned.shown.host_bytes > alone.shown.gpu_bytes + alone.shown.host_bytes
    _, _, err = run("plan", "-m", WITH_MTP, "--vram", "24G")
    assert "note: the target has layers for MTP; --method draft-mtp plans memory for them\n" in err
    _, _, err = run("plan", "-m", TARGET, "--vram", "24G")
    assert "MTP" not in err


def test_whatif_does_not_take_a_head_for_a_draft_model(served: Hub) -> None:
    words = ("whatif", "-m", TARGET, "--machine", "h100", "--alpha", "0.8", "-md")
    shell.done(*words, "d/Model-3-1B-GGUF")
    code, out, err = run(*words, HEADS)
    assert (code, out) == (2, "")
    assert "the cost of drafting by draft-eagle3 does not follow from headers" in " ".join(err.split())
    code, out, err = run("whatif", "--pair", "demo-eagle3", "--machine", "h100", "--alpha", "0.8")
    assert (code, out) == (2, "")


def test_heads_of_a_cached_target_need_no_network(served: Hub) -> None:
    run("fetch", "-q", "--target", TARGET, "--draft-model", SIDECAR)
    served.seen.clear()
    target = modelhub.survey_model(TARGET, modelhub.Access(offline=True)).pair.target
    [head] = modelhub.find_heads(target, modelhub.Access(offline=True))
    assert head.filename == "eagle3-m-Q8_0.gguf"
    assert modelhub.find_heads(replace(target, repo=None), modelhub.Access()) == ()
    assert served.seen == []


def test_auto_is_the_head_beside_the_target(served: Hub, llama_server: Path) -> None:
    planned = ggufspec.plan(target=TARGET, draft_model="auto", vram="24G")
    assert planned.method == Chain(Method.DRAFT_EAGLE3)
    assert f"{planned.pair.draft.repo}/{planned.pair.draft.filename}" == SIDECAR
    shell.done("check", "-m", TARGET, "-md", "auto")
    code, out, err = run(*DRY, "-m", TARGET, "-md", "auto")
    assert code == 0, err
    assert "--spec-type draft-eagle3" in out
    out = shell.done("fetch", "-q", "--target", TARGET, "-md", "auto").stdout
    assert out.splitlines()[1].endswith("/eagle3-m-Q8_0.gguf")
    served.seen.clear()
    shell.done(*DRY, "--offline", "-m", TARGET, "-md", "auto")
    assert served.seen == []


def test_a_bench_drafts_with_a_head_beside_it_if_asked(served: Hub, llama_server: Path) -> None:
    run("fetch", "-q", "--target", TARGET, "-md", "auto")
    assert ggufspec.plan(target=TARGET, vram="24G").draft is None
    assert "eagle3" not in run(*DRY, "-m", TARGET)[1]


def test_auto_finds_the_head_in_the_folder_of_a_file(tmp_path: Path, llama_server: Path) -> None:
    target = models.write_model(tmp_path / "t-Q8_0.gguf", *models.llama(n_ff=4096))
    models.write_model(tmp_path / "dspark-wide.gguf", *models.dflash(n_embd=128, markov=True))
    models.write_model(tmp_path / "eagle3-t.gguf", *models.eagle3())
    models.write_model(tmp_path / "drafter.gguf", *models.llama(n_layers=1))
    planned = ggufspec.plan(target=str(target), draft_model="auto", vram="24G")
    assert planned.pair.draft.path == tmp_path / "eagle3-t.gguf"  # the one before it is of another target
    asked = with_head(BenchOptions(target=target, draft_model="auto")).draft_model
    assert asked == (planned.pair.draft,)
    code, out, err = run(*DRY, "-m", str(target), "-md", "auto")
    assert code == 0, err
    assert "eagle3-t.gguf" in out


def test_auto_without_a_fitting_head_is_refused(served: Hub, tmp_path: Path, llama_server: Path) -> None:
    target = models.write_model(tmp_path / "t.gguf", *models.llama(n_ff=4096))
    code, _, err = run("bench", "-m", str(target), "-md", "auto")
    assert code == 7
    assert f"error: {tmp_path} has no head that belongs to t.gguf\n" in err
    assert f"hint: look for drafters elsewhere: ggufspec suggest {target}\n" in err
    models.write_model(tmp_path / "eagle3-wide.gguf", *models.eagle3(width=128))
    code, _, err = run("plan", "-m", str(target), "-md", "auto", "--vram", "24G")
    assert code == 7
    assert "; eagle3-wide.gguf: the head reads states of width 128" in err
    code, _, err = run("fetch", "--target", WITH_MTP, "-md", "auto")
    assert code == 7
    assert "hint: its own layers for MTP draft with --method draft-mtp" in err
    code, _, err = run("sweep", "-m", str(target), "-m", TARGET, "-md", "auto")
    assert (code, "error: -md auto finds the head beside one target\n" in err) == (1, True)
