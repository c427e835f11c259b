"""``ggufspec.whatif``: from options to acceptances and a cost curve, and from these to projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ggufspec import units
from ggufspec.domain import (
    AcceptanceRate,
    Experts,
    GivenAcceptance,
    Layers,
    ModelRun,
    Offload,
    Program,
    parse_acceptances,
)
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.whatif.cost_sources import (
    CostSource,
    choose_machines,
    compute_costs,
    costs_like,
    costs_of_rates,
    load_profile,
)
from ggufspec.forecast.whatif.network import Network
from ggufspec.forecast.whatif.outlooks import WhatIfProjection, outlook
from ggufspec.forecast.whatif.outlooks import best as fastest
from ggufspec.modelfiles import hub
from ggufspec.notebooks import named_options


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


@named_options
def whatif(
    pair: str | None = None,
    *,
    accept: GivenAcceptance | None = None,
    alpha: GivenAcceptance | None = None,
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
    covered = [size for size in sizes if size <= min(acceptance.most or size for acceptance in acceptances)]
    if not covered:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    offload = Offload(
        target=ModelRun(layers=ngl, cpu_moe=cpu_moe),
        drafter=ModelRun(layers=ngld, cpu_moe=draft_cpu_moe),
        tensor_split=tuple(tensor_split or ()),
    )
    if rtt is not None and flops:
        raise ValueError("with --rtt, --bandwidth is that of the network: name the machine with --machine")
    network_bandwidth, bandwidth = (None, bandwidth) if rtt is None else (bandwidth, None)
    names_machine = any((machine, host, bandwidth, flops))
    names_models = any((names_machine, pair, target))
    if like is not None:
        if profile is not None or target_tps or drafter_tps or names_machine or offload != Offload():
            raise ValueError("--like takes rates, machine and placement from the bundle: name only models")
        made = costs_like(Path(like), (pair, target, draft_model), hub.Access(token=token, offline=offline))
    elif profile is not None:
        if target_tps or drafter_tps or names_models:
            raise ValueError("use either --profile, or rates, or models and a machine")
        made = load_profile(profile)
    elif target_tps is None or drafter_tps is None:
        if target_tps or drafter_tps or observed:
            raise ValueError("--target-tps and --drafter-tps are needed together")
        made = compute_costs(
            choose_machines(machine, host, bandwidth, flops, n_gpus=len(offload.tensor_split)),
            offload,
            (pair, target, draft_model),
            hub.Access(token=token, offline=offline),
            most_tokens=parallel * (max(covered) + 1),
            depth=in_context,
            users=parallel,
            overhead_s=overhead / 1000,
        )
    elif names_models:
        raise ValueError("use either rates, or models and a machine")
    else:
        made = costs_of_rates(
            target_tps,
            drafter_tps,
            verify_cost,
            verify_ratio,
            observed,
            covered,
            acceptances,
            depth=in_context,
            overhead_s=overhead / 1000,
            program=chosen_program,
        )
    covered = [size for size in covered if parallel * (size + 1) <= made.curve.most_tokens]
    if not covered:
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
    if len(covered) < len(sizes):
        notes.append(f"note: no acceptance or cost is known for drafts of more than {max(covered)} tokens")
    if len(covered) > 1 and isinstance(acceptances[0], AcceptanceRate):  # which no drafter has
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
            for size in covered
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


def _nearest_depth(depth: int, curve: CostCurve) -> float:
    """Return the context depth in tokens, or the nearest one that the curve covers."""
    return depth if curve.covers(depth) else min(max(depth, curve.depths[0]), curve.depths[-1])
