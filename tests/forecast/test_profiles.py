"""Cost curves from raw timings, and their store."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ggufspec.domain import HeadFile, Method, ModelFile, ModelRun, Offload, RunSpec
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library.messages import Curve, HeadDraft, RoundPart, Timing
from ggufspec.errors import ResultsError
from ggufspec.forecast import drafting, profiles
from ggufspec.forecast.costs import CostCurve, CurveKind, ExpertUse, describe_experts
from ggufspec.forecast.profiles import curves
from ggufspec.modelfiles import gguf
from tests.support import models, timed, values
from tests.support.walks import trace_of, traced_run

DRAFTER = ModelFile(filename="drafter.gguf", size_bytes=10)
BATCHES, DEPTHS = (1, 2, 3, 4), (10, 110)


class _Clockwork:
    """An engine whose evaluations take what a formula says, and ``noise`` times that."""

    def __init__(self, noise: Callable[[], float] = lambda: 1.0) -> None:
        self._noise = noise

    def curve(self, spec: RunSpec, drafters: Sequence[ModelFile], **asked: Any) -> Curve:
        return Curve(timings=timed.take(self._seconds, drafts=bool(drafters), **asked))

    def _seconds(self, part: RoundPart, place: int | None, tokens: int, depth: int) -> float:
        seconds = true_s(part, tokens, depth)
        if place is None:  # nothing is absorbed, and no drafter uses the caches meanwhile
            seconds += {
                RoundPart.VERIFY: 0.003,
                RoundPart.RESIZE: 0.003 - true_s(RoundPart.ABSORB, tokens, depth),
            }.get(part, 0.0)
        return seconds * self._noise()


def true_s(part: RoundPart, tokens: int, depth: int) -> float:
    verify_s = 0.02 + 0.004 * tokens + 0.00001 * depth
    absorb_s = 0.0005 + 0.0001 * tokens
    return {
        RoundPart.VERIFY: verify_s,
        RoundPart.CHOOSE: 0.0004 * tokens,
        RoundPart.DRAFT: 0.0002 + 0.001 * tokens * (1 + 0.001 * depth),
        RoundPart.ABSORB: absorb_s,
        RoundPart.RESIZE: verify_s + absorb_s + 0.0007,
    }[part]


def _measure(
    noise: Callable[[], float] = lambda: 1.0, repeats: int = 5, drafter: ModelFile | None = DRAFTER
) -> profiles.MeasuredCurve:
    return profiles.measure_curve(
        cast("InprocessEngine", _Clockwork(noise)),
        values.spec(),
        drafter,
        batches=BATCHES,
        depths=DEPTHS,
        repeats=repeats,
        build=values.BUILD,
        machine=values.MACHINE,
    )


def _curve(*asked: Any, **more: Any) -> CostCurve:
    return _measure(*asked, **more).curve


def test_exact_timings_give_the_exact_curve() -> None:
    curve = _curve()
    for tokens in BATCHES:
        for depth in DEPTHS:
            found = curve.seconds(CurveKind.VERIFY, tokens, depth)
            assert found.value == pytest.approx(true_s(RoundPart.VERIFY, tokens, depth))
            absorbed = curve.seconds(CurveKind.ABSORB, tokens, depth)
            assert absorbed.value == pytest.approx(true_s(RoundPart.ABSORB, tokens, depth))
            one = curve.seconds(CurveKind.DRAFT, 1, depth)
            assert one.value == pytest.approx(
                true_s(RoundPart.DRAFT, 2, depth) - true_s(RoundPart.DRAFT, 1, depth)
            )
    assert curve.overhead_s.value == pytest.approx(0.0002)
    assert curve.plain_overhead_s.value == pytest.approx(0.003)  # the target alone takes that much longer
    assert curve.choose_s.value == pytest.approx(0.0004)
    assert curve.resize_s.value == pytest.approx(0.0007)
    assert (curve.measured_on.drafter, curve.measured_on.build) == (DRAFTER, values.BUILD)


def test_the_time_of_a_block_is_that_of_its_size() -> None:
    """One evaluation drafts all of it, so there is neither a time per token nor one besides."""
    head = HeadFile.of(DRAFTER, Method.DRAFT_DFLASH)
    curve = _curve(drafter=head)
    assert curve.drafts_blocks
    for depth in DEPTHS:
        assert [curve.seconds(CurveKind.DRAFT, size, depth).value for size in (1, 2, 3)] == pytest.approx(
            [true_s(RoundPart.DRAFT, size, depth) for size in (1, 2, 3)]
        )
    assert curve.seconds(CurveKind.ROUND).value == 0
    blocks = {3: {at: HeadDraft(2, (0.9, 0.9, 0.4)) for at in (1, 4, 7)}}
    text = trace_of("0" * 14, confidence=0.0, n_prompt=10, blocks=blocks)
    run = traced_run(n_max=3, n_predict=11)
    times = [point.seconds.value for point in curve.points]
    spent = drafting(text, curve, run).drafting @ times
    depths = (10, 13, 16)
    wanted = sum(true_s(RoundPart.DRAFT, 3, depth) + true_s(RoundPart.ABSORB, 4, depth) for depth in depths)
    wanted += true_s(RoundPart.ABSORB, 1, 19)  # nothing is left to draft in the last round
    assert spent == pytest.approx(wanted)
    # a draft that ends early takes as long, and less is verified
    shorter = drafting(text, curve, replace(run, drafting=replace(run.drafting, p_min=0.5)))
    assert shorter.counts.n_drafted == 6
    read = sum(true_s(RoundPart.ABSORB, 3, depth) - true_s(RoundPart.ABSORB, 4, depth) for depth in depths)
    assert shorter.drafting @ times == pytest.approx(wanted + read)


def test_timings_are_stored_and_the_curve_follows_from_them() -> None:
    noise = functools.partial(random.Random(3).uniform, 0.9, 1.1)
    first, second = _measure(noise), _measure(noise, drafter=replace(DRAFTER, filename="other.gguf"))
    shared = second.with_batches(first)
    assert shared.curve.verify == first.curve.verify
    for measured in (first, second, shared, _measure(noise, drafter=None)):
        profiles.save(measured)
        stored = profiles.known()[-1]
        assert vars(stored) | vars(measured) == vars(stored)
        assert measured.curve.measured_on is not None
        assert measured.curve == profiles.fit(
            stored.timings, measured.curve.measured_on, verify_timings=stored.verify_timings
        )


def test_costs_of_a_head_are_those_of_no_draft_model_in_the_same_file() -> None:
    head = HeadFile.of(DRAFTER, Method.DRAFT_MTP)
    assert head.file == DRAFTER
    measured = {drafter: _measure(drafter=drafter) for drafter in (DRAFTER, head)}
    for one in measured.values():
        profiles.save(one)
    assert len(profiles.known()) == 2
    for drafter in measured:
        of = profiles.of(values.spec(), drafter, build=values.BUILD, machine=values.MACHINE)
        found = profiles.find_profile(of, most_tokens=4, depths=DEPTHS)
        assert found.curve.measured_on == of


def test_without_the_timings_of_its_batches_a_curve_follows_from_none() -> None:
    measured = _measure()
    old = profiles.MeasuredCurve(curve=measured.curve)
    assert measured.with_batches(old).timings == ()


def test_the_target_alone_needs_no_drafter() -> None:
    curve = _curve(drafter=None)
    assert curve.draft == curve.absorb == ()
    assert curve.choose_s.value == pytest.approx(0.0004)
    assert curve.resize_s.value == pytest.approx(0.0007)  # drafts from the text differ in length
    assert curve.seconds(CurveKind.VERIFY, 3, 60).value == pytest.approx(
        true_s(RoundPart.VERIFY, 3, 60) + 0.003
    )


def test_a_disturbed_sample_moves_nothing() -> None:
    calls = iter(range(10_000))
    disturbed = _curve(lambda: 30.0 if next(calls) % 101 == 50 else 1.0)
    for tokens in BATCHES:
        found = disturbed.seconds(CurveKind.VERIFY, tokens, 10).value
        assert found == pytest.approx(true_s(RoundPart.VERIFY, tokens, 10), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_cost_is_negative_where_few_samples_are_disturbed(seed: int) -> None:
    order = random.Random(seed)
    disturbed = _curve(lambda: order.choice((1.0, 1.0, 60.0)), repeats=1)
    alone = _curve(lambda: order.choice((1.0, 1.0, 60.0)), drafter=None, repeats=1)
    for curve in (disturbed, alone):
        assert curve.resize_s.value >= 0
        plain_s = curve.seconds(CurveKind.VERIFY, 1, 10).value + curve.plain_overhead_s.value
        assert plain_s > 0


def test_samples_make_a_curve() -> None:
    timings = [Timing(RoundPart.VERIFY, None, 1, 10, seconds) for seconds in (0.02, 0.1)]
    measured_on = curves.of(values.spec(), None, build=None, machine=None)
    curve = curves.fit(timings, measured_on)
    assert curve.seconds(CurveKind.VERIFY, 1, 10).value == pytest.approx(0.02)
    order = random.Random(3)
    skewed = _curve(lambda: order.choice((1.0, 1.0, 1.0, 1.4)), repeats=1000)
    mean = 1.1
    for tokens in BATCHES:
        expected = true_s(RoundPart.VERIFY, tokens, 10) * mean
        assert skewed.seconds(CurveKind.VERIFY, tokens, 10).value == pytest.approx(expected, rel=0.02)


def test_intervals_hold_the_truth_as_often_as_they_say_and_need_two_samples() -> None:
    held = tried = 0
    for seed in range(30):
        order = random.Random(seed)
        for point in _curve(lambda order=order: order.gauss(1.0, 0.05), repeats=15).verify:
            truth = true_s(RoundPart.VERIFY, point.tokens, point.depth)
            held += point.seconds.lo <= truth <= point.seconds.hi
            tried += 1
    assert 0.88 <= held / tried <= 0.99
    assert _curve(repeats=1).verify[0].seconds.lo is None
    assert _curve(repeats=2).verify[0].seconds.lo is not None  # all points show the spread together


@pytest.mark.parametrize(
    ("first", "last", "expected"), [(5, 5, (5,)), (5, 200, (5, 200)), (0, 4000, (0, 2000, 4000))]
)
def test_depths_are_those_that_occur(first: int, last: int, expected: tuple[int, ...]) -> None:
    assert profiles.depths_for(first, last) == expected


def test_what_was_measured_is_found_and_nothing_else() -> None:
    measured = _measure()
    file, about = profiles.save(measured), measured.curve.measured_on
    assert profiles.save(measured) == file
    assert [profile.curve for profile in profiles.known()] == [measured.curve]
    others = [
        replace(about, offload=Offload(target=ModelRun(layers=3))),
        replace(about, threads=7),
        replace(about, build=replace(values.BUILD, version="0.3.37")),
        replace(about, machine=replace(values.MACHINE, hostname="other")),
        replace(about, drafter=replace(DRAFTER, size_bytes=11)),  # another file under the same name
    ]
    asked = [(other, 4, DEPTHS) for other in (about, *others)]
    asked += [(about, 5, DEPTHS), (about, 4, (5, 110)), (about, 4, (10, 111))]
    found = [profiles.find_profile(on, most_tokens=most, depths=depths) for on, most, depths in asked]
    assert [profile is not None for profile in found] == [True] + [False] * 8
    assert found[0].curve == measured.curve
    for damaged in (b"", b"{", b"{}", b'{"schema":1,"measured_at":"x","curve":{"verify":[]}}'):
        file.write_bytes(damaged)
        assert profiles.find_profile(about, most_tokens=4, depths=DEPTHS) is None
        assert profiles.known() == ()


def test_nothing_is_kept_for_a_bench_that_was_removed(tmp_path: Path) -> None:
    folder = tmp_path / "removed"
    for keep in (profiles.keep, profiles.keep_rounds):
        with pytest.raises(ResultsError, match="it does not exist"):
            keep((), folder)
    assert not folder.exists()


def test_files_are_told_apart_by_their_size(tmp_path: Path) -> None:
    model = ModelFile(filename="m.gguf", path=tmp_path / "m.gguf")
    (tmp_path / "m.gguf").write_bytes(b"x" * 9)
    about = profiles.of(values.spec(path=model.path), None, build=None, machine=None)
    assert about.target.size_bytes == 9


def test_counted_experts_are_kept_for_a_model_in_every_quantization(tmp_path: Path) -> None:
    use = ExpertUse(layers={0: (0.25, 0.4), 1: (0.25, 0.3)}, tokens=90)
    cards = [
        gguf.read_card(models.write_model(tmp_path / name, *models.llama(n_experts=experts, types=types)))
        for name, experts, types in (
            ("F16", 8, lambda _: "F16"),
            ("F32", 8, lambda _: "F32"),
            ("other", 4, lambda _: "F16"),
            ("dense", 0, lambda _: "F16"),
        )
    ]
    assert profiles.kept_experts(cards[0]) is None
    profiles.keep_experts(cards[0], use)
    assert [profiles.kept_experts(card) for card in cards] == [use, use, None, None]
    assert "90 tokens" in describe_experts(use)
    assert "ρ = 0.2" in describe_experts(None)
