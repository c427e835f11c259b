"""(RunSpec, Install) -> argv, for every era of llama.cpp, from one table of spellings.

What a flag is called depends on what the program's own ``--help`` lists, never on a version number. Values
whose defaults moved between eras are always passed, so that two builds measure the same thing.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ggufspec.domain import Offload, Program, RunSpec
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command.drafting import put_drafting, put_experts
from ggufspec.llama.command.words import SPELLINGS, Words, layers_word
from ggufspec.llama.install.installs import Install
from ggufspec.llama.install.options import Options

_MAX_ARGUMENT_BYTES = 100_000  # Linux refuses single arguments of 128 KiB and more
_ALLOWED = re.compile(r"allowed values: ([\w, \n]*\w)\s*\(")
_BATCH = 2048  # tokens; what --batch-size is in every era if nobody says otherwise
_WHOLE_TYPES = {"f32", "f16", "bf16"}  # of a cache; all others are quantised


def argv(
    spec: RunSpec, install: Install, *, program: Program, prompt_file: Path | None = None
) -> tuple[str, ...]:
    """Return the command that measures ``spec`` with one of the install's programs.

    Args:
        spec: what to measure; its model files have paths.
        install: the llama.cpp to measure with.
        program: PLAIN for target or drafter alone, TREE or SIMPLE for drafting.
        prompt_file: holds the prompt and one more line break, for prompts that cannot be an argument.

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
    put_drafting(words, spec, install, program=program)
    put_fixed(words, spec, install)
    words.switch("--no-escape", "--no-conversation", "--no-display-prompt", "--simple-io")
    words.switch("--no-log-prefix", "--no-log-timestamps")
    return words.done()


def ignored(spec: RunSpec, install: Install, program: Program) -> tuple[str, ...]:
    """Return what a specification asks for and ``argv`` leaves out, because the program does not know it."""
    drafting, sampling = spec.drafting, spec.sampling
    requested = {
        "min_p": sampling.min_p > 0,
        "top_p": sampling.top_p < 1,
        "top_k": not sampling.greedy and sampling.top_k > 0,
        "draft_p_min": drafting is not None and drafting.p_min > 0,
        "draft_cache_k": spec.drafter is not None and spec.kv_type is not None,
    }
    executable = install.executable(program)
    return tuple(
        f"{executable.path.name} knows no {SPELLINGS[meaning][-1]}"
        for meaning, is_requested in requested.items()
        if is_requested and executable.options.first(*SPELLINGS[meaning]) is None
    )


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
        GgufspecError: the program has no cache of this type, or lacks a flag that was asked for.
    """
    own = spec.own_offload
    words.put("layers", layers_word(own.target_layers, words.options, install))
    _put_devices(words, own)
    if spec.kv_type is None:
        return
    for meaning in ("cache_k", "cache_v"):
        types = _cache_types(words.options, SPELLINGS[meaning][0])
        if types and spec.kv_type not in types:
            raise GgufspecError(
                f"{words.name} has no cache of type {spec.kv_type}", f"it has {', '.join(types)}"
            )
        words.put(meaning, spec.kv_type)


def _put_devices(words: Words, own: Offload) -> None:
    """Put what was asked for beside the layers; where there is no fitting, it need not be turned off."""
    if own.fit or (own.fit is False and "--fit" in words.options):
        words.insist("fit", "on" if own.fit else "off")
    if own.devices:
        words.insist("devices", ",".join(own.devices))
    if own.tensor_split:
        words.insist("tensor_split", ",".join(f"{share:g}" for share in own.tensor_split))
    if own.split_mode is not None:
        words.insist("split_mode", own.split_mode.value)
        if not words.options.mentions("--split-mode", own.split_mode.value):
            raise GgufspecError(
                f"this {words.name} cannot split by {own.split_mode.value}: its --help does not list that",
                "leave --split-mode out, or take another one",
            )
    if own.main_gpu is not None:
        words.insist("main_gpu", own.main_gpu)
    put_experts(words, own.cpu_moe)


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
    if "--fit" in words.options and spec.offload.fit is None:
        layers = {spec.own_offload.target_layers, spec.offload.draft_layers}
        fit = "auto" in layers and install.gpu is not False
        words.add("--fit", "on" if fit else "off")
    if words.options.mentions(
        "--verbosity", "4: trace"
    ):  # there, what was offloaded is shown from level 4 on
        words.add("--verbosity", "4")


def needs_file(text: str) -> bool:
    """Whether a text cannot be one argument of a command line: it is too long, or contains a NUL."""
    return "\0" in text or len(text.encode()) > _MAX_ARGUMENT_BYTES


def _cache_types(options: Options, flag: str) -> list[str]:
    """Return the types that a cache may have; nothing where the help does not tell."""
    allowed = _ALLOWED.search(options.help.get(flag, ""))
    return re.split(r",\s*", allowed[1]) if allowed else []


def server_argv(
    spec: RunSpec, install: Install, *, port: int, key_file: Path, slots_dir: Path | None
) -> tuple[str, ...]:
    """Return the command that serves ``spec``'s models on loopback, one request at a time.

    Prompt, length and sampling are no part of it: they travel with each request.

    Args:
        spec: which models, how they are placed, and the draft sizes that the server starts with; its model
            files have paths. ``drafting is None`` serves one model alone.
        install: the llama.cpp whose server it is.
        port: where to listen.
        key_file: holds the key that a request has to show.
        slots_dir: where the server may save and erase what its slot remembers, if it may.

    Raises:
        NoInstallError: the install has no server.
        GgufspecError: this server cannot draft (before b4164; by n-grams, before 2026), or lacks a flag that
            the measurement needs.
    """
    executable = install.executable(Program.SERVER)
    drafts_with_model = spec.drafting is not None and spec.drafting.method.needs_drafter
    if drafts_with_model and not can_draft(executable.options):
        raise GgufspecError(
            f"the {executable.path.name} in {install.root} cannot draft", "use `--engine binary`"
        )
    words = Words(executable, install)
    words.put("model", spec.model.path)
    words.put("host", "127.0.0.1")
    words.put("port", port)
    words.put("key_file", key_file)
    words.put("slots", 1)
    put_context(words, spec)
    put_placement(words, spec, install)
    put_drafting(words, spec, install, program=Program.SERVER)
    put_fixed(words, spec, install)
    words.put("cache_ram", 0)  # prompts are cold: nothing is remembered
    words.switch("--slots", "--metrics", "--no-log-prefix", "--no-log-timestamps")
    page = words.options.first("--no-ui", "--no-webui")
    words.add(*([page] if page else []))
    if slots_dir is not None:
        words.put("slots_dir", slots_dir)
    return words.done()


def can_draft(options: Options) -> bool:
    """Whether a server drafts with a model; the common parser of old lists a drafter for no use."""
    return "--model-draft" in options and options.first(*SPELLINGS["draft_min"]) is not None


def lines(spec: RunSpec, install: Install) -> dict[str, str]:
    """Return a command for each program that can run a configuration, by the program's name.

    What only a measurement needs (seeds, log levels, fixed lengths) is left out.

    Args:
        spec: what to run; its prompt and length do not matter.
        install: whose programs, and how they spell their flags.
    """
    programs = (Program.SERVER, Program.SIMPLE if spec.drafting is not None else Program.PLAIN)
    found = {}
    for program in programs:
        try:
            executable = install.executable(program)
        except NoInstallError:
            continue
        words = Words(executable, install)
        words.put("model", spec.model.path)
        put_context(words, spec)
        put_placement(words, spec, install)
        put_drafting(words, spec, install, program=program)
        if program is not Program.SERVER:
            words.put("prompt", "…")
        found[executable.path.name] = shlex.join(words.done())
    return found
