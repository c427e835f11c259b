"""A comparison of two sides for people: one row per arm, and what differs; and a bisection.

Of a bisection it is the verdict, what was compared with which interval, and what was left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ggufspec import units
from ggufspec.analysis import FAIL_ERROR, PASS_ERROR, BenchComparison, Design, Guard
from ggufspec.choices import Quantity
from ggufspec.report.columns import TableLayout, shown
from ggufspec.report.rows.benches import ComparedItem, ComparisonRow
from ggufspec.report.rows.plans import BisectionRow, list_trials
from ggufspec.report.text import figures, tables
from ggufspec.tuning.bisect import BisectFinding, Bisection, Verdict, VersionDifference, schedule_looks

_BASIS = {
    Design.INTERLEAVED: "Both were measured in turn; [95 % interval over loads, on these prompts], as in "
    "the column new/old of the bench.",
    Design.SESSIONS: "[95 % interval over benches (Welch's t), on these prompts].",
    Design.SINGLE: "To decide, measure both in one bench (`ggufspec bench --llama OLD --llama NEW`), or "
    "compare three benches a side (`ggufspec compare A1 A2 A3 -- B1 B2 B3`).",
}


_REPORTED = (
    "The models are those that the servers say they serve. No checksum of their files is known, so it is not "
    "verified that they are the same."
)

COMPARED = TableLayout(
    row=ComparisonRow,
    names=(
        *("users", "depth", "rate", "what", "models", "draft", "before_tps", "after_tps", "ratio"),
        *("p_value", "verdict", "tested", "accepted", "equal"),
    ),
    always=("what", "models"),
    labels=("what", "draft"),
)


def page(compared: BenchComparison, engine: str = "", guard: Guard | None = None) -> tables.Page:
    """Return what ``ggufspec compare`` prints; ``engine`` is what ``engines`` says of both benches."""
    return tables.Page(
        found=(*basis(compared), *(_guard(guard) if guard else ())),
        engine=engine,
        table=COMPARED.fill(ComparedItem.list(compared, guard)),
        notes=(
            f"before: {compared.before}   after: {compared.after}",
            *(f"  {name}: {a} → {b}" for name, (a, b) in compared.differences.items()),
            *(f"  in one of them only: {arm}" for arm in compared.unmatched),
        ),
        warnings={
            f"{name}: {bench}": advice
            for bench, warnings in compared.warnings.items()
            for name, advice in warnings.items()
        },
    )


def basis(compared: BenchComparison) -> tuple[str, ...]:
    """Return what the ratios rest on, and why there is no verdict."""
    reported = (_REPORTED,) if compared.is_reported else ()
    if compared.no_verdict is None:
        return (_BASIS[compared.design], *reported)
    reason = f"{compared.no_verdict[0].upper()}{compared.no_verdict[1:]}."
    if not compared.same_engine or compared.is_reported:
        return (reason, *reported)
    return (reason, _BASIS[Design.SINGLE])


def _guard(guard: Guard) -> Iterator[str]:
    yield (
        f"Guard: {guard.limit:.3f} is the limit. An arm is slower where its interval lies below the limit "
        f"({units.format_percent(1 - FAIL_ERROR)} for all arms together, Holm), and has passed where it lies "
        f"above ({units.format_percent(1 - PASS_ERROR, 0)} each)."
    )


def engines(before: str, after: str) -> str:
    """Return the line above the table that names the engines."""
    return figures.engine(before) if before == after else f"Engines: {before} before, {after} after."


_WHAT = {
    Quantity.SPEED_UP: "speed-up of drafting",
    Quantity.TARGET: "tokens/s of the target alone",
    Quantity.DRAFTER: "tokens/s of the drafter alone",
    Quantity.DRAFTING: "tokens/s of drafting",
    Quantity.ACCEPTANCE: "acceptance rate",
}


def conclusion(bisected: Bisection, verdict: Verdict) -> str:
    """Return the verdict in one or two sentences."""
    good, bad = bisected.label(0), bisected.label(len(bisected.versions) - 1)
    what, step = _WHAT[bisected.quantity], verdict.step
    complete = verdict.judgements[0].differences[0]
    match verdict.finding:
        case BisectFinding.NO_DIFFERENCE:
            return (
                f"No difference of the {what} was found from {good} to {bad}: {change(bisected, complete)}."
            )
        case BisectFinding.REVERSED:
            return f"The {what} is better in {bad} than in {good}: {change(bisected, complete)}."
        case BisectFinding.UNDECIDED if step is None:
            candidate = bisected.label(verdict.judgements[-1].trial.places[1])
            return f"{candidate} cannot be told from {good} and {bad} with so many repeats."
        case BisectFinding.UNDECIDED:
            assert step is not None
            return f"The step to {bisected.label(step.second)} was not confirmed: {change(bisected, step)}."
        case BisectFinding.TWO_STEPS if step is None:
            middle = bisected.label(verdict.rests[0].second)
            return (
                f"The {what} changed in two steps, before and after {middle}: "
                + " and ".join(_from_to(bisected, rest) for rest in verdict.rests)
                + f". Bisect {good} and {middle}, and {middle} and {bad}."
            )
    assert step is not None
    sentence = f"The {what} changed with {bisected.label(step.second)}: {_from_to(bisected, step)}."
    if verdict.finding is BisectFinding.STEP:
        return sentence
    others = "; ".join(_from_to(bisected, rest) for rest in verdict.rests)
    more = (
        "a further step" if verdict.finding is BisectFinding.TWO_STEPS else "and the history is not monotonic"
    )
    return f"{sentence} There is more, {more}: {others}."


def change(bisected: Bisection, difference: VersionDifference) -> str:
    """Return how the second version compares with the first, with the interval of its trial."""
    if bisected.quantity.is_ratio:
        value, lo, hi = (
            math.exp(-number) if math.isfinite(number) else math.inf if number < 0 else 0.0
            for number in (difference.value, difference.hi, difference.lo)
        )
        return f"{value:.3f}× [{lo:.3f}, {hi:.3f}]"
    value, lo, hi = (-100 * number for number in (difference.value, difference.hi, difference.lo))
    return f"{value:+.2f} points [{lo:+.2f}, {hi:+.2f}]"


class TrialRow(BisectionRow):
    """A compared pair of versions for people: their names, and the change from one to the other."""

    from_name: str = shown("from", of=lambda row: row["bisection"].label(row["difference"].first))
    to_name: str = shown("to", of=lambda row: row["bisection"].label(row["difference"].second))
    change: str = shown("change", of=lambda row: change(row["bisection"], row["difference"]))


_TRIALS = TableLayout(
    row=TrialRow, names=("trial", "from_name", "to_name", "change", "repeats", "middle_is"), labels=("trial",)
)


def bisection(bisected: Bisection, verdict: Verdict) -> tables.Page:
    """Return the verdict and the table of a bisection."""
    return tables.Page(
        found=(conclusion(bisected, verdict),),
        table=_TRIALS.fill(list_trials(bisected, verdict)),
        notes=tuple(_notes(bisected, verdict)),
    )


def _from_to(bisected: Bisection, difference: VersionDifference) -> str:
    names = f"{bisected.label(difference.first)} to {bisected.label(difference.second)}"
    return f"{names} {change(bisected, difference)}"


def _notes(bisected: Bisection, verdict: Verdict) -> Iterator[str]:
    looks = schedule_looks(bisected.most_repeats)
    yield (
        f"Change: {_WHAT[bisected.quantity]}, with the interval of a trial that is looked at after "
        f"{', '.join(map(str, looks))} repeats at most; at most 5 % of bisections are wrong."
    )
    measured = {position for judged in verdict.judgements for position in judged.trial.places}
    if bisected.skipped:
        yield "Skipped: " + "; ".join(
            f"{bisected.label(bisected.versions.index(version))} ({reason})"
            for version, reason in bisected.skipped.items()
        )
    left = len(bisected.versions) - len(measured) - len(bisected.skipped)
    if left:
        yield f"Not measured: {units.counted(left, 'version')}; a change there and back would not show."
    benches = (
        bisected.bench(number, judged.trial.places) for number, judged in enumerate(verdict.judgements)
    )
    yield f"Stored as {bisected.name}, with the benches {', '.join(benches)}."
