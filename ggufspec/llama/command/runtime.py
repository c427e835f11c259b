"""Flags for the settings of Runtime, and the arguments that are passed to a program as they are."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec.domain import CacheTypes, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command.flags import Arguments
from ggufspec.options import BenchOptions

_FLOAT_TYPES = {"f32", "f16", "bf16"}  # of a cache; all others are quantised
_ON = "on"
_LOAD_MODES = {  # (locked, mapped) -> value of --load-mode, which replaced --mlock and --no-mmap
    (False, False): "none",
    (True, True): "mlock",
}

_SET = (
    *("target", "draft_model", "prompt", "prompt_file", "n_predict", "ctx", "seed", "threads", "rpc"),
    *("temp", "top_k", "top_p", "min_p", "draft", "p_min", "method", "ngram", "draft_backend_sampling"),
    *("draft_sampling", "draft_min"),
    *("synthetic_accept", "flash_attn", "cache_type_k", "cache_type_v", "cache_type_k_draft"),
    *("cache_type_v_draft", "batch", "ubatch", "ngl", "ngld", "mmproj"),
    "chat_template_file",
)
"""Options whose flags a measurement sets itself."""

_OPTIONS = {
    **{
        spelling: BenchOptions.options[name].name
        for name in _SET
        for spelling in BenchOptions.options[name].spellings
    },
    **{
        spelling: f"{BenchOptions.options[name].name} {value}"
        for name in _SET
        for names, (value, _) in BenchOptions.options[name].constant.items()
        for spelling in names.split()
    },
    **dict.fromkeys(("-bf", "--binary-file"), "--prompt-file"),
    **dict.fromkeys(("-hff", "--hf-file"), "--target"),
    "--spec-synth-len": "--synthetic-accept",
}
"""llama.cpp's flags that a measurement sets itself -> the option to use instead."""

_FORBIDDEN = """
    --host --port --path --api-key --api-key-file -np --parallel --slots --no-slots --slot-save-path --metrics
    -lv --verbosity --log-verbosity -v --verbose -h --help --usage --version -i --interactive -cnv
    --conversation -if -dr --docker-repo --ignore-eos --no-perf --prompt-cache --random-prompt -sys -e
    --escape --no-escape --completion-bash --list-devices --cache-list
"""
"""Flags with which nothing, or something else, would be measured; those of logging are recognised apart."""


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that a measurement sets itself, or that would break it.

    Raises:
        GgufspecError: naming the first one.
    """
    for word in arguments:
        name = word.partition("=")[0]
        if name.startswith("--"):
            name = name.replace("_", "-")  # as llama.cpp reads long flags
        if name in _OPTIONS:
            raise GgufspecError(
                f"{name} cannot be passed to llama.cpp as it is: a measurement sets it",
                f"use the option {_OPTIONS[name]} of ggufspec",
            )
        if name in _FORBIDDEN.split() or name.startswith("--log"):
            raise GgufspecError(
                f"{name} cannot be passed to llama.cpp: it would break the measurement", "leave it out"
            )


def add_runtime(arguments: Arguments, spec: RunSpec, *, serves: bool = False) -> None:
    """Add the requested settings of the processor and of loading, and the arguments that are passed on.

    Args:
        arguments: of the program.
        spec: what to run.
        serves: whether the program is a server, which puts chats into a template.

    Raises:
        GgufspecError: the program lacks a flag.
    """
    runtime = spec.runtime
    arguments.require_flags(override_tensor=runtime.override_tensor, numa=runtime.numa)
    arguments.require_flags(cpu_mask=runtime.cpu_mask, prio=runtime.prio, poll=runtime.poll)
    arguments.require_flags(mmproj=runtime.mmproj)
    if serves and runtime.chat_template_file is not None:
        arguments.add_switches("--jinja")  # until the end of 2025, no server took every template without it
        arguments.require_flags(chat_template_file=runtime.chat_template_file)
    locked, mapped = bool(runtime.mlock), runtime.mmap is not False
    mode = _LOAD_MODES.get((locked, mapped))
    replaced = "--mlock" not in arguments.options or "--no-mmap" not in arguments.options
    if mode and replaced and arguments.options.mentions("--load-mode", f"- {mode}:"):
        arguments.require_flags(load_mode=mode)
    else:
        arguments.require_flags(mlock=locked, no_mmap=not mapped)
    arguments.add(*runtime.args, *(runtime.draft_args if spec.drafting is not None else ()))


def name_caches(caches: CacheTypes | None) -> tuple[tuple[str, str], ...]:
    """Return the type of each cache by its meaning in ``SPELLINGS``; nothing for the build's default."""
    return () if caches is None else (("cache_k", caches.type_k), ("cache_v", caches.type_v))


def add_flash_attention(arguments: Arguments, spec: RunSpec) -> None:
    """Add flash attention as requested; otherwise "auto", or "on" for a quantised cache.

    Builds before b6325 have a switch without a value, and none at all before May 2024.

    Raises:
        GgufspecError: the program cannot do what was requested, or what a quantised cache needs.
    """
    requested = spec.runtime.flash_attn
    quantised = any(kv_type not in _FLOAT_TYPES for _, kv_type in name_caches(spec.caches))
    if requested == "off" and spec.caches is not None and spec.caches.type_v not in _FLOAT_TYPES:
        raise GgufspecError(
            f"a V cache of type {spec.caches.type_v} needs flash attention",
            "leave --flash-attn off out, or -ctv",
        )
    if arguments.options.mentions("--flash-attn", "auto"):
        arguments.add("--flash-attn", requested or (_ON if quantised else "auto"))
        return
    if requested == "auto":
        raise GgufspecError(
            f"this {arguments.name} has no --flash-attn auto: its --help does not list that",
            "use on or off, or a llama.cpp of August 2025 or later",
        )
    if requested is None and not quantised:
        return
    if "--flash-attn" in arguments.options:
        arguments.add(*(() if requested == "off" else ("--flash-attn",)))
    elif requested == _ON:
        arguments.require_flags(flash_attn=True)
    elif quantised:
        raise GgufspecError(
            f"{arguments.name} cannot quantise its cache: it has no flash attention",
            "leave the cache at f16, or use a llama.cpp of May 2024 or later",
        )
