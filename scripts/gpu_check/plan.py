"""What is checked, in the order of its worth, as steps that know how long they may take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from ggufspec import paths, results
from ggufspec.domain import Layers
from ggufspec.errors import GgufspecError, ResultsError
from ggufspec.llama.install import installs
from gpu_check import (
    benches,
    bundles,
    commands,
    conditions,
    drafters,
    forecasts,
    memory_use,
    notebook,
    placing,
)
from gpu_check.benches import Bench, Measured
from gpu_check.presets import Model, Pairing, Placement, Preset
from gpu_check.steps import NotRunError, Report, Section, Step

_RECORDER = Path(__file__).parent.parent / "record_logs.py"


def steps(bench: Bench, reports: Mapping[str, Report], logs: Path, out: Path) -> Iterator[Step]:
    """Yield all steps; those that time nothing come first, while the random models are being written.

    Args:
        bench: what all benches share.
        reports: how the steps so far ended; it grows while they run.
        logs: where recorded logs go.
        out: where the bundle goes.
    """
    preset = bench.preset
    step = partial(Step, part=1)
    yield step(
        name="smoke", title="Smoke test", least_s=5, most_s=60, run=lambda seconds: smoke(bench, seconds)
    )
    yield step(
        name="offload",
        title="Layer by layer, embedded pair",
        least_s=10,
        most_s=60,
        run=partial(placing.count_layers, bench),
    )
    yield step(
        name="demo-server",
        title="Embedded pair, engine server",
        least_s=8,
        most_s=60,
        run=_demo(bench, "server"),
    )
    yield from _of_memory(bench, reports)
    first, *others = preset.pairings
    yield from _of_pair(bench, first, reports)
    yield step(
        name="loads",
        title="Loads of a server",
        least_s=20,
        most_s=90,
        run=partial(conditions.measure_loads, bench),
    )
    step = partial(Step, part=2)
    for engine in preset.engines:
        title = f"Embedded pair, engine {engine}"
        yield step(name=f"demo-{engine}", title=title, least_s=8, most_s=60, run=_demo(bench, engine))
    yield step(
        name="why",
        title="Where the time of a round goes, embedded pair",
        least_s=0,
        most_s=10,
        run=lambda _: drafters.explain(_bench(reports, "demo-inprocess")),
    )
    yield step(
        name="forecast-demo",
        title="Forecast against measurement, embedded pair",
        least_s=15,
        most_s=90,
        run=partial(forecasts.embedded, bench),
    )
    for title, words in preset.commands.items():
        yield step(
            name=f"command-{words[0]}",
            title=f"Command: {title}",
            least_s=40,
            most_s=110,
            run=partial(commands.run, bench, words),
        )
    for placement in preset.mixtures:
        yield step(
            name=f"experts-{placement.name.replace(' ', '-')}",
            title=f"Random mixture, experts {placement.name}, synthetic acceptance",
            least_s=20,
            most_s=90,
            run=partial(_mixture, bench, placement),
        )
    yield step(
        name="places",
        title="Random mixture, experts layer by layer, forecast and --fit",
        least_s=30,
        most_s=100,
        run=partial(_places, bench, preset.mixtures[0]),
    )
    for pairing in others:
        yield from _of_pair(bench, pairing, reports)
    yield from _of_drafters(bench)
    if preset.records_logs:
        yield step(
            name="logs",
            title="Logs for tests/logs",
            least_s=20,
            most_s=90,
            run=partial(_recorded, bench, logs),
        )
    yield step(
        name="conditions",
        title="Clocks, power and energy",
        least_s=2,
        most_s=20,
        run=lambda _: conditions.describe(_loaded(reports)),
        closes=True,
    )
    yield step(
        name="bundle",
        title="Bundle of the benches, verified",
        least_s=0 if bench.gpu else 45,  # where it is not installed, it is not waited for
        most_s=120,
        run=lambda _: bundles.publish([*reports.values()], out, preset.bundled),
        closes=True,
    )


def _of_memory(bench: Bench, reports: Mapping[str, Report]) -> Iterator[Step]:
    """Yield the comparison of memory for each placement."""
    for number, placement in enumerate(bench.preset.placements):
        yield Step(
            name=f"memory-{number}",
            title=f"Memory: {placement.name}",
            part=1,
            least_s=5,
            most_s=45,
            run=partial(_memory, bench, reports, placement),
        )


def _memory(bench: Bench, reports: Mapping[str, Report], placement: Placement, seconds: float) -> Section:
    bench.models.write(*placement.models, seconds=seconds)
    small = _bench(reports, "demo-server") if bench.gpu else None
    return memory_use.measure(bench, placement, seconds, small)


def _mixture(bench: Bench, placement: Placement, seconds: float) -> Section:
    bench.models.write(*placement.models, seconds=seconds)
    return placing.measure_experts(bench, placement, seconds)


def _places(bench: Bench, placement: Placement, seconds: float) -> Section:
    bench.models.write(*placement.models, seconds=seconds)
    return placing.compare_places(bench, placement, seconds)


def models_of(preset: Preset, call: str) -> tuple[Model, ...]:
    """Return the random models of a call, in the order in which its steps need them."""
    first, *others = preset.pairings
    one = [model for each in (*preset.placements, first) for model in each.models]
    two = [*preset.cut, *(model for each in (*others, *preset.mixtures) for model in each.models)]
    return tuple(dict.fromkeys({"part1": one, "part2": two}.get(call, [*one, *two])))


def _of_drafters(bench: Bench) -> Iterator[Step]:
    """Yield what drafts otherwise: of less worth than the pairs above."""
    step = partial(Step, part=2, least_s=15, most_s=60)
    for pair in drafters.HEADS:
        yield step(
            name=f"heads-{pair}", title=f"Head: {pair}", run=partial(drafters.measure_head, bench, pair)
        )
    yield step(name="chain", title=f"Chain: {drafters.CHAIN}", run=partial(drafters.measure_chain, bench))


def smoke(bench: Bench, seconds: float) -> Section:
    """Run the embedded pair once, and say what is here."""
    found, _ = bench.run(bench.demo("binary-simple", (3,), repeats=1, warmup=0), seconds)
    install, machine = installs.find_install(bench.llama), found.meta.machine
    facts = {
        "llama.cpp": f"{install.version} ({install.backend})",
        "devices": ", ".join(install.devices) or "none but the processor",
        "GPU memory": ", ".join(f"{gpu.name}: {gpu.total_bytes / 2**30:.1f} GiB" for gpu in install.gpus),
        "processor": f"{machine.cpu}, {machine.cores} cores",
        "memory": f"{machine.memory_bytes / 2**30:.0f} GiB",
        "system": machine.system,
    }
    bad = [run for run in found.runs if run.error]
    if bad:
        raise GgufspecError(f"{bad[0].spec.role.value}: {bad[0].sample.status.value}: {bad[0].error}")
    return Section(
        rows=[{"what": name, "here": value} for name, value in facts.items() if value],
        benches=[found.meta.id],
    )


def _demo(bench: Bench, engine: str) -> Callable[[float], Section]:
    repeats, warmups = bench.preset.demo_repeats, bench.preset.demo_warmups
    asked = bench.demo(engine, (3,), repeats=repeats, warmup=warmups)

    def run(seconds: float) -> Section:
        found, wanted = bench.run(asked, seconds)
        return benches.table(found, wanted, prompts=len({spec.prompt.id for spec in found.runs.specs}))

    return run


def _of_pair(bench: Bench, pairing: Pairing, reports: Mapping[str, Report]) -> Iterator[Step]:
    """Yield what is checked with a random pair; the forecast comes before the last of the sweep.

    What is measured with other numbers of layers than the first two belongs to the second call.
    """
    step, loads = partial(Step, part=pairing.part), pairing.load_s * (len(bench.preset.sizes) + 2)
    first, *others = pairing.layers
    name = pairing.name
    yield step(
        name=f"write-{name}",
        title=f"Random {pairing.title}: written",
        least_s=5 * pairing.load_s,
        most_s=300,
        run=partial(_written, bench, pairing),
    )

    def swept(layers: Layers) -> Step:
        return step(
            name=f"sweep-{name}-{layers}",
            title=f"Random {pairing.title}: {layers} layers, synthetic acceptance",
            least_s=loads,
            most_s=4 * loads,
            run=partial(benches.sweep, bench, pairing, layers),
        )

    def measured() -> Measured:
        return _measured(pairing, reports)

    yield swept(first)
    yield from map(swept, others[:1])
    yield step(
        name=f"forecast-{name}",
        title=f"Forecast against measurement, random {pairing.title}",
        least_s=3 * pairing.load_s + 10,
        most_s=120,
        run=lambda seconds: forecasts.synthetic(bench, measured(), first, seconds),
    )
    yield from map(swept, others[1:])
    yield step(
        name=f"notebook-{name}",
        title=f"The Llama-3 notebook's table, and ours with {pairing.title}",
        least_s=0,
        most_s=10,
        run=lambda _: notebook.table(measured(), first),
    )


def _written(bench: Bench, pairing: Pairing, seconds: float) -> Section:
    files = bench.models.write(*pairing.models, seconds=seconds)
    return Section(rows=[{"file": path.name, "GB": round(path.stat().st_size / 1e9, 3)} for path in files])


def _measured(pairing: Pairing, reports: Mapping[str, Report]) -> Measured:
    found = {}
    for layers in pairing.layers:
        report = reports.get(f"sweep-{pairing.name}-{layers}")
        if report is not None and report.section.benches:
            with suppress(ResultsError):  # measured on a machine that is gone
                found[layers] = results.load(report.section.benches[0])
    return Measured(by_layers=found)


def _loaded(reports: Mapping[str, Report]) -> Iterator[tuple[str, results.ResultSet]]:
    for report in reports.values():
        for bench in report.section.benches:
            with suppress(ResultsError):  # measured on a machine that is gone
                yield report.title, results.load(bench)


def _bench(reports: Mapping[str, Report], name: str) -> results.ResultSet:
    report = reports.get(name)
    with suppress(ResultsError):
        if report is not None and report.section.benches:
            return results.load(report.section.benches[0])
    raise NotRunError(f"{name} was not measured here, which this needs")


def _recorded(bench: Bench, logs: Path, seconds: float) -> Section:
    """Record the logs of this build as those in tests/logs are."""
    install = installs.find_install(bench.llama)
    name = f"{install.version or 'unknown'}-{install.backend or 'gpu'}".replace(" ", "-")
    words = ["--llama", bench.llama, "--name", name, "--pair", paths.models_dir() / "demo", "--out", logs]
    command = [sys.executable, str(_RECORDER), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    files = sorted(path.name for path in (logs / name).glob("*.log"))
    if done.returncode or not files:
        raise RuntimeError(f"record_logs.py: {done.stderr.strip()[-300:]}")
    said = (
        f"{len(files)} logs are in logs.tar.gz under tests/logs/{name}; expected values are written by hand."
    )
    return Section(notes=[said])
