"""From the name of a model on the Hub to an answering server, in one command that can be interrupted."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import paths, results, tuning
from ggufspec.domain import Method
from ggufspec.errors import (
    ChangedFileError,
    ConsentNeededError,
    ModelFileError,
    NoInstallError,
    OutOfMemoryError,
    RevisionNotFoundError,
)
from ggufspec.measure import api, prepare_session
from ggufspec.modelfiles import hub, memory
from ggufspec.options import AutoOptions, BenchOptions
from ggufspec.results import Configuration, ResultSet
from ggufspec.tuning import Stage, automatic, launching, looking
from tests.support import fake_server, hub_client, models, quick_look, rpc_workers, served, shell
from tests.support.hub_server import Fault, Hub
from tests.support.shell import run

ROOT = Path(__file__).parents[2]
TARGET = "me/Model-3-8B-GGUF:Q4_K_M"
DRAFTER = "a/Model-3-1B-GGUF/d-Q8_0.gguf"
OTHER = "c/Model-3-1B-other-GGUF/d-Q8_0.gguf"
QUICK = ("--max-time", "60s", "-t", "1", "--serve-ctx", "1024")
QUICKLY: dict[str, Any] = {"max_time": 60.0, "threads": 1, "serve_ctx": 1024}


@pytest.fixture
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server", fake_server.Behaviour(noise=0.001))
    return llama


@pytest.fixture
def family(loopback: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A Hub with a target, a drafter that fits, and one with another vocabulary."""
    quick_look.use(monkeypatch.setattr)
    base = {"cardData": {"base_model": "acme/Model-3-8B-Instruct"}}
    loopback.add("me/Model-3-8B-GGUF", {"m-Q4_K_M.gguf": hub_client.gguf(8 << 20)}, info=base)
    other = hub_client.gguf().replace(b"<0xC5>", b"<0xc5>")
    for name, downloads, body in (
        ("a/Model-3-1B-GGUF", 90_000, hub_client.gguf()),
        ("c/Model-3-1B-other-GGUF", 990_000, other),
    ):
        loopback.add(name, {"d-Q8_0.gguf": body})
        loopback.repos[name].info = {"downloads": downloads, "gguf": {"architecture": "llama"}}
    return loopback


def test_everything_that_may_draft_is_found_by_its_header(family: Hub, llama: Path) -> None:
    found = tuning.find_sources(AutoOptions(target=TARGET))
    by_name = {source.name: source for source in found.sources if source.survey or source.left_out}
    assert by_name[DRAFTER].left_out is None
    assert by_name[DRAFTER].method is Method.DRAFT_MODEL
    assert str(by_name[OTHER].left_out).startswith("refused: 1 token differs")
    lookups = {source.method for source in found.tried} - {Method.DRAFT_MODEL}
    assert lookups == {method for method in Method if not method.drafts_with_model} - {Method.SUFFIX}
    assert found.survey.missing_bytes == sum(
        family.repos[repo].files[file].size
        for repo, file in (("me/Model-3-8B-GGUF", "m-Q4_K_M.gguf"), ("a/Model-3-1B-GGUF", "d-Q8_0.gguf"))
    )
    assert not [*hub.cached_files(hub.Access())]


def test_drafters_beyond_the_number_or_the_download_are_left_out(family: Hub, llama: Path) -> None:
    none = tuning.find_sources(AutoOptions(target=TARGET, drafters=0))
    (reason,) = (source.left_out for source in none.sources if source.name == DRAFTER)
    assert reason == "not among the first 0 (--drafters)"
    target_bytes = none.target.missing_bytes
    tight = tuning.find_sources(AutoOptions(target=TARGET, max_download=target_bytes + 1))
    (reason,) = (source.left_out for source in tight.sources if source.name == DRAFTER)
    assert "the download would exceed" in str(reason)
    assert tight.survey.missing_bytes == target_bytes
    with pytest.raises(ConsentNeededError, match="the target alone needs a download of"):
        tuning.find_sources(AutoOptions(target=TARGET, max_download=target_bytes - 1))


def test_a_drafter_that_is_named_comes_first_and_is_not_found_twice(family: Hub, llama: Path) -> None:
    found = tuning.find_sources(AutoOptions(target=TARGET, draft_model=(DRAFTER,), drafters=0))
    assert [source.name for source in found.sources].count(DRAFTER) == 1
    assert found.tried[0].name == DRAFTER
    family.add("me/Heads", {"readme.gguf": b"no model"})
    with pytest.raises(ModelFileError):
        tuning.find_sources(AutoOptions(target=TARGET, draft_model=("me/Heads/readme.gguf",)))


def test_heads_are_judged_by_their_headers(loopback: Hub, llama: Path, tmp_path: Path) -> None:
    target = models.write_model(tmp_path / "target.gguf", *models.with_mtp(n_layers=5))
    fits = models.write_model(tmp_path / "eagle3.gguf", *models.eagle3(target_layers=(1, 2, 3)))
    other = models.write_model(tmp_path / "other.gguf", *models.eagle3(target_layers=(1, 2, 3), width=128))
    named = (str(fits), str(other))
    found = tuning.find_sources(AutoOptions(target=str(target), draft_model=named, offline=True))
    by_name = {source.name: source for source in found.sources if source.name != "the text so far"}
    assert by_name[str(fits)].left_out is None
    assert by_name[str(fits)].method is Method.DRAFT_EAGLE3
    assert "refused: the head reads states of width 128" in str(by_name[str(other)].left_out)
    assert by_name["layers of the target"].method is Method.DRAFT_MTP
    assert by_name["layers of the target"].left_out is None
    assert loopback.seen == []
    asked = found.tune_options(AutoOptions(target=str(target)))
    assert {*asked.method} >= {"draft-eagle3", "draft-mtp", "ngram-simple"}


def test_heads_beside_and_layers_inside_are_found(loopback: Hub, llama: Path, tmp_path: Path) -> None:
    target = models.write_model(tmp_path / "target.gguf", *models.with_mtp(n_layers=5))
    head = models.write_model(tmp_path / "eagle3.gguf", *models.eagle3(target_layers=(1, 2, 3)))
    loopback.add("me/Model-3-8B-GGUF", {"m-Q4_K_M.gguf": target, "eagle3-m-Q4_K_M.gguf": head})
    found = tuning.find_sources(AutoOptions(target=TARGET))
    with_weights = {source.name: source.method for source in found.tried if source.method.is_head}
    assert with_weights == {
        "me/Model-3-8B-GGUF/eagle3-m-Q4_K_M.gguf": Method.DRAFT_EAGLE3,
        "layers of the target": Method.DRAFT_MTP,
    }
    assert Method.DRAFT_MODEL not in {source.method for source in found.tried}  # the target is no drafter


def test_old_builds_leave_methods_out(loopback: Hub, llama: Path) -> None:
    fake_server.program(llama / "llama-server", version="0.3.16")
    found = tuning.find_sources(AutoOptions(target="demo"))
    assert [source.name for source in found.tried] == ["demo:drafter"]
    assert all("is older than that method" in str(source.left_out) for source in found.sources[1:])


def test_a_repository_that_breaks_does_not_end_the_search(family: Hub, llama: Path) -> None:
    suggested = ggufspec.suggest(TARGET)
    assert suggested[0].name == DRAFTER
    family.faults.append(Fault(where="api/models/a/Model-3-1B-GGUF", times=99, status=404))
    found = tuning.find_sources(AutoOptions(target=TARGET))
    assert all(source.survey is None for source in found.tried)
    assert found.tried


def test_without_a_hub_the_text_so_far_is_left(family: Hub, llama: Path) -> None:
    shell.done("fetch", "-q", "--target", TARGET)
    family.faults.append(Fault(where="api/models", times=99, status=404))
    found = tuning.find_sources(AutoOptions(target=TARGET))
    assert found.notes
    assert found.notes[0].startswith("drafters: ")
    assert not [source for source in found.tried if source.method.drafts_with_model]


def test_misfits_are_not_downloaded(family: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(*_: object, **__: object) -> memory.MemoryVerdict:
        return memory.MemoryVerdict(
            outcome=memory.MemoryFit.IMPOSSIBLE, reason="too large", hint="a smaller one"
        )

    monkeypatch.setattr(memory, "verdict", verdict)
    with pytest.raises(OutOfMemoryError, match="too large"):
        tuning.find_sources(AutoOptions(target=TARGET))
    (llama / "llama-server").unlink()
    with pytest.raises(NoInstallError, match="has no llama-server"):
        tuning.find_sources(AutoOptions(target=TARGET))


def test_a_download_needs_a_yes(family: Hub, llama: Path) -> None:
    code, out, err = run("auto", TARGET, *QUICK)
    assert code == ConsentNeededError.exit_code
    assert "needs confirmation" in err
    assert out == ""
    for line in (f"{DRAFTER}", f"{OTHER}", "ngram-simple", "to download: "):
        assert line in err
    code, _, err = run("auto", TARGET, *QUICK, "--", "--port", "1")
    assert code == 2
    assert "options for llama-server need --serve" in err


def test_the_command_ends_with_the_verdict_and_how_to_serve_it(family: Hub, llama: Path) -> None:
    code, out, err = run("auto", TARGET, "--yes", *QUICK)
    assert code == 0, err
    configuration = results.read_configuration()
    assert configuration.overall.drafts
    assert f"{configuration.spec.drafter.repo}/{configuration.spec.drafter.filename}" == DRAFTER
    lines = out.splitlines()
    assert lines[0].startswith("Draft with d-Q8_0.gguf, γ = 4")
    assert any("m-Q4_K_M.gguf + d-Q8_0.gguf" in line for line in lines[1:])  # the table
    name = configuration.id
    assert lines[-3].startswith("Judged by ")
    assert lines[-3].endswith(" -p, -f or --suite names others.")
    assert lines[-2] == f"Stored as {name}: `ggufspec report {name}` writes its report."
    assert lines[-1] == f"Serve it: ggufspec serve --tuned {name}"
    assert not list((paths.data_dir() / "tunings").iterdir())
    before = len(fake_server.requests(llama))
    again = run("auto", TARGET, *QUICK)
    assert again[0] == 0, again[2]
    assert again[1].splitlines()[0] == lines[0]
    assert again[1].splitlines()[-2:] == lines[-2:]
    assert f"tuned already: {configuration.id}; --fresh tunes again" in again[2]
    assert len(fake_server.requests(llama)) == before
    asked = AutoOptions(target=TARGET, max_time=60.0, threads=1, serve_ctx=1024)
    same = tuning.find_sources(asked).tune_options(asked)
    assert tuning.find_attempt(same).finished == configuration
    assert tuning.find_attempt(same.replace(fresh=True)).name == f"{name}-2"
    other = tuning.find_attempt(same.replace(serve_ctx=512))
    assert other.finished is None
    assert other.name != name


def test_for_several_users_it_measures_and_serves_as_many_slots(
    family: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what users get together is timed here, and on no machine as precise as a tuning wants it
    tune_options = automatic.DraftSources.tune_options
    monkeypatch.setattr(
        automatic.DraftSources,
        "tune_options",
        lambda found, asked: tune_options(found, asked).replace(precision=None),
    )
    code, out, err = run("auto", TARGET, "--yes", *QUICK, "--parallel", "2")
    assert code == 0, err
    configuration = results.read_configuration()
    assert configuration.spec.traffic.users == configuration.serving.slots == 2
    assert not configuration.spec.traffic.prompts
    assert configuration.spec.context == configuration.serving.context == 1024
    argv = configuration.serving_argv
    assert argv[argv.index("--ctx-size") + 1] == "2048"
    assert "for 2 users at once" in out
    assert "It serves 2 requests at once" in out
    bench = results.load(configuration.id)
    assert {spec.traffic.users for spec in bench.runs.specs if spec.traffic} == {2}
    learning = next(line for line in err.splitlines() if "ngram-mod" in line)
    assert "learns from earlier requests" in learning
    session = prepare_session(BenchOptions(tuned=configuration.id, n_predict=16))
    arms = [arm for block in session.suite.blocks for arm in block.arms]
    assert {(arm.traffic.users, arm.context) for arm in arms if arm.traffic} == {(2, 1024)}
    three = prepare_session(BenchOptions(tuned=configuration.id, n_predict=16, parallel=3))
    assert {arm.n_slots for block in three.suite.blocks for arm in block.arms} == {3}


def _auto() -> Configuration:
    return ggufspec.auto(TARGET, **QUICKLY)


def _interrupting(
    function: Callable[..., Iterator[ResultSet]], after: int, *, confirming: bool = False
) -> Callable[..., Iterator[ResultSet]]:
    """Return a recorder that is interrupted after some runs of the bench that selects, or that confirms."""

    def record(session: Any, store: ResultSet, **options: Any) -> Iterator[ResultSet]:
        for grown in function(session, store, **options):
            yield grown
            is_selection = store.meta.id.endswith("-selection")
            if is_selection is not confirming and len(grown.runs) >= after:
                raise KeyboardInterrupt

    return record


def test_experts_are_counted_before_places_are_chosen(
    family: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def count(plan: tuning.Plan) -> Iterator[Stage]:
        order.append("counted")
        yield Stage(name="counting experts", done=0, total=1)

    def look(plan: tuning.Plan) -> Any:
        order.append("forecast")
        return quick_look.forecast_configurations(plan)

    monkeypatch.setattr(looking, "has_uncounted_experts", lambda plan: "counted" not in order)
    monkeypatch.setattr(looking, "count_experts", count)
    monkeypatch.setattr(looking, "forecast_configurations", look)
    _auto()
    assert order == ["counted", "forecast"]


@pytest.mark.parametrize("confirming", [False, True], ids=["selecting", "confirming"])
def test_an_interrupted_tuning_goes_on(
    family: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch, confirming: bool
) -> None:
    looks: list[object] = []

    def forecast_configurations(plan: tuning.Plan) -> Any:
        looks.append(plan)
        return quick_look.forecast_configurations(plan)

    monkeypatch.setattr(looking, "forecast_configurations", forecast_configurations)
    with monkeypatch.context() as patch:
        patch.setattr(api, "record", _interrupting(api.record, 3, confirming=confirming))
        with pytest.raises(KeyboardInterrupt):
            _auto()
    (kept,) = (name for name in results.ids() if name.endswith("-selection") is not confirming)
    before = [run.log for run in results.load(kept).runs]
    assert len(before) >= 3
    configuration = _auto()
    assert len(looks) == 1
    assert {*results.ids()} == {configuration.id, f"{configuration.id}-selection"}
    after = results.load(kept)
    assert [run.log for run in after.runs][: len(before)] == before
    cells = zip(after.runs, after.runs.cells(), strict=True)
    first = [cell for run, cell in cells if not (run.warmup or run.rerun or run.remeasured)]
    assert len(first) == len({*first})
    assert configuration.overall.drafts


def test_an_interrupted_start_is_resumed(family: Hub, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launching, "serve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _auto()
    measured = {name: len(results.load(name).runs) for name in results.ids()}
    assert len(measured) == 2
    configuration = _auto()
    assert configuration.launch.failure is None
    assert {name: len(results.load(name).runs) for name in results.ids()} == measured


def test_from_nothing_to_a_server_killed_while_it_downloads(family: Hub, llama: Path, home: Path) -> None:
    port = rpc_workers.free_port()
    target = hub_client.blob(home, family, "me/Model-3-8B-GGUF/m-Q4_K_M.gguf")
    fault = Fault(where=target.name, times=99, hold_after=4 << 20)
    family.faults.append(fault)
    process = _start(family, home, llama, port)
    partial = target.with_name(f"{target.name}.incomplete")
    shell.wait_until(lambda: partial.exists() and partial.stat().st_size >= 3 << 20, 60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    family.faults.clear()
    fault.release.set()
    held = partial.stat().st_size
    process = _start(family, home, llama, port)
    try:
        served.wait(process, port)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=20)
    last = fake_server.starts(llama)[-1]
    assert last["pid"] == process.pid, err
    assert last["argv"][last["argv"].index("--port") + 1] == str(port)
    assert "--model-draft" in last["argv"]
    asked = {seen.headers.get("range") for seen in family.content_requests()}
    assert f"bytes={held}-" in asked


def _start(hub: Hub, home: Path, llama: Path, port: int) -> subprocess.Popen[str]:
    words = ("auto", TARGET, "--yes", *QUICK, "--serve", "--", "--port", str(port))
    return subprocess.Popen(
        [sys.executable, "-c", quick_look.RUN, *words],
        env=hub_client.environment(hub, home) | {"GGUFSPEC_LLAMA": str(llama)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_embedded_pair_is_not_looked_for_on_the_hub(family: Hub, llama: Path) -> None:
    family.seen.clear()
    found = tuning.find_sources(AutoOptions(target="demo"))
    assert found.tried[0].name == "demo:drafter"
    assert not found.survey.missing_bytes
    assert family.seen == []


def test_it_judges_by_the_texts_that_are_named(family: Hub, llama: Path) -> None:
    for options, suite in (({}, "demo"), ({"prompt": "Hi"}, None), ({"suite": "general"}, "general")):
        asked = AutoOptions(target="demo", **options)
        tuned = tuning.find_sources(asked).tune_options(asked)
        assert (tuned.suite, tuned.prompt) == (suite, asked.prompt)
    code, out, err = run("auto", TARGET, "--yes", *QUICK, "-p", "Once upon", "-p", "Hello there")
    assert code == 0, err
    (line,) = (line for line in out.splitlines() if line.startswith("Judged by "))
    assert line.startswith("Judged by 2 prompts: ")
    assert "--suite" not in line


def test_the_pins_of_a_catalogue_are_checked_and_made(
    family: Hub, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(config))
    listed = family.repos["me/Model-3-8B-GGUF"].files["m-Q4_K_M.gguf"].digest

    def write(more: str = "") -> None:
        (config / "pairs.toml").write_text(
            f"[pairs.mine]\ntarget = {{ repo = 'me/Model-3-8B-GGUF', file = 'm-Q4_K_M.gguf'{more} }}\n"
            "drafter = { repo = 'a/Model-3-1B-GGUF', file = 'd-Q8_0.gguf' }\n"
        )

    write(f", sha256 = '{'0' * 64}'")
    with pytest.raises(ChangedFileError, match=rf"SHA-256 {'0' * 64} there, {listed} on the Hub"):
        tuning.find_sources(AutoOptions(target="mine"))
    write(", revision = 'a-commit-that-is-gone'")
    with pytest.raises(RevisionNotFoundError):
        tuning.find_sources(AutoOptions(target="mine"))
    write()
    err = shell.done("auto", "mine", "--yes", *QUICK).stderr
    assert "pinned in " in err
    pinned = json.loads((config / "pins.json").read_text())["files"]
    assert pinned["me/Model-3-8B-GGUF/m-Q4_K_M.gguf"]["sha256"] == listed
    family.add("a/Model-3-1B-GGUF", {"d-Q8_0.gguf": hub_client.gguf(5, seed=4)}).commit = "4" * 40
    shutil.rmtree(hub.Access().cache_dir / "models--a--Model-3-1B-GGUF")  # what is cached is not asked for
    code, _, err = run("auto", "mine", "--yes", *QUICK)
    assert code == 37
    assert "a/Model-3-1B-GGUF/d-Q8_0.gguf is not the file that" in err
