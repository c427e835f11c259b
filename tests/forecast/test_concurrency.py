"""Several users of one server: passes as llama.cpp makes them, their costs, and the server step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec.domain import Method
from ggufspec.forecast import concurrency
from ggufspec.forecast.concurrency import SequenceRows, ServerCosts, SlotRows, TracedRequest, TrafficPoint
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.forecast.trace import DraftTrace, TraceStep
from ggufspec.stats import Estimate
from tests.support.walks import trace_of, traced_run


def _rows(*tokens: int) -> list[SlotRows]:
    return [SlotRows(slot, number) for slot, number in enumerate(tokens) if number]


def _passes(batch: Sequence[SlotRows], ubatch: int = 512) -> list[dict[int, int]]:
    return [dict(part) for part in concurrency.split_batch(batch, ubatch=ubatch)]


# Passes


@pytest.mark.parametrize(
    ("tokens", "ubatch", "expected"),
    [
        ((5, 5, 5, 5), 512, [{0: 5, 1: 5, 2: 5, 3: 5}]),
        ((5, 2, 5, 1), 512, [{0: 1, 1: 1, 2: 1, 3: 1}, {0: 1, 1: 1, 2: 1}, {0: 3}, {2: 3}]),
        ((3, 0, 3, 3), 512, [{0: 3}, {2: 3, 3: 3}]),
        # slots 0 and 1 generate; slot 2 has a prompt of 9 tokens, of which a pass of 12 takes 3, then 6
        ((3, 3, 9), 12, [{0: 3, 1: 3, 2: 3}, {2: 6}]),
        ((10, 10), 8, [{0: 4, 1: 4}, {0: 4, 1: 4}, {0: 2, 1: 2}]),
    ],
)
def test_passes_hold_neighbours_of_equal_length(
    tokens: tuple[int, ...], ubatch: int, expected: list[dict[int, int]]
) -> None:
    assert _passes(_rows(*tokens), ubatch) == expected


def _token_by_token(batch: Sequence[SlotRows], ubatch: int) -> list[dict[int, int]]:
    """llama_batch_allocr::split_equal, statement by statement (llama-batch.cpp of 0.3.36)."""
    owner = [slot for slot, tokens in batch for _ in range(tokens)]
    used = [False] * len(owner)
    passes = []
    while not all(used):
        current: list[int] = []
        for place, slot in enumerate(owner):
            if used[place]:
                continue
            if slot not in current and (not current or slot == current[-1] + 1):
                current.append(slot)
                if len(current) > ubatch:
                    break
        of = {slot: [i for i, one in enumerate(owner) if one == slot and not used[i]] for slot in current}
        taken = dict.fromkeys(current, 0)
        while all(taken[slot] < len(of[slot]) for slot in current):
            for slot in current:
                used[of[slot][taken[slot]]] = True
                taken[slot] += 1
            if (taken[current[0]] + 1) * len(current) > ubatch:
                break
        passes.append(taken)
    return passes


@given(
    tokens=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    ubatch=st.integers(8, 40),
    order=st.randoms(use_true_random=False),
)
def test_passes_are_those_of_the_library(tokens: list[int], ubatch: int, order: Random) -> None:
    batch = _rows(*tokens)
    order.shuffle(batch)  # prompts stand behind drafts, whatever their slot
    assert _passes(batch, ubatch) == _token_by_token(batch, ubatch)


# Costs


def _curve(*, most: int = 40, deep_s: float = 0.0, fixed: Mapping[str, float] | None = None) -> CostCurve:
    """A target of 10 s and 1 s a token, a drafter of 1 s and 0.1 s a token; choosing its token takes 0.2 s.

    At 96 tokens of context each token takes ``deep_s`` more.
    """

    def points(first: float, slope: float, more: float) -> tuple[Point, ...]:
        return tuple(
            Point(tokens=n, depth=depth, seconds=Estimate.around(first + slope * n + more * n * depth / 96))
            for depth in (0, 96)
            for n in range(1, most + 1)
        )

    curve = CostCurve(
        verify=points(10.0, 1.0, deep_s),
        draft=tuple(Point(tokens=1, depth=depth, seconds=Estimate.around(1.3)) for depth in (0, 96)),
        absorb=points(1.0, 0.1, 0.0),
    )
    times: dict[str, Any] = {name: Estimate.around(seconds) for name, seconds in (fixed or {}).items()}
    return replace(curve, **times)


def _longer(curve: CostCurve, more_s: Callable[[Point], float]) -> CostCurve:
    """Return a curve whose target's batches take longer."""
    times = [Estimate.around(point.seconds.value + more_s(point)) for point in curve.verify]
    return curve.with_times([*times, *(point.seconds for point in curve.points[len(times) :])])


@pytest.mark.parametrize(
    ("curve", "rows", "seconds"),
    [
        # weights are read once, and each context for itself
        (_curve(deep_s=0.5), [(3, 0), (3, 0)], 10 + 6),
        (_curve(deep_s=0.5), [(3, 96), (3, 0)], 10 + 6 + 3 * 0.5),
        (_curve(deep_s=0.5), [(6, 96)], 10 + 6 + 6 * 0.5),
        (_curve(deep_s=0.5), [(3, 96)] * 8, 10 + 24 + 24 * 0.5),
        # a context that takes long to read counts for each sequence
        (_longer(_curve(), lambda point: 2.0 if point.depth else 0.0), [(3, 96)] * 4, 10 + 12 + 4 * 2.0),
        # beyond the largest batch in proportion to the tokens, beyond the deepest as there
        (_curve(most=1, deep_s=0.5), [(1, 96)] * 2, 2 * 11 + 2 * 0.5),
        (_curve(most=4), [(8, 0)], 2 * 14),
        (_curve(deep_s=1.0), [(2, 999)], 12 + 2),
    ],
)
def test_a_pass_costs_what_was_timed(curve: CostCurve, rows: list[tuple[int, int]], seconds: float) -> None:
    assert ServerCosts(curve).target_s([SequenceRows(*row) for row in rows]) == pytest.approx(seconds)


def test_an_error_of_one_timed_batch_does_not_count_for_each_sequence() -> None:
    curve = _curve(deep_s=0.5)
    wrong = _longer(curve, lambda it: 0.3 * it.seconds.value if (it.tokens, it.depth) == (3, 96) else 0.0)
    rows = [SequenceRows(3, 96)] * 8
    assert ServerCosts(wrong).target_s(rows) == pytest.approx(ServerCosts(curve).target_s(rows), rel=0.1)


def test_a_drafter_proposes_a_token_of_each_slot_at_once() -> None:
    costs = ServerCosts(_curve())
    assert costs.draft_s([0]) == pytest.approx(1.3)  # one slot: as it was timed
    assert costs.draft_s([0] * 4) == pytest.approx(1.0 + 4 * 0.1 + 4 * 0.2)
    assert costs.draft_s([]) == 0
    with pytest.raises(ValueError, match="were not timed"):
        ServerCosts(replace(_curve(), absorb=())).draft_s([0])


# The server, step by step


def _serve(
    *requests: tuple[tuple[int, int], ...],
    users: int = 1,
    n_prompt: int = 2,
    n_requests: int | None = None,
    curve: CostCurve | None = None,
    **more: Any,
) -> Any:
    """Serve two requests for each user, whose rounds draft and accept so many tokens."""
    traced = []
    for rounds in requests:
        places = accumulate((1 + accepted for _, accepted in rounds), initial=1)
        steps = [TraceStep(at, 1.0, *pair, pair[0]) for at, pair in zip(places, rounds, strict=False)]
        traced.append(TracedRequest(n_prompt=n_prompt, rounds=tuple(steps)))
    n_requests = 2 * users if n_requests is None else n_requests
    return concurrency.serve(traced, users, ServerCosts(curve or _curve()), n_requests=n_requests, **more)


def test_one_user_by_hand() -> None:
    """Each request: a prompt of 2 tokens, then a round that accepts 2 of 2, so 4 tokens.

    The prompt: 12 s of the target, 1.2 s of the drafter. The round: 2 × 1.3 s of drafting, 13 s of
    verification, 1.3 s of reading. The window is the second of two requests.
    """
    served = _serve(((2, 2),))
    assert served.seconds == pytest.approx(12 + 1.2 + 2.6 + 13 + 1.3)
    assert (served.tokens, served.steps, served.passes) == (4, 4, 4)
    assert (served.n_drafted, served.n_accepted) == (4, 4)


def test_users_share_batches() -> None:
    served = _serve(((2, 2),), users=2)
    prompt_s = (10 + 4) + (1 + 0.4)
    round_s = 2 * (1 + 0.2 + 0.4) + (10 + 6) + (1 + 0.6)
    assert served.seconds == pytest.approx(prompt_s + round_s)
    assert (served.tokens, served.passes) == (8, served.steps)
    # one request has one round, the other two: then one user's prompt is read beside the other's draft
    served = _serve(((2, 0),), ((2, 0), (2, 0)), users=2, n_prompt=4)
    assert served.passes > served.steps  # 3 tokens of one slot, 4 of the other


def test_overheads_are_those_of_drafting_or_of_the_target_alone() -> None:
    curve = _curve(fixed={"overhead_s": 5.0, "plain_overhead_s": 3.0, "choose_s": 0.5, "resize_s": 100.0})
    drafting, without = _serve(((2, 2),), curve=curve), _serve(((2, 2),))
    assert drafting.seconds - without.seconds == pytest.approx(5 + 3 * 0.5 + 2 * 100)
    alone = _serve(((0, 0), (0, 0)), curve=curve, drafts=False)
    assert alone.seconds == pytest.approx(12 + 2 * 11 + 2 * 3 + 2 * 0.5)


def test_batches_have_a_size_and_windows_more_requests_than_users() -> None:
    assert _serve(((1, 1),), n_prompt=50, batch=20).steps == 2 * (3 + 1)
    assert concurrency.most_rows(4, 7) == 32
    with pytest.raises(ValueError, match="4 slots do not fit into a batch of 16 tokens"):
        _serve(((7, 0),), users=4, batch=16)
    for users in (0, 4):
        with pytest.raises(ValueError, match="more requests than users"):
            _serve(((1, 1),), users=users, n_requests=4)


def _trace(match: str, confidence: Sequence[float] | float = 1.0) -> DraftTrace:
    return trace_of(match, confidence=confidence, n_prompt=3)


def _forecast(
    *traces: DraftTrace, users: int, n_max: int = 3, p_min: float = 0.0, **more: float
) -> concurrency.UsersForecast:
    (forecast,) = concurrency.forecasts_of_users(
        traces,
        _curve(most=80),
        [traced_run(n_max=n_max, p_min=p_min, n_predict=20)],
        users=users,
        n_requests=5 * users,
        **more,  # type: ignore[arg-type]
    )
    return forecast


def test_more_users_get_more_together_and_drafting_gains_less() -> None:
    """Verification costs a second a token: the batches of many users are long enough without drafts."""
    trace = _trace("1101" * 6)
    forecasts = [_forecast(trace, users=users) for users in (1, 2, 4, 8)]
    rates, speedups = ([getattr(one, name) for one in forecasts] for name in ("tokens_per_s", "speedup"))
    assert rates == sorted(rates)
    assert speedups == sorted(speedups, reverse=True)
    assert speedups[0] > 1.3
    assert [one.beyond for one in (*forecasts, _forecast(trace, users=40))] == [False] * 4 + [True]
    two = forecasts[1]
    assert two.served.tokens == two.served_alone.tokens == 8 * 20
    assert (two.served_alone.n_drafted, two.served.n_accepted > 0) == (0, True)


def test_every_draft_size_is_forecast_as_if_it_were_alone() -> None:
    """The target alone is simulated once for all of them, and the costs of passes are remembered."""
    traces = [_trace("1101" * 6, [0.9, 0.2] * 12), _trace("1" * 24)]
    runs = [traced_run(n_max=size, p_min=p_min, n_predict=20) for size in (1, 4) for p_min in (0.0, 0.5)]
    together = concurrency.forecasts_of_users(traces, _curve(most=80), runs, users=3, n_requests=16)
    for one, run in zip(together, runs, strict=True):
        apart = concurrency.forecasts_of_users(traces, _curve(most=80), [run], users=3, n_requests=16)
        assert [one] == [*apart]


def test_a_forecast_of_users_says_where_the_time_goes_and_what_would_pay() -> None:
    one = _forecast(_trace("1101" * 6), users=4)
    forecast, spent = one.forecast, one.served.spent
    assert forecast.tokens_per_s.value == one.tokens_per_s
    earned_s = forecast.mean_accepted_length * forecast.target_s
    assert forecast.speedup.value == pytest.approx(earned_s / forecast.round_s)
    shares = (forecast.draft_share, forecast.verify_share, forecast.rest_share)
    assert sum(share for share in shares if share is not None) == pytest.approx(1)
    assert forecast.draft_share == pytest.approx(spent.draft_s / spent.total_s)
    assert forecast.accept_rate == one.served.n_accepted / one.served.n_drafted
    pays = forecast.accept_rate > forecast.break_even_accept_rate
    assert pays == (one.speedup > 1)


def test_drafts_from_the_text_cost_no_drafter() -> None:
    """The text repeats itself, so that what follows an earlier n-gram is drafted."""
    tokens = tuple(range(20)) * 12
    trace = trace_of("0" * len(tokens), tokens=tokens, n_prompt=len(tokens), prompt_tokens=tokens)
    bare = CostCurve(verify=_curve(most=80).verify)
    (one,) = concurrency.forecasts_of_users(
        [trace],
        bare,
        [traced_run(n_max=16, n_predict=60, method=Method.NGRAM_SIMPLE)],
        users=2,
        n_requests=10,
    )
    assert one.served.n_drafted > 0
    assert one.served.spent.draft_s == 0
    assert one.forecast.drafting.method is Method.NGRAM_SIMPLE


def test_equal_slots_take_a_round_of_one_step() -> None:
    """Two slots that draft 2: 2 steps of the drafter, 6 tokens verified and read, 2 tokens chosen."""
    costs = ServerCosts(_curve(fixed={"overhead_s": 5.0, "choose_s": 0.5}))
    step_s = concurrency.equal_round_seconds(costs, users=2, n_max=2, depth=0)
    assert step_s.draft_s == pytest.approx(2 * (1 + 0.2 + 0.4) + (1 + 0.6))
    assert (step_s.verify_s, step_s.choose_s, step_s.rest_s) == pytest.approx((16.0, 1.0, 5.0))
    alone_s = concurrency.equal_round_seconds(costs, users=2, n_max=0, depth=0, drafts=False)
    assert alone_s.total_s == pytest.approx(12 + 1)


def test_unequal_drafts_and_depth_take_time() -> None:
    """Drafts that end early by p_min differ between slots."""
    traces = [_trace("1" * 24, [0.9, 0.9, 0.2, 0.9] * 6), _trace("1" * 24)]
    short, whole = (_forecast(*traces, users=2, p_min=p_min) for p_min in (0.5, 0.0))
    assert short.served.passes / short.served.steps > whole.served.passes / whole.served.steps
    trace = _trace("1101" * 6)
    assert _forecast(trace, users=2, depth=200).tokens_per_s < _forecast(trace, users=2).tokens_per_s


# Between measured places


def _places(*values: tuple[int, int, float]) -> dict[TrafficPoint, float]:
    return {TrafficPoint(users, depth): value for users, depth, value in values}


def test_values_lie_on_lines_along_users_and_depth() -> None:
    known = _places((1, 0, 1.0), (9, 0, 9.0), (1, 100, 2.0), (9, 100, 18.0))
    found = _places((1, 0, 1.0), (5, 0, 5.0), (1, 50, 1.5), (5, 50, (5 + 10) / 2))
    assert {at: concurrency.between(known, at) for at in found} == pytest.approx(found)
    both = known | _places((5, 0, 6.0), (5, 100, 12.0))
    assert concurrency.between(both, TrafficPoint(5, 50)) == pytest.approx(9.0)
    # nothing is extrapolated
    known = _places((2, 0, 1.0), (4, 0, 2.0))
    for place in (TrafficPoint(1, 0), TrafficPoint(8, 0), TrafficPoint(3, 10)):
        assert concurrency.between(known, place) is None
        assert concurrency.between({}, place) is None
    known = _places((1, 0, 1.0), (3, 0, 4.0), (5, 0, 5.0))
    assert concurrency.leave_one_out(known) == {TrafficPoint(3, 0): pytest.approx(4 / 3 - 1)}


def test_what_is_expected_bends_the_lines() -> None:
    """Measured values are twice the expected ones at one end and three times at the other."""
    expected = _places(*((users, 0, float(users**2)) for users in (1, 3, 5, 9)))
    known, wanted = _places((1, 0, 2.0), (5, 0, 75.0)), TrafficPoint(3, 0)
    assert concurrency.between(known, wanted, expected) == pytest.approx(2.5 * 9)
    assert concurrency.between(known, TrafficPoint(5, 0), expected) == 75.0
    assert concurrency.between(known, TrafficPoint(9, 0), expected) is None
    without = {place: value for place, value in expected.items() if place != wanted}
    assert concurrency.between(known, wanted, without) == concurrency.between(known, wanted)
    twice = {place: 2 * value for place, value in expected.items()}
    nothing = _places((3, 0, 0.0), (5, 0, 0.0))
    assert concurrency.leave_one_out(twice, expected) == pytest.approx(nothing)


@given(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 0.01), st.integers(1, 16), st.integers(0, 4096))
def test_what_is_linear_is_found_again(
    first: float, by_users: float, by_depth: float, users: int, depth: int
) -> None:
    def value(at: TrafficPoint) -> float:
        return first + by_users * at.users + by_depth * at.depth

    known = {place: value(place) for place in (TrafficPoint(u, d) for u in (1, 4, 16) for d in (0, 4096))}
    wanted = TrafficPoint(users, depth)
    assert concurrency.between(known, wanted) == pytest.approx(value(wanted))
