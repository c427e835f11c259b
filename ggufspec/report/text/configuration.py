"""A tuned configuration for people: the verdict, what it serves, and the commands that run it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping

from ggufspec import units
from ggufspec.analysis import models_of
from ggufspec.domain import Launch, RunSpec, Serving
from ggufspec.report.text import figures, judgements
from ggufspec.report.text.figures import llama_cpp
from ggufspec.results import Configuration, Recommendation, ResultSet

_MOST_NAMED = 8  # categories of texts, or prompts without one


def name(spec: RunSpec) -> str:
    """Return what drafts and how far: ``drafter.gguf, γ = 5, p-min 0.7``."""
    drafting = spec.drafting
    if drafting is None:
        return "the target alone"
    return ", ".join((models_of(spec)[-1], f"γ = {drafting.n_max}", *drafting.manner))


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
    yield verdict(configuration.overall)
    yield from policy(configuration.overall, configuration.by_category, configuration.launch)
    for better in configuration.passed_over:
        yield passed_over(better.spec, better.reason)
    yield from served(configuration.launch, configuration.serving)
    bench = shlex.quote(configuration.id)
    made = f"{configuration.made_at[:10]} on {configuration.machine.cpu}, {llama_cpp(configuration.build)}"
    yield f"Tuned on {made}: `ggufspec bench --tuned {bench}` measures it again."


def judged_by(results: ResultSet) -> str:
    """Return which texts a tuning was judged by, as a sentence."""
    prompts = dict.fromkeys(prompt for spec in results.current.specs for prompt in spec.prompts)
    named = Counter(prompt.category or prompt.id for prompt in prompts)
    parts = [f"{name} ({count})" if count > 1 else name for name, count in named.most_common(_MOST_NAMED)]
    more = ", …" if len(named) > _MOST_NAMED else ""
    return f"Judged by {units.counted(len(prompts), 'prompt')}: {', '.join(parts)}{more}."


def policy(
    overall: Recommendation, by_category: Mapping[str, Recommendation], launch: Launch | None
) -> Iterator[str]:
    """Yield on which categories drafting pays, and how to draft for these alone.

    Nothing where the same was found of all categories, with one configuration.

    Args:
        overall: over all prompts.
        by_category: for each category.
        launch: how llama-server answered.
    """
    drafts = {
        category: name(choice.candidate)
        for category, choice in by_category.items()
        if choice.candidate is not None and choice.candidate != overall.candidate
    }
    judged = {category: choice.judgement for category, choice in by_category.items()}
    found = judgements.policy({name: one for name, one in judged.items() if one is not None}, drafts)
    if found is None:
        return
    yield found
    decided = {choice.drafts for choice in by_category.values() if choice.is_decided}
    if launch is None or launch.switches is None or len(decided) < 2:
        return
    yield (
        'To follow this, send `"speculative.n_max": 0` with the other requests: llama-server was asked so, '
        "and drafted nothing."
        if launch.switches
        else "To follow this, serve the target alone for the other requests, beside this one: this "
        "llama-server drafts for every request, whatever draft size it asks for."
    )


def verdict(choice: Recommendation) -> str:
    """Return what is safe to run, and what was found, as one or two sentences."""
    spec, candidate, judgement = choice.spec, choice.candidate, choice.judgement
    users, speed = at_once(spec), f"{figures.rate(choice.tokens_per_s)} tokens/s"
    safe = f"The target alone is what is safe{users}: {speed}."
    if candidate is None or judgement is None:
        return f"Undecided: no configuration that drafts was measured with the target's own text. {safe}"
    drafts = f"{name(candidate)}{users}"
    ratio, basis = judgements.ratio(judgement), judgements.basis(judgement)
    if spec.drafting is not None:
        return f"Draft with {drafts}: {ratio} of the target alone ({basis})."
    if not judgement.is_decided:
        needs = judgements.sentence(judgements.needs(judgement))
        return (
            f"Undecided: {drafts} is {judgements.undecided(judgement)}. {needs} "
            f"Meanwhile, the target alone is what is safe: {speed}."
        )
    if judgement.pays:
        return f"{drafts} is {ratio} of the target alone ({basis}), but cannot be served. {safe}"
    best = f"{drafts}, which comes closest, is {ratio} of it ({basis})"
    return f"Do not draft{users}: the target alone has {speed}, and {best}."
