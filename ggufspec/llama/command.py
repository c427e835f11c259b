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
from ggufspec.llama.install import Install
from ggufspec.llama.options import Options

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "model": ("--model",),
    "prompt": ("--prompt",),
    "file": ("--file",),
    "n_predict": ("--n-predict", "--predict"),
    "context": ("--ctx-size",),
    "threads": ("--threads",),
    "threads_batch": ("--threads-batch",),
    "temperature": ("--temp",),
    "top_k": ("--top-k",),
    "top_p": ("--top-p",),
    "min_p": ("--min-p",),
    "seed": ("--seed",),
    "layers": ("-ngl",),
    "draft_model": ("--model-draft", "-md"),
    "draft_layers": ("-ngld",),
    "draft_threads": ("--threads-draft", "-td"),
    "draft_threads_batch": ("--threads-batch-draft", "-tbd"),
    "draft_context": ("--ctx-size-draft",),
    "draft_max": ("--spec-draft-n-max", "--draft-max", "--draft"),
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "draft_p_min": ("--draft-p-min", "--spec-draft-p-min"),
}
"""One row per meaning: its spellings, the one to prefer first."""

_REQUIRED = {"model", "n_predict", "context", "threads", "temperature", "seed", "draft_model", "draft_max"}
_HIDDEN = {"layers", "draft_layers"}  # accepted but not listed by CPU builds with the common parser of old
_EVERYTHING = 999  # more layers than any model has: "all" in every era
_MAX_ARGUMENT_BYTES = 100_000  # Linux refuses single arguments of 128 KiB and more
_DRAFT_TYPES = ("draft-simple", "draft")


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
    executable = install.executable(program)
    options = executable.options
    generic = install.programs[Program.PLAIN].options.generic if Program.PLAIN in install.programs else False
    words = [str(executable.path)]

    def put(meaning: str, value: object) -> None:
        hidden = SPELLINGS[meaning][0] if generic and meaning in _HIDDEN else None
        flag = options.first(*SPELLINGS[meaning]) or hidden
        if flag is not None:
            words.extend((flag, str(value)))
        elif meaning in _REQUIRED:
            raise GgufspecError(
                f"{executable.path.name} knows none of {', '.join(SPELLINGS[meaning])}",
                "this llama.cpp is newer than ggufspec; `ggufspec build` makes one that it knows",
            )

    def switch(*flags: str) -> None:
        words.extend(flag for flag in flags if flag in options)

    put("model", spec.model.path)
    if prompt_file is None:
        put("prompt", spec.prompt.text)
    else:
        put("file", prompt_file)
    put("n_predict", spec.n_predict)
    put("context", spec.context)
    put("threads", spec.threads)
    put("threads_batch", spec.threads)
    put("temperature", f"{spec.sampling.temperature:g}")
    put("top_k", spec.sampling.top_k)
    put("top_p", f"{spec.sampling.top_p:g}")
    put("min_p", f"{spec.sampling.min_p:g}")
    put("seed", spec.sampling.seed)
    own_layers = spec.offload.draft_layers if spec.role is Role.DRAFTER else spec.offload.target_layers
    put("layers", _layers(own_layers, options, install))
    if spec.drafting is not None:
        assert spec.pair.draft is not None
        words.extend(_draft_type(options) if program is not Program.TREE else ())
        put("draft_model", spec.pair.draft.path)
        put("draft_layers", _layers(spec.offload.draft_layers, options, install))
        put("draft_threads", spec.threads)
        put("draft_threads_batch", spec.threads)
        put("draft_context", spec.context)
        put("draft_max", spec.drafting.n_max)
        put("draft_min", spec.drafting.n_min)
        put("draft_p_min", f"{spec.drafting.p_min:g}")
    words.extend(
        _fixed(options, fit="auto" in {own_layers, spec.offload.draft_layers} and install.gpu is not False)
    )
    switch("--no-escape", "--no-conversation", "--no-display-prompt", "--simple-io")
    switch("--no-log-prefix", "--no-log-timestamps")
    return tuple(words)


def needs_file(text: str) -> bool:
    """Whether a prompt is too long to be one argument of a command line."""
    return len(text.encode()) > _MAX_ARGUMENT_BYTES


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


def _fixed(options: Options, *, fit: bool) -> list[str]:
    """Pin the defaults that moved: flash attention, fitting to memory, and what the log shows."""
    words: list[str] = []
    if options.mentions("--flash-attn", "auto"):
        words += ["--flash-attn", "auto"]
    if "--fit" in options:
        words += ["--fit", "on" if fit else "off"]
    if options.mentions("--verbosity", "4: trace"):  # there, what was offloaded is shown from level 4 on
        words += ["--verbosity", "4"]
    return words
