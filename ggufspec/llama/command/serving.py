"""(RunSpec, Install) -> the command that starts llama-server, for every era of llama.cpp."""

from __future__ import annotations

from pathlib import Path

from ggufspec.domain import Program, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command.commands import put_context, put_fixed, put_placement
from ggufspec.llama.command.drafting import put_drafting
from ggufspec.llama.command.words import SPELLINGS, Words
from ggufspec.llama.install.installs import Install
from ggufspec.llama.install.options import Options


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
