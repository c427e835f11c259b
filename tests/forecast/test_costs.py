"""Cost curves: between points, beyond them, and computed from peaks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from ggufspec.forecast import costs
from ggufspec.forecast.costs import CostCurve, CurveKind, DevicePeaks, ModelPart, Point, Shape
from ggufspec.stats import Estimate


def _point(tokens: int, depth: int, seconds: float, spread: float = 0.0) -> Point:
    return Point(tokens=tokens, depth=depth, seconds=Estimate.around(seconds, spread))


GRID = CostCurve(
    verify=(
        *(_point(1, 0, 1.0, 0.1), _point(5, 0, 3.0, 0.1)),
        *(_point(1, 100, 2.0, 0.2), _point(5, 100, 8.0, 0.2)),
    ),
    draft=(_point(1, 0, 0.25),),
)
PEAK = costs.Efficiency()
DEVICE = DevicePeaks(name="made up", bandwidth=1e9, flops=1e12, source="here", efficiency=PEAK)


@pytest.mark.parametrize(
    ("tokens", "depth", "seconds"),
    [(1, 0, 1.0), (5, 0, 3.0), (3, 0, 2.0), (1, 50, 1.5), (3, 100, 5.0), (3, 50, 3.5), (5, 100, 8.0)],
)
def test_between_points_it_is_linear(tokens: int, depth: float, seconds: float) -> None:
    found = GRID.seconds(CurveKind.VERIFY, tokens, depth)
    half = 0.1 + 0.1 * depth / 100
    assert (found.value, found.lo, found.hi) == pytest.approx((seconds, seconds - half, seconds + half))


@pytest.mark.parametrize(("tokens", "depth"), [(6, 0), (0, 0), (1, 101), (1, -1)])
def test_nothing_is_extrapolated(tokens: int, depth: int) -> None:
    with pytest.raises(ValueError, match="were measured"):
        GRID.seconds(CurveKind.VERIFY, tokens, depth)
    assert GRID.covers(depth) == (0 <= depth <= 100)
    assert GRID.nearest_depth(depth) == min(max(depth, 0), 100)
    # a single depth stands for all
    assert GRID.seconds(CurveKind.DRAFT, 1, depth).value == 0.25
    with pytest.raises(ValueError, match="nothing was measured"):
        GRID.seconds(CurveKind.ABSORB, 1, 0)


def test_a_time_is_the_weighted_sum_of_points() -> None:
    weights = GRID.weights(CurveKind.VERIFY, 2, 75)
    assert sum(weights.values()) == pytest.approx(1)
    found = sum(share * GRID.times_s[place] for place, share in weights.items())
    assert found == pytest.approx(GRID.seconds(CurveKind.VERIFY, 2, 75).value)
    assert GRID.weights(CurveKind.ROUND) == {5: 1.0}
    assert GRID.weights(CurveKind.PLAIN) == {6: 1.0}


def test_curves_come_from_measurements_and_rates() -> None:
    assert GRID.errors_s[0] == pytest.approx(0.1 / 1.96, rel=1e-4)
    assert GRID.errors_s[-1] == 0.0
    with pytest.raises(ValueError, match="one token"):
        CostCurve(verify=(_point(2, 0, 1.0),))
    with pytest.raises(ValueError, match="positive"):
        CostCurve(verify=(_point(1, 0, 0.0),))
    curve = costs.flat_curve(2.0, 80.0, ratios=(1.0, 1.5, 2.0), overhead_s=0.01)
    assert curve.seconds(CurveKind.VERIFY, 1).value == 0.5
    assert curve.seconds(CurveKind.VERIFY, 3, 1234).value == 1.0
    assert curve.seconds(CurveKind.DRAFT).value == curve.seconds(CurveKind.ABSORB, 3).value == 1 / 80
    assert curve.most_tokens == 3
    dense = Shape(weight_bytes=1e9, active_bytes=1e9, kv_bytes=1e3, flops=2e11)
    assert costs.seconds(dense, DEVICE, 1, 0) == pytest.approx(1.0)
    assert costs.seconds(dense, DEVICE, 5, 0) == pytest.approx(1.0)
    assert costs.seconds(dense, DEVICE, 10, 0) == pytest.approx(2.0)
    assert costs.seconds(dense, DEVICE, 1, 1e6) == pytest.approx(2.0)


def test_what_comes_on_top_of_reading_by_hand() -> None:
    """1 GB of 2 at half of 1 GB/s, two layers, experts of one, three visits; a tenth for another token."""
    pace = costs.Efficiency(
        bandwidth_share=0.5, layer_s=0.1, experts_s=0.01, token_share=0.1, handover_s=0.001, choice_s=0.0005
    )
    device = replace(DEVICE, efficiency=pace)
    shape = Shape(
        weight_bytes=2e9,
        active_bytes=1e9,
        kv_bytes=0,
        flops=1,
        used_share=0.25,
        needed_shares=(0.25, 0.5),
        layers=2,
        expert_layers=1,
        visits=3,
        outputs=1000,
    )
    assert costs.seconds(shape, device, 1, 0) == pytest.approx(2 + 0.2 + 0.01 + 0.003)
    batch = 2e9 - (1e9 / 0.75) * 0.5  # half of the experts are idle
    assert costs.seconds(shape, device, 2, 0) == pytest.approx(batch / 0.5e9 + 0.2 + 0.213)
    assert costs.step_seconds([ModelPart(shape=shape, device=device)], 0) == pytest.approx(2.213 + 0.5)


def test_a_forecast_from_headers_has_the_interval_of_published_ones() -> None:
    for figure in costs.PublishedFigure:
        found = costs.with_interval(10.0, figure)
        assert found.lo is not None
        assert found.hi is not None
        assert found.lo < 10 < found.hi
        assert found.lo * found.hi == pytest.approx(100)  # as likely half as fast as twice


def test_more_tokens_wake_more_experts() -> None:
    """Ten experts of which one is used, in 900 MB beside 100 MB that all tokens need."""
    sparse = Shape(weight_bytes=1e9, active_bytes=1.9e8, kv_bytes=0, flops=1, used_share=0.1)
    assert sparse.read_bytes(1, 0) == pytest.approx(1.9e8)
    assert sparse.read_bytes(2, 0) == pytest.approx(1e8 + 9e8 * costs.needed_share(0.1, 2))
    assert sparse.read_bytes(1000, 0) == pytest.approx(1e9)
    traced = replace(sparse, needed_shares=(0.1, 0.12))
    assert traced.read_bytes(2, 0) == pytest.approx(1e8 + 9e8 * 0.12)
    assert traced.read_bytes(2, 0) < traced.read_bytes(3, 0) < sparse.read_bytes(3, 0)


def test_the_prior_lies_between_independent_and_equal_choices() -> None:
    """Neighbours share 25.7 % of 4 of 64 experts in GLM-4.7-Flash."""
    assert costs.needed_share(1 / 16, 3, persistence=0) == pytest.approx(1 - (15 / 16) ** 3)
    assert costs.needed_share(1 / 16, 9, persistence=1) == pytest.approx(1 / 16)
    overlap = 2 - 16 * costs.needed_share(1 / 16, 2)
    assert overlap == pytest.approx(0.257, abs=0.02)


def test_experts_are_counted_in_every_batch_of_neighbours() -> None:
    """Token t uses the experts t // 4 % 6 and 7: four neighbours change their first expert once or never."""
    text = [(t // 4 % 6, 7) for t in range(40)]
    use = costs.count_experts([{3: text}, {3: text[:5]}], 8)
    assert use is not None
    assert use.tokens == 40  # the shorter text has no batch of the longest size
    by_hand = [len({e for t in text[at : at + 4] for e in t}) / 8 for at in range(37)]
    assert use.layers[3][3] == pytest.approx(sum(by_hand) / 37)
    assert use.layers[3][0] == 2 / 8
    assert use.shares({3: 1.0}) == use.layers[3]
    assert use.shares({3: 1.0, 4: 1.0}) == ()
    assert costs.count_experts([{3: text[:5]}], 8) is None


@given(
    tokens=st.integers(1, 63),
    depth=st.integers(0, 10_000),
    weight=st.floats(1e6, 1e12),
    share=st.floats(0.01, 1.0),
)
def test_a_roofline_never_gets_cheaper(tokens: int, depth: int, weight: float, share: float) -> None:
    shape = Shape(
        weight_bytes=weight, active_bytes=weight * share, kv_bytes=1e4, flops=weight, used_share=share
    )
    here = costs.seconds(shape, DEVICE, tokens, depth)
    assert costs.seconds(shape, DEVICE, tokens + 1, depth) >= here
    assert costs.seconds(shape, DEVICE, tokens, depth + 1) >= here
    assert costs.seconds(shape, DEVICE, 1, depth) * tokens >= here * (1 - 1e-9)  # at worst one by one


def test_a_roofline_is_a_curve() -> None:
    big = Shape(weight_bytes=1e9, active_bytes=1e9, kv_bytes=0, flops=2e9)
    small = Shape(weight_bytes=1e8, active_bytes=1e8, kv_bytes=0, flops=2e8)
    target, drafter = ((ModelPart(shape=shape, device=DEVICE),) for shape in (big, small))
    curve = costs.roofline_of_parts(target, drafter, most_tokens=4, depths=(0, 1000))
    assert curve.most_tokens == 4
    assert curve.seconds(CurveKind.DRAFT, 1, 500).value == pytest.approx(0.1)
    assert curve.seconds(CurveKind.VERIFY, 4, 500).lo is None


@pytest.mark.parametrize("key", costs.DEVICES)
def test_peaks_are_those_of_machines(key: str) -> None:
    device = costs.DEVICES[key]
    assert 50e9 < device.bandwidth < 10e12
    assert 2 < device.flops / device.bandwidth < 450  # operations per byte
    assert device.source
