"""Where the costs of a projection come from: rates, a stored profile, a bundle, or headers and peaks.

What a pair costs on a machine where another pair was measured are the measured times, scaled by what models
read. One evaluation is taken to cost a fixed time and its bytes over a bandwidth:

    seconds = a + bytes / b

Target and drafter of the measured pair give a and b, as one is larger than the other. The time of another
model is the measured time of the same batch and depth, times the line's value for the other model over its
value for the measured one. So what the line leaves out, such as slower kernels for larger batches, stays as
measured. Where the two models do not lie on such a line, times are scaled by bytes alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from ggufspec import units
from ggufspec.domain import Acceptance, ModelRun, Offload, Program
from ggufspec.forecast import costs, profiles
from ggufspec.forecast.costs import CostCurve, CurveKind, DevicePeaks, Point, Shape
from ggufspec.forecast.profiles import Profile, SharedProfile
from ggufspec.forecast.whatif.outlooks import bytes_of_token, implied_verify_ratio
from ggufspec.forecast.whatif.places import Machines, parts_of, shape
from ggufspec.modelfiles import catalog, choosing, hub
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import WhatIfOptions, only
from ggufspec.results import archive
from ggufspec.stats import Estimate


class CostSource(StrEnum):
    """Where the costs of a projection come from."""

    RATES = "rates"  # tokens/s that were given
    HEADERS = "headers"  # and the peaks of machines: tokens/s are estimates
    PROFILE = "profile"  # measured by ``tune``
    BUNDLE = "bundle"  # measured by ``tune`` on the machine of a bundle

    def estimate(self, value: float, figure: costs.PublishedFigure) -> Estimate:
        """Return a figure of a projection, with an interval where published ones say how far off it is."""
        return costs.with_interval(value, figure) if self is CostSource.HEADERS else Estimate.around(value)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """A cost curve, where it comes from, and what to say about it."""

    curve: CostCurve
    source: CostSource
    notes: tuple[str, ...] = ()
    token_bytes: int | None = None  # over a network, from the target's header


def find_costs(
    asked: WhatIfOptions, sizes: Sequence[int], acceptances: Sequence[Acceptance], *, users: int, depth: int
) -> Costs:
    """Return the costs of rounds, from the one source of them that the options name.

    Args:
        asked: the options.
        sizes: the draft sizes.
        acceptances: what is accepted.
        users: who are served at once.
        depth: tokens of context.

    Raises:
        ValueError: they name no source, or two.
        GgufspecError: a model is not available, or the bundle cannot be read.
    """
    offload = Offload(
        target=ModelRun(layers=only(asked.ngl), cpu_moe=only(asked.cpu_moe)),
        drafter=ModelRun(layers=only(asked.ngld), cpu_moe=only(asked.draft_cpu_moe)),
        tensor_split=only(asked.tensor_split) or (),
    )
    if asked.rtt is not None and asked.flops:
        raise ValueError("with --rtt, --bandwidth is that of the network: name the machine with --machine")
    names_rates = bool(asked.target_tps or asked.drafter_tps)
    names_machine = any((asked.machine, asked.host, _memory_bandwidth(asked), asked.flops))
    names_models = any((names_machine, asked.pair, asked.target))
    if asked.like is not None:
        if asked.profile is not None or names_rates or names_machine or offload != Offload():
            raise ValueError("--like takes rates, machine and placement from the bundle: name only models")
        return _costs_like(asked, asked.like)
    if asked.profile is not None:
        if names_rates or names_models:
            raise ValueError("use either --profile, or rates, or models and a machine")
        return _load_profile(asked.profile)
    if asked.target_tps and asked.drafter_tps:
        if names_models:
            raise ValueError("use either rates, or models and a machine")
        return _costs_of_rates(asked, asked.target_tps, asked.drafter_tps, sizes, acceptances, depth=depth)
    if names_rates or asked.observed:
        raise ValueError("--target-tps and --drafter-tps are needed together")
    machines = choose_machines(asked, n_gpus=len(offload.tensor_split))
    target, _ = cards = read_two_cards(asked)
    return Costs(
        curve=costs_of_pair(
            cards,
            offload,
            machines,
            most_tokens=users * (max(sizes) + 1),
            # each of several users reads a context of its own: what the shallowest costs is needed, too
            depths=(depth,) if users == 1 else tuple(sorted({0, depth})),
            overhead_s=asked.overhead / 1000,
        ),
        source=CostSource.HEADERS,
        notes=(*machines.notes, *describe_experts(target)),
        token_bytes=bytes_of_token(target.n_embd, target.vocabulary.n_tokens),
    )


def _costs_of_rates(
    asked: WhatIfOptions,
    target_tps: float,
    drafter_tps: float,
    sizes: Sequence[int],
    acceptances: Sequence[Acceptance],
    *,
    depth: int,
) -> Costs:
    """Return costs that follow from tokens/s, and from what verifying a draft costs.

    Raises:
        ValueError: an observed speed is given with several sizes, several acceptances, or ratios.
    """
    flat_curve = partial(costs.flat_curve, target_tps, drafter_tps, overhead_s=asked.overhead / 1000)
    notes, ratios, ratio = [], asked.verify_cost, asked.verify_ratio
    if asked.observed:
        if len(sizes) != 1 or len(acceptances) != 1 or ratios or ratio:
            raise ValueError(
                "--observed needs one --draft and one --accept, and excludes --verify-cost and --verify-ratio"
            )
        ratio = implied_verify_ratio(
            flat_curve(ratios=(1.0,) * (sizes[0] + 1)),
            asked.observed,
            acceptances[0],
            n_max=sizes[0],
            depth=depth,
            program=Program(asked.program),
        )
        notes.append(_describe_observed(ratio, sizes[0], asked.observed / target_tps))
    if ratios is None:
        if ratio is None:
            notes.append("note: without --verify-cost, verifying a draft counts as one token: the best case")
        ratios = (1.0, *(ratio or 1.0,) * max(sizes))
    return Costs(curve=flat_curve(ratios=ratios), source=CostSource.RATES, notes=tuple(notes))


def _describe_observed(ratio: float, size: int, speedup: float) -> str:
    return (
        f"observed: {speedup:.2f}× of the target alone. Verifying {size + 1} tokens took {ratio:.2f} times "
        f"as long as decoding one (1: free, {size + 1}: no cheaper than decoding them one by one)."
    )


def _load_profile(name: str) -> Costs:
    """Return a stored cost curve, and what it was measured on."""
    stored = _pair_profiles()
    matching = stored if name == "last" else [profile for profile in stored if profile.id.startswith(name)]
    if not matching:
        raise ValueError(
            f"there is no profile {name!r}; `--profile list` lists them, `ggufspec tune` measures one"
        )
    notes = (f"costs: {_describe(matching[-1])}",)
    return Costs(curve=matching[-1].curve, source=CostSource.PROFILE, notes=notes)


def list_profiles() -> str:
    """Return the stored cost curves of pairs, one per line."""
    return "".join(f"{profile.id}  {_describe(profile)}\n" for profile in _pair_profiles())


def _pair_profiles() -> list[Profile]:
    """Return the stored curves of pairs, the newest last; without heads that draft blocks.

    What such a head takes for a draft does not grow with each token, as it does in the formulas here.
    """
    return [
        profile for profile in profiles.known() if profile.curve.draft and not profile.curve.drafts_blocks
    ]


def _describe(profile: Profile | SharedProfile) -> str:
    setup = profile.curve.measured_on
    assert setup is not None
    assert setup.drafter is not None
    pair = f"{setup.target.filename} + {setup.drafter.filename}"
    machine = setup.machine
    device = ", ".join((*machine.gpus, machine.cpu)) if machine else "unknown machine"
    threads = units.counted(setup.threads or 0, "thread")
    return f"{pair}, {threads}, {device}, measured at {profile.measured_at}"


def _costs_like(asked: WhatIfOptions, bundle: Path) -> Costs:
    """Return the costs of a pair on the machine that a bundle measured.

    Raises:
        ValueError: the bundle has no cost curves, or the pair has no drafter.
        ResultsError: it is not a bundle.
        GgufspecError: a model is not available.
    """
    with archive.opened(bundle) as contents:
        file = contents.files.get(profiles.SHARED)
        users = () if file is None else profiles.read_shared(file.read_bytes())
    shared = [profile for profile in users if not profile.curve.drafts_blocks]
    if not shared:
        raise ValueError(f"{bundle} has no cost curves: only bundles of tuned pairs have some")
    target, draft = (shape(card, depth=0) for card in read_two_cards(asked))
    profile = choose_profile(shared, target, draft)
    is_same = (profile.target, profile.drafter) == (target, draft)
    notes = [
        f"costs: {_describe(profile)}, from {bundle.name}",
        "note: the models lie on the devices as they did there; `ggufspec verify` recomputes these costs",
    ]
    if not is_same:
        notes.append("note: another pair was measured: times are scaled by the bytes that models read")
    return Costs(
        curve=profile.curve if is_same else scale_curve(profile, target, draft),
        source=CostSource.BUNDLE,
        notes=tuple(notes),
    )


def _memory_bandwidth(asked: WhatIfOptions) -> float | None:
    """Return the bandwidth of the machine's memory; with a round trip it is that of the network."""
    return asked.bandwidth if asked.rtt is None else None


def choose_machines(asked: WhatIfOptions, *, n_gpus: int) -> Machines:
    """Return the machine of that name, or one with the given peaks, and the host that has its memory.

    Raises:
        ValueError: neither a name nor both peaks are given, or both are, or no such machine is known.
    """
    bandwidth = _memory_bandwidth(asked)
    if asked.machine is not None and not (bandwidth or asked.flops):
        return Machines.named(asked.machine, asked.host, n_gpus=n_gpus)
    if asked.machine is not None or not (bandwidth and asked.flops):
        raise ValueError(
            "costs are missing: use --target-tps and --drafter-tps, or --machine, or --bandwidth and --flops,"
            " or --like"
        )
    peaks = DevicePeaks(
        name="as given",
        bandwidth=bandwidth,
        flops=asked.flops,
        source="the command line",
        efficiency=costs.ON_GPU,
    )
    host = None if asked.host is None else costs.find_device(asked.host, costs.ON_HOST)
    return Machines.of((peaks,), host, n_gpus=n_gpus)


def costs_of_pair(
    cards: tuple[ModelCard, ModelCard],
    offload: Offload,
    machines: Machines,
    *,
    most_tokens: int,
    depths: tuple[int, ...],
    overhead_s: float = 0.0,
) -> CostCurve:
    """Return the costs of a pair at its places; a mixture's experts are as counted, where they were."""
    target, draft = cards
    parts = partial(parts_of, machines=machines, depth=depths[-1])
    return costs.roofline_of_parts(
        parts(target, offload, experts=profiles.kept_experts(target)),
        parts(draft, offload.drafter_as_target),
        most_tokens=most_tokens,
        depths=depths,
        overhead_s=overhead_s,
    )


def describe_experts(target: ModelCard) -> Iterator[str]:
    """Yield where the number of experts that batches need comes from; nothing for a dense model."""
    if target.n_experts:
        yield costs.describe_experts(profiles.kept_experts(target))


def read_two_cards(asked: WhatIfOptions) -> tuple[ModelCard, ModelCard]:
    """Return the headers of target and drafter.

    Raises:
        ValueError: there is no drafter.
        GgufspecError: a model is not available.
    """
    access = hub.Access.of(asked)
    pair = choosing.choose_pair(asked.pair, only(asked.target), only(asked.draft_model), access)
    method = catalog.drafting_method(pair)
    if pair.draft is None and method is not None:
        raise ValueError(
            f"{pair.name} drafts with {method}, whose gain depends on the text; measure it: ggufspec bench"
        )
    target, draft = choosing.read_cards(pair, access)
    way = choosing.choose_way(pair, None, draft)
    if way is not None and way.method.is_head:
        raise ValueError(
            f"the cost of drafting by {way} does not follow from headers, as a head computes with the states "
            "of its target; measure it: ggufspec bench"
        )
    if draft is None:
        raise ValueError("there is no drafter: name one with --draft-model")
    return target, draft


def choose_profile(profiles: Sequence[SharedProfile], target: Shape, drafter: Shape) -> SharedProfile:
    """Return the profile whose models read most nearly what these do; of several, the last."""

    def distance(profile: SharedProfile) -> float:
        pairs = ((profile.target, target), (profile.drafter, drafter))
        return sum(abs(math.log(theirs.read_bytes(1, 0) / shape.read_bytes(1, 0))) for theirs, shape in pairs)

    return min(reversed(profiles), key=distance)


def scale_curve(profile: SharedProfile, target: Shape, drafter: Shape) -> CostCurve:
    """Return the costs of another pair on the machine of a profile, in the same places.

    Args:
        profile: what was measured.
        target: what the other pair's target reads.
        drafter: what its drafter reads.
    """
    curve, fixed_bytes = profile.curve, _fixed_bytes(profile)

    def scale(points: Sequence[Point], shape: Shape, measured: Shape) -> Iterator[Estimate]:
        for point in points:
            own_bytes, measured_bytes = (
                fixed_bytes + model.read_bytes(point.tokens, point.depth) for model in (shape, measured)
            )
            ratio = own_bytes / measured_bytes
            yield point.seconds.moved_to(point.seconds.value * ratio, scale=ratio)

    return curve.with_times(
        [
            *scale(curve.verify, target, profile.target),
            *scale(curve.draft, drafter, profile.drafter),
            *scale(curve.absorb, drafter, profile.drafter),
            *(curve.overhead_s, curve.plain_overhead_s, curve.choose_s, curve.resize_s),
        ]
    )


def _fixed_bytes(profile: SharedProfile) -> float:
    """Return how many bytes could be read in the fixed time of an evaluation."""
    depth = profile.curve.depths[0]
    large_s = profile.curve.seconds(CurveKind.VERIFY, 1, depth).value
    small_s = profile.curve.seconds(CurveKind.DRAFT, 1, depth).value
    large, small = profile.target.read_bytes(1, depth), profile.drafter.read_bytes(1, depth)
    if large <= small or large_s <= small_s:
        return 0.0
    bandwidth = (large - small) / (large_s - small_s)
    return max(0.0, small_s * bandwidth - small)
