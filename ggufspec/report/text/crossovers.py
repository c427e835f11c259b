"""A crossover for people: the map of best draft sizes, and the policy that follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ggufspec import units
from ggufspec.analysis import LOOKS, CellSource, CrossoverCell, CrossoverMap, review
from ggufspec.domain import SpeedVerdict
from ggufspec.forecast.concurrency import TrafficPoint
from ggufspec.harmless import to_json
from ggufspec.report.columns import FilledTable
from ggufspec.report.schemas import outputs
from ggufspec.report.text import tables
from ggufspec.results import ResultSet

_SIGNS = {CellSource.FORECAST: "~", CellSource.MEASURED: "", CellSource.UNKNOWN: ""}
_UNDECIDED = "?"


def text(crossover: CrossoverMap, warnings: Mapping[str, str], output: str = "md") -> str:
    """Return the map with its policy.

    Args:
        crossover: the map.
        warnings: names of warnings about the measurement, with advice.
        output: ``md``, or ``table`` for the terminal, where the policy comes first.
    """
    rows = (
        (
            str(users),
            *(describe_cell(crossover.by_point[TrafficPoint(users, depth)]) for depth in crossover.depths),
        )
        for users in crossover.users
    )
    heads = ("users", *(f"depth {depth:,}" for depth in crossover.depths))
    return tables.Page(
        found=(policy(crossover),),
        table=FilledTable.of_texts(heads, rows),
        notes=(*_legend(crossover), *basis(crossover)),
        warnings=warnings,
    ).text(output)


def as_json(crossover: CrossoverMap, results: ResultSet) -> str:
    """Return the map as one JSON object, see ``schemas.outputs.CrossoverReport``."""
    facts = {"map": crossover, "policy": policy(crossover), "warnings": review.warnings(results)}
    return to_json(outputs.CrossoverReport.to_json(facts), indent=2) + "\n"


def describe_cell(cell: CrossoverCell) -> str:
    """Return a cell in a few letters: ``γ 8, 1.67×``, with ``~`` if forecast and ``?`` if undecided."""
    best = cell.best
    if best is None:
        return "unknown"
    doubt = _UNDECIDED if cell.verdict is SpeedVerdict.UNDECIDED else ""
    return f"{_SIGNS[cell.source]}γ {best.draft}, {units.format_factor(best.speedup.value)}{doubt}"


def _legend(crossover: CrossoverMap) -> Iterator[str]:
    yield (
        "Each cell: the γ with the most tokens/s of all users together, and these over those of the target "
        "alone for as many users. Depth: tokens of other text before each prompt."
    )
    signs = []
    if crossover.count(CellSource.FORECAST):
        signs.append("~ forecast from the cells around it")
    if any(cell.best is not None for cell in crossover.undecided):
        signs.append(
            "? undecided: the interval of the speed-up includes 1, there are fewer than "
            f"{LOOKS[0]} repeats, or runs were disturbed"
        )
    if signs:
        yield f"Signs: {'; '.join(signs)}."


def policy(crossover: CrossoverMap) -> str:
    """Return what to do for how many users and how deep a context, in one sentence.

    With undecided cells there is another one: what is safe there, and what would decide them.
    """
    by_choices = groupby(
        crossover.depths,
        key=lambda depth: [_choice(crossover.by_point[TrafficPoint(n, depth)]) for n in crossover.users],
    )
    parts = [
        _at_depths([*depths], crossover.depths) + _describe_choices(choices, crossover.users)
        for choices, depths in by_choices
    ]
    sentence = "; ".join(parts)
    sentence = f"{sentence[:1].upper()}{sentence[1:]}."
    undecided = [cell for cell in crossover.undecided if cell.best is not None]
    if not undecided:
        return sentence
    needs = "more runs"
    if any(cell.disturbed or cell.widened for cell in undecided):
        needs = "a quiet machine"
    if any(cell.fails_unlike for cell in undecided):
        needs = "runs that fail alike with and without drafting"
    return f"{sentence} The target alone is what is safe where it is undecided; {needs} would decide it."


def _choice(cell: CrossoverCell) -> str:
    """Return what to do in a cell."""
    if cell.source is CellSource.UNKNOWN:
        return "unknown"
    if cell.verdict is SpeedVerdict.UNDECIDED:
        return "undecided"
    return f"draft with γ = {cell.choice}" if cell.verdict is SpeedVerdict.FASTER else "do not draft"


def _describe_choices(choices: Sequence[str], users: Sequence[int]) -> str:
    """Return the draft sizes by users: ``draft with γ = 8 for 1 user, undecided from 2 users on``."""
    runs: list[tuple[str, list[int]]] = [
        (choice, [number for _, number in members])
        for choice, members in groupby(zip(choices, users, strict=True), key=lambda item: item[0])
    ]
    if len(runs) == 1:
        return runs[0][0]
    return ", ".join(f"{choice} {_for_users(members, users)}" for choice, members in runs)


def _for_users(members: Sequence[int], users: Sequence[int]) -> str:
    if members[-1] == users[-1]:
        return f"from {units.counted(members[0], 'user')} on"
    if len(members) == 1:
        return f"for {units.counted(members[0], 'user')}"
    return f"for {members[0]} to {members[-1]} users"


def _at_depths(depths: Sequence[int], mapped: Sequence[int]) -> str:
    """Return where something holds, before it; nothing if it holds at all depths."""
    if len(depths) == len(mapped):
        return ""
    if depths[-1] == mapped[-1]:
        return f"from depth {depths[0]:,} on, "
    if len(depths) == 1:
        return f"at depth {depths[0]:,}, "
    return f"at depths {depths[0]:,} to {depths[-1]:,}, "


def basis(crossover: CrossoverMap) -> Iterator[str]:
    """Yield what the map rests on."""
    measured, forecast = crossover.count(CellSource.MEASURED), crossover.count(CellSource.FORECAST)
    yield (
        f"{measured} of {units.counted(len(crossover.cells), 'cell')} measured, {forecast} forecast, "
        f"{len(crossover.undecided)} undecided. All intervals hold together in 95 of 100 maps."
    )
    if crossover.run_sd is not None:
        yield (
            f"A speed-up varies by {units.format_percent(crossover.run_sd)} between loads (one standard "
            "deviation, of all cells together)."
        )
    unknown = crossover.count(CellSource.UNKNOWN)
    if unknown:
        yield (
            f"{units.counted(unknown, 'cell')} unknown, because no measured cells surround them: a longer "
            "--max-time with --resume continues."
        )
    if crossover.forecast_errors:
        worst = max(map(abs, crossover.forecast_errors))
        yield (
            f"{units.counted(len(crossover.forecast_errors), 'measured speed-up')} forecast from the other "
            f"cells: off by {units.format_percent(worst)} at worst. Forecasts are taken to be off by "
            f"{units.format_percent(crossover.forecast_sd)} (one standard deviation)."
        )
    elif forecast:
        yield (
            f"Forecasts are taken to be off by {units.format_percent(crossover.forecast_sd)} (one standard "
            "deviation); no measured cell was among others to check that."
        )
    yield f"Stored as {crossover.bench}: `ggufspec show {crossover.bench}` prints all arms."
