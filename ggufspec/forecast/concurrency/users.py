"""Traces × a cost curve × a number of users -> tokens/s of all users together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec.domain import Program
from ggufspec.forecast.concurrency.lockstep import Served, TracedRequest, serve
from ggufspec.forecast.concurrency.pass_costs import ServerCosts
from ggufspec.forecast.concurrency.passes import BATCH, UBATCH, most_rows
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.trace import DraftTrace, TraceStep, steps


@dataclass(frozen=True, kw_only=True)
class UsersForecast:
    """What one draft size does for several users.

    Attributes:
        users: who send requests at once.
        n_max: γ.
        served: with drafting.
        served_alone: by the target alone, for as many users.
        beyond: whether the drafts of all slots may be more tokens than a timed batch has; such batches are
            taken to cost in proportion to their tokens.
    """

    users: int
    n_max: int
    served: Served
    served_alone: Served
    beyond: bool

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all users per second."""
        return self.served.tokens_per_s

    @property
    def speedup(self) -> float:
        """Tokens/s over those of the target alone for as many users."""
        return self.served.tokens_per_s / self.served_alone.tokens_per_s


def forecast_users(
    traces: Sequence[DraftTrace],
    curve: CostCurve,
    *,
    users: int,
    n_max: int,
    n_requests: int,
    n_predict: int,
    p_min: float = 0.0,
    depth: int = 0,
    batch: int = BATCH,
    ubatch: int = UBATCH,
    unified: bool = False,
    build: int | None = None,
) -> UsersForecast:
    """Return the forecast of one draft size for users of llama-server who draft with a model.

    Args:
        traces: of the prompts, in the order in which they are dealt.
        curve: the costs of target and drafter, of one sequence.
        users: who send requests at once; each has a slot.
        n_max: γ.
        n_requests: requests that count, more than users.
        n_predict: tokens of each answer.
        p_min: see ``trace.steps``.
        depth: tokens of other text before each prompt, evaluated with it.
        batch: tokens of a batch (``-b``).
        ubatch: tokens of a pass (``-ub``).
        unified: whether all slots share one cache (``-kvu``).
        build: llama.cpp's build number; None for today's.

    Raises:
        ValueError: a trace is too short, drafts do not fit into a batch, or a cost is not known.
    """
    drafting: list[TracedRequest] = []
    alone: list[TracedRequest] = []
    for trace in traces:
        rounds = steps(
            trace, n_max=n_max, program=Program.SERVER, n_predict=n_predict, p_min=p_min, build=build
        )
        last = rounds[-1].at + 1 + int(rounds[-1].accepted) if rounds else 0
        single = tuple(TraceStep(at, 1.0, 0, 0.0, 0) for at in range(1, last))
        drafting.append(TracedRequest(n_prompt=trace.n_prompt + depth, rounds=rounds))
        alone.append(TracedRequest(n_prompt=trace.n_prompt + depth, rounds=single))
    costs = ServerCosts(curve)
    served, served_alone = (
        serve(
            requests,
            users,
            costs,
            n_requests=n_requests,
            drafts=drafts,
            batch=batch,
            ubatch=ubatch,
            unified=unified,
        )
        for requests, drafts in ((drafting, True), (alone, False))
    )
    return UsersForecast(
        users=users,
        n_max=n_max,
        served=served,
        served_alone=served_alone,
        beyond=most_rows(users, n_max) > curve.most_tokens,
    )
