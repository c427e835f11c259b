"""``ggufspec.whatif``: from options to acceptances and a cost curve, and from these to projections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ggufspec import units
from ggufspec.domain import Experts, Layers, Offload, Pair, Program
from ggufspec.forecast import costs, profiles
from ggufspec.forecast.costs import CostCurve, DevicePeaks, MeasuredOn
from ggufspec.forecast.profiles import Profile
from ggufspec.forecast.whatif.acceptances import Acceptance, AcceptanceRate, Positions, Steady
from ggufspec.forecast.whatif.network import Network, bytes_of_token
from ggufspec.forecast.whatif.outlooks import WhatIfProjection, implied_verify_ratio, outlook
from ggufspec.forecast.whatif.outlooks import best as fastest
from ggufspec.forecast.whatif.placing import Machines, parts_of
from ggufspec.forecast.whatif.scaling import choose_profile, scale_curve
from ggufspec.forecast.whatif.shapes import shape
from ggufspec.modelfiles import catalog, choosing, hub
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.notebooks import named_options
from ggufspec.results import archive

_NUMBER = r"\d*\.?\d+"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})-(?P<last>{_NUMBER})(?:\+(?P<step>{_NUMBER}))?")
_MOST_ACCEPTANCES = 101
_MOST_DIGITS = 18  # of a draft size
_RATES, _ALPHAS = "0.7, 0.708@3, 0.5-0.9, 0.9,0.8,0.7", "0.7, 0.5-0.9"

Given = float | str | Sequence[float]
"""An acceptance: a number, several by position, or a text such as ``0.5-0.9`` or ``0.708@3``."""


class CostSource(StrEnum):
    """Where the costs of a projection come from."""

    RATES = "rates"  # tokens/s that were given
    ROOFLINE = "roofline"  # headers and the peaks of machines: tokens/s are estimates
    PROFILE = "profile"  # measured by ``tune``
    BUNDLE = "bundle"  # measured by ``tune`` on the machine of a bundle


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """What drafting would gain.

    Attributes:
        projections: one for each acceptance and γ.
        costs: where the costs come from.
        notes: what was assumed and left out, as sentences.
    """

    projections: tuple[WhatIfProjection, ...]
    costs: CostSource
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> WhatIfProjection:
        """The fastest projection."""
        return fastest(self.projections)


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """A cost curve, where it comes from, and what to say about it."""

    curve: CostCurve
    source: CostSource
    notes: tuple[str, ...] = ()
    token_bytes: int | None = None  # over a network, from the target's header


@named_options
def whatif(
    pair: str | None = None,
    *,
    accept: Given | None = None,
    alpha: Given | None = None,
    draft: int | Sequence[int] = tuple(range(1, 17)),
    target_tps: float | None = None,
    drafter_tps: float | None = None,
    verify_cost: Sequence[float] | None = None,
    verify_ratio: float | None = None,
    observed: float | None = None,
    target: str | None = None,
    draft_model: str | None = None,
    ngl: Layers = "auto",
    ngld: Layers = "auto",
    tensor_split: Sequence[float] | None = None,
    cpu_moe: Experts | None = None,
    draft_cpu_moe: Experts | None = None,
    profile: str | None = None,
    like: Path | str | None = None,
    machine: str | None = None,
    host: str | None = None,
    bandwidth: float | None = None,
    flops: float | None = None,
    ctx: int = 1024,
    depth: int | None = None,
    parallel: int = 1,
    overhead: float = 0.0,
    rtt: float | None = None,
    round_trips: float = 1.0,
    token_bytes: float | None = None,
    program: str = "server",
    offline: bool = False,
    token: str | None = None,
) -> WhatIf:
    """Forecast what drafting would gain, as ``ggufspec whatif`` does; nothing is downloaded or run.

    Costs come from two rates, from headers and published peaks of machines, from a profile of ``tune``, or
    from the machine of a bundle.

    Args:
        pair: pair of the catalogue whose headers are read.
        accept: acceptance rate at every γ (0.7, "0.5-0.9"), at one γ ("0.708@3"), or by position (0.9, 0.8).
        alpha: probability that each drafted token is accepted, instead of ``accept``.
        draft: draft sizes γ in tokens.
        target_tps: tokens/s of the target alone.
        drafter_tps: tokens/s of the drafter alone.
        verify_cost: relative cost of verifying 1, 2, … tokens.
        verify_ratio: relative cost of verifying a draft of any size.
        observed: tokens/s measured with drafting, at one γ and acceptance.
        target: a path or a model reference, instead of ``pair``.
        draft_model: likewise, for the drafter.
        ngl: target layers on the GPU; "auto" is all.
        ngld: drafter layers on the GPU; "auto" is all.
        tensor_split: proportions of the layers on each of several machines.
        cpu_moe: layers of the target, counted from the first, whose experts stay on the host.
        draft_cpu_moe: likewise for the drafter.
        profile: id of a stored profile, or "last".
        like: a published bundle, folder or zip: forecast for the machine that it was measured on.
        machine: a name of ``costs.DEVICES``, or its memory bandwidth ("936G"); several with commas.
        host: likewise, the machine that computes layers that are not on a GPU.
        bandwidth: bytes/s, with ``flops`` instead of ``machine``; with ``rtt`` that of the network.
        flops: operations/s.
        ctx: depth of the context in tokens.
        depth: the same under the name that a bench has for it; None for ``ctx``.
        parallel: users who are served at once; tokens/s are of all together.
        overhead: other time per round in milliseconds.
        rtt: milliseconds of a round trip to the workers that hold the target (``bench --rpc``); None where it
            is on the same machine. The drafter is.
        round_trips: of each pass of the target, with ``rtt``.
        token_bytes: that each token of a pass sends and gets, with ``rtt``; by default its embedding and its
            logits where headers are read.
        program: the program that drafts: server, speculative-simple or speculative.
        offline: use only cached files.
        token: access token for the Hub.

    Raises:
        ValueError: the options are incomplete, or contradict each other.
        GgufspecError: a model is not available, or the bundle cannot be read.
    """
    sizes = [draft] if isinstance(draft, int) else list(draft)
    chosen_program = Program(program)
    in_context = ctx if depth is None else depth
    _check_users(parallel, chosen_program, is_by_rates=target_tps is not None and verify_cost is None)
    acceptances = parse_acceptances(accept, alpha)
    known = [size for size in sizes if size <= min(acceptance.most or size for acceptance in acceptances)]
    if not known:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    offload = Offload(
        target_layers=ngl,
        draft_layers=ngld,
        tensor_split=tuple(tensor_split or ()),
        cpu_moe=cpu_moe,
        draft_cpu_moe=draft_cpu_moe,
    )
    if rtt is not None and flops:
        raise ValueError("with --rtt, --bandwidth is that of the network: name the machine with --machine")
    network_bandwidth, bandwidth = (None, bandwidth) if rtt is None else (bandwidth, None)
    names_machine = any((machine, host, bandwidth, flops))
    names_models = any((names_machine, pair, target))
    if like is not None:
        if profile is not None or target_tps or drafter_tps or names_machine or offload != Offload():
            raise ValueError("--like takes rates, machine and placement from the bundle: name only models")
        made = _costs_like(Path(like), (pair, target, draft_model), hub.Access(token=token, offline=offline))
    elif profile is not None:
        if target_tps or drafter_tps or names_models:
            raise ValueError("use either --profile, or rates, or models and a machine")
        made = _load_profile(profile)
    elif target_tps is None or drafter_tps is None:
        if target_tps or drafter_tps or observed:
            raise ValueError("--target-tps and --drafter-tps are needed together")
        made = _compute_costs(
            _choose_machines(machine, host, bandwidth, flops, n_gpus=len(offload.tensor_split)),
            offload,
            (pair, target, draft_model),
            hub.Access(token=token, offline=offline),
            most_tokens=parallel * (max(known) + 1),
            depth=in_context,
            users=parallel,
            overhead_s=overhead / 1000,
        )
    elif names_models:
        raise ValueError("use either rates, or models and a machine")
    else:
        made = _costs_of_rates(
            target_tps,
            drafter_tps,
            verify_cost,
            verify_ratio,
            observed,
            known,
            acceptances,
            depth=in_context,
            overhead_s=overhead / 1000,
            program=chosen_program,
        )
    known = [size for size in known if parallel * (size + 1) <= made.curve.most_tokens]
    if not known:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    at_depth = _nearest_depth(in_context, made.curve)
    notes = list(made.notes)
    network = None
    if rtt is not None:
        sent = made.token_bytes if token_bytes is None else token_bytes
        network = _choose_network(rtt / 1000, network_bandwidth, round_trips, sent)
        notes.append(_describe_network(network))
    if parallel > 1:
        notes.append(
            f"note: {parallel} users draft in step, each with a complete draft; the evaluation of prompts is "
            "left out, and batches of several users cost what as many tokens of one cost"
        )
    if len(known) < len(sizes):
        notes.append(f"note: no acceptance or cost is known for drafts of more than {max(known)} tokens")
    if len(known) > 1 and isinstance(acceptances[0], AcceptanceRate):  # which no drafter has
        notes.append("note: the same acceptance rate is assumed at every γ; --alpha compares draft sizes")
    return WhatIf(
        projections=tuple(
            outlook(
                made.curve,
                acceptance,
                n_max=size,
                depth=at_depth,
                program=chosen_program,
                users=parallel,
                network=network,
            )
            for acceptance in acceptances
            for size in known
        ),
        costs=made.source,
        notes=tuple(notes),
    )


def _choose_network(
    rtt_s: float, bytes_per_s: float | None, round_trips: float, token_bytes: float | None
) -> Network:
    """Return the network between a program and the workers that hold its target.

    Raises:
        ValueError: a number is out of range, or a bandwidth was given and nothing says what is sent.
    """
    if not (0 <= rtt_s < float("inf") and 0 <= round_trips < float("inf")):
        raise ValueError("--rtt and --round-trips are 0 or more")
    if bytes_per_s is not None and (token_bytes is None or not 0 < bytes_per_s < float("inf")):
        raise ValueError("the bandwidth of a network needs the bytes of a token: add --token-bytes")
    return Network(
        rtt_s=rtt_s, bytes_per_s=bytes_per_s, round_trips=round_trips, token_bytes=token_bytes or 0.0
    )


def _describe_network(network: Network) -> str:
    data = (
        "the time of its data is left out"
        if network.bytes_per_s is None
        else f"{units.format_bytes(round(network.token_bytes))} a token at "
        f"{units.format_bytes(round(network.bytes_per_s))}/s"
    )
    return (
        f"note: each pass of the target pays {network.round_trips:g} × {network.rtt_s * 1000:g} ms for the "
        f"network, and {data}; the drafter is on the machine of the program"
    )


def _check_users(users: int, program: Program, *, is_by_rates: bool) -> None:
    """Refuse several users where nothing says what their batches cost.

    Raises:
        ValueError: the program answers one request at a time, or the costs are of single drafts.
    """
    if users < 1:
        raise ValueError(f"--parallel is a number of users, not {users}")
    if users > 1 and program is not Program.SERVER:
        raise ValueError(f"{program.value} answers one request at a time; several users need the server")
    if users > 1 and is_by_rates:
        raise ValueError(
            "--parallel needs the cost of batches of N(γ+1) tokens: add --verify-cost with as many numbers, "
            "or use --machine or --profile"
        )


def _costs_of_rates(
    target_tps: float,
    drafter_tps: float,
    ratios: Sequence[float] | None,
    ratio: float | None,
    observed: float | None,
    sizes: Sequence[int],
    acceptances: Sequence[Acceptance],
    *,
    depth: int,
    overhead_s: float,
    program: Program,
) -> _Costs:
    notes = []
    if observed:
        if len(sizes) != 1 or len(acceptances) != 1 or ratios or ratio:
            raise ValueError(
                "--observed needs one --draft and one --accept, and excludes --verify-cost and --verify-ratio"
            )
        free = costs.flat_curve(
            target_tps, drafter_tps, ratios=(1.0,) * (sizes[0] + 1), overhead_s=overhead_s
        )
        ratio = implied_verify_ratio(
            free, observed, acceptances[0], n_max=sizes[0], depth=depth, program=program
        )
        notes.append(_describe_observed(ratio, sizes[0], observed / target_tps))
    if ratios is None:
        if ratio is None:
            notes.append("note: without --verify-cost, verifying a draft counts as one token: the best case")
        ratios = (1.0, *(ratio or 1.0,) * max(sizes))
    curve = costs.flat_curve(target_tps, drafter_tps, ratios=tuple(ratios), overhead_s=overhead_s)
    return _Costs(curve=curve, source=CostSource.RATES, notes=tuple(notes))


def _describe_observed(ratio: float, size: int, speedup: float) -> str:
    return (
        f"observed: {speedup:.2f}× of the target alone. Verifying {size + 1} tokens took {ratio:.2f} times "
        f"as long as decoding one (1: free, {size + 1}: no cheaper than decoding them one by one)."
    )


def _load_profile(name: str) -> _Costs:
    """Return a stored cost curve, and what it was measured on."""
    stored = [profile for profile in profiles.known() if profile.curve.draft]
    matching = (
        stored[-1:] if name == "last" else [profile for profile in stored if profile.id.startswith(name)]
    )
    if not stored:
        raise ValueError(f"there is no profile {name!r}: none is stored yet; `ggufspec tune` measures one")
    if not matching:
        raise ValueError(
            f"there is no profile {name!r}; `--profile list` lists them, `ggufspec tune` measures one"
        )
    notes = (f"costs: {_describe_profile(matching[-1])}",)
    return _Costs(curve=matching[-1].curve, source=CostSource.PROFILE, notes=notes)


def list_profiles() -> str:
    """Return the stored cost curves of pairs, one per line."""
    stored = (profile for profile in profiles.known() if profile.curve.draft)
    return "".join(f"{profile.id}  {_describe_profile(profile)}\n" for profile in stored)


def _describe_profile(profile: Profile) -> str:
    return _describe(profile.curve.measured_on, profile.measured_at)


def _describe(setup: MeasuredOn | None, measured_at: str) -> str:
    assert setup is not None
    assert setup.drafter is not None
    pair = f"{setup.target.filename} + {setup.drafter.filename}"
    machine = setup.machine
    place = ", ".join((*machine.gpus, machine.cpu)) if machine else "unknown machine"
    return f"{pair}, {units.counted(setup.threads or 0, 'thread')}, {place}, measured at {measured_at}"


def _costs_like(bundle: Path, names: tuple[str | None, str | None, str | None], access: hub.Access) -> _Costs:
    """Return the costs of a pair on the machine that a bundle measured.

    Raises:
        ValueError: the bundle has no cost curves, or the pair has no drafter.
        ResultsError: it is not a bundle.
        GgufspecError: a model is not available.
    """
    with archive.opened(bundle) as contents:
        file = contents.files.get(profiles.SHARED)
        shared = () if file is None else profiles.read_shared(file.read_bytes())
    if not shared:
        raise ValueError(f"{bundle} has no cost curves: only bundles of tuned pairs have some")
    pair = choosing.choose_pair(*names, access)
    target, draft = (shape(card, depth=0) for card in _read_two_cards(pair, access))
    profile = choose_profile(shared, target, draft)
    is_same = (profile.target, profile.drafter) == (target, draft)
    notes = [
        f"costs: {_describe(profile.curve.measured_on, profile.measured_at)}, from {bundle.name}",
        "note: the models lie on the devices as they did there; `ggufspec verify` recomputes these costs",
    ]
    if not is_same:
        notes.append("note: another pair was measured: times are scaled by the bytes that models read")
    return _Costs(
        curve=profile.curve if is_same else scale_curve(profile, target, draft),
        source=CostSource.BUNDLE,
        notes=tuple(notes),
    )


def _nearest_depth(depth: int, curve: CostCurve) -> float:
    """Return the context depth in tokens, or the nearest one that the curve covers."""
    return depth if curve.covers(depth) else min(max(depth, curve.depths[0]), curve.depths[-1])


def _choose_machines(
    machine: str | None, host: str | None, bandwidth: float | None, flops: float | None, *, n_gpus: int
) -> Machines:
    if machine is None and bandwidth and flops:
        peaks = DevicePeaks(name="as given", bandwidth=bandwidth, flops=flops, source="the command line")
        return Machines.of((peaks,), None if host is None else costs.find_device(host), n_gpus=n_gpus)
    if machine is None or bandwidth or flops:
        raise ValueError(
            "costs are missing: use --target-tps and --drafter-tps, or --machine, or --bandwidth and --flops,"
            " or --like"
        )
    return Machines.named(machine, host, n_gpus=n_gpus)


def _compute_costs(
    machines: Machines,
    offload: Offload,
    names: tuple[str | None, str | None, str | None],
    access: hub.Access,
    *,
    most_tokens: int,
    depth: int,
    overhead_s: float,
    users: int,
) -> _Costs:
    """Return the roofline of a pair that lies on the given machines.

    For several users it has the shallowest depth, too: each of them reads a context of its own.
    """
    target, draft = _read_two_cards(choosing.choose_pair(*names, access), access)
    curve = costs.roofline_of_parts(
        parts_of(target, offload, machines, depth=depth),
        parts_of(draft, offload.drafter_as_target, machines, depth=depth),
        most_tokens=most_tokens,
        depths=(depth,) if users == 1 else tuple(sorted({0, depth})),
        overhead_s=overhead_s,
    )
    return _Costs(
        curve=curve,
        source=CostSource.ROOFLINE,
        notes=machines.notes,
        token_bytes=bytes_of_token(target.n_embd, target.vocabulary.n_tokens),
    )


def _read_two_cards(pair: Pair, access: hub.Access) -> tuple[ModelCard, ModelCard]:
    """Return the headers of target and drafter.

    Raises:
        ValueError: there is no drafter.
        GgufspecError: a model is not available.
    """
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


def parse_acceptances(accept: Given | None, alpha: Given | None) -> list[Acceptance]:
    """Return the acceptances of ``accept`` or of ``alpha``.

    Args:
        accept: acceptance rates at every γ (0.7, 0.5-0.9), a rate at one γ (0.708@3), or shares by position.
        alpha: probabilities that each token is accepted (0.7, 0.5-0.9).

    Raises:
        ValueError: not exactly one of the two was given, or it is not an acceptance.
    """
    if accept is not None and alpha is not None:
        raise ValueError("use either --accept or --alpha")
    if alpha is not None:
        if not isinstance(alpha, str):
            return [Steady(value) for value in ([alpha] if isinstance(alpha, float | int) else alpha)]
        return [Steady(value) for value in _parse_range(alpha) or (_parse_share(alpha, _ALPHAS),)]
    if accept is None:
        raise ValueError("the acceptance is missing, for example --accept 0.7")
    if isinstance(accept, float | int):
        return [AcceptanceRate(accept)]
    if not isinstance(accept, str):
        return [Positions(tuple(accept))]
    rate, _, size = accept.partition("@")
    if size:
        if not size.isdecimal() or len(size) > _MOST_DIGITS:
            raise ValueError(f"{accept!r} is not an acceptance; examples: {_RATES}")
        return [Steady.from_rate(_parse_share(rate, _RATES), int(size))]
    if "," in accept:
        return [Positions(tuple(_parse_share(part, _RATES) for part in accept.split(",")))]
    return [AcceptanceRate(value) for value in _parse_range(accept) or (_parse_share(accept, _RATES),)]


def _parse_range(text: str) -> list[float]:
    """Return the values of a range such as 0.5-0.9+0.05; none where the text is not one."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return []
    first, last, step = float(match["first"]), float(match["last"]), float(match["step"] or 0.1)
    if not 0 <= first <= last <= 1 or step < 0.001:
        raise ValueError(f"{text!r} is not a range of acceptances; examples: 0.5-0.9, 0.5-0.9+0.05")
    count = int((last - first) / step + 1e-9) + 1
    if count > _MOST_ACCEPTANCES:
        raise ValueError(
            f"{text!r} has {count} values; at most {_MOST_ACCEPTANCES} are allowed: use a larger step"
        )
    return [round(first + number * step, 9) for number in range(count)]


def _parse_share(text: str, examples: str) -> float:
    try:
        return float(text.rstrip("%")) / (100 if "%" in text else 1)
    except ValueError:
        raise ValueError(f"{text!r} is not an acceptance; examples: {examples}") from None
