"""Cost curves of the machines of published benches: which ones belong to them, and whether they follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ggufspec.domain import ModelFile
from ggufspec.errors import GgufspecError
from ggufspec.forecast import profiles, whatif
from ggufspec.forecast.costs import CostCurve, MeasuredOn
from ggufspec.forecast.profiles import Profile, SharedProfile
from ggufspec.modelfiles import gguf
from ggufspec.publishing import copying
from ggufspec.publishing.redacting import Redactor
from ggufspec.results import ResultSet


def find_costs(benches: Sequence[ResultSet]) -> tuple[SharedProfile, ...]:
    """Return the stored cost curves of the machines, llama.cpps and pairs of benches.

    Curves without timings cannot be verified, and are left out. So are those of models whose files are gone.
    """
    return tuple(
        shared
        for profile in profiles.known()
        if profile.timings and any(belongs(profile.curve.measured_on, bench) for bench in benches)
        for shared in _share(profile)
    )


def belongs(setup: MeasuredOn | None, bench: ResultSet) -> bool:
    """Whether a bench has the pair, the llama.cpp and the machine of a cost curve."""
    if setup is None or setup.drafter is None or setup.machine != bench.meta.machine:
        return False
    drafter = setup.drafter
    pairs = dict.fromkeys(spec.pair for spec in bench.runs.specs)
    return setup.build in (bench.meta.build, *bench.meta.builds.values()) and any(
        _is_same(pair.target, setup.target) and pair.draft is not None and _is_same(pair.draft, drafter)
        for pair in pairs
    )


def _is_same(model: ModelFile, other: ModelFile) -> bool:
    """Whether two models have one content or, where that is not known, one place."""
    if model.content is not None and other.content is not None:
        return model.content == other.content
    return (model.filename, model.path) == (other.filename, other.path)


def _share(profile: Profile) -> Iterator[SharedProfile]:
    setup = profile.curve.measured_on
    if setup is None or setup.drafter is None or setup.target.path is None or setup.drafter.path is None:
        return
    paths = setup.target.path, setup.drafter.path
    try:
        shapes = [whatif.shape(gguf.read_card(path), depth=0) for path in paths]
    except (GgufspecError, OSError):  # moved or replaced since
        return
    yield SharedProfile(
        measured_at=profile.measured_at,
        curve=profile.curve,
        timings=profile.timings,
        verify_timings=profile.verify_timings,
        target=shapes[0],
        drafter=shapes[1],
    )


def redact_costs(profile: SharedProfile, redactor: Redactor) -> SharedProfile:
    """Return a cost curve as it is published."""
    setup = profile.curve.measured_on
    assert setup is not None
    redacted = replace(
        redactor.redact_value(setup),
        build=None if setup.build is None else copying.redact_build(setup.build, redactor),
        machine=None if setup.machine is None else copying.redact_machine(setup.machine, redactor),
    )
    return replace(profile, curve=replace(profile.curve, measured_on=redacted))


def recompute(profile: SharedProfile) -> CostCurve:
    """Return the curve that follows from a profile's timings.

    Raises:
        ValueError: none does.
        ArithmeticError: likewise.
    """
    setup = profile.curve.measured_on
    assert setup is not None
    return profiles.fit(profile.timings, setup, verify_timings=profile.verify_timings)
