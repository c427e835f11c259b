"""(RunSpec, Install) -> argv, for every era of llama.cpp, from one table of spellings.

What a flag is called depends on what the program's own ``--help`` lists, never on a version number. Values
whose defaults moved between eras are always passed, so that two builds measure the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ggufspec.domain import Layers, Program, Role, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.install import Executable, Install
from ggufspec.llama.options import Options

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "model": ("--model",),
    "prompt": ("--prompt",),
    "file": ("--file",),
    "n_predict": ("--n-predict", "--predict"),
    "context": ("--ctx-size",),
    "cache_ram": ("--cache-ram",),
    "threads": ("--threads",),
    "threads_batch": ("--threads-batch",),
    "temperature": ("--temp",),
    "top_k": ("--top-k",),
    "top_p": ("--top-p",),
    "min_p": ("--min-p",),
    "seed": ("--seed",),
    "batch": ("--batch-size",),
    "ubatch": ("--ubatch-size",),
    "layers": ("-ngl",),
    "cache_k": ("--cache-type-k",),
    "cache_v": ("--cache-type-v",),
    "draft_model": ("--model-draft", "-md"),
    "draft_layers": ("-ngld",),
    "draft_threads": ("--threads-draft", "-td"),
    "draft_threads_batch": ("--threads-batch-draft", "-tbd"),
    "draft_context": ("--ctx-size-draft",),
    "draft_cache_k": ("--spec-draft-type-k", "--cache-type-k-draft"),
    "draft_cache_v": ("--spec-draft-type-v", "--cache-type-v-draft"),
    "draft_max": ("--spec-draft-n-max", "--draft-max", "--draft"),
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "draft_p_min": ("--draft-p-min", "--spec-draft-p-min"),
    "host": ("--host",),
    "port": ("--port",),
    "key_file": ("--api-key-file",),
    "slots": ("--parallel",),
    "slots_dir": ("--slot-save-path",),
}
"""One row per meaning: its spellings, the one to prefer first."""

_OPTIONAL = {
    "cache_ram",
    *("threads_batch", "top_k", "top_p", "min_p", "layers", "draft_layers", "draft_threads"),
    *("draft_threads_batch", "draft_context", "draft_cache_k", "draft_cache_v", "draft_min", "draft_p_min"),
    *("cache_ram", "slots_dir"),
}
_HIDDEN = {"layers", "draft_layers"}  # accepted but not listed by CPU builds with the common parser of old
_EVERYTHING = 999  # more layers than any model has: "all" in every era
_MAX_ARGUMENT_BYTES = 100_000  # Linux refuses single arguments of 128 KiB and more
_ALLOWED = re.compile(r"allowed values: ([\w, \n]*\w)\s*\(")
_DRAFT_TYPES = ("draft-simple", "draft")
_BATCH = 2048  # tokens; what --batch-size is in every era if nobody says otherwise
_WHOLE_TYPES = {"f32", "f16", "bf16"}  # of a cache; all others are quantised


class Words:
    """A command under construction, whose flags are spelt as the program's help lists them."""

    def __init__(self, executable: Executable, install: Install) -> None:
        """Begin with the program; ``install`` tells whether it has the common parser of old."""
        plain = install.programs.get(Program.PLAIN)
        self.name = executable.path.name
        self.options = executable.options
        self._generic = plain is not None and plain.options.generic
        self._words = [str(executable.path)]

    def put(self, meaning: str, value: object) -> None:
        """Add a flag and its value; a flag that the program lacks is left out if it may be.

        Raises:
            GgufspecError: the measurement needs the flag.
        """
        hidden = SPELLINGS[meaning][0] if self._generic and meaning in _HIDDEN else None
        flag = self.options.first(*SPELLINGS[meaning]) or hidden
        if flag is not None:
            self.add(flag, str(value))
        elif meaning not in _OPTIONAL:
            raise GgufspecError(
                f"{self.name} knows none of {', '.join(SPELLINGS[meaning])}",
                "this llama.cpp is newer than ggufspec; `ggufspec build` makes one that it knows",
            )

    def add(self, *words: str) -> None:
        """Add words as they are."""
        self._words.extend(words)

    def switch(self, *flags: str) -> None:
        """Add those flags without a value that the program lists."""
        self.add(*(flag for flag in flags if flag in self.options))

    def done(self) -> tuple[str, ...]:
        """Return the command."""
        return tuple(self._words)


def argv(
    spec: RunSpec, install: Install, *, program: Program, prompt_file: Path | None = None
) -> tuple[str, ...]:
    """Return the command that measures ``spec`` with one of the install's programs.

    Args:
        spec: what to measure; its model files have paths.
        install: the llama.cpp to measure with.
        program: PLAIN for target or drafter alone, TREE or SIMPLE for drafting.
        prompt_file: holds the prompt and one more line break, for prompts too long for a command line.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: the program lacks a flag that the measurement needs.
    """
    words = Words(install.executable(program), install)
    words.put("model", spec.model.path)
    if prompt_file is None:
        words.put("prompt", spec.prompt.text)
    else:
        words.put("file", prompt_file)
    words.put("n_predict", spec.n_predict)
    put_context(words, spec)
    words.put("temperature", f"{spec.sampling.temperature:g}")
    words.put("top_k", spec.sampling.top_k)
    words.put("top_p", f"{spec.sampling.top_p:g}")
    words.put("min_p", f"{spec.sampling.min_p:g}")
    words.put("seed", spec.sampling.seed)
    put_placement(words, spec, install)
    put_drafting(words, spec, install, typed=program is not Program.TREE)
    put_fixed(words, spec, install)
    words.switch("--no-escape", "--no-conversation", "--no-display-prompt", "--simple-io")
    words.switch("--no-log-prefix", "--no-log-timestamps")
    return words.done()


def put_context(words: Words, spec: RunSpec) -> None:
    """Put the sizes of context and batches, and the threads."""
    words.put("context", spec.context)
    if spec.ubatch is not None:  # clipped to the batch without a word
        words.put("batch", max(_BATCH, spec.ubatch))
        words.put("ubatch", spec.ubatch)
    words.put("threads", spec.threads)
    words.put("threads_batch", spec.threads)


def put_placement(words: Words, spec: RunSpec, install: Install) -> None:
    """Put where the model's layers go, and the type of its cache.

    Raises:
        GgufspecError: the program has no cache of this type.
    """
    words.put("layers", _layers(_own_layers(spec), words.options, install))
    if spec.kv_type is None:
        return
    for meaning in ("cache_k", "cache_v"):
        types = _cache_types(words.options, SPELLINGS[meaning][0])
        if types and spec.kv_type not in types:
            raise GgufspecError(
                f"{words.name} has no cache of type {spec.kv_type}", f"it has {', '.join(types)}"
            )
        words.put(meaning, spec.kv_type)


def put_drafting(words: Words, spec: RunSpec, install: Install, *, typed: bool) -> None:
    """Put the drafter and how it drafts; nothing for plain decoding.

    The drafter's cache has the type of the target's. Programs without a flag for it give it that type of
    their own accord, all but the servers before b5709: there it stays f16.

    ``typed`` says whether the program has to be told that a model drafts, where there is a flag for it.
    """
    if spec.drafting is None:
        return
    assert spec.pair.draft is not None
    words.add(*(_draft_type(words.options) if typed else ()))
    words.put("draft_model", spec.pair.draft.path)
    words.put("draft_layers", _layers(spec.offload.draft_layers, words.options, install))
    words.put("draft_threads", spec.threads)
    words.put("draft_threads_batch", spec.threads)
    words.put("draft_context", spec.context)
    if spec.kv_type is not None:
        words.put("draft_cache_k", spec.kv_type)
        words.put("draft_cache_v", spec.kv_type)
    words.put("draft_max", spec.drafting.n_max)
    words.put("draft_min", spec.drafting.n_min)
    words.put("draft_p_min", f"{spec.drafting.p_min:g}")


def put_fixed(words: Words, spec: RunSpec, install: Install) -> None:
    """Pin the defaults that moved: flash attention, fitting to memory, and what the log shows.

    Raises:
        GgufspecError: the cache shall be quantised, and the program has no flash attention to read it with.
    """
    quantised = spec.kv_type is not None and spec.kv_type not in _WHOLE_TYPES
    if words.options.mentions("--flash-attn", "auto"):
        words.add("--flash-attn", "on" if quantised else "auto")
    elif quantised and "--flash-attn" not in words.options:
        raise GgufspecError(
            f"{words.name} cannot quantise its cache: it has no flash attention",
            "leave the cache at f16, or take a llama.cpp of May 2024 or later",
        )
    elif quantised:
        words.add("--flash-attn")
    if "--fit" in words.options:
        fit = "auto" in {_own_layers(spec), spec.offload.draft_layers} and install.gpu is not False
        words.add("--fit", "on" if fit else "off")
    if words.options.mentions(
        "--verbosity", "4: trace"
    ):  # there, what was offloaded is shown from level 4 on
        words.add("--verbosity", "4")


def needs_file(text: str) -> bool:
    """Whether a prompt is too long to be one argument of a command line."""
    return len(text.encode()) > _MAX_ARGUMENT_BYTES


def _own_layers(spec: RunSpec) -> Layers:
    return spec.offload.draft_layers if spec.role is Role.DRAFTER else spec.offload.target_layers


def _cache_types(options: Options, flag: str) -> list[str]:
    """Return the types that a cache may have; nothing where the help does not tell."""
    allowed = _ALLOWED.search(options.help.get(flag, ""))
    return re.split(r",\s*", allowed[1]) if allowed else []


def _layers(layers: Layers, options: Options, install: Install) -> str:
    """Spell a number of GPU layers; a build without a GPU gets an honest 0 unless it was told a number."""
    match layers:
        case "all":
            return str(_EVERYTHING)
        case "auto" if install.gpu is False:
            return "0"
        case "auto":
            return "auto" if options.mentions("-ngl", "'auto'") else str(_EVERYTHING)
        case number:
            return str(number)


def _draft_type(options: Options) -> tuple[str, ...]:
    """Name the drafting method where that became an option, later a duty (b9464)."""
    listed, _, _ = options.help.get("--spec-type", "").partition("\n")  # the prose below says "draft" too
    values = re.split(r"[^\w-]+", listed)
    known = next((name for name in _DRAFT_TYPES if name in values), None)
    return ("--spec-type", known) if known else ()
