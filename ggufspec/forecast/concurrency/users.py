"""Traces × a cost curve × a number of users -> tokens/s of all users together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ggufspec.forecast.concurrency.lockstep import (
    BATCH,
    UBATCH,
    Served,
    ServerCosts,
    TracedRequest,
    most_rows,
    serve,
)
from ggufspec.forecast.costs import CostCurve
from ggufspec.forecast.forecasting import Forecast
from ggufspec.forecast.trace import DraftTrace, TracedRun, TraceStep, walk
from ggufspec.stats import Estimate

TOGETHER = "all users"
"""Stands for the prompts in the rates of a forecast of several users, whose requests share every step."""


@dataclass(frozen=True, kw_only=True)
class UsersForecast:
    """What one draft size does for several users.

    Attributes:
        users: who send requests at once.
        run: what drafts, and how much.
        served: with drafting.
        served_alone: by the target alone, for as many users.
        beyond: whether the drafts of all slots may be more tokens than a timed batch has; such batches are
            taken to cost in proportion to their tokens.
        prompts: how many there are.
    """

    users: int
    run: TracedRun
    served: Served
    served_alone: Served
    beyond: bool
    prompts: int = 1

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all users per second."""
        return self.served.tokens_per_s

    @property
    def speedup(self) -> float:
        """Tokens/s over those of the target alone for as many users."""
        return self.served.tokens_per_s / self.served_alone.tokens_per_s

    @property
    def forecast(self) -> Forecast:
        """The same as one forecast over all prompts, without intervals.

        Its seconds per round and per token are those of all users together, so a round of one user among four
        takes a quarter of the time of a step.
        """
        served, total_s = self.served, self.served.spent.total_s
        length = 1 + served.n_accepted / served.n_rounds
        round_s, target_s = length / self.tokens_per_s, 1 / self.served_alone.tokens_per_s
        even = (round_s / target_s - 1) * served.n_rounds / served.n_drafted if served.n_drafted else None
        return Forecast(
            run=self.run,
            prompts=self.prompts,
            n_drafted=served.n_drafted,
            n_accepted=served.n_accepted,
            n_rounds=served.n_rounds,
            tokens_per_s=Estimate.around(self.tokens_per_s),
            target_tokens_per_s=Estimate.around(self.served_alone.tokens_per_s),
            speedup=Estimate.around(self.speedup),
            break_even_accept_rate=even,
            closed_form_speedup=None,
            draft_share=served.spent.draft_s / total_s,
            verify_share=(served.spent.verify_s + served.spent.choose_s) / total_s,
            rest_share=served.spent.rest_s / total_s,
            round_s=round_s,
            target_s=target_s,
            rates={TOGETHER: self.tokens_per_s},
            clamped=self.beyond,
        )


def forecasts_of_users(
    traces: Sequence[DraftTrace],
    curve: CostCurve,
    runs: Iterable[TracedRun],
    *,
    users: int,
    n_requests: int,
    depth: int = 0,
    batch: int = BATCH,
    ubatch: int = UBATCH,
) -> Iterator[UsersForecast]:
    """Yield the forecast of each run for users of llama-server.

    Args:
        traces: of the prompts, in the order in which they are dealt.
        curve: the costs of target and drafter, of one sequence.
        runs: of the server, each for the tokens of an answer.
        users: who send requests at once; each has a slot.
        n_requests: requests that count, more than users.
        depth: tokens of other text before each prompt, evaluated with it.
        batch: tokens of a batch (``-b``).
        ubatch: tokens of a pass (``-ub``).

    Raises:
        ValueError: a trace is too short, drafts do not fit into a batch, or a cost is not known.
    """
    costs = ServerCosts(curve)
    alone: dict[tuple[int, ...], Served] = {}  # runs of all draft sizes write about as many tokens

    def serve_all(written: Iterable[Sequence[TraceStep]], *, drafts: bool) -> Served:
        requests = [
            TracedRequest(n_prompt=trace.n_prompt + depth, rounds=tuple(rounds))
            for trace, rounds in zip(traces, written, strict=True)
        ]
        return serve(requests, users, costs, n_requests=n_requests, drafts=drafts, batch=batch, ubatch=ubatch)

    for run in runs:
        rounds = [walk(trace, run) for trace in traces]
        lengths = tuple(taken[-1].at + 1 + int(taken[-1].accepted) if taken else 0 for taken in rounds)
        if lengths not in alone:
            single = ([TraceStep(at, 1.0, 0, 0.0, 0) for at in range(1, length)] for length in lengths)
            alone[lengths] = serve_all(single, drafts=False)
        yield UsersForecast(
            users=users,
            run=run,
            served=serve_all(rounds, drafts=True),
            served_alone=alone[lengths],
            beyond=most_rows(users, run.drafting.n_max) > curve.most_tokens,
            prompts=len(traces),
        )
