"""``ggufspec.whatif``: from options to acceptances and a cost curve, and from these to projections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggufspec import units
from ggufspec.domain import Acceptance, AcceptanceRate, Offload, Program, parse_acceptances
from ggufspec.forecast.profiles import kept_experts
from ggufspec.forecast.whatif.cost_sources import (
    CostSource,
    choose_machines,
    costs_of_pair,
    describe_experts,
    find_costs,
    read_two_cards,
)
from ggufspec.forecast.whatif.outlooks import Network, WhatIfProjection, best as fastest, outlook
from ggufspec.forecast.whatif.places import MachineMemory, PlacedPair
from ggufspec.modelfiles import gguf, memory
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
    users = 1 if asked.parallel is None else asked.parallel[0]
    _check_users(asked, users)
    acceptances = parse_acceptances(asked.accept, asked.alpha)
    covered = _keep_known(
        asked.draft, lambda size: size <= min(acceptance.most or size for acceptance in acceptances)
    )
    if asked.vram is not None:
        return _at_fastest_places(asked, covered, acceptances, depth=asked.ctx)
    made = find_costs(asked, covered, acceptances, users=users, depth=asked.ctx)
    covered = _keep_known(covered, lambda size: users * (size + 1) <= made.curve.most_tokens)
    at_depth = made.curve.nearest_depth(asked.ctx)
    notes, network = list(made.notes), _choose_network(asked, made.token_bytes)
    if network is not None:
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
                program=Program(asked.program),
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
    split = only(asked.tensor_split) or ()
    machines = choose_machines(asked, n_gpus=len(asked.vram) if len(asked.vram) > 1 else len(split))
    target, draft = cards = read_two_cards(asked)
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
    rate = units.format_rate(1 / alone.round_s)
    curves = {
        place.n_max: costs_of_pair(
            cards,
            place.offload,
            machines,
            most_tokens=place.n_max + 1,
            depths=(depth,),
            overhead_s=asked.overhead / 1000,
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
                program=Program(asked.program),
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


def _keep_known(sizes: Sequence[int], is_known: Callable[[int], bool]) -> list[int]:
    """Return the draft sizes of which all is known.

    Raises:
        ValueError: it is of none.
    """
    known = [*filter(is_known, sizes)]
    if not known:
        raise ValueError("no acceptance or cost is known for drafts of these sizes")
    return known


def _choose_network(asked: WhatIfOptions, token_bytes: float | None) -> Network | None:
    """Return the network between a program and the workers that hold its target; None without one.

    Args:
        asked: the options.
        token_bytes: what each token sends and gets, unless the options say it; None where it is not known.

    Raises:
        ValueError: a number is out of range, or a bandwidth was given and nothing says what is sent.
    """
    if asked.rtt is None:
        return None
    if asked.rtt < 0 or asked.round_trips < 0:
        raise ValueError("--rtt and --round-trips are 0 or more")
    token_bytes = token_bytes if asked.token_bytes is None else asked.token_bytes
    if asked.bandwidth is not None and (token_bytes is None or asked.bandwidth <= 0):
        raise ValueError("the bandwidth of a network needs the bytes of a token: add --token-bytes")
    return Network(
        rtt_s=asked.rtt / 1000,
        bytes_per_s=asked.bandwidth,
        round_trips=asked.round_trips,
        token_bytes=token_bytes or 0.0,
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


def _check_users(asked: WhatIfOptions, users: int) -> None:
    """Refuse several users where nothing says what their batches cost.

    Raises:
        ValueError: the program answers one request at a time, or the costs are of single drafts.
    """
    if users > 1 and asked.program != Program.SERVER.value:
        raise ValueError(f"{asked.program} answers one request at a time; several users need the server")
    if users > 1 and asked.target_tps is not None and asked.verify_cost is None:
        raise ValueError(
            "--parallel needs the cost of batches of N(γ+1) tokens: add --verify-cost with as many numbers, "
            "or use --machine or --profile"
        )
