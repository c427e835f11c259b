"""Flags for drafting: a second model and its draft size, or an n-gram method and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ggufspec.domain import Drafting, Experts, Method, Program, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command.flags import Arguments, format_layers
from ggufspec.llama.install.installs import Executable, Install
from ggufspec.llama.install.options import ListedFlags

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
        Method.NGRAM_CACHE: {},  # it has no flags: γ and the n-gram size are constants
    }
)
"""Settings of a method that have flags -> rows in SPELLINGS."""


def add_drafting(arguments: Arguments, spec: RunSpec, install: Install, *, program: Program) -> None:
    """Add the flags for drafting; none for plain decoding.

    The drafter's cache gets the type of the target's, unless others are requested. Programs without a flag
    for it use the target's type anyway, except for servers before b5709, which use f16.

    Raises:
        GgufspecError: the program cannot draft by this method, or lacks a flag for the requested types.
    """
    drafting = spec.drafting
    if drafting is None:
        return
    if not drafting.method.needs_drafter:
        check_method(install.executable(program), program, drafting.method)
        _add_lookup(arguments, drafting)
        return
    assert spec.pair.draft is not None
    # the tree program always drafts with a model
    arguments.add(*(_model_type(arguments.options) if program is not Program.TREE else ()))
    arguments.add_flag("draft_model", spec.pair.draft.path)
    arguments.add_flag("draft_layers", format_layers(spec.offload.draft_layers, arguments.options, install))
    devices = spec.offload.draft_devices or spec.offload.devices  # the default only in current builds
    if devices:
        arguments.require_flag("draft_devices", ",".join(devices))
    add_experts(arguments, spec.offload.draft_cpu_moe, whose="draft_")
    arguments.add_flag("draft_threads", spec.threads)
    arguments.add_flag("draft_threads_batch", spec.threads)
    arguments.add_flag("draft_context", spec.context)
    differs = spec.draft_cache_types != spec.cache_types
    for meaning, kv_type in zip(("draft_cache_k", "draft_cache_v"), spec.draft_cache_types, strict=True):
        if kv_type is not None and differs:
            arguments.require_flag(meaning, kv_type)
        elif kv_type is not None:
            arguments.add_flag(meaning, kv_type)
    arguments.add_flag("draft_max", drafting.n_max)
    arguments.add_flag("draft_min", drafting.n_min)
    arguments.add_flag("draft_p_min", f"{drafting.p_min:g}")
    if drafting.synthetic is not None:
        check_synthetic(install.executable(program))
        arguments.add(_SYNTHETIC, ",".join(f"{rate:g}" for rate in drafting.synthetic))


def add_experts(arguments: Arguments, kept: Experts | None, *, whose: str = "") -> None:
    """Add the number of layers whose experts stay on the processor, for the target or the drafter.

    Raises:
        GgufspecError: the program lacks the flag.
    """
    if kept == "all":
        arguments.require_flag(f"{whose}cpu_moe")
    elif kept is not None:
        arguments.require_flag(f"{whose}n_cpu_moe", kept)


def check_method(executable: Executable, program: Program, method: Method) -> None:
    """Make sure that a program supports an n-gram method.

    Raises:
        GgufspecError: it does not; the hint names a program that does.
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
    """Make sure that a program can simulate acceptance.

    Raises:
        GgufspecError: it cannot; the hint names a program that can.
    """
    if _SYNTHETIC not in executable.options:
        raise GgufspecError(
            f"this {executable.path.name} has no synthetic acceptance: its --help does not list {_SYNTHETIC}",
            "llama-server of autumn 2026 does: `ggufspec build` makes one",
        )


def _add_lookup(arguments: Arguments, drafting: Drafting) -> None:
    """Add an n-gram method with all settings that affect its drafts.

    The limits for a draft model are set to γ too: builds of early 2026 cut every draft to them, and the
    current simple program prints them as ``n_draft`` for every method. If two settings share a flag, the
    method's own is used.
    """
    method, lookup = drafting.method, LOOKUPS[drafting.method]
    if not lookup.least <= drafting.n_max <= lookup.most:
        raise GgufspecError(
            f"{method.value} drafts nothing with at most {drafting.n_max} tokens a round",
            f"llama.cpp's own draft size for it is {lookup.n_max}: --draft {lookup.n_max}",
        )
    flags = {"--spec-type": method.value}
    values = {"n_max": drafting.n_max, "size": lookup.size, "min_hits": lookup.min_hits}
    values["n_min"] = min(lookup.n_min, drafting.n_max)  # then only drafts of full length are used
    method_values = {meaning: values[setting] for setting, meaning in _FLAGS[method].items()}
    for meaning, value in {"draft_max": drafting.n_max, "draft_min": 0, **method_values}.items():
        flag = arguments.spelling(meaning)
        if flag is not None:
            flags[flag] = str(value)
    for flag, text in flags.items():
        arguments.add(flag, text)


def _model_type(options: ListedFlags) -> tuple[str, ...]:
    """Return the flag that names the drafting method, if the program has it (required from b9464 on)."""
    known = next((name for name in _MODEL_TYPES if name in _types(options)), None)
    return ("--spec-type", known) if known else ()


def _types(options: ListedFlags) -> list[str]:
    """Return the drafting methods that a program's help lists."""
    listed, _, _ = options.help.get("--spec-type", "").partition("\n")  # the text below contains "draft" too
    return re.split(r"[^\w-]+", listed)


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The settings of one n-gram method beside γ. They are always passed, as defaults differ between builds.

    Attributes:
        size: number of tokens that must recur, the last one included, before anything is drafted.
        n_max: default γ, which is llama.cpp's own.
        least: the smallest γ at which anything can be drafted.
        most: the largest γ that the programs accept.
        min_hits: how often the tokens must have recurred; used by one method.
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
        # drops drafts shorter than the n-gram (common_ngram_simple_draft): γ < 12 drafts nothing
        Method.NGRAM_SIMPLE: Lookup(size=12, n_max=48, least=12),
        Method.NGRAM_MAP_K: Lookup(size=12, n_max=48),
        Method.NGRAM_MAP_K4V: Lookup(size=12, n_max=48),
        Method.NGRAM_MOD: Lookup(size=24, n_max=64, n_min=48),
        # looks up 1 to 4 tokens; its γ is a constant of the source (create_state_ngram_cache)
        Method.NGRAM_CACHE: Lookup(size=4, n_max=8, least=8, most=8),
    }
)
"""llama.cpp's defaults of the summer of 2026 (common_params_speculative_ngram_map and its neighbours)."""

_MODEL_SIZE = 3  # default γ of a draft model, as in current llama.cpp


def draft_sizes(method: Method, requested: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the requested draft sizes at which a method can draft; without any, its default."""
    requested, lookup = tuple(requested), LOOKUPS.get(method)
    if lookup is None:
        return requested or (_MODEL_SIZE,)
    return tuple(size for size in requested or (lookup.n_max,) if lookup.least <= size <= lookup.most)
