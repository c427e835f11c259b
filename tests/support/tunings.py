"""Tunings with known values: traced texts and costs, forecasts that rest on them, runs and their verdict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ggufspec import tuning
from ggufspec.domain import NO_PROMPT, Drafting, Estimate, Prompt, Role, RunResult, RunSpec
from ggufspec.forecast import Forecast
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.forecast.profiles import TracedTexts
from ggufspec.forecast.trace import TracedRun
from ggufspec.tuning import Prospect, Spent, Tuned, TuningForecast
from tests.support import values
from tests.support.walks import trace_of

PROMPTS = (Prompt(id="p1", text="x"), Prompt(id="p2", text="a longer text"))


def traced(prompt: Prompt, tokens: int = 32, *, drafters: int = 1, written_s: float = 1.0) -> TracedTexts:
    """A text of so many tokens behind a prompt, of which the drafters have three in four right."""
    right = [place % 4 != 2 for place in range(tokens)]
    sure = [0.4 if place % 2 else 0.9 for place in range(tokens)]
    view = trace_of(right, prompt.id, prompt.category, confidence=sure, n_prompt=4)
    return TracedTexts(
        prompt=prompt,
        text="x",
        target_trace=view,
        by_drafter=(view,) * drafters,
        written_s=written_s,
        look_s=(0.1,) * drafters,
    )


def curve() -> CostCurve:
    """A target of 10 s and 1 s a token, a drafter of 1 s and 0.1 s a token."""

    def point(tokens: int, seconds: float) -> Point:
        return Point(tokens=tokens, depth=0, seconds=Estimate.around(seconds))

    return CostCurve(
        verify=tuple(point(size, 10.0 + size) for size in range(1, 50)),
        draft=(point(1, 1.3),),
        absorb=tuple(point(size, 1 + size / 10) for size in range(1, 50)),
    )


def arm(n_max: int = 3, **changes: Any) -> RunSpec:
    """A configuration that drafts, and waits for its prompt."""
    return replace(values.spec(Role.DRAFTING, draft=n_max), prompt=NO_PROMPT, **changes)


def forecast(rate: float, drafting: Drafting, **changes: Any) -> Forecast:
    """A forecast of so many tokens/s for two prompts; the target alone has 50."""
    facts: dict[str, Any] = {
        "run": TracedRun(drafting=drafting, n_predict=20),
        "prompts": 2,
        "n_drafted": 300,
        "n_accepted": 200,
        "n_rounds": 100,
        "tokens_per_s": Estimate.around(rate),
        "target_tokens_per_s": Estimate.around(50.0),
        "speedup": Estimate.around(rate / 50.0),
        "break_even_accept_rate": 0.8,
        "closed_form_speedup": None,
        "draft_share": 0.3,
        "verify_share": 0.6,
        "rest_share": 0.1,
        "round_s": 0.07,
        "target_s": 0.02,
        "rates": {"p1": rate, "p2": rate},
    }
    return Forecast(**facts | changes)


def prospect(rate: float, arm: RunSpec, **by_category: float) -> Prospect:
    """A configuration with its forecast over all prompts, and those of categories."""
    rates = {name: forecast(each, arm.drafts_by) for name, each in by_category.items()}
    return Prospect(arm=arm, overall=forecast(rate, arm.drafts_by), by_category=rates)


def outlook(*found: Prospect, **changes: Any) -> TuningForecast:
    """What was forecast; most often nothing."""
    facts: dict[str, Any] = {
        "prospects": found,
        "unknown": (),
        "prompts": PROMPTS,
        "n_predict": 32,
        "finalists": 3,
        "spent": Spent(traces_s=1.0, costs_s=2.0),
    }
    return TuningForecast(**facts | changes)


def hoped(**gain_by_size: float) -> TuningForecast:
    """Forecasts of draft sizes: ``g3=1.5`` is a speed-up of 1.5 at γ = 3."""
    return outlook(*(prospect(50 * gain, arm(int(name[1:]))) for name, gain in gain_by_size.items()))


def runs(**gain_by_size: float) -> Iterator[RunResult]:
    """Three repeats of the target alone and of draft sizes; every prompt has a speed of its own."""
    for repeat in range(3):
        for prompt, tps in (("p1", 40.0), ("p2", 60.0)):
            yield values.run(Role.TARGET, prompt=prompt, repeat=repeat, tps=tps * (1 + repeat / 500))
            for name, gain in gain_by_size.items():
                size, speed = int(name[1:]), tps * gain * (1 + repeat / 1000)
                yield values.run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=speed, draft=size)


def judged(**gain_by_size: float) -> Tuned:
    """The verdict on draft sizes that gain as much as was forecast."""
    selected, confirmed = (values.bench(*runs(**gain_by_size)) for _ in range(2))
    return tuning.judge_finalists(
        hoped(**gain_by_size), tuning.select_arms(selected), confirmed, measuring_s=4.0
    )
