"""Tuning on the real library, server and programs, with the embedded pair."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from ggufspec import results, tuning
from ggufspec.choices import ServerFormat
from ggufspec.domain import Role, TextVerdict
from ggufspec.errors import NoInstallError
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles import catalog, hub
from ggufspec.options import TuneOptions
from ggufspec.report.text import exports
from tests.support import imagined_times, rpc_workers, served, shell
from tests.support.imagined_times import PATIENT

MIXTURE = ("-m", str(Path(__file__).parents[1] / "models" / "mixture.gguf"), "-md", "demo:drafter")
QUICK = (
    *("--pair", "demo", "-t", "1", "-n", "16", "--per-category", "1", "--max-time", "5m"),
    *("--serve-ctx", "512"),
)


@pytest.fixture
def embedded(llama: Install, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    return llama


@pytest.mark.takes(35)
@pytest.mark.timeout(1800)
def test_tune_measures_and_its_command_runs(embedded: Install, imagined: None, tmp_path: Path) -> None:
    stored = ("--serve-parallel", "2", "--name", "served")
    words = ["tune", *QUICK, *PATIENT, *stored, "--draft", "1-8", "--p-min", "0,0.7", "-o", "json"]
    facts = json.loads(shell.done(*words).stdout)
    assert facts["drafts"]
    assert facts["overall"]["drafter"].endswith("drafter.gguf")
    assert 1 <= facts["overall"]["draft"] <= 8
    assert facts["overall"]["speedup"]["value"] > 1
    assert facts["by_category"] == []  # one prompt of each category cannot show a difference
    assert facts["calibration"]["runs"] == 10  # the target alone twice and three draft sizes, two prompts
    drafting = [row for row in facts["forecasts"] if row["method"] == "draft-model"]
    assert {(row["draft"], row["p_min"]) for row in drafting} == {
        (n, p) for n in range(1, 9) for p in (0, 0.7)
    }
    forecast = next(
        row for row in drafting if all(row[key] == facts["overall"][key] for key in ("draft", "p_min"))
    )
    if forecast["sure_texts"] == len(facts["prompts"]):
        near_ties = forecast["n_rounds_hi"] / forecast["n_rounds_lo"] - 1  # time changes by no more than that
        measured_speedup = facts["overall"]["speedup"]["value"]
        assert forecast["speedup"]["value"] == pytest.approx(measured_speedup, rel=0.05 + near_ties)
    confirmed = results.load(facts["results"])
    measured = {spec.drafting.n_max for spec in confirmed.current.specs if spec.drafting}
    assert facts["overall"]["draft"] in measured
    assert len(measured) <= 2  # the winner and the runner-up
    finalists = results.load(facts["selection"])
    assert measured <= {spec.drafting.n_max for spec in finalists.current.specs if spec.drafting}
    assert {choice["draft"] for choice in facts["alike"]} <= set(range(1, 9))
    assert confirmed.meta.started_at > finalists.meta.started_at
    assert {spec.role for spec in confirmed.current.specs} == {Role.TARGET, Role.DRAFTING}
    differences = [run.difference for run in confirmed.current if run.text_identical is False]
    assert {each and each.verdict for each in differences} <= {TextVerdict.NEAR_TIE}
    _check_commands(facts["commands"])
    _check_bench(facts)
    _check_stored(facts)
    _check_servers(facts, tmp_path)


@pytest.mark.takes(25)
def test_programs_without_a_library_are_tuned_by_measured_rounds(
    llama: Install, imagined: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The programs find their libraries where they were built; this folder has none, as a container has."""
    for program in llama.programs.values():
        (tmp_path / program.path.name).symlink_to(program.path)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(tmp_path))
    words = ["tune", *QUICK, *PATIENT, "--p-min", "0"]
    looked_up = ("--draft", "16", "--method", "ngram-simple")
    refused = shell.here(*words, *looked_up, "--forecast")
    assert refused.returncode == NoInstallError.exit_code
    assert "nothing can be forecast: the llama.cpp in" in refused.stderr
    drafted = ("--draft", "1-4", "--method", "draft-model")
    result = shell.done(*words, *drafted, "-o", "json")
    assert "forecast: without a trace, because the llama.cpp in" in result.stderr
    facts = json.loads(result.stdout)
    assert facts["drafts"]
    assert {row["draft"] for row in facts["forecasts"]} == {1, 2, 3, 4}
    selecting = results.load(facts["selection"]).current
    measured = {spec.drafting.n_max for spec in selecting.specs if spec.drafting}
    assert facts["overall"]["draft"] in measured < {1, 2, 3, 4}
    _check_commands(facts["commands"])


def _check_bench(facts: dict[str, Any]) -> None:
    """The bench that repeats the choice measures it with the target alone, in the same engine."""
    program, *words = shlex.split(facts["commands"]["ggufspec bench"])
    assert program == "ggufspec"
    shell.done(*words, "-r", "1", "--warmup", "0", "--name", "again")
    again, tuned = results.load("again"), results.load(facts["results"])
    assert again.meta.engine == tuned.meta.engine == facts["engine"] == "server"
    drafting = [spec.drafting for spec in again.current.specs if spec.drafting is not None]
    chosen = {(each.n_max, each.p_min) for each in drafting}
    assert chosen == {(facts["overall"]["draft"], facts["overall"]["p_min"])}
    assert {spec.key for spec in again.current.specs} & {spec.key for spec in tuned.current.specs}
    assert {spec.prompt.id for spec in again.current.specs} == set(facts["prompts"])


def _check_commands(commands: dict[str, str]) -> None:
    """The lines for a shell are taken by the programs: one answers, the other starts and is ended."""
    words = shlex.split(commands["llama-speculative-simple"])
    run = subprocess.run(
        [*words[:-1], "Once upon a time", "-n", "8"], capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr[-500:]
    server = subprocess.run(
        [*shlex.split(commands["llama-server"]), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert server.returncode == 0, server.stderr[-500:]


def _check_stored(facts: dict[str, Any]) -> None:
    """The configuration is what was printed, is shown, and is measured again."""
    assert facts["serving"] == {"context": 512, "slots": 2}
    assert facts["launch"]["failure"] is None
    assert facts["launch"]["slot_context"] == 512
    assert len(facts["launch"]["requests"]) == 2
    configuration = results.read_configuration("served")
    assert configuration.spec.context == 1024
    assert configuration.spec.pair.target.sha256
    assert shlex.join(configuration.serving_argv) == facts["commands"]["llama-server"]
    assert {spec.context for spec in results.load("served").current.specs} == {1024}
    shell.done("bench", "--tuned", "served", "-n", "16", "--per-category", "1", "-r", "1", "--name", "repeat")
    measured, tuned = results.load("repeat").current.specs, results.load("served").current.specs
    assert {spec.key for spec in measured if spec.drafting} <= {spec.key for spec in tuned}
    assert "Draft with drafter.gguf" in shell.here("show", "served").stdout


def _check_servers(facts: dict[str, Any], folder: Path) -> None:
    """The choice is served by the printed line, by ``serve``, by a router and by the environment."""
    line, port = facts["commands"]["llama-server"], rpc_workers.free_port()
    words = shlex.split(line)
    own = words[words.index("--port") + 1]
    line = line.replace(f"--port {own}", f"--port {port}")  # other tests may start a server, too
    with served.ready(served.start(["/bin/sh", "-c", f"exec {line}"]), port):
        answer = served.ask(port, _prompt(512 - 16 - facts["overall"]["draft"] - 2))
        assert answer["timings"]["predicted_n"] == 16
        with pytest.raises(HTTPError):
            served.ask(port, _prompt(600))

    port, keys = rpc_workers.free_port(), folder / "keys"
    keys.write_text("secret\n")
    with served.ready(shell.start("serve", "--", "--port", str(port), "--api-key-file", str(keys)), port):
        assert served.ask(port, _prompt(4), key="secret")["tokens_predicted"] == 16

    configuration = results.read_configuration("served")
    command, port = tuning.prepare_server(configuration), rpc_workers.free_port()
    preset = folder / "models.ini"
    preset.write_text(exports.export(command, ServerFormat.PRESET))
    router = served.start([words[0], "--models-preset", str(preset), "--port", str(port)])
    with served.ready(router, port):
        with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as listed:
            assert configuration.id in {model["id"] for model in json.load(listed)["data"]}
        assert served.ask(port, _prompt(4) | {"model": configuration.id})["tokens_predicted"] == 16

    variables, port = exports.export(command, ServerFormat.ENV), rpc_workers.free_port()
    script = f"set -a\n{variables}\nLLAMA_ARG_PORT={port}\nexec '{words[0]}'"
    with (
        served.ready(served.start(["/bin/sh", "-c", script]), port),
        urlopen(f"http://127.0.0.1:{port}/props", timeout=30) as props,
    ):
        assert json.load(props)["default_generation_settings"]["n_ctx"] == 512


def _prompt(tokens: int) -> dict[str, Any]:
    """Return a request for 16 tokens behind a prompt of so many."""
    return {"prompt": [100] * tokens, "n_predict": 16, "ignore_eos": True, "cache_prompt": False}


def test_the_forecast_alone_measures_nothing_and_costs_once(embedded: Install) -> None:
    words = ["tune", "--pair", "demo", "-t", "1", "-n", "16", "--max-time", "5m", "--forecast"]
    words += ["-p", "Once upon a time", "-p", "The cat sat on", "--draft", "1-4", "--p-min", "0"]
    first = shell.done(*words, "-o", "jsonl")
    rows = [json.loads(line) for line in first.stdout.splitlines()]
    overall = [row for row in rows if row["category"] is None and row["method"] == "draft-model"]
    assert [row["draft"] for row in overall] == [1, 2, 3, 4]
    assert all(row["tokens_per_s_lo"] < row["tokens_per_s"] < row["tokens_per_s_hi"] for row in overall)
    assert results.ids() == ()
    assert "short runs of the target alone and at one draft size" in first.stderr
    assert "costs: as measured at" not in first.stderr
    second = shell.here(*words)
    assert "costs: as measured at" in second.stderr or "costs: not kept" in first.stderr  # a busy machine
    table = [line for line in second.stdout.splitlines()[4:] if line.startswith("|")]  # notes may follow
    rates = [float(row.split("|")[-2].split("×")[0]) for row in table]
    assert len(rates) > 4
    assert rates == sorted(rates, reverse=True)
    fresh = shell.here(*words, "--method", "draft-model", "--fresh")
    assert "costs: as measured at" not in fresh.stderr


def test_another_machine_is_simulated_with_texts_and_experts_of_this_one(embedded: Install) -> None:
    words = ["tune", *MIXTURE, "-t", "1", "-n", "32", "--per-category", "1", "--draft", "1,4"]
    words += ["--p-min", "0", "--method", "draft-model", "--serve-ctx", "512", "--max-time", "5m"]
    words += ["--vram", "1040M", "--machine", "rtx-3090", "--host", "60G"]
    refused = shell.here(*words)
    assert "a machine that is simulated cannot be measured" in refused.stderr
    first = shell.done(*words, "--forecast", "-o", "json")
    overall = [row for row in json.loads(first.stdout) if row["category"] is None]
    assert {row["draft"] for row in overall} == {1, 4}
    places = {(row["requested_ngl"], row["requested_ngld"], row["settings"]) for row in overall}
    assert places == {
        ("all", "0", None)
    }  # not all of both fits, and an expert on the host is a way to it and back
    assert results.ids() == ()
    assert "simulated: nothing is timed" in first.stderr
    assert "counted in" in first.stderr
    assert "counted in" in shell.done("plan", *MIXTURE, *words[-6:], "-c", "512").stderr


@pytest.mark.takes(15)
@pytest.mark.timeout(1800)
def test_a_large_drafter_loses(embedded: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagined_times.use(monkeypatch.setattr, drafted_s=2 * imagined_times.TOKEN_S)  # clearly too slow
    target = hub.resolve(catalog.find_pair("demo"), offline=True).target
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(target.path.read_bytes())
    asked = TuneOptions(
        target=target.path,
        draft_model=copy,
        draft=(2,),
        p_min=0.0,
        prompt=("Once upon a time",),
        n_predict=12,
        threads=1,
        serve_ctx=512,
        method="draft-model",  # one that looks words up may be as fast as the target alone
        max_time=600.0,
    )
    tuned = tuning.tune(asked)
    assert not tuned.overall.drafts
    assert tuned.overall.spec.role is Role.TARGET
    assert [prospect.overall.speedup.value < 1 for prospect in tuned.outlook.prospects] == [True]
    selecting = tuned.selection.results.current  # the drafter was measured, and not chosen
    assert {spec.role for spec in selecting.specs} == {Role.TARGET, Role.DRAFTING}


@pytest.mark.takes(15)
def test_a_target_without_a_drafter_may_draft_from_its_own_text(embedded: Install, imagined: None) -> None:
    target = hub.resolve(catalog.find_pair("demo"), offline=True).target
    words = ["tune", "-m", str(target.path), "-p", "A list: one, two, three. A list: one, two,", "-n", "30"]
    facts = json.loads(shell.done(*words, "-t", "1", "--serve-ctx", "512", *PATIENT, "-o", "json").stdout)
    assert {row["method"] for row in facts["forecasts"]} >= {"ngram-simple", "ngram-mod", "ngram-cache"}
    assert facts["overall"]["drafter"] is None


def test_two_targets_are_refused(embedded: Install, tmp_path: Path) -> None:
    target = hub.resolve(catalog.find_pair("demo"), offline=True).target
    (tmp_path / "copy.gguf").write_bytes(target.path.read_bytes())
    result = shell.here("tune", "-m", str(target.path), "-m", str(tmp_path / "copy.gguf"))
    assert result.returncode != 0
    assert "one target" in result.stderr
