"""Why a bench is as fast as it is: a waterfall of a round's parts, and the change that would pay most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ggufspec import units
from ggufspec.analysis import Breakdown, Diagnosis, Part, arms, breakdown
from ggufspec.report.columns import Row, TableLayout, column
from ggufspec.report.text import judgements
from ggufspec.report.text.figures import engine, three_digits
from ggufspec.report.text.tables import is_plain, wrap_words
from ggufspec.results import ResultSet

_BAR = 30  # columns of a complete step
_LEAST = 0.005  # relative gain that is worth a line
BOUNDS = (
    "Each gain is an upper bound: it changes one thing, and keeps all other mean times of this bench. No "
    "real change reaches it."
)


def why(results: ResultSet, *, ascii_only: bool | None = None, width: int | None = None) -> str:
    """Return where the time goes in the fastest drafting arm and in its target, and what would help.

    Args:
        results: a bench.
        ascii_only: whether to use ASCII alone; without it, if the terminal and its encoding need that.
        width: of the terminal, into which sentences are folded; None for one line each.
    """
    diagnosis = breakdown.diagnose(arms.group(results))
    block = "#" if (is_plain() if ascii_only is None else ascii_only) else "█"
    steps = [step for step in (diagnosis.target, diagnosis.drafting) if step is not None]
    if not steps:
        return "Nothing was measured.\n"
    lines = [engine(results.meta.engine)]
    for step in steps:
        lines += ["", wrap_words(title(step), width), *_waterfall(step, block)]
    lines += ["", *(wrap_words(line, width) for line in sentences(diagnosis, results.meta.engine))]
    return "\n".join((*lines, ""))


def title(step: Breakdown) -> str:
    """Return what a step is of: ``drafting, a.gguf + b.gguf, γ = 3: 10.4 ms per round of 3.9 tokens``."""
    arm = step.arm
    time = f"{three_digits(step.total_ms)} ms"
    if arm.draft_size is None:
        return f"{arm.what} alone, {' + '.join(arm.models)}: {time} per token"
    length = f"{step.tokens:.2f} tokens"
    return f"{arm.what}, {' + '.join(arm.models)}, γ = {arm.draft_size}: {time} per round of {length}"


def _waterfall(step: Breakdown, block: str) -> Iterator[str]:
    """Yield a line for each part; its bar begins where that of the part before it ends."""
    width = max(len(part) for part in step.ms)
    before = 0.0
    for part, ms in step.ms.items():
        start, end = (round(_BAR * time / step.total_ms) for time in (before, before + ms))
        before += ms
        bar = f"{' ' * start}{block * (end - start)}"
        share = units.format_percent(ms / step.total_ms)
        yield f"  {part.value:<{width}}  {three_digits(ms):>6} ms  {share:>7}  {bar}".rstrip()


def sentences(diagnosis: Diagnosis, engine_name: str) -> Iterator[str]:
    """Yield what is the bottleneck and what would pay most, as sentences.

    Args:
        diagnosis: of a bench.
        engine_name: the engine that measured it.
    """
    step = diagnosis.drafting
    if step is None:
        yield "No arm drafts, or its rounds are not known: `ggufspec bench --engine inprocess` measures them."
        return
    judgement = step.arm.judgement
    if judgement is not None and not judgement.is_decided:
        yield (
            f"Undecided whether this drafting is faster: {judgements.undecided(judgement)}. "
            f"{judgements.sentence(judgements.needs(judgement))} The gains below are of single means."
        )
    largest = max(step.ms, key=lambda part: step.ms[part])
    yield f"Most of a round is {largest.value}."
    if diagnosis.verify_ratio is not None and diagnosis.batch is not None:
        with_rest = ", with the rest," if Part.VERIFICATION_AND_REST in step.ms else ""
        batch = units.format_number(diagnosis.batch, 2)
        ratio = units.format_factor(diagnosis.verify_ratio)
        yield f"Verifying {batch} tokens{with_rest} costs {ratio} as much as one token of the target alone."
    worth = [gain for gain in diagnosis.gains if gain.factor > 1 + _LEAST]
    if not worth:
        yield "No single change would gain more than half a per cent."
    for place, gain in enumerate(worth):
        lead = "What would pay most" if place == 0 else "Next"
        share, rate = units.format_percent(gain.factor - 1), units.format_rate(gain.tps)
        yield f"{lead}: {gain.change.value}, at most +{share} ({rate} tokens/s)."
    if worth:
        yield BOUNDS
    if step.is_estimated:
        yield (
            f"The drafter's time is that of its runs alone, because the engine {engine_name} does not "
            "measure it within a round: `--engine inprocess` does."
        )


class PartRow(Row):
    """A part of a round, or of a token of the target alone."""

    step: str
    part: str = column("spent on")
    ms: float = column(show=three_digits)
    share: float = column(show=units.format_percent)


PARTS = TableLayout(row=PartRow, names=("step", "part", "ms", "share"))


def list_parts(diagnosis: Diagnosis) -> list[Mapping[str, Any]]:
    """Return the rows of ``PARTS``."""
    return [
        {"step": title(step), "part": part.value, "ms": ms, "share": ms / step.total_ms}
        for step in (diagnosis.target, diagnosis.drafting)
        if step is not None
        for part, ms in step.ms.items()
    ]
