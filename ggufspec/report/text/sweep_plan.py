"""The plan of a sweep: its arms, the number of runs, and the expected time."""

from __future__ import annotations

from ggufspec import units
from ggufspec.errors import GgufspecError
from ggufspec.measure import Blocks, RunPlan, duration, refuse_endless, sizes
from ggufspec.report.text import figures, formats, tables

_MOST_READ = 1000  # rows for people
_MOST_ROWS = 20_000  # of a table for programs: a frame of more takes hundreds of megabytes


def cells(suite: RunPlan, output: str, engine: str) -> str | bytes:
    """Return one row per arm with its expected seconds; for people also the engine and the expected time.

    Of a sweep of more than 1000 arms, people see the axes.

    Raises:
        GgufspecError: a table for programs would have more rows than can be measured.
    """
    arms, known = suite.n_arms, duration.experience()
    for_people = output in tables.FOR_PEOPLE
    if for_people and arms.total() > _MOST_READ and isinstance(suite.blocks, Blocks):
        summary = _summary(suite, duration.total(suite, known))
        return f"{figures.engine(engine)}\n\n{_axes(suite.blocks, output)}\n\n{summary}"
    if arms.total() > _MOST_ROWS:
        raise GgufspecError(
            f"{arms.total():,} arms are more than {_MOST_ROWS:,}, the most rows that a plan has",
            "leave out -o to see counts and the expected time",
        )
    from ggufspec.report import frames  # pandas is slow to import, and takes more memory than a plan

    expected = duration.expect(suite, known)
    frame = frames.planned_arms(expected, runs=len(suite.prompts) * suite.repeats)
    if not for_people:
        return formats.render(frame, output, title="cells")
    table = formats.for_people(frame, output)
    return f"{figures.engine(engine)}\n\n{table}\n{_summary(suite, sum(expected.values()))}"


def _axes(blocks: Blocks, output: str) -> str:
    """Return one row per axis that has several values."""
    rows = [{"axis": name, "values": f"{count:,}"} for name, count in sizes(blocks.sweep).items()]
    return tables.table(("axis", "values"), rows, output)


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
