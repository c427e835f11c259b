"""What a sweep would measure, before it does: its arms, how many runs, about how long."""

from __future__ import annotations

from ggufspec import units
from ggufspec.errors import GgufspecError
from ggufspec.measure import Blocks, Suite, duration, refuse_endless, sizes
from ggufspec.report.text import figures, formats

_MOST_READ = 1000  # rows
_MOST_ROWS = 20_000  # of a table for programs: a frame of more takes hundreds of megabytes


def cells(suite: Suite, output: str, engine: str) -> str | bytes:
    """Return one row per arm with its expected seconds; for people, with the engine and a closing line.

    A sweep of more arms than anybody reads is shown to people as its axes, without making the arms.

    Raises:
        GgufspecError: a table for programs would have more rows than can be measured.
    """
    arms, known = suite.n_arms, duration.experience()
    if output == "md" and arms.total() > _MOST_READ and isinstance(suite.blocks, Blocks):
        closing = _closing(suite, duration.total(suite, known))
        return f"{figures.engine(engine)}\n\n{_axes(suite.blocks)}\n\n{closing}"
    if arms.total() > _MOST_ROWS:
        raise GgufspecError(
            f"{arms.total():,} arms are more than {_MOST_ROWS:,}, the most rows that a plan has",
            "leave -o out to see counts and the expected time",
        )
    from ggufspec.report import frames  # pandas is slow to import, and takes more memory than a plan

    expected = duration.expect(suite, known)
    frame = frames.cells(expected, runs=len(suite.prompts) * suite.repeats)
    if output != "md":
        return formats.render(frame, output, title="cells")
    table = formats.render(frame, "md")
    return f"{figures.engine(engine)}\n\n{table}\n{_closing(suite, sum(expected.values()))}"


def _axes(blocks: Blocks) -> str:
    """Return one row per axis with several values."""
    rows = [{"axis": name, "values": f"{count:,}"} for name, count in sizes(blocks.sweep).items()]
    return formats.table(("axis", "values"), rows)


def _closing(suite: Suite, seconds: float) -> str:
    """Say how many arms and runs there are, how long they may take, and whether that can be measured."""
    arms, runs = units.counted(suite.n_arms.total(), "arm"), units.counted(suite.n_runs, "run")
    baselines = units.counted(len(suite.blocks), "baseline")
    lines = [f"{arms} with {baselines}, {runs}: about {units.format_duration(seconds)}."]
    try:
        refuse_endless(suite)
    except GgufspecError as error:
        lines.append(f"This cannot be measured: {error.message}; {error.hint}.")
    return "".join(f"{line}\n" for line in lines)
