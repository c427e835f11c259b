"""``ggufspec.whatif``: from options to acceptances and a cost curve, and from these to projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec import units
from ggufspec.domain import Acceptance, AcceptanceRate, ModelRun, Offload, Program, parse_acceptances
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.profiles import kept_experts
from ggufspec.forecast.whatif.cost_sources import (
    Costs,
    CostSource,
    choose_machines,
    compute_costs,
    costs_like,
    costs_of_pair,
    costs_of_rates,
    describe_experts,
    load_profile,
    read_two_cards,
)
from ggufspec.forecast.whatif.outlooks import Network, WhatIfProjection, best as fastest, outlook
from ggufspec.forecast.whatif.places import MachineMemory, PlacedPair
from ggufspec.modelfiles import choosing, gguf, hub, memory
from ggufspec.options import WhatIfOptions, only, takes


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


@takes(WhatIfOptions, "pair")
def whatif(asked: WhatIfOptions) -> WhatIf:
    """Forecast what drafting would gain, as ``ggufspec whatif`` does; nothing is downloaded or run.

    Costs come from two rates, from headers and published peaks of machines, from a profile of ``tune``, or
    from the machine of a bundle. Times are in milliseconds.

    Raises:
        ValueError: the options are incomplete, or contradict each other.
        GgufspecError: a model is not available, or the bundle cannot be read.
    """
    if asked.names_servers or asked.server_log is not None:
        raise ValueError("a server that runs is asked by whatif_served")
    program, users = Program(asked.program), 1 if asked.parallel is None else asked.parallel[0]
    by_rates = asked.target_tps is not None and asked.verify_cost is None
    _check_users(users, program, is_by_rates=by_rates)
    acceptances = parse_acceptances(asked.accept, asked.alpha)
    covered = [
        size for size in asked.draft if size <= min(acceptance.most or size for acceptance in acceptances)
    ]
    if not covered:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    if asked.vram is not None:
        return _at_fastest_places(asked, covered, acceptances, depth=asked.ctx)
    made = _find_costs(asked, covered, acceptances, users=users, depth=asked.ctx)
    covered = [size for size in covered if users * (size + 1) <= made.curve.most_tokens]
    if not covered:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    at_depth = _nearest_depth(asked.ctx, made.curve)
    notes = list(made.notes)
    network = None
    if asked.rtt is not None:
        sent = made.token_bytes if asked.token_bytes is None else asked.token_bytes
        network = _choose_network(asked.rtt / 1000, asked.bandwidth, asked.round_trips, sent)
        notes.append(_describe_network(network))
    if users > 1:
        notes.append(
            f"note: {users} users draft in step, each with a complete draft; the evaluation of prompts is "
            "left out, and batches of several users cost what as many tokens of one cost"
        )
    if len(covered) < len(asked.draft):
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
                program=program,
                users=users,
                network=network,
            )
            for acceptance in acceptances
            for size in covered
        ),
        costs=made.source,
        notes=tuple(notes),
    )


def _at_fastest_places(
    asked: WhatIfOptions, sizes: Sequence[int], acceptances: Sequence[Acceptance], *, depth: int
) -> WhatIf:
    """Return projections of each draft size at its fastest places, beside the target alone at its own.

    Raises:
        ValueError: the options contradict that, or the pair fits nowhere.
    """
    places_asked = only(asked.ngl) != "auto" or only(asked.ngld) != "auto" or asked.cpu_moe is not None
    if places_asked or asked.rtt is not None or asked.parallel != (1,):
        raise ValueError(
            "--vram searches the places for one user: leave out --ngl, --ngld, --n-cpu-moe, --rtt"
        )
    assert asked.vram is not None
    access, split = hub.Access.of(asked), only(asked.tensor_split) or ()
    n_gpus = len(asked.vram) if len(asked.vram) > 1 else len(split)
    machines = choose_machines(asked.machine, asked.host, asked.bandwidth, asked.flops, n_gpus=n_gpus)
    names = asked.pair, only(asked.target), only(asked.draft_model)
    target, draft = cards = read_two_cards(choosing.choose_pair(*names, access), access)
    pair = PlacedPair(
        target=target,
        draft=draft,
        settings=memory.MemorySettings(
            context=max(depth, _LEAST_CONTEXT),
            n_draft=max(sizes),
            projector_bytes=gguf.projector_bytes(only(asked.mmproj)),
        ),
        offload=Offload(tensor_split=split),
        machines=machines,
        room=MachineMemory(vram_bytes=asked.vram, host_bytes=asked.ram, reserve_bytes=asked.reserve),
        depth=depth,
        experts=kept_experts(target),
    )
    alone, *places = pair.fastest((0, *sizes)) or (None,)
    if alone is None or alone.n_max or not places:
        raise ValueError("the pair does not fit into this memory: name more with --vram and --ram")
    overhead_s, program = asked.overhead / 1000, Program(asked.program)
    rate = units.format_rate(1 / alone.round_s)
    curves = {
        place.n_max: costs_of_pair(
            cards,
            place.offload,
            machines,
            most_tokens=place.n_max + 1,
            depths=(depth,),
            overhead_s=overhead_s,
        )
        for place in places
    }
    return WhatIf(
        projections=tuple(
            outlook(
                curves[place.n_max],
                acceptance,
                n_max=place.n_max,
                depth=depth,
                program=program,
                places=place,
                apart_s=alone.round_s,
            )
            for acceptance in acceptances
            for place in places
        ),
        costs=CostSource.HEADERS,
        notes=(
            *machines.notes,
            *describe_experts(target),
            f"the target alone, where it is fastest: {rate} tokens/s with {alone.words}",
        ),
    )


_LEAST_CONTEXT = 256  # tokens, of what is planned


def _find_costs(
    asked: WhatIfOptions,
    sizes: Sequence[int],
    acceptances: Sequence[Acceptance],
    *,
    users: int,
    depth: int,
) -> Costs:
    """Return the costs of rounds, from the one source of them that the options name.

    Raises:
        ValueError: they name none, or two.
    """
    offload = Offload(
        target=ModelRun(layers=only(asked.ngl), cpu_moe=only(asked.cpu_moe)),
        drafter=ModelRun(layers=only(asked.ngld), cpu_moe=only(asked.draft_cpu_moe)),
        tensor_split=only(asked.tensor_split) or (),
    )
    if asked.rtt is not None and asked.flops:
        raise ValueError("with --rtt, --bandwidth is that of the network: name the machine with --machine")
    bandwidth = asked.bandwidth if asked.rtt is None else None
    names_machine = any((asked.machine, asked.host, bandwidth, asked.flops))
    names_models = any((names_machine, asked.pair, asked.target))
    models = asked.pair, only(asked.target), only(asked.draft_model)
    target_tps, drafter_tps = asked.target_tps, asked.drafter_tps
    if asked.like is not None:
        if asked.profile is not None or target_tps or drafter_tps or names_machine or offload != Offload():
            raise ValueError("--like takes rates, machine and placement from the bundle: name only models")
        return costs_like(asked.like, models, hub.Access.of(asked))
    if asked.profile is not None:
        if target_tps or drafter_tps or names_models:
            raise ValueError("use either --profile, or rates, or models and a machine")
        return load_profile(asked.profile)
    if target_tps is None or drafter_tps is None:
        if target_tps or drafter_tps or asked.observed:
            raise ValueError("--target-tps and --drafter-tps are needed together")
        return compute_costs(
            choose_machines(
                asked.machine, asked.host, bandwidth, asked.flops, n_gpus=len(offload.tensor_split)
            ),
            offload,
            models,
            hub.Access.of(asked),
            most_tokens=users * (max(sizes) + 1),
            depth=depth,
            users=users,
            overhead_s=asked.overhead / 1000,
        )
    if names_models:
        raise ValueError("use either rates, or models and a machine")
    return costs_of_rates(
        target_tps,
        drafter_tps,
        asked.verify_cost,
        asked.verify_ratio,
        asked.observed,
        sizes,
        acceptances,
        depth=depth,
        overhead_s=asked.overhead / 1000,
        program=Program(asked.program),
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
