"""Outlook: one draft size at one acceptance; and the way back, from a speed to what verification costs.

A network to workers that hold the target costs each of its passes round trips and the time of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import Acceptance, Program, Steady
from ggufspec.forecast.concurrency import ServerCosts, equal_round_seconds
from ggufspec.forecast.costs import CostCurve, CurveKind
from ggufspec.forecast.whatif.places import Places

_FLOAT = 4  # bytes of a value of hidden states and logits


@dataclass(frozen=True, kw_only=True)
class Network:
    """The network to workers that evaluate the target.

    Attributes:
        rtt_s: seconds of a round trip.
        bytes_per_s: bandwidth; None where the time of the data is left out.
        round_trips: of each pass of the target, over all workers.
        token_bytes: that each token of a pass sends and gets, over all workers.
    """

    rtt_s: float
    bytes_per_s: float | None = None
    round_trips: float = 1.0
    token_bytes: float = 0.0

    def pass_s(self, n_tokens: int) -> float:
        """Return the seconds that a pass with so many tokens spends on the network.

        A pass waits for each of its round trips. Verification of a draft is one pass, as is one token
        without drafting: that is why drafting gains more over a network.
        """
        data_s = 0.0 if self.bytes_per_s is None else n_tokens * self.token_bytes / self.bytes_per_s
        return self.round_trips * self.rtt_s + data_s


def bytes_of_token(n_embd: int, n_vocab: int) -> int:
    """Return what a token sends to a worker that holds all layers and the output, and gets from it.

    These are its embedding, which is computed where the program runs, and its logits.

    Args:
        n_embd: the width of the target.
        n_vocab: tokens of its vocabulary.
    """
    return _FLOAT * (n_embd + n_vocab)


@dataclass(frozen=True, kw_only=True)
class WhatIfProjection:
    """What drafting would do.

    Attributes:
        n_max: γ.
        acceptance: what was assumed.
        accept_rate: accepted over drafted tokens.
        mean_accepted_length: tokens per round with the target's own.
        tokens_per_s: of the pair, for all users together.
        speedup: over the target alone for as many users.
        break_even_accept_rate: accepted over drafted tokens at which nothing is gained; above 1 no
            acceptance is enough.
        break_even_alpha: the same as a steady α; None where no α is enough.
        verify_ratio: the target's time for a round over its time for one token of each user.
        draft_share: the drafter's share of the time.
        users: who are served at once.
        places: where the parts of both models are, where that was searched.
    """

    n_max: int
    acceptance: Acceptance
    accept_rate: float
    mean_accepted_length: float
    tokens_per_s: float
    speedup: float
    break_even_accept_rate: float
    break_even_alpha: float | None
    verify_ratio: float
    draft_share: float
    users: int = 1
    places: Places | None = None


def outlook(
    curve: CostCurve,
    acceptance: Acceptance,
    *,
    n_max: int,
    depth: float = 0,
    program: Program = Program.SERVER,
    users: int = 1,
    network: Network | None = None,
    places: Places | None = None,
    apart_s: float | None = None,
) -> WhatIfProjection:
    """Return what drafts of ``n_max`` tokens would do.

    Several users draft in step, each with a complete draft: that is one step of the server of
    ``forecast.concurrency``. The evaluation of prompts is left out.

    Args:
        curve: the costs of target and drafter.
        acceptance: how much is accepted.
        n_max: γ, 1 or more.
        depth: tokens in the context.
        program: whose drafter: the tree program's reads the target's own token alone, the others' the
            whole verified batch.
        users: who are served at once; several need the server, and a curve with its drafter's batches.
        network: to workers that evaluate the target; None where it is on this machine, as in the curve.
        places: of the curve, where they were searched.
        apart_s: seconds of a token of the target alone at places of its own; None for those of the curve.

    Raises:
        ValueError: the curve knows no such batch, or the acceptance no such position.
    """
    if users > 1:
        alone_s, verify_s, draft_s = _shared_s(curve, n_max, depth, users)
    else:
        alone_s = curve.seconds(CurveKind.VERIFY, 1, depth).value
        verify_s = curve.seconds(CurveKind.VERIFY, n_max + 1, depth).value
        draft_s = _draft_s(curve, n_max, depth, program)
    if network is not None:
        alone_s += network.pass_s(users)
        verify_s += network.pass_s(users * (n_max + 1))
    target_s = (apart_s or alone_s) + curve.plain_overhead_s.value + users * curve.choose_s.value
    accepted = acceptance.accepted(n_max)
    round_s = verify_s + draft_s + curve.overhead_s.value + users * (1 + accepted) * curve.choose_s.value
    even = (round_s / target_s - 1) / n_max
    return WhatIfProjection(
        n_max=n_max,
        acceptance=acceptance,
        accept_rate=accepted / n_max,
        mean_accepted_length=1 + accepted,
        tokens_per_s=users * (1 + accepted) / round_s,
        speedup=(1 + accepted) * target_s / round_s,
        break_even_accept_rate=even,
        break_even_alpha=Steady.from_rate(max(even, 0.0), n_max).alpha if even <= 1 else None,
        verify_ratio=verify_s / alone_s,
        draft_share=draft_s / round_s,
        users=users,
        places=places,
    )


def best(outlooks: Sequence[WhatIfProjection]) -> WhatIfProjection:
    """Return the fastest; of those as fast the one with the smallest γ."""
    return max(outlooks, key=lambda outlook: (outlook.speedup, -outlook.n_max))


def implied_verify_ratio(
    curve: CostCurve,
    observed_tps: float,
    acceptance: Acceptance,
    *,
    n_max: int,
    depth: float = 0,
    program: Program = Program.SERVER,
) -> float:
    """Return the target's time for a round over its time for one token that an observed speed implies.

    All that is neither the drafter's nor the overhead of the curve counts as verification.

    Args:
        curve: the costs; its times for batches of more than one token are not used.
        observed_tps: tokens/s of the pair while drafting.
        acceptance: what was accepted meanwhile.
        n_max: γ; the rounds must have drafted this many.
        depth: tokens in the context.
        program: which one was observed.

    Raises:
        ValueError: the drafter alone would have taken longer.
    """
    written = 1 + acceptance.accepted(n_max)
    besides_s = curve.overhead_s.value + written * curve.choose_s.value
    left = written / observed_tps - _draft_s(curve, n_max, depth, program) - besides_s
    if left <= 0:
        raise ValueError("drafting alone would take longer than these rounds")
    return left / curve.seconds(CurveKind.VERIFY, 1, depth).value


def _shared_s(curve: CostCurve, n_max: int, depth: float, users: int) -> tuple[float, float, float]:
    """Return the target's seconds for a token of each user and for a round of all, and the drafter's.

    Raises:
        ValueError: the curve knows no batch of so many tokens.
    """
    if users * (n_max + 1) > curve.most_tokens:
        raise ValueError(f"no cost is known for {users} drafts of {n_max} tokens at once")
    costs = ServerCosts(curve)
    alone = equal_round_seconds(costs, users=users, n_max=0, depth=depth, drafts=False)
    drafting = equal_round_seconds(costs, users=users, n_max=n_max, depth=depth)
    return alone.verify_s, drafting.verify_s, drafting.draft_s


def _draft_s(curve: CostCurve, n_max: int, depth: float, program: Program) -> float:
    one_token_s = curve.seconds(CurveKind.DRAFT, 1, depth).value
    if program is Program.TREE:
        return (n_max + 1) * one_token_s
    return n_max * one_token_s + (
        curve.seconds(CurveKind.ABSORB, n_max + 1, depth).value if curve.absorb else 0.0
    )
