"""What makes a command draft: a second model and how it drafts, or an n-gram method and what it looks up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ggufspec.domain import Drafting, Experts, Method, Program, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command.words import Words, layers_word
from ggufspec.llama.install.installs import Executable, Install
from ggufspec.llama.install.options import Options

_MODEL_TYPES = ("draft-simple", "draft")
_SYNTHETIC = "--spec-synth-rates"  # of llama-server and the chat client alone

_FLAGS: Mapping[Method, Mapping[str, str]] = MappingProxyType(
    {
        **{
            method: {"size": f"{name}_size_n", "n_max": f"{name}_size_m", "min_hits": f"{name}_min_hits"}
            for method, name in {
                Method.NGRAM_SIMPLE: "ngram_simple",
                Method.NGRAM_MAP_K: "ngram_map_k",
                Method.NGRAM_MAP_K4V: "ngram_map_k4v",
            }.items()
        },
        Method.NGRAM_MOD: {
            "size": "ngram_mod_n_match",
            "n_max": "ngram_mod_n_max",
            "n_min": "ngram_mod_n_min",
        },
        Method.NGRAM_CACHE: {},  # it has no flags: γ and what it looks up are constants
    }
)
"""Which settings of a method are flags, and their rows in SPELLINGS."""


def put_drafting(words: Words, spec: RunSpec, install: Install, *, program: Program) -> None:
    """Put what drafts and how; nothing for plain decoding.

    The drafter's cache has the type of the target's. Programs without a flag for it give it that type of
    their own accord, all but the servers before b5709: there it stays f16.

    Raises:
        GgufspecError: the program cannot draft by this method.
    """
    drafting = spec.drafting
    if drafting is None:
        return
    if not drafting.method.needs_drafter:
        check_method(install.executable(program), program, drafting.method)
        _put_lookup(words, drafting)
        return
    assert spec.pair.draft is not None
    # the tree program drafts with a model whatever it is told
    words.add(*(_model_type(words.options) if program is not Program.TREE else ()))
    words.put("draft_model", spec.pair.draft.path)
    words.put("draft_layers", layers_word(spec.offload.draft_layers, words.options, install))
    devices = spec.offload.draft_devices or spec.offload.devices  # today's default, and no other era's
    if devices:
        words.insist("draft_devices", ",".join(devices))
    put_experts(words, spec.offload.draft_cpu_moe, whose="draft_")
    words.put("draft_threads", spec.threads)
    words.put("draft_threads_batch", spec.threads)
    words.put("draft_context", spec.context)
    if spec.kv_type is not None:
        words.put("draft_cache_k", spec.kv_type)
        words.put("draft_cache_v", spec.kv_type)
    words.put("draft_max", drafting.n_max)
    words.put("draft_min", drafting.n_min)
    words.put("draft_p_min", f"{drafting.p_min:g}")
    if drafting.synthetic is not None:
        check_synthetic(install.executable(program))
        words.add(_SYNTHETIC, ",".join(f"{rate:g}" for rate in drafting.synthetic))


def put_experts(words: Words, kept: Experts | None, *, whose: str = "") -> None:
    """Put of how many layers the experts stay on the processor: of the target, or of ``draft_``'s.

    Raises:
        GgufspecError: the program lacks the flag.
    """
    if kept == "all":
        words.insist(f"{whose}cpu_moe")
    elif kept is not None:
        words.insist(f"{whose}n_cpu_moe", kept)


def check_method(executable: Executable, program: Program, method: Method) -> None:
    """Make sure that a program drafts by an n-gram method.

    Raises:
        GgufspecError: it does not; the hint says what does.
    """
    if program is Program.TREE:
        raise GgufspecError(
            f"{executable.path.name} drafts only with a second model, not by {method.value}",
            "use `--engine server` or `--engine binary-simple`",
        )
    if method.value not in _types(executable.options):
        raise GgufspecError(
            f"this {executable.path.name} cannot draft by {method.value}: its --help does not list that",
            "llama.cpp of 2026 does: `ggufspec build` makes one",
        )


def check_synthetic(executable: Executable) -> None:
    """Make sure that a program can let dice decide what is accepted.

    Raises:
        GgufspecError: it cannot; the hint says what can.
    """
    if _SYNTHETIC not in executable.options:
        raise GgufspecError(
            f"this {executable.path.name} has no synthetic acceptance: its --help does not list {_SYNTHETIC}",
            "llama-server of autumn 2026 does: `ggufspec build` makes one",
        )


def _put_lookup(words: Words, drafting: Drafting) -> None:
    """Put an n-gram method with all that decides about its drafts; γ first.

    A model's limits are γ too: builds of early 2026 cut every draft to them, and today's simple program
    prints them as ``n_draft`` whatever drafts. Where two settings share a flag, the method's own counts.
    """
    method, lookup = drafting.method, LOOKUPS[drafting.method]
    if not lookup.least <= drafting.n_max <= lookup.most:
        raise GgufspecError(
            f"{method.value} drafts nothing with at most {drafting.n_max} tokens a round",
            f"llama.cpp's own draft size for it is {lookup.n_max}: --draft {lookup.n_max}",
        )
    said = {"--spec-type": method.value}
    values = {"n_max": drafting.n_max, "size": lookup.size, "min_hits": lookup.min_hits}
    values["n_min"] = min(lookup.n_min, drafting.n_max)  # drafts are whole then, as they are above it
    own = {meaning: values[setting] for setting, meaning in _FLAGS[method].items()}
    for meaning, value in {"draft_max": drafting.n_max, "draft_min": 0, **own}.items():
        flag = words.spelling(meaning)
        if flag is not None:
            said[flag] = str(value)
    for flag, word in said.items():
        words.add(flag, word)


def _model_type(options: Options) -> tuple[str, ...]:
    """Name the drafting method where that became an option, later a duty (b9464)."""
    known = next((name for name in _MODEL_TYPES if name in _types(options)), None)
    return ("--spec-type", known) if known else ()


def _types(options: Options) -> list[str]:
    """Return the drafting methods that a program's help lists."""
    listed, _, _ = options.help.get("--spec-type", "").partition("\n")  # the prose below says "draft" too
    return re.split(r"[^\w-]+", listed)


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The settings of one method beside γ. Builds may have other defaults; these are passed to all of them.

    Attributes:
        size: tokens that must recur, the last one included, before anything is drafted.
        n_max: γ where nobody asks for another, llama.cpp's own default.
        least: the smallest γ at which anything can be drafted.
        most: the largest γ that the programs take.
        min_hits: how often they must have recurred; only one method asks.
        n_min: shorter drafts are dropped.
    """

    size: int
    n_max: int
    least: int = 1
    most: int = 1024
    min_hits: int = 1
    n_min: int = 0


LOOKUPS: Mapping[Method, Lookup] = MappingProxyType(
    {
        # drops what is shorter than what it looks up (common_ngram_simple_draft): γ < 12 drafts nothing
        Method.NGRAM_SIMPLE: Lookup(size=12, n_max=48, least=12),
        Method.NGRAM_MAP_K: Lookup(size=12, n_max=48),
        Method.NGRAM_MAP_K4V: Lookup(size=12, n_max=48),
        Method.NGRAM_MOD: Lookup(size=24, n_max=64, n_min=48),
        # looks up 1 to 4 tokens; its γ is a constant of the source (create_state_ngram_cache)
        Method.NGRAM_CACHE: Lookup(size=4, n_max=8, least=8, most=8),
    }
)
"""llama.cpp's defaults of the summer of 2026 (common_params_speculative_ngram_map and its neighbours)."""

_MODEL_SIZE = 3  # γ of a drafting model where nobody asks for another; today's llama.cpp takes the same


def draft_sizes(method: Method, asked: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the draft sizes at which a method can draft: of those asked for, or else its own default."""
    asked, lookup = tuple(asked), LOOKUPS.get(method)
    if lookup is None:
        return asked or (_MODEL_SIZE,)
    return tuple(size for size in asked or (lookup.n_max,) if lookup.least <= size <= lookup.most)
