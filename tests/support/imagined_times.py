"""Tunings on real programs whose verdict and length do not depend on what the machine is doing.

Texts, drafts and acceptances are the real ones; only the seconds that were measured are replaced by those of
one imagined machine, on which drafting pays. So every repeat agrees with the last, and a tuning ends after
the fewest that have an interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ggufspec.domain import RunSpec
from ggufspec.engines import InprocessEngine, Measurement
from ggufspec.engines.library import RoundPart, Timing
from ggufspec.engines.library.messages import Curve
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.measure import Request
from ggufspec.tuning import TuneRequest, budgeting, sources

PATIENT = ("--max-time", "30m")
"""More than a short tuning of the embedded pair takes on a slow, busy machine; it ends when it is done."""
_TOKEN_S, _DRAFTED_S, _VERIFIED_S = 1e-5, 1e-6, 2e-7
"""Seconds of an evaluation, of a drafted token, and of each further token of a batch."""
_N_PREDICT, _FINALISTS = 40, 3


def use(set_attribute: Callable[[Any, str, Any], object]) -> None:
    """Replace the seconds of costs and of the server's runs; ``set_attribute`` is a monkeypatch's."""
    curve, measure = InprocessEngine.curve, ServerEngine.measure

    def imagined(self: InprocessEngine, *args: Any, **options: Any) -> Curve:
        timings = curve(self, *args, **options).timings
        return Curve(timings=tuple(timing._replace(seconds=_imagined_s(timing)) for timing in timings))

    def timed(self: ServerEngine, spec: RunSpec, log: Path) -> Measurement:
        measured = measure(self, spec, log)
        sample = measured.sample
        drafted, rounds = sample.n_drafted or 0, sample.n_rounds
        assert rounds is not None
        gen_s = rounds * _TOKEN_S + drafted * (_DRAFTED_S + _VERIFIED_S)
        return replace(measured, sample=replace(sample, gen_s=gen_s))

    set_attribute(InprocessEngine, "curve", imagined)
    set_attribute(ServerEngine, "measure", timed)
    set_attribute(sources, "TuneRequest", _short_request)
    set_attribute(budgeting, "FINALISTS", _FINALISTS)


def _short_request(*, request: Request, **fields: Any) -> TuneRequest:
    """Return a tuning of short texts that ends after the fewest repeats; ``auto`` has no such options."""
    return TuneRequest(
        request=replace(request, n_predict=_N_PREDICT, per_category=1), precision=None, **fields
    )


def _imagined_s(timing: Timing) -> float:
    """Return the seconds of a part of a round; reading and choosing are nearly free."""
    verify_s, read_s = _TOKEN_S + _VERIFIED_S * (timing.tokens - 1), 1e-12
    return {
        RoundPart.DRAFT: _DRAFTED_S * timing.tokens,
        RoundPart.VERIFY: verify_s,
        RoundPart.CHOOSE: read_s,
        RoundPart.ABSORB: read_s,
        RoundPart.RESIZE: verify_s + read_s,
    }[timing.part]
