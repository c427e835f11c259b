"""A bench of several users at once: what they send, and how its runs differ from those of single prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ggufspec.domain import ENGINES, Program, Prompt, Traffic
from ggufspec.engines.server import LEARNING_METHODS
from ggufspec.errors import GgufspecError
from ggufspec.measure.sweep import RunPlan, Sweep
from ggufspec.serving import plan_traffic
from ggufspec.units import counted

PROMPT = Prompt(id="traffic", text="")
"""Stands for the prompts of ``RunSpec.traffic`` in the runs of several users."""


def check_engine(parallel: int | tuple[int, ...] | None, engine: str) -> None:
    """Make sure that an engine can measure several users.

    Raises:
        GgufspecError: it cannot.
    """
    if parallel is not None and ENGINES[engine] is not Program.SERVER:
        raise GgufspecError(
            f"the engine {engine} answers one request after another", "add --engine server for --parallel"
        )


def plan_traffics(
    prompts: Sequence[Prompt], users: Sequence[int | None], *, seed: int
) -> Iterator[Traffic | None]:
    """Yield the traffic of each number of users; None for one request after another.

    Args:
        prompts: what users send.
        users: how many send requests at once, an axis.
        seed: fixes the order in which prompts are dealt.
    """
    for number in users:
        yield None if number is None else plan_traffic(prompts, number, seed=seed)


def plan_runs(suite: RunPlan) -> RunPlan:
    """Return the runs of a bench with traffic: one run is one load of the models with all its requests.

    It needs no warm-ups, because the requests before the steady window are left out, and no anchors, because
    each would take as long as an arm.
    """
    return replace(suite, prompts=(PROMPT,), warmup_prompts=(), warmups=0, has_anchors=False)


def describe(sweep: Sweep) -> Iterator[str]:
    """Yield notes about the traffic of a sweep."""
    traffics = [traffic for traffic in sweep.traffics if traffic is not None]
    if not traffics:
        return
    for traffic in traffics:
        yield (
            f"traffic: {counted(traffic.users, 'user')}, {traffic.n_requests} requests of "
            f"{counted(len(traffic.prompts), 'prompt')} in each run; each user's first request is left out"
        )
    learning = [method.value for method in sweep.methods if method in LEARNING_METHODS]
    if learning and any(traffic.n_requests > len(traffic.prompts) for traffic in traffics):
        yield (
            f"traffic: {', '.join(learning)} learns from earlier requests and drafts its earlier answers, "
            "because prompts are sent more than once: give as many prompts as requests"
        )
