"""(RunSpec, Install) -> argv, for every era of llama.cpp, from one table of spellings.

The spelling of a flag is chosen by the program's own ``--help``, never by a version number. Values whose
defaults differ between eras are always passed, so that two builds measure the same thing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ggufspec.domain import Offload, Program, RunSpec
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command.drafting import add_drafting, add_experts, check_drafting, takes_stages
from ggufspec.llama.command.flags import SPELLINGS, Arguments, format_layers
from ggufspec.llama.command.runtime import add_flash_attention, add_runtime, name_caches
from ggufspec.llama.install.installs import WITHOUT_RPC_HINT, Install
from ggufspec.llama.install.options import ListedFlags

_MAX_ARGUMENT_BYTES = 100_000  # Linux refuses single arguments of 128 KiB and more
_ALLOWED = re.compile(r"allowed values: ([\w, \n]*\w)\s*\(")
_SEPARATE_CACHES = "--no-kv-unified"  # the default for a given number of slots
_REPORTS_DRAFTS = 4984  # the first build whose server's timings have the tokens that were drafted
_BATCH = 2048  # tokens; the default of --batch-size in every era


def argv(
    spec: RunSpec, install: Install, *, program: Program, prompt_file: Path | None = None
) -> tuple[str, ...]:
    """Return the command that measures ``spec`` with one of an install's programs.

    Args:
        spec: what to measure; its model files have paths.
        install: the llama.cpp to measure with.
        program: PLAIN for target or drafter alone, TREE or SIMPLE for drafting.
        prompt_file: contains the prompt and a line break, for prompts that cannot be an argument.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: the program lacks a flag that the measurement needs.
    """
    arguments = Arguments(install.executable(program), install)
    sampling, fields = spec.sampling, {} if spec.request is None else spec.request.fields
    prompt = spec.prompt.text if prompt_file is None else None
    arguments.add_flags(model=str(spec.model.path), prompt=prompt, file=prompt_file, n_predict=spec.n_predict)
    arguments.add_flags(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
    arguments.add_flags(min_p=sampling.min_p, seed=sampling.seed)
    arguments.require_flags(**{name: flag_value(value) for name, value in fields.items()})
    arguments.add_switches("--no-escape", "--no-conversation", "--no-display-prompt", "--simple-io")
    _add_logging(arguments)
    _add_measured(arguments, spec, install, program)
    return arguments.to_argv()


def flag_value(value: object) -> str:
    """Return a value of a request, a grammar or a schema, as a program takes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def find_ignored(spec: RunSpec, install: Install, program: Program) -> tuple[str, ...]:
    """Return what a specification asks for and ``argv`` leaves out, because the program does not know it."""
    drafting, sampling = spec.drafting, spec.sampling
    requested = {
        "min_p": sampling.min_p > 0,
        "top_p": sampling.top_p < 1,
        "top_k": not sampling.greedy and sampling.top_k > 0,
        "draft_p_min": drafting is not None and drafting.p_min > 0,
        "draft_cache_k": drafting is not None
        and drafting.method.drafts_with_model
        and spec.offload.drafter_caches is not None,
    }
    executable = install.executable(program)
    return tuple(
        f"{executable.name} has no {SPELLINGS[meaning][-1]}"
        for meaning, is_requested in requested.items()
        if is_requested and executable.options.first(*SPELLINGS[meaning]) is None
    )


def _add_placement(arguments: Arguments, spec: RunSpec, install: Install) -> None:
    """Add the placement of the model's layers, and the types of its caches.

    Raises:
        GgufspecError: the program does not support this cache type, or lacks a requested flag.
        NoInstallError: workers are requested, and the install was built without RPC.
    """
    offload = spec.own_offload
    remote = bool(offload.rpc)
    if remote:  # before anything that may name a device: programs look names up at once
        check_rpc(install)
        arguments.require_flags(rpc=offload.rpc)
    arguments.add_flags(layers=format_layers(offload.target, arguments.options, install, remote=remote))
    _add_devices(arguments, offload)
    for meaning, kv_type in name_caches(offload.target.caches):
        allowed = _ALLOWED.search(arguments.options.help.get(SPELLINGS[meaning][0], ""))
        types = re.split(r",\s*", allowed[1]) if allowed else []  # where the help lists them
        if types and kv_type not in types:
            raise GgufspecError(
                f"{arguments.name} has no cache of type {kv_type}", f"it has {', '.join(types)}"
            )
        arguments.add_flags(**{meaning: kv_type})


def check_rpc(install: Install) -> None:
    """Make sure that an install can use workers on other machines, as far as it shows that.

    Raises:
        NoInstallError: it was built without RPC.
    """
    if install.has_rpc is False:
        raise NoInstallError(f"the llama.cpp in {install.root} was built without RPC", WITHOUT_RPC_HINT)


def _add_devices(arguments: Arguments, offload: Offload) -> None:
    """Add the requested placement beside the layers; a program without --fit needs no "off"."""
    if offload.fit:
        arguments.require_flags(fit="on" if can_adjust(arguments.options) else True)
    elif offload.fit is False and can_adjust(arguments.options):
        arguments.add("--fit", "off")
    arguments.require_flags(devices=offload.target.devices, tensor_split=offload.tensor_split)
    if offload.split_mode is not None:
        arguments.require_flags(split_mode=offload.split_mode.value)
        if not arguments.options.mentions("--split-mode", offload.split_mode.value):
            raise GgufspecError(
                f"this {arguments.name} cannot split by {offload.split_mode.value}: "
                "its --help does not list that",
                "leave --split-mode out, or use another one",
            )
    arguments.require_flags(main_gpu=offload.main_gpu)
    add_experts(arguments, offload.target.cpu_moe)


def _add_logging(arguments: Arguments) -> None:
    """Let a program log lines as they are read, with what was offloaded."""
    arguments.add_switches("--no-log-prefix", "--no-log-timestamps")
    if arguments.options.mentions("--verbosity", "4: trace"):  # there, that is shown from level 4 on
        arguments.add("--verbosity", "4")


def can_adjust(options: ListedFlags) -> bool:
    """Whether a program lowers the layers of a GPU by itself until they fit: a switch in ik_llama.cpp."""
    return options.value_hint("--fit") is not None


def needs_file(text: str) -> bool:
    """Whether a text cannot be a command-line argument, because it is too long or contains a NUL."""
    return "\0" in text or len(text.encode()) > _MAX_ARGUMENT_BYTES


def server_argv(
    spec: RunSpec, install: Install, *, port: int, key_file: Path, slots_dir: Path | None
) -> tuple[str, ...]:
    """Return the command that serves ``spec``'s models on loopback, ``spec.n_slots`` requests at a time.

    Prompt, length and sampling are not part of it: each request has its own. Each of several slots has the
    complete context of ``spec``, in a cache of its own, where the server has a flag for that; earlier servers
    share one cache among slots.

    Args:
        spec: which models, how they are placed, and the draft sizes that the server starts with; its model
            files have paths. ``drafting is None`` serves one model alone.
        install: the llama.cpp whose server it is.
        port: where to listen.
        key_file: contains the API key for requests.
        slots_dir: folder that enables saving and erasing of slots; None for neither.

    Raises:
        NoInstallError: the install has no server.
        GgufspecError: this server cannot draft (before b4164; by n-grams, before 2026), or lacks a flag that
            the measurement needs.
    """
    arguments = _begin_server(spec, install, slots=spec.n_slots)
    arguments.add_flags(host="127.0.0.1", port=port, key_file=key_file, slots=spec.n_slots)
    if spec.n_slots > 1:
        arguments.add_switches(_SEPARATE_CACHES)
    arguments.add_flags(cache_ram=0)  # each prompt is evaluated completely
    arguments.add_switches("--slots", "--metrics")
    if page := arguments.options.first("--no-ui", "--no-webui"):
        arguments.add(page)
    arguments.add_flags(slots_dir=slots_dir)
    _add_logging(arguments)
    _add_measured(arguments, spec, install, Program.SERVER, n_slots=spec.n_slots)
    return arguments.to_argv()


def _begin_server(spec: RunSpec, install: Install, *, slots: int) -> Arguments:
    """Begin the command of a server that can draft as requested."""
    executable = install.executable(Program.SERVER)
    drafts_with_model = spec.drafting is not None and spec.drafting.method.drafts_with_model
    if drafts_with_model and not can_draft(executable.options):
        raise GgufspecError(f"the {executable.name} in {install.root} cannot draft", "use `--engine binary`")
    if slots > 1 and spec.drafting is not None and takes_stages(executable.options):
        raise GgufspecError(
            f"{install.fork} drafts for one request at a time, not for {slots}",
            "leave --users and --parallel out, or use a llama.cpp: `ggufspec build` makes one",
        )
    arguments = Arguments(executable, install)
    arguments.add_flags(model=str(spec.model.path))
    return arguments


def can_draft(options: ListedFlags) -> bool:
    """Whether a server drafts with a model; the old common parser lists a drafter that it ignores."""
    has_limits = takes_stages(options) or options.first(*SPELLINGS["draft_min"]) is not None
    return "--model-draft" in options and has_limits


def reports_drafts(build: int | None) -> bool:
    """Whether a server's answers say how many tokens were drafted, and accepted."""
    return build is None or build >= _REPORTS_DRAFTS


def serving_argv(spec: RunSpec, install: Install, *, slots: int, port: int) -> tuple[str, ...]:
    """Return the command that serves a configuration to users, with everything that was measured.

    What only a measurement needs is left out: the key, the log level, and that no prompt is cached.

    Args:
        spec: what to serve; its context is that of all slots together, and its prompt is ignored.
        install: the llama.cpp whose server it is.
        slots: requests that are served at once.
        port: where to listen on loopback.

    Raises:
        NoInstallError: the install has no server.
        GgufspecError: this server cannot draft, or lacks a flag.
    """
    arguments = _begin_server(spec, install, slots=slots)
    arguments.add_flags(port=port, slots=slots)
    _add_measured(arguments, spec, install, Program.SERVER)
    return arguments.to_argv()


def _add_measured(
    arguments: Arguments, spec: RunSpec, install: Install, program: Program, *, n_slots: int = 1
) -> None:
    """Add what decides on the speed besides the model; slots share a server's context evenly.

    Flash attention and fitting to memory are always set, because their defaults differ between eras.
    """
    batch = spec.runtime.batch
    if batch is None and spec.ubatch is not None:  # which is silently limited to the batch size
        batch = max(_BATCH, spec.ubatch)
    arguments.add_flags(context=spec.context * n_slots, batch=batch, ubatch=spec.ubatch)
    arguments.add_flags(threads=spec.threads, threads_batch=spec.threads)
    _add_placement(arguments, spec, install)
    add_drafting(arguments, spec, install, program=program)
    add_flash_attention(arguments, spec)
    if can_adjust(arguments.options) and spec.offload.fit is None:
        is_open = None in {spec.own_offload.target.wants_gpu, spec.offload.drafter.wants_gpu}
        fit = is_open and (install.gpu is not False or bool(spec.own_offload.rpc))
        arguments.add("--fit", "on" if fit else "off")
    add_runtime(arguments, spec, serves=program is Program.SERVER)


def run_command(spec: RunSpec, install: Install) -> tuple[str, ...] | None:
    """Return a command that answers one prompt with a configuration; None without a program for it.

    The prompt, which is the last word, is a placeholder.

    Args:
        spec: what to run; its prompt and length are ignored.
        install: the llama.cpp whose programs to use.
    """
    program = Program.SIMPLE if spec.drafting is not None else Program.PLAIN
    try:
        executable = install.executable(program)
        if spec.drafting is not None:
            check_drafting(install, program, spec.drafting)
    except GgufspecError:
        return None
    arguments = Arguments(executable, install)
    arguments.add_flags(model=str(spec.model.path))
    _add_measured(arguments, spec, install, program)
    arguments.add_flags(prompt="…")
    return arguments.to_argv()
