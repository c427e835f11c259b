"""From a trace to the rounds of a greedy run that drafts from its own text: emulated, not estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ggufspec.domain import Method, Program
from ggufspec.forecast.trace.ngram_map import Map
from ggufspec.forecast.trace.ngram_methods import Cache, Drafter, Mod, Simple
from ggufspec.forecast.trace.rules import Rules
from ggufspec.forecast.trace.values import DraftTrace, TraceStep
from ggufspec.forecast.trace.walks import check_reach
from ggufspec.llama.command import draft_sizes

_DRAFTERS: Mapping[Method, Callable[..., Drafter]] = MappingProxyType(
    {
        Method.NGRAM_SIMPLE: Simple,
        Method.NGRAM_MAP_K: lambda n_max: Map(method=Method.NGRAM_MAP_K, n_max=n_max),
        Method.NGRAM_MAP_K4V: lambda n_max: Map(method=Method.NGRAM_MAP_K4V, n_max=n_max),
        Method.NGRAM_MOD: Mod,
        Method.NGRAM_CACHE: Cache,
    }
)
EMULATED = frozenset(_DRAFTERS)
"""The methods whose rounds follow from a text."""

_READ = 10476  # the first build whose methods were read; those of early 2026 draft in other ways


def why_not(method: Method, *, n_max: int, program: Program, build: int | None = None) -> str | None:
    """Return why no run of this kind can be emulated; None where it can."""
    if method not in EMULATED:
        return f"{method.value} drafts with a model, not from the text"
    if program not in {Program.SIMPLE, Program.SERVER}:
        return f"{program.value} does not draft by {method.value}"
    if build is not None and build < _READ:
        return f"how build {build} drafts by {method.value} is not known"
    if method is Method.NGRAM_CACHE and n_max not in draft_sizes(method):
        return f"{method.value} drafts up to {draft_sizes(method)[0]} tokens, never up to {n_max}"
    return None


def ngram_steps(
    trace: DraftTrace,
    *,
    method: Method,
    n_max: int,
    program: Program,
    n_predict: int,
    build: int | None = None,
) -> tuple[TraceStep, ...]:
    """Return what a greedy run does that drafts from its own text, round by round, as ``steps`` does.

    The text of a greedy run is fixed, and drafts follow from it: counts are those of a real run in a process
    of its own. What a program accepts beyond an end of generation is not counted. Rounds without a draft are
    there too. The context has to hold more than the text: programs draft less near its end.

    Args:
        trace: the text with its prompt's tokens, and as many tokens as ``needed`` says unless it ended.
        method: one of EMULATED, with the settings of LOOKUPS.
        n_max: γ, the longest draft.
        program: whose rules of where runs begin and end; SIMPLE or SERVER.
        n_predict: the tokens asked for.
        build: llama.cpp's build number; None for today's.

    Raises:
        ValueError: the trace is too short to tell or lacks its prompt, or no such run can be made.
    """
    if (why := why_not(method, n_max=n_max, program=program, build=build)) is not None:
        raise ValueError(why)
    if not trace.prompt_tokens:
        raise ValueError(f"trace {trace.prompt_id} lacks the tokens of its prompt")
    rules, drafter = Rules(program=program, build=build), _DRAFTERS[method](n_max)
    text, n_prompt = trace.prompt_tokens + trace.tokens, len(trace.prompt_tokens)
    at, taken = rules.first, list[TraceStep]()
    drafter.begin(text, n_prompt + at - 1)
    while not rules.is_over(at, n_predict) and at < len(trace.tokens):
        most = rules.most(at, n_max, n_predict)
        draft = drafter.draft(text, n_prompt + at)[:most] if most else ()
        accepted = 0
        for drafted, token in zip(draft, trace.tokens[at:], strict=False):
            if drafted != token:
                break
            accepted += 1
        drafter.accept(accepted)
        check_reach(trace, at + accepted)
        taken.append(TraceStep(at, 1.0, len(draft), accepted, 0))
        at += accepted + 1
    if not rules.is_over(at, n_predict):
        check_reach(trace, at)
    return tuple(taken)
