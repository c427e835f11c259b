"""When a bench ends that is measured until its verdicts are decided."""

from __future__ import annotations

from collections.abc import Iterator

from ggufspec.domain import Role, StoppingRule
from ggufspec.errors import GgufspecError
from ggufspec.measure.arms import PlannedArms
from ggufspec.options import BenchOptions

_DECIDED = "decided"
_MOST_REPEATS = 20  # unless --max-repeats says otherwise


def check_until(request: BenchOptions) -> None:
    """Refuse what contradicts measuring until verdicts are decided.

    Raises:
        GgufspecError: the request has another rule as well, or nothing that can be decided so.
    """
    if request.until is None:
        if request.max_repeats is not None:
            raise GgufspecError("--max-repeats is for --until decided", "give both, or use --repeats")
        return
    if request.until != _DECIDED:
        raise GgufspecError(f"--until is {_DECIDED!r}, not {request.until!r}")
    if request.precision is not None:
        raise GgufspecError("--until and --precision both say when to stop", "use one of them")
    if len(request.llamas) > 1:
        raise GgufspecError(
            "--until decided measures one llama.cpp", "to compare several, use --repeats or --precision"
        )
    if request.users:
        raise GgufspecError(
            "--until decided measures one request after another", "with several users, use --repeats"
        )
    most = _most_repeats(request)
    if request.repeats is not None and most < request.repeats:
        raise GgufspecError(
            f"--max-repeats is {most}, less than the {request.repeats} of --repeats",
            "raise --max-repeats, or lower --repeats",
        )


def _most_repeats(request: BenchOptions) -> int:
    return _MOST_REPEATS if request.max_repeats is None else request.max_repeats


def plan_stopping(request: BenchOptions, arms: PlannedArms) -> StoppingRule | None:
    """Return when a bench is looked at, if it is measured until its verdicts are decided.

    Raises:
        GgufspecError: what is measured has no verdicts.
    """
    if request.until is None:
        return None
    comparisons = arms.sweep.blocks().n_arms[Role.DRAFTING]
    if not comparisons:
        raise GgufspecError("nothing drafts, so no verdict can be decided", "leave --until out")
    most = _most_repeats(request)
    return StoppingRule(least_repeats=request.repeats or 1, most_repeats=most, comparisons=comparisons)


def describe_looks(stopping: StoppingRule | None) -> Iterator[str]:
    """Yield when a bench is looked at, if it is measured until its verdicts are decided."""
    if stopping is not None:
        looks = ", ".join(map(str, stopping.looks))
        yield f"until: every speed-up is decided; complete repeats at each look: {looks}"
