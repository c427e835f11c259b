"""Tunings on real programs whose verdict and length do not depend on what the machine is doing.

Texts, drafts and acceptances are the real ones; only the seconds that were measured are replaced by those of
one imagined machine, on which drafting pays. So every repeat agrees with the last, and a tuning ends after
the fewest that have an interval, however prompts differ. Costs and corrections are imagined too, so few runs
are enough for them.

python -c "from tests.support import imagined_times; imagined_times.run()" tune …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ggufspec.analysis import review
from ggufspec.domain import RunSpec
from ggufspec.engines import Engine, InprocessEngine, Measurement
from ggufspec.engines.library import RoundPart, Timing
from ggufspec.engines.library.messages import Curve
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.measure import measuring
from ggufspec.options import TuneOptions, option
from ggufspec.tuning import automatic, budgeting, calibrating

PATIENT = ("--max-time", "30m")
"""More than a short tuning of the embedded pair takes on a slow, busy machine; it ends when it is done."""
TOKEN_S, _DRAFTED_S, _VERIFIED_S = 1e-5, 1e-6, 2e-7
"""Seconds of an evaluation, of a drafted token, and of each further token of a batch."""
_N_PREDICT = 12
_FIRST_LOOK = 3  # repeats that agree as well as eight
_FEWER = {"_CALIBRATION_LOADS": 1, "_CALIBRATION_PROMPTS": 2, "FINALISTS": 2, "SELECTING_REPEATS": 1}
RUN = "from tests.support import imagined_times; imagined_times.run()"
"""Python code that runs the command line with these times."""


def use(set_attribute: Callable[[Any, str, Any], object], *, drafted_s: float = _DRAFTED_S) -> None:
    """Replace the seconds of costs and of runs.

    Args:
        set_attribute: that of a monkeypatch.
        drafted_s: seconds of a drafted token; with ``TOKEN_S`` the drafter is as slow as the target.
    """
    curve = InprocessEngine.curve

    def imagined(self: InprocessEngine, *args: Any, **options: Any) -> Curve:
        timings = curve(self, *args, **options).timings
        return Curve(
            timings=tuple(timing._replace(seconds=_imagined_s(timing, drafted_s)) for timing in timings)
        )

    set_attribute(InprocessEngine, "curve", imagined)
    for engine in (InprocessEngine, ServerEngine):
        set_attribute(engine, "measure", _timed(engine.measure, drafted_s))
    shorten(set_attribute)
    set_attribute(automatic, "TuneOptions", ShortTuning)


def shorten(set_attribute: Callable[[Any, str, Any], object]) -> None:
    """End tunings after the fewest runs, however much real seconds differ.

    Args:
        set_attribute: that of a monkeypatch, or ``setattr``.
    """
    set_attribute(calibrating, "_affordable", _two_batches)
    for name, number in _FEWER.items():
        set_attribute(budgeting, name, number)
    set_attribute(measuring, "FIRST_LOOK", _FIRST_LOOK)
    set_attribute(review, "improvable", lambda *_: False)


def _timed(measure: Callable[..., Measurement], drafted_s: float) -> Callable[..., Measurement]:
    """Return a measurement whose seconds are imagined."""

    def timed(engine: Engine, spec: RunSpec, log: Path) -> Measurement:
        measured = measure(engine, spec, log)
        sample = measured.sample
        rounds = sample.decoded if sample.n_rounds is None else sample.n_rounds
        gen_s = rounds * TOKEN_S + (sample.n_drafted or 0) * (drafted_s + _VERIFIED_S)
        return replace(measured, sample=replace(sample, gen_s=gen_s))

    return timed


def run() -> None:
    """Run the command line with these times."""
    from ggufspec import cli

    use(setattr)
    cli.main()


def _two_batches(_: float, __: object, most: int, ___: int, *, few: bool) -> tuple[tuple[int, ...], int]:
    """Return which batches to time, and how often: imagined costs lie on a straight line."""
    del few
    return tuple(sorted({1, most})), 1


class ShortTuning(TuneOptions):
    """A tuning of short texts that ends after the fewest repeats; ``auto`` has no such options."""

    n_predict: int = option(default=_N_PREDICT)
    per_category: int | None = option(default=1)
    precision: float | None = option(default=None)


def _imagined_s(timing: Timing, drafted_s: float) -> float:
    """Return the seconds of a part of a round; reading and choosing are nearly free."""
    verify_s, read_s = TOKEN_S + _VERIFIED_S * (timing.tokens - 1), 1e-12
    return {
        RoundPart.DRAFT: drafted_s * timing.tokens,
        RoundPart.VERIFY: verify_s,
        RoundPart.CHOOSE: read_s,
        RoundPart.ABSORB: read_s,
        RoundPart.RESIZE: verify_s + read_s,
    }[timing.part]
