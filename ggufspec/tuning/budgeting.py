"""What fits into the time limit of a tuning, from the times of one token, one prompt and one load here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Protocol, TypeVar

from ggufspec import units
from ggufspec.domain import Prompt, Traffic
from ggufspec.errors import TimeLimitError
from ggufspec.measure import RUN_SHARE, Block, Deadline
from ggufspec.prompts import recorded_turns
from ggufspec.serving import count_requests

FINALISTS = 6  # configurations that are measured beside the target alone
_FEWEST_FINALISTS = 2
_SHORTEST = 48  # tokens; in shorter texts the last round weighs too much
_SHORTEST_OF_ALL = 16  # tokens; a shorter text says nothing about drafting
_FEWEST_PROMPTS = 4
_FEWEST_OF_ALL = 2
TIMED = 32
"""Tokens of a request that shows how long things take."""
SELECTING_REPEATS = 3
CONFIRMING_REPEATS = 3
"""At least, each with loads of its own: fewer loads have no interval, so no test and no verdict."""
MOST_SELECTING_REPEATS = 6
"""Of finalists that are too close to choose one; two more take a fifth more loads and win little."""
_ASSUMED_SPEEDUP = 1.3  # of a finalist, before anything is measured
_COSTS_SHARE = 0.15  # of the time, at most, for the cost curves
_CALIBRATION_SHARE = 0.1
_LEAST_CALIBRATION_SHARE = 0.05  # where there is no time for a verdict
_CALIBRATION_PROMPTS = 4  # at most: loads of the same models differ by more than the mean of so many runs
_CALIBRATION_LOADS = 3  # at most, and more of them before more prompts, for the same reason
_CALIBRATION_ARMS = 5  # the target alone twice, and three draft sizes
_SHORT_CALIBRATION_ARMS = 3  # the target alone twice and one draft size, each with a warm-up and two runs
_REPLAY_LOADS, _REPLAY_RUNS = 4, 6  # the target alone and three draft sizes; runs beside one of each prompt
_CONFIRMED = 3  # arms: the target alone, the winner and the runner-up
_ANCHOR_EVERY = 24  # runs; see ``measure.runplan``
_JUDGE_S = 1.0  # until the worker runs that scores texts
_JUDGING_SHARE = 0.3  # of the time in which a text was written: batches read it several times as fast
LAUNCH_SHARE = 0.05
"""Of the time, for the long request to the server that is started at the end."""
LONGEST_LAUNCH_S = 30.0
"""Seconds of that request, at most."""
_START_S = 0.5  # of a server beside its loads: its process, and the wait until it answers
_ENDING_S = 1.0  # to store the configuration and to print it
_RUN_MARGIN = 1.25  # runs beside other programs take longer than the first timing says


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long things take with these models on this machine, in seconds.

    Attributes:
        token_s: a token of the target alone, with one user.
        load_s: a load of the models.
        prompt_s: a prompt, before its first token.
        run_s: what else a run takes: its load where every run has one of its own.
        trace_token_s: a token of a trace, which every drafter evaluates, too; None for ``token_s``.
        shared_s: a token of the target alone with all users together; None for ``token_s``.
        replay_speedup: of the runs whose rounds forecast; a drafter's largest draft size is often too large.
    """

    token_s: float
    load_s: float
    prompt_s: float = 0.0
    run_s: float = 0.05  # beside its tokens, in an engine that keeps its models loaded
    trace_token_s: float | None = None
    shared_s: float | None = None
    replay_speedup: float = 0.7

    def trace(self, n_predict: int) -> float:
        """Return the seconds of a trace."""
        return self.prompt_s + n_predict * (self.trace_token_s or self.token_s)

    def answer(self, n_predict: int, speedup: float = 1.0) -> float:
        """Return the seconds of a run with one request."""
        return self.run_s + self.prompt_s + n_predict * self.token_s / speedup

    def bench(
        self, arms: Sequence[float], *, prompts: int, n_predict: int, repeats: int, users: int | None = None
    ) -> float:
        """Return the seconds of a bench that loads every arm for each repeat, its judging included.

        Each load has a warm-up, and every 24 runs are followed by one more. With several users, a run is a
        load with the requests of all.

        Args:
            arms: the speed-up of each; 1 for the target alone.
            prompts: on which each is measured.
            n_predict: tokens of each.
            repeats: of each.
            users: who send requests at once.
        """
        answers = [self.answer(n_predict, speedup) for speedup in arms]
        if users is None:
            anchors = -(-prompts * len(arms) // _ANCHOR_EVERY)
            once_s = sum(self.load_s + (prompts + 1) * run_s for run_s in answers) + anchors * answers[0]
        else:
            requests, token_s = count_requests(prompts, users), self.shared_s or self.token_s
            together = replace(self, token_s=token_s)
            once_s = sum(
                self.load_s + requests * (together.answer(n_predict, speedup) - self.run_s)
                for speedup in arms
            )
        judging_s = _JUDGE_S + self.load_s + _JUDGING_SHARE * prompts * answers[0]
        return repeats * once_s + judging_s

    def longest_run(self, n_predict: int, prompts: int, users: int | None) -> float:
        """Return the seconds of the longest run: a trace, one request, or those of all users."""
        alone_s = max(self.trace(n_predict), self.answer(n_predict))
        if users is None:
            return alone_s
        requests = count_requests(prompts, users)
        return max(alone_s, requests * (self.prompt_s + n_predict * (self.shared_s or self.token_s)))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What fits into the time.

    Attributes:
        prompts: how many prompts are traced and measured.
        n_predict: tokens of each.
        finalists: configurations to measure beside the target alone.
        repeats: of the confirmation, at least.
        traces_s: seconds for the traces.
        costs_s: seconds for the cost curves.
        calibration_s: seconds for the calibration.
        calibration_prompts: prompts on which each load of the calibration is measured.
        calibration_loads: how often each of its configurations is loaded.
        total_s: seconds of everything that is still to be done.
        verdict_s: seconds that the least would take that has a verdict; None where that fits.
    """

    prompts: int
    n_predict: int
    finalists: int
    repeats: int = CONFIRMING_REPEATS
    traces_s: float = math.inf
    costs_s: float = math.inf
    calibration_s: float = math.inf
    calibration_prompts: int = _CALIBRATION_PROMPTS
    calibration_loads: int = _CALIBRATION_LOADS
    total_s: float = math.inf
    verdict_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is wanted where there is time for it.

    Attributes:
        prompts: how many.
        n_predict: tokens of each.
        users: who send requests at once in the measured runs; None for one request after another.
        finalists: configurations to measure.
        traces: costs are forecast from traces, which take time of their own.
        replays: without traces, draft models of which rounds and their costs are measured.
        costs_s: seconds of the least cost curves.
        forecast_only: nothing is measured after the forecast.
        launches: a server is started at the end.
    """

    prompts: int
    n_predict: int
    users: int | None = None
    finalists: int = FINALISTS
    traces: bool = True
    replays: int = 0
    costs_s: float = 0.0
    forecast_only: bool = False
    launches: bool = True


def plan_budget(deadline: Deadline, pace: Pace, wanted: Wanted) -> Budget:
    """Return what fits into the time that is left.

    Left out are, in this order: repeats of the confirmation beyond the least, which only use what is left
    over; finalists; points of the cost curves; tokens of each text; prompts. Then the verdict: the
    confirmation has fewer repeats than an interval needs. No run may take more than a quarter of the limit.

    Raises:
        TimeLimitError: not even the least fits; the message names the least limit.
    """
    prompts, n_predict = wanted.prompts, wanted.n_predict
    if deadline.limit_s is None:
        return Budget(
            prompts=prompts,
            n_predict=n_predict,
            finalists=wanted.finalists,
            calibration_prompts=min(prompts, _CALIBRATION_PROMPTS),
        )
    longest = _longest_text(deadline.longest_run_s, pace, wanted)
    left_s = deadline.left_s
    tries = [_cost(budget, pace, wanted, deadline) for budget in _tries(wanted, longest)]
    chosen = next((budget for budget in tries if budget.total_s <= left_s), None)
    if chosen is None or longest < min(_SHORTEST_OF_ALL, n_predict):
        raise too_short(deadline, _least_limit(deadline, pace, wanted))
    verdict_s = None
    if chosen.repeats < CONFIRMING_REPEATS:
        decided = [budget for budget in _tries(wanted, n_predict) if budget.repeats == CONFIRMING_REPEATS]
        verdict_s = deadline.elapsed_s + _cost(decided[-1], pace, wanted, deadline).total_s
    return replace(chosen, verdict_s=verdict_s)


def too_short(deadline: Deadline, least_s: float) -> TimeLimitError:
    """Return the error for a limit into which nothing useful fits."""
    least = units.duration_option(units.round_up_duration(least_s))
    return TimeLimitError(
        f"{deadline.describe()} is too short for this model on this machine: at least {least}",
        f"allow --max-time {least} or more; fewer prompts or tokens (-n) may need less",
    )


def _tries(wanted: Wanted, longest: int) -> Iterator[Budget]:
    """Yield what may be measured, the most first; each has no seconds yet."""
    prompts, size = wanted.prompts, min(wanted.n_predict, longest)
    shortest, fewest = min(_SHORTEST, size), min(_FEWEST_PROMPTS, prompts)
    fewest_finalists = min(_FEWEST_FINALISTS, wanted.finalists)
    budget = Budget(prompts=prompts, n_predict=size, finalists=wanted.finalists, costs_s=math.inf)
    for finalists in range(wanted.finalists, fewest_finalists - 1, -1):
        yield replace(budget, finalists=finalists)
    budget = replace(budget, finalists=fewest_finalists, costs_s=0.0)
    for tokens in range(size, shortest - 1, -1):
        yield replace(budget, n_predict=tokens)
    for number in range(prompts - 1, fewest - 1, -1):
        yield replace(budget, n_predict=shortest, prompts=number)
    budget = replace(budget, n_predict=shortest, prompts=fewest)
    for repeats in range(CONFIRMING_REPEATS - 1, 0, -1):
        yield replace(budget, repeats=repeats)
    budget = replace(budget, repeats=1, finalists=1, prompts=min(_FEWEST_OF_ALL, prompts))
    for tokens in range(shortest, min(_SHORTEST_OF_ALL, shortest) - 1, -1):
        yield replace(budget, n_predict=tokens)


def _cost(budget: Budget, pace: Pace, wanted: Wanted, deadline: Deadline) -> Budget:
    """Return what may be measured with the seconds of each stage."""
    assert deadline.limit_s is not None
    limit_s = deadline.limit_s
    if not wanted.traces:
        first_s, run_s = (
            pace.answer(size, pace.replay_speedup) for size in (TIMED, budget.n_predict)
        )  # each load begins with a short run
        replay_s = _REPLAY_LOADS * (pace.load_s + first_s) + (budget.prompts + _REPLAY_RUNS) * run_s
        replays_s = wanted.replays * replay_s
        later_s = 0.0 if wanted.forecast_only else measuring_s(budget, pace, wanted, limit_s)
        return replace(budget, total_s=replays_s + later_s)
    traces_s = budget.prompts * pace.trace(budget.n_predict)
    costs_s = max(wanted.costs_s, min(budget.costs_s, limit_s * _COSTS_SHARE))
    loads, prompts = 1, 1
    prompt_s = _CALIBRATION_ARMS * pace.answer(budget.n_predict)
    if wanted.forecast_only:
        calibration_s = _SHORT_CALIBRATION_ARMS * (pace.load_s + 3 * pace.answer(budget.n_predict))
        total_s = traces_s + costs_s + calibration_s
    else:
        affordable = {
            number: int((limit_s * _CALIBRATION_SHARE / number - _CALIBRATION_ARMS * pace.load_s) / prompt_s)
            - 1
            for number in range(1, _CALIBRATION_LOADS + 1)
        }  # prompts, of which each load warms up on one
        loads = max((number for number, count in affordable.items() if count >= 1), default=1)
        prompts = max(1, min(affordable[loads], budget.prompts, _CALIBRATION_PROMPTS))
        calibration_s = loads * (_CALIBRATION_ARMS * pace.load_s + (prompts + 1) * prompt_s)
        is_least = budget.repeats < CONFIRMING_REPEATS
        share = _LEAST_CALIBRATION_SHARE if is_least else _CALIBRATION_SHARE
        calibration_s = min(calibration_s, limit_s * share)
        total_s = traces_s + costs_s + calibration_s + measuring_s(budget, pace, wanted, limit_s)
    return replace(
        budget,
        traces_s=traces_s,
        costs_s=costs_s,
        calibration_s=calibration_s,
        calibration_prompts=prompts,
        calibration_loads=loads,
        total_s=total_s,
    )


def measuring_s(budget: Budget, pace: Pace, wanted: Wanted, limit_s: float) -> float:
    """Return the seconds of everything that is measured after the forecast."""
    stages_s = sum(plan_stages(budget, pace, wanted.users))
    return stages_s + ending_s(pace, limit_s, launches=wanted.launches)


def least_measuring_s(pace: Pace, wanted: Wanted, deadline: Deadline) -> float:
    """Return the seconds to keep for the least that is measured after the forecast; 0 where nothing is."""
    if deadline.limit_s is None or wanted.forecast_only:
        return 0.0
    *_, smallest = _tries(wanted, wanted.n_predict)
    return measuring_s(smallest, pace, wanted, deadline.limit_s)


def ending_s(pace: Pace, limit_s: float | None, *, launches: bool) -> float:
    """Return the seconds from the last measured run to the last line: the server's start, and the output."""
    if limit_s is None or not launches:
        return _ENDING_S
    return _ENDING_S + pace.load_s + 2 * pace.answer(16) + min(LONGEST_LAUNCH_S, limit_s * LAUNCH_SHARE)


def plan_stages(
    budget: Budget, pace: Pace, users: int | None, speedups: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the seconds of the selection and the confirmation.

    Args:
        budget: what is measured in them.
        pace: of these models here.
        users: who send requests at once; None for one request after another.
        speedups: forecast for the finalists, the best first; None before there is a forecast.
    """
    finalists = [_ASSUMED_SPEEDUP] * budget.finalists if speedups is None else list(speedups)

    def bench_s(arms: Sequence[float], repeats: int) -> float:
        return pace.bench(
            arms, prompts=budget.prompts, n_predict=budget.n_predict, repeats=repeats, users=users
        )

    return (
        bench_s([1.0, *finalists], min(SELECTING_REPEATS, budget.repeats)),
        bench_s([1.0, *finalists[: _CONFIRMED - 1]], budget.repeats),
    )


def _longest_text(longest_s: float, pace: Pace, wanted: Wanted) -> int:
    """Return the most tokens with which no run takes longer, as far as the first timing tells."""
    sizes = range(wanted.n_predict, 0, -1)
    return next(
        (
            size
            for size in sizes
            if pace.longest_run(size, wanted.prompts, wanted.users) * _RUN_MARGIN <= longest_s
        ),
        0,
    )


def _least_limit(deadline: Deadline, pace: Pace, wanted: Wanted) -> float:
    """Return the least limit with which there would be a budget."""
    least = min(_SHORTEST_OF_ALL, wanted.n_predict)
    run_s = pace.longest_run(least, wanted.prompts, wanted.users) * _RUN_MARGIN
    *_, smallest = _tries(wanted, wanted.n_predict)
    longer = deadline
    for _ in range(_LIMIT_STEPS):  # some stages are shares of the limit
        needed_s = max(run_s / RUN_SHARE, deadline.elapsed_s + _cost(smallest, pace, wanted, longer).total_s)
        longer = replace(longer, limit_s=needed_s)
    return needed_s


_LIMIT_STEPS = 8


def describe_budget(budget: Budget, wanted: Wanted, deadline: Deadline) -> Iterator[str]:
    """Yield what fits into the limit, and what a verdict would need."""
    if deadline.limit_s is None:
        return
    limit = units.duration_option(deadline.limit_s)
    texts = f"{units.counted(budget.prompts, 'prompt')} of {units.counted(budget.n_predict, 'token')}"
    if wanted.forecast_only:
        yield f"--max-time {limit}: {texts}"
    else:
        repeats = units.counted(budget.repeats, "repeat")
        yield (
            f"--max-time {limit}: {units.counted(budget.finalists, 'candidate')}, {texts}, confirmed with "
            f"{repeats} or more"
        )
    if budget.n_predict < wanted.n_predict:
        yield (
            f"-n {wanted.n_predict} is shortened to {budget.n_predict}, so that the runs fit into "
            f"--max-time {limit}"
        )
    if budget.verdict_s is not None:
        needed = units.duration_option(units.round_up_duration(budget.verdict_s))
        yield f"--max-time {limit} is too short for a verdict, which needs --max-time {needed} or more"


@dataclass(frozen=True, kw_only=True)
class CellPace:
    """How long requests of a crossover take here, in seconds.

    Attributes:
        users: the most of them.
        pace: with all of these users together, and with one.
        prompt_tokens: of its prompt.
    """

    users: int
    pace: Pace
    prompt_tokens: int

    def run(self, traffic: Traffic, n_predict: int) -> float:
        """Return the seconds of one run: a load, and the requests of all users behind a context."""
        share = (1 / traffic.users - 1 / self.users) / (1 - 1 / self.users) if self.users > 1 else 1.0
        alone_s, shared_s = self.pace.token_s, self.pace.shared_s or self.pace.token_s
        token_s = shared_s + (alone_s - shared_s) * max(0.0, share)
        reading_s = self.pace.prompt_s * (1 + traffic.depth / max(1, self.prompt_tokens))
        return _START_S + self.pace.load_s + traffic.n_requests * (reading_s + n_predict * token_s)


def plan_cells(deadline: Deadline, pace: CellPace, cells: Sequence[Block], repeats: int) -> tuple[int, int]:
    """Return with how many tokens, and how often, the first cells of a crossover can be measured.

    Texts are shortened first, to no fewer than 48 tokens; then there is one repeat; then they are shortened
    further. No run may take more than a quarter of the limit.

    Raises:
        TimeLimitError: not even the least fits; the message names the least limit.
    """
    n_predict = cells[0].arms[0].n_predict
    sent = [arm.traffic for cell in cells for arm in cell.arms if arm.traffic is not None]

    def longest(size: int) -> float:
        return max(pace.run(traffic, size) for traffic in sent) * _RUN_MARGIN

    def total(size: int, number: int) -> float:
        return number * sum(pace.run(traffic, size) for traffic in sent) + _JUDGE_S + _ENDING_S

    shortest, least = min(_SHORTEST, n_predict), min(_SHORTEST_OF_ALL, n_predict)
    tries = [
        *((size, repeats) for size in range(n_predict, shortest - 1, -1)),
        *((size, 1) for size in range(shortest, least - 1, -1)),
    ]
    for size, number in tries:
        if longest(size) <= deadline.longest_run_s and total(size, number) <= deadline.left_s:
            return size, number
    raise too_short(deadline, max(longest(least) / RUN_SHARE, deadline.elapsed_s + total(least, 1)))


def affordable_prompts(prompts: Sequence[Prompt], budget: Budget) -> tuple[Prompt, ...]:
    """Return as many prompts of a suite as a budget has; each turn counts as one.

    A conversation is cut short where not all of its turns fit.
    """
    turns = fmean(prompt.n_turns for prompt in prompts)
    first, *others = spread(prompts, max(1, int(budget.prompts / turns)))
    return (first, *others) if others else (replace(first, followups=first.followups[: budget.prompts - 1]),)


def mean_reading(prompts: Sequence[Prompt], *, is_warm: bool) -> float:
    """Return how much text a turn has to read on average, as a multiple of the first prompt.

    Turns whose text depends on answers that are not known yet are left out.

    Args:
        prompts: of a suite.
        is_warm: a later turn reads only what the turn before has not.
    """
    reads: list[int] = []
    for prompt in prompts:
        lengths = [len(turn.text) for turn in recorded_turns(prompt)]
        reads += [lengths[0], *(after - before * is_warm for before, after in pairwise(lengths))]
    return fmean(reads) / max(1, reads[0])


class _Categorised(Protocol):
    @property
    def category(self) -> str | None: ...


T = TypeVar("T", bound=_Categorised)


def take_turns(prompts: Sequence[T]) -> list[T]:
    """Return prompts in the order in which their categories take turns."""
    seen: dict[str | None, int] = {}
    rounds: list[int] = []
    for prompt in prompts:
        rounds.append(seen.get(prompt.category, 0))
        seen[prompt.category] = rounds[-1] + 1
    return [prompts[index] for index in sorted(range(len(prompts)), key=lambda index: rounds[index])]


def selecting_prompts(prompts: Sequence[T], others: int) -> tuple[T, ...]:
    """Return the prompts to select on: half of them where the confirmation has no other ones.

    A configuration that won on some prompts may only suit these. Where there are fewer than four prompts for
    each, both benches have all: so few say too little.

    Args:
        prompts: that were traced, in their order.
        others: how many more there are.
    """
    if others >= max(_FEWEST_PROMPTS, len(prompts)) or len(prompts) < 2 * _FEWEST_PROMPTS:
        return tuple(prompts)
    return spread(prompts, len(prompts) // 2)


def confirming_prompts(measured: Sequence[T], others: Sequence[T]) -> tuple[T, ...]:
    """Return the prompts to confirm on: as many others as were measured; these where there are too few."""
    return spread(others, len(measured)) if len(others) >= _FEWEST_PROMPTS else tuple(measured)


def spread(prompts: Sequence[T], number: int) -> tuple[T, ...]:
    """Return ``number`` prompts in their order, taken from each category in turn."""
    by_category: dict[str | None, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_category.setdefault(prompt.category, []).append(index)
    chosen: set[int] = set()
    while len(chosen) < min(number, len(prompts)):
        for waiting in by_category.values():
            if waiting and len(chosen) < number:
                chosen.add(waiting.pop(0))
    return tuple(prompts[index] for index in sorted(chosen))
