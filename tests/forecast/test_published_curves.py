"""Cost curves travel in bundles, redacted and verified, and forecast other pairs on that machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ggufspec
from ggufspec import publishing, results
from ggufspec.domain import Method, ModelFile, ModelRun, Offload, Pair, Role
from ggufspec.engines.library import Timing
from ggufspec.errors import ResultsError
from ggufspec.forecast import profiles
from ggufspec.forecast.costs import CurveKind, MeasuredOn, Shape
from ggufspec.forecast.profiles import MeasuredCurve, SharedProfile
from ggufspec.forecast.whatif import cost_sources
from ggufspec.modelfiles import catalog
from ggufspec.publishing import Bundle, findings, findings as costs_of
from ggufspec.results import ResultSet, archive
from tests.support import published, shell, timed, values
from tests.support.published import HOST, IDENTITY, PRIVATE, PROJECT, SECRETS, USER


def measured_on(bench: ResultSet) -> MeasuredOn:
    """What a curve of a bench's pair was measured on, with a secret in every text."""
    models = published.pair()
    return MeasuredOn(
        target=replace(models.target, size_bytes=4_000_000),
        drafter=replace(models.draft, size_bytes=1_000_000),
        offload=Offload(target=ModelRun(devices=(f"{HOST}:50052",))),
        threads=1,
        build=replace(bench.meta.build, flags=(f"-DCMAKE_PREFIX_PATH=/home/{USER}/{PROJECT}",)),
        machine=bench.meta.machine,
        note=f"by {USER} at {HOST}",
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with a cost curve, without tables and charts, which take longest; made once for all tests."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GGUFSPEC_DATA", str(folder / "data"))
        published.leave_out_pages(patch)
        bench = published.bench()
        return publishing.publish(
            [bench],
            folder / "bundle",
            identity=IDENTITY,
            private=(PRIVATE,),
            costs=[timed.shared(measured_on(bench))],
        )


@pytest.fixture
def bundle(original: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """A copy of it, which may be changed."""
    published.leave_out_pages(monkeypatch)
    folder = shutil.copytree(original.folder, tmp_path / "bundle")
    return replace(original, folder=folder, zip=Path(shutil.copy(original.zip, tmp_path)))


def test_a_head_of_blocks_is_like_no_draft_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of its drafts does not grow with each token, as the formulas have it."""
    published.leave_out_pages(monkeypatch)
    bench = published.bench()
    setup = replace(measured_on(bench), head=Method.DRAFT_DFLASH)
    bundle = publishing.publish(
        [bench], tmp_path / "bundle", identity=IDENTITY, private=(PRIVATE,), costs=[timed.shared(setup)]
    )
    assert read(bundle).curve.drafts_blocks
    with pytest.raises(ValueError, match="has no cost curves"):
        ggufspec.whatif(like=bundle.folder, pair="demo", alpha=0.8)


def read(bundle: Bundle) -> SharedProfile:
    (profile,) = profiles.read_shared((bundle.folder / "costs.json").read_bytes())
    return profile


def test_a_curve_is_published_redacted_and_verified(bundle: Bundle) -> None:
    content = (bundle.folder / "costs.json").read_text()
    assert not [secret for secret in SECRETS if secret in content]
    profile = read(bundle)
    assert profile.curve.points == timed.shared(MeasuredOn(target=ModelFile(filename="x"))).curve.points
    setup = profile.curve.measured_on
    assert (setup.target.filename, setup.machine.hostname) == ("model-1-Q4_K_M.gguf", "host")
    assert bundle.verification.findings == ()
    for place in (bundle.folder, bundle.zip):
        verification = publishing.verify(place)
        assert verification.findings == ()
        assert findings.SIZES in verification.unchecked


FOLLOWS, OTHERS = (
    "does not follow from its timings",
    "is of a pair, a llama.cpp or a machine that no bench has",
)


def _slower(timing: Timing) -> Timing:
    return timing._replace(seconds=timing.seconds * 1.5)


def _moved(profile: SharedProfile, by: float = 1.0, **setup: Any) -> SharedProfile:
    """Return a profile with other times, or of something else."""
    times = [replace(point.seconds, value=point.seconds.value * by) for point in profile.curve.points]
    measured_on = replace(profile.curve.measured_on, **setup)
    return replace(profile, curve=replace(profile.curve.with_times(times), measured_on=measured_on))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda it: replace(it, timings=(_slower(it.timings[0]), *it.timings[1:])), FOLLOWS),
        (lambda it: replace(it, timings=()), FOLLOWS),
        (lambda it: _moved(it, by=0.9), FOLLOWS),
        (lambda it: _moved(it, machine=replace(it.curve.measured_on.machine, cpu="A Faster One")), OTHERS),
        (lambda it: _moved(it, target=replace(it.curve.measured_on.target, content="c3" * 32)), OTHERS),
    ],
)
def test_a_changed_curve_does_not_verify(
    bundle: Bundle, change: Callable[[SharedProfile], SharedProfile], finding: str
) -> None:
    file = bundle.folder / "costs.json"
    file.write_bytes(profiles.write_shared([change(read(bundle))]))
    archive.write_hashes(bundle.folder)
    assert publishing.verify(bundle.folder).findings == (f"costs.json, curve 0 {finding}",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"schema":2,"profiles":[]}',
        b'{"schema":1,"profiles":[],"more":1}',
        b'{"schema":1,"profiles":[{}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_curve_is_named(bundle: Bundle, content: bytes) -> None:
    (bundle.folder / "costs.json").write_bytes(content)
    archive.write_hashes(bundle.folder)
    (finding,) = publishing.verify(bundle.folder).findings
    assert finding.startswith("costs.json cannot be read: ")
    with pytest.raises(ResultsError, match=r"costs.json cannot be read"):
        ggufspec.whatif("demo", like=bundle.folder, alpha=0.8)


@pytest.mark.parametrize(
    "shape",
    [
        replace(timed.TARGET, weight_bytes=0.0, active_bytes=0.0),
        replace(timed.TARGET, active_bytes=5e6),
        replace(timed.TARGET, used_share=0.0),
        replace(timed.TARGET, kv_bytes=-1.0),
    ],
)
def test_sizes_that_no_model_has_are_refused(bundle: Bundle, shape: Shape) -> None:
    content = profiles.write_shared([replace(read(bundle), target=shape)])
    with pytest.raises(ResultsError, match="sizes that no model has"):
        profiles.read_shared(content)


def test_models_of_other_sizes_take_what_the_line_says() -> None:
    """The formula of these times is the one of the forecast, so that it must be exact."""
    profile = timed.shared(MeasuredOn(target=ModelFile(filename="x")))
    target = replace(timed.TARGET, weight_bytes=40e6, active_bytes=40e6)
    drafter = replace(timed.DRAFTER, weight_bytes=0.5e6, active_bytes=0.5e6)
    curve = cost_sources.scale_curve(profile, target, drafter)
    for size in timed.BATCHES:
        verify = curve.seconds(CurveKind.VERIFY, size, 50).value
        assert verify == pytest.approx(timed.evaluation_s(target, size))
        absorb = curve.seconds(CurveKind.ABSORB, size, 50).value
        assert absorb == pytest.approx(timed.evaluation_s(drafter, size))
    assert curve.seconds(CurveKind.DRAFT, 1, 50).value == pytest.approx(timed.evaluation_s(drafter))
    assert curve.choose_s == profile.curve.choose_s
    same = cost_sources.scale_curve(profile, timed.TARGET, timed.DRAFTER)
    assert [point.seconds.value for point in same.points] == pytest.approx(
        [point.seconds.value for point in profile.curve.points]
    )


def test_without_such_a_line_times_are_scaled_by_bytes() -> None:
    """The drafter took longer than the target, as if it lay on a slower device."""
    setup = MeasuredOn(target=ModelFile(filename="x"))
    profile = timed.shared(setup, timed.DRAFTER, timed.TARGET)
    profile = replace(profile, target=timed.TARGET, drafter=timed.DRAFTER)
    twice = replace(timed.TARGET, weight_bytes=8e6, active_bytes=8e6)
    curve = cost_sources.scale_curve(profile, twice, timed.DRAFTER)
    before, after = (each.seconds(CurveKind.VERIFY, 3, 0).value for each in (profile.curve, curve))
    assert after == pytest.approx(2 * before)


def test_the_pair_that_is_most_alike_is_taken() -> None:
    setup = MeasuredOn(target=ModelFile(filename="x"))
    large = replace(timed.TARGET, weight_bytes=70e9, active_bytes=70e9)
    known = [timed.shared(setup), timed.shared(setup, target=large), timed.shared(setup, target=large)]
    wanted = replace(large, weight_bytes=30e9, active_bytes=30e9)
    assert cost_sources.choose_profile(known, wanted, timed.DRAFTER) is known[2]
    assert cost_sources.choose_profile(known, timed.TARGET, timed.DRAFTER) is known[0]


def test_whatif_forecasts_for_the_machine_of_a_bundle(bundle: Bundle) -> None:
    done = shell.done(
        "whatif", "--pair", "demo", "--like", str(bundle.zip), "--alpha", "0.8", "--draft", "1-8"
    )
    assert "costs: model-1-Q4_K_M.gguf + drafter-***.gguf, 1 thread, A Processor, measured at" in done.stderr
    assert "from bundle.zip\n" in done.stderr
    assert "times are scaled by the bytes that models read" in done.stderr
    answer = ggufspec.whatif("demo", like=bundle.folder, alpha=0.8, draft=(1, 8))
    assert answer.costs.value == "bundle"
    assert [projection.n_max for projection in answer.projections] == [1, 8]
    assert all(projection.tokens_per_s > 0 for projection in answer.projections)


@pytest.mark.parametrize(
    "options", [{"profile": "last"}, {"machine": "h100"}, {"target_tps": 2.0, "drafter_tps": 9.0}, {"ngl": 3}]
)
def test_what_a_bundle_decides_cannot_be_given(bundle: Bundle, options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="--like takes rates, machine and placement from the bundle"):
        ggufspec.whatif(like=bundle.folder, alpha=0.8, **options)


def test_a_bundle_without_curves_is_named(bundle: Bundle) -> None:
    (bundle.folder / "costs.json").unlink()
    archive.write_hashes(bundle.folder)
    done = shell.here("whatif", "--pair", "demo", "--like", str(bundle.folder), "--alpha", "0.8")
    assert done.returncode == 2
    assert "has no cost curves: only bundles of tuned pairs have some" in done.stderr


def test_the_curves_of_a_bench_are_those_of_its_pair_llama_and_machine() -> None:
    demo: Pair = catalog.find_pair("demo")
    run = values.run(Role.DRAFTING, draft=3)
    bench = values.bench(replace(run, spec=replace(run.spec, pair=demo)))
    setup = MeasuredOn(
        target=replace(demo.target, size_bytes=1),
        drafter=replace(demo.draft, size_bytes=1),
        build=values.BUILD,
        machine=values.MACHINE,
    )
    others = [
        replace(setup, machine=replace(values.MACHINE, cores=99)),
        replace(setup, build=replace(values.BUILD, version="0.3.37")),
        replace(setup, target=replace(setup.target, content="c3" * 32, path=Path("/other.gguf"))),
        replace(setup, drafter=None),
    ]
    taken = timed.timings()
    for other in others:
        profiles.save(MeasuredCurve(curve=profiles.fit(taken, other), timings=taken))
    profiles.save(
        MeasuredCurve(curve=profiles.fit(taken, replace(setup, threads=7)))
    )  # by an earlier version, without timings
    assert costs_of.find_costs([bench]) == ()
    profiles.save(MeasuredCurve(curve=profiles.fit(taken, setup), timings=taken))
    (profile,) = costs_of.find_costs([bench])
    assert profile.curve.measured_on == setup
    assert costs_of.recompute(profile) == profile.curve
    assert profile.target.weight_bytes > profile.drafter.weight_bytes > 0


def test_publishing_takes_the_curves_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.leave_out_pages(monkeypatch)
    bench = published.bench(name="mine")
    monkeypatch.setattr(
        "ggufspec.publishing.api.find_costs", lambda benches: (timed.shared(measured_on(bench)),)
    )
    made = ggufspec.publish(results.load("mine"), out=tmp_path / "bundle", offline=True)
    assert (made.folder / "costs.json").is_file()
    assert "It has 1 cost curve of this machine" in publishing.describe_bundle(made)
