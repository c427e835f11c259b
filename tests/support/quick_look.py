"""A look ahead that forecasts nothing, for tunings with fake programs: they have no library to trace with.

Such a tuning ends after the fewest runs.

python -c "from tests.support import quick_look; quick_look.run()" auto TARGET …
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ggufspec import tuning
from ggufspec.domain import RunSpec
from ggufspec.tuning import Plan, Spent, Stage, TuningForecast, looking, prospects, untraced
from tests.support import imagined_times

RUN = "from tests.support import quick_look; quick_look.run()"
"""Python code that runs the command line with this look."""
SIZE = 4
"""The draft size that is measured."""


def forecast_configurations(plan: Plan) -> Generator[Stage, None, TuningForecast]:
    """Leave everything to the measurement, at one draft size and one p-min, on a few short texts."""
    yield Stage(name="looking", done=0, total=1)
    arms = prospects.drafting_arms(plan.blocks)
    return TuningForecast(
        prospects=(),
        unknown=tuple(arm for arm in arms if _is_measured(arm)),
        prompts=plan.session.suite.prompts[:2],
        n_predict=16,
        finalists=1,
        spent=Spent(),
    )


def _is_measured(arm: RunSpec) -> bool:
    drafting = arm.drafting
    return drafting.method.drafts_with_model and (drafting.n_max, drafting.p_min) == (SIZE, 0.0)


def use(replace: Callable[[Any, str, Any], object] = setattr) -> None:
    """Put the look in the place of the real one; ``replace`` may be that of a monkeypatch."""
    imagined_times.shorten(replace)
    for module in (tuning, looking):
        replace(module, "forecast_configurations", forecast_configurations)
    replace(untraced, "why_untraced", lambda session: None)


def run() -> None:
    """Run the command line with the quick look."""
    from ggufspec import cli

    use()
    cli.main()
