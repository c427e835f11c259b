"""A tuned configuration for people: the verdict, what it serves, and the commands that run it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ggufspec import units
from ggufspec.analysis import models_of
from ggufspec.domain import Estimate, Launch, RunSpec, Serving
from ggufspec.report.text.figures import llama_cpp
from ggufspec.results import Configuration, Recommendation, Verdict


def name(spec: RunSpec) -> str:
    """Return what drafts and how far: ``drafter.gguf, γ = 5, p-min 0.7``."""
    drafting = spec.drafting
    if drafting is None:
        return "the target alone"
    p_min = f", p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
    return f"{models_of(spec)[-1]}, γ = {drafting.n_max}{p_min}"


def at_once(spec: RunSpec) -> str:
    """Return for how many users at once something was measured: `` for 4 users at once``, or nothing."""
    return "" if spec.traffic is None else f" for {units.counted(spec.traffic.users, 'user')} at once"


def passed_over(spec: RunSpec, reason: str) -> str:
    """Return why a faster configuration was not taken."""
    return f"Not taken, although it was faster: {name(spec)}, because llama-server cannot serve it: {reason}."


def served(launch: Launch | None, serving: Serving | None) -> Iterator[str]:
    """Yield what llama-server answered when it was started as printed, or why its command is not printed."""
    if launch is None or serving is None:
        return
    if launch.failure is not None:
        yield f"llama-server cannot serve it: {launch.failure}. Its command is not printed for that reason."
        return
    slots = "one request at a time" if serving.slots == 1 else f"{serving.slots} requests at once"
    sizes = " and ".join(
        f"{units.format_count(request.prompt_tokens)} + {request.answer_tokens} tokens"
        for request in launch.requests
    )
    yield f"It serves {slots}, each of up to {units.format_count(serving.context)} tokens."
    yield f"llama-server was started by exactly its command, and answered requests of {sizes}."


def lines(configuration: Configuration) -> Iterator[str]:
    """Yield the sentences on a configuration and the command that serves it, a line each."""
    *sentences, basis = sentences_of(configuration)
    yield from sentences
    if configuration.serving_argv:
        yield f"    {shlex.join(configuration.serving_argv)}"
    yield basis


def sentences_of(configuration: Configuration) -> Iterator[str]:
    """Yield the verdict, what is served, and last what it rests on."""
    yield f"Tuned: {verdict(configuration.overall)}"
    for category, choice in configuration.by_category.items():
        yield f"For {category}: {verdict(choice)}"
    for one in configuration.passed_over:
        yield passed_over(one.spec, one.reason)
    yield from served(configuration.launch, configuration.serving)
    bench = shlex.quote(configuration.id)
    made = f"{configuration.made_at[:10]} on {configuration.machine.cpu}, {llama_cpp(configuration.build)}"
    yield f"Tuned on {made}: `ggufspec bench --tuned {bench}` measures it again."


def verdict(choice: Recommendation) -> str:
    """Return a recommendation as a sentence."""
    if choice.verdict is Verdict.DO_NOT_DRAFT:
        best = units.format_rate(choice.tokens_per_s.value)
        return f"do not draft{at_once(choice.spec)}; the target alone is fastest with {best} tokens/s."
    doubt = ", which may be chance" if choice.verdict is Verdict.MAY_BE_CHANCE else ""
    gain = f": {_speedup(choice.speedup)} of the target alone{doubt}" if choice.speedup is not None else ""
    return f"draft with {name(choice.spec)}{at_once(choice.spec)}{gain}."


def _speedup(ratio: Estimate) -> str:
    span = f" [{ratio.lo:.2f}, {ratio.hi:.2f}]" if ratio.lo is not None and ratio.hi is not None else ""
    return f"{units.format_factor(ratio.value)}{span}"
