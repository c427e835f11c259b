"""The pure parts of scripts/gpu_check: time, bars, tables, which calls do what."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggufspec.errors import ModelFileError, OutOfMemoryError
from tests.support.scripted import Clock

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules, by their names."""
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module


@pytest.fixture
def steps(check: Any) -> Any:
    return check("gpu_check.steps")


def _step(steps: Any, name: str = "a", run: Callable[[float], Any] | None = None, **also: Any) -> Any:
    """Return a step that does nothing, unless it is told what to run."""
    usual = {"title": name, "part": 1, "least_s": 0, "most_s": 1e9, "run": run or (lambda _: steps.Section())}
    return steps.Step(name=name, **{**usual, **also})


def _run(steps: Any, made: list[Any], deadline: float = 9, **also: Any) -> Any:
    usual = {"before": {}, "save": len, "say": len, "clock": Clock()}
    return steps.run(made, deadline=deadline, **{**usual, **also})


def _run_timed(steps: Any, needs: dict[str, tuple[float, float]], deadline: float, **also: Any) -> Any:
    """Run steps that need (least, taken) seconds."""
    clock = Clock()

    def take(seconds: float) -> Any:
        def run(_: float) -> Any:
            clock.now += seconds
            return steps.Section()

        return run

    made = [_step(steps, name, take(taken), least_s=least) for name, (least, taken) in needs.items()]
    return _run(steps, made, deadline, clock=clock, **also)


def test_what_does_not_fit_is_not_begun_and_said(steps: Any) -> None:
    found = _run_timed(steps, {"a": (10, 30), "b": (80, 5), "c": (10, 5)}, 100)
    assert [(each.name, each.status) for each in found] == [("a", "done"), ("b", "not run"), ("c", "done")]
    assert found[1].said == "70 s were left, and it needs 80"
    assert found[0].seconds == 30


def test_what_was_done_in_an_earlier_call_is_not_done_again(steps: Any) -> None:
    first = _run_timed(steps, {"a": (1, 1), "b": (50, 1)}, 10)
    again = _run_timed(steps, {"a": (1, 1), "b": (5, 1)}, 10, before={each.name: each for each in first})
    assert [(each.name, each.status, each.seconds) for each in again] == [("a", "done", 1), ("b", "done", 1)]
    assert again[0] is first[0]


def test_a_step_gets_no_more_than_its_own_most(steps: Any) -> None:
    got: list[float] = []

    def run(seconds: float) -> Any:
        got.append(seconds)
        return steps.Section()

    for deadline in (100, 40):
        _run(steps, [_step(steps, run=run, most_s=60)], deadline)
    assert got == [60, 40]


def test_a_failing_step_does_not_stop_the_next(steps: Any) -> None:
    def fail(error: Exception) -> Any:
        def run(_: float) -> Any:
            raise error

        return run

    errors = [
        *(OutOfMemoryError("too large", "less"), ValueError("odd")),
        *(steps.NotRunError("no room"), ModelFileError("lost", "look")),
    ]
    saved: list[int] = []
    made = [_step(steps, str(number), fail(error)) for number, error in enumerate(errors)]
    found = _run(steps, made, save=lambda so_far: saved.append(len(so_far)))
    assert [each.status for each in found] == ["not run", "failed", "not run", "failed"]
    assert [each.said for each in found] == ["too large", "ValueError: odd", "no room", "lost (look)"]
    assert saved == [1, 2, 3, 4]


def test_a_fault_fails_a_step_and_keeps_its_table(check: Any, steps: Any) -> None:
    section = steps.Section(rows=[{"γ": 3}], fault="1 arms failed")
    (found,) = _run(steps, [_step(steps, run=lambda _: section, title="A")])
    assert (found.status, found.said) == ("failed", "1 arms failed")
    text = check("gpu_check.writing").summary("gpu", [found])
    assert "- A: failed, 1 arms failed" in text
    assert "|   3 |\n" in text


@pytest.mark.parametrize(
    ("value", "verdict"), [(5.0, "met"), (-5.0, "met"), (-5.1, "missed"), (None, "not run")]
)
def test_a_bar_is_met_on_both_sides_of_zero(steps: Any, value: float | None, verdict: str) -> None:
    assert steps.Bar(name="b", value=value, limit=5).verdict == verdict


def _report(steps: Any, name: str = "a", part: int = 1, **also: Any) -> Any:
    section = steps.Section(
        rows=[{"γ": 3, "tokens/s": 2.5, "empty": None}, {"γ": None, "tokens/s": None, "empty": ""}],
        notes=["A sentence."],
        bars=[steps.Bar(name="tokens/s, worst", value=-11.0, limit=10.0)],
        benches=["20260102-1"],
    )
    told = {"title": f"Step {name}", "status": "done", "section": section, **also}
    return steps.Report(name=name, part=part, **told)


def test_the_summary_names_the_mode_the_bars_and_what_is_missing(check: Any, steps: Any) -> None:
    writing = check("gpu_check.writing")
    missing = _report(steps, "b", status="not run", said="3 s were left", section=steps.Section())
    text = writing.summary("gpu", [_report(steps), missing])
    assert text.startswith("# Measured on a GPU\n")
    assert "1 steps done, 1 not run, 0 failed" in text
    assert "| Step a | tokens/s, worst |      -11 % | within 10 % | missed    |" in text
    assert "- Step b: not run, 3 s were left" in text
    assert "|   γ |   tokens/s |\n" in text
    assert "empty" not in text
    on_cpu = writing.summary("cpu", [_report(steps)])
    assert on_cpu.startswith("# Dry run on a CPU: no figure here is a GPU's")
    assert "missed (CPU)" in on_cpu


def test_calls_add_to_one_folder_and_modes_do_not_mix(check: Any, steps: Any, tmp_path: Path) -> None:
    writing = check("gpu_check.writing")
    reports = [_report(steps, "a", 1), _report(steps, "b", 2)]
    out = tmp_path / "out"
    writing.write(out, "gpu", reports)
    assert sorted(path.name for path in out.iterdir()) == ["part1.json", "part2.json", "summary.md"]
    assert json.loads((out / "part2.json").read_text())["steps"][0]["name"] == "b"
    found = writing.read(out, "gpu")
    assert [found[name].to_json() for name in "ab"] == [each.to_json() for each in reports]
    assert writing.read(out, "cpu") == {}
    assert writing.status_of(found) == 0
    assert writing.status_of({"c": _report(steps, "c", status="failed")}) == 1


def test_the_second_call_takes_up_what_the_first_left(check: Any, steps: Any) -> None:
    every = [_step(steps, name, part=part) for name, part in (("a", 1), ("b", 2), ("c", 1))]
    every.append(_step(steps, "z", closes=True))
    of_call = check("gpu_check.__main__")._of_call
    called = {call: [step.name for step in of_call(every, call)] for call in ("part1", "part2", "all")}
    assert called == {"part1": ["a", "c", "z"], "part2": ["b", "a", "c", "z"], "all": ["a", "b", "c", "z"]}


def test_what_closes_a_call_runs_in_every_one_and_has_its_time_kept(steps: Any) -> None:
    clock, runs = Clock(), []

    def run(seconds: float) -> Any:
        runs.append(seconds)
        clock.now += seconds
        return steps.Section()

    made = [
        _step(steps, "a", run, least_s=1),
        _step(steps, "z", run, least_s=30, most_s=40, closes=True),
    ]
    first = _run(steps, made, 100, clock=clock)
    assert runs == [70, 30]
    _run(steps, made, 200, before={report.name: report for report in first}, clock=clock)
    assert runs == [70, 30, 40]


def test_memory_is_what_was_added_less_what_the_driver_keeps(check: Any) -> None:
    memory_use = check("gpu_check.memory_use")
    rows = [memory_use.compared(1000 << 20, used << 20, 400 << 20) for used in (1430, 1340)]
    assert [row["difference"] for row in rows] == ["+3.0%", "-6.0%"]
    assert memory_use.compared(1 << 20, None, 0)["difference"] is None


@pytest.mark.parametrize(
    ("planned_mib", "used_mib", "value", "unit", "verdict"),
    [
        (1000, 1190, 190.0, "MiB", "met"),
        (1000, 790, -210.0, "MiB", "missed"),
        (10000, 10290, 2.9, "%", "met"),
        (10000, 10310, 3.1, "%", "missed"),
    ],
)
def test_a_plan_may_be_off_by_three_per_cent_or_200_mib(
    check: Any, planned_mib: int, used_mib: int, value: float, unit: str, verdict: str
) -> None:
    bar = check("gpu_check.memory_use").bar(planned_mib << 20, used_mib << 20)
    assert (bar.value, bar.unit, bar.verdict) == (value, unit, verdict)


def test_intervals_of_equal_loads_exclude_one_about_as_often_as_they_should(check: Any) -> None:
    rng = np.random.default_rng(4)
    loads = rng.normal(0, 0.02, 40)  # of one standard deviation, the same for each prompt
    logs = loads + rng.normal(0, 0.002, (6, 40))
    wrong, intervals = check("gpu_check.conditions")._wrong(logs)
    assert intervals == 400
    assert wrong < 0.1 * intervals
    assert check("gpu_check.conditions")._wrong(logs[:, :3]) == (0, 0)


def test_the_notebooks_acceptance_is_that_at_its_own_draft_size(check: Any) -> None:
    presets = check("gpu_check.presets")
    alpha = presets.ALPHA
    assert (alpha + alpha**2 + alpha**3) / 3 == pytest.approx(0.708, abs=1e-9)
    for preset in (presets.GPU, presets.CPU, presets.SMALLEST):
        for pairing in preset.pairings:
            assert len(set(pairing.layers)) == len(pairing.layers) > 0
    large = presets.GPU.pairings[0]
    assert large.layers == (45, "all")
    assert set(presets.GPU.sizes) == {1, 3, 5, 8}


def test_the_source_is_carried_without_what_nothing_is_built_from(check: Any) -> None:
    pack = check("gpu_check.pack")
    top = "llama_cpp_python-1/vendor/llama.cpp"
    kept = {
        f"{top}/CMakeLists.txt": True,
        f"{top}/tools/ui/CMakeLists.txt": True,
        f"{top}/docs/build.md": False,
        f"{top}/models/ggml-vocab.gguf": False,
        f"{top}/src/models/llama.cpp": True,
        "llama_cpp_python-1/llama_cpp/llama_cpp.py": False,
    }
    assert {name: pack.carries(name) for name in kept} == kept


_ON_A_BARE_MACHINE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import gpu_check.__main__
from gpu_check import benches, bundles, drafters
from gpu_check.steps import NotRunError, Report
from tests.support import values
bench = values.whole_bench()
specs = [run.spec for run in bench.runs]
assert benches.table(bench, specs, prompts=1).rows
assert drafters.explain(bench).notes
try:
    bundles.publish([], None)
except NotRunError as error:
    print(error)
"""


def test_what_is_carried_is_enough_on_a_bare_machine(check: Any) -> None:
    carried = {name.lower().replace("_", "-") for name in (*check("gpu_check.pack").WHEELS, "ggufspec")}
    absent = {
        name
        for name, packages in metadata.packages_distributions().items()
        if not carried & {package.lower().replace("_", "-") for package in packages}
    }
    absent -= {"backports"}  # Pythons before 3.11.4 alone need it
    assert {"pandas", "altair"} <= absent
    root = SCRIPTS.parent
    code = f"BLOCKED = {sorted(absent)!r}\n{_ON_A_BARE_MACHINE}"
    path = os.pathsep.join(map(str, (SCRIPTS, root)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "is not installed here; publish the benches of logs.tar.gz" in done.stdout
