"""Plans for people: what a sweep will measure and how long that takes, and the memory of a pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ggufspec import units
from ggufspec.errors import GgufspecError
from ggufspec.forecast.planning import Planned
from ggufspec.measure import Blocks, RunPlan, refuse_endless, runplan, sizes
from ggufspec.modelfiles.memory import MemoryPlan, ModelMemory
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.plans import DeviceRow, PlanRow, list_plans
from ggufspec.report.text import figures, formats, tables

_MOST_READ = 1000  # rows for people
_MOST_ROWS = 20_000  # of a table for programs: a frame of more takes hundreds of megabytes

_MOST_PLANS = 16  # besides the last one and the one that is asked for
_DEVICES = TableLayout(row=DeviceRow, names=("name", "weights", "cache", "compute", "total"))
_PLANS = TableLayout(row=PlanRow, names=("requested_ngl", "gpu_bytes", "host_bytes", "fits", "roofline_tps"))


def sweep_plan(suite: RunPlan, output: str, engine: str) -> str | bytes:
    """Return one row per arm with its expected seconds; for people also the engine and the expected time.

    Of a sweep of more than 1000 arms, people see the axes.

    Raises:
        GgufspecError: a table for programs would have more rows than can be measured.
    """
    arms, experience = suite.n_arms, runplan.experience()
    for_people = output in tables.FOR_PEOPLE
    if for_people and arms.total() > _MOST_READ and isinstance(suite.blocks, Blocks):
        summary = _summary(suite, runplan.total(suite, experience))
        return f"{figures.engine(engine)}\n\n{_axes(suite.blocks, output)}\n\n{summary}"
    if arms.total() > _MOST_ROWS:
        raise GgufspecError(
            f"{arms.total():,} arms are more than {_MOST_ROWS:,}, the most rows that a plan has",
            "leave out -o to see counts and the expected time",
        )
    from ggufspec.report import frames  # pandas is slow to import, and takes more memory than a plan

    expected = runplan.expect(suite, experience)
    frame = frames.planned_arms(expected, runs=len(suite.prompts) * suite.repeats)
    if not for_people:
        return formats.render(frame, output, title="cells")
    table = formats.for_people(frame, output)
    return f"{figures.engine(engine)}\n\n{table}\n{_summary(suite, sum(expected.values()))}"


def _axes(blocks: Blocks, output: str) -> str:
    """Return one row per axis that has several values."""
    rows = [[name, f"{count:,}"] for name, count in sizes(blocks.sweep).items()]
    return tables.grid(("axis", "values"), rows, output)


def _summary(suite: RunPlan, seconds: float) -> str:
    """Return how many arms and runs there are, the expected time, and why it is too much to measure."""
    arms, runs = units.counted(suite.n_arms.total(), "arm"), units.counted(suite.n_runs, "run")
    baselines = units.counted(len(suite.blocks), "baseline")
    n_loads = "" if suite.loads is None else f", {units.counted(suite.n_arms.total() * suite.loads, 'load')}"
    lines = [f"{arms} with {baselines}, {runs}{n_loads}: about {units.format_duration(seconds)}."]
    try:
        refuse_endless(suite)
    except GgufspecError as error:
        lines.append(f"This cannot be measured: {error.message}; {error.hint}.")
    return "".join(f"{line}\n" for line in lines)


def memory_plan(planned: Planned, output: str) -> str:
    """Return the memory of the shown plan by device, and some plans, the shown one among them."""
    plans = list(list_plans(planned))
    step = max(1, len(plans) // _MOST_PLANS)
    some = [
        item
        for number, item in enumerate(plans)
        if number % step == 0 or number == len(plans) - 1 or item["plan"] == planned.shown
    ]
    devices = tables.render(_DEVICES.fill(_devices(planned.shown)), output)
    return f"{devices}\n\n{tables.render(_PLANS.fill(some), output)}\n"


def _devices(plan: MemoryPlan) -> Iterator[Mapping[str, object]]:
    """Yield the memory of each model on each device; each of several GPUs has its own."""
    for name, model in (("target", plan.target), ("drafter", plan.draft)):
        if model is not None:
            for device, footprint in {**_gpus(model), "the host": model.host}.items():
                yield {"name": f"{name} on {device}", "footprint": footprint}


def _gpus(model: ModelMemory) -> dict[str, object]:
    if len(model.gpus) <= 1:
        return {"the GPU": model.gpu}
    return {f"GPU {number}": footprint for number, footprint in enumerate(model.gpus)}
