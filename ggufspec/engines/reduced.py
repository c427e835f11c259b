"""One run by a command of llama.cpp alone that anybody can paste, without some of its options.

That is the command of a program, or that of llama-server and a request.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ggufspec import temporary
from ggufspec.domain import ENGINES, Failure, Program, RunSpec, Sample, Status
from ggufspec.engines.binary import run_program
from ggufspec.engines.engine import program_for
from ggufspec.engines.server.response import Parsed, body, note, parse_response, send
from ggufspec.engines.server.serving import start_served
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands, flags
from ggufspec.llama.install import Install, options
from ggufspec.llama.server import Server
from ggufspec.prompts import ASKED

_NEEDED = frozenset(
    {
        *chain.from_iterable(
            flags.SPELLINGS[meaning] for meaning in ("model", "prompt", "n_predict", "port", "rpc")
        ),
        *("prompt", "messages", "n_predict", "stream", *ASKED),
    }
)
"""Options of commands and fields of requests without which there is another question, or no end."""


@dataclass(frozen=True, kw_only=True)
class ReducedRun:
    """What a command did.

    Attributes:
        argv: the command.
        request: what the server was asked; None of a program.
        sample: its figures and its text.
        error: why it failed; None if it did not.
        log: what it logged.
    """

    argv: tuple[str, ...]
    request: Mapping[str, Any] | None
    sample: Sample
    error: str | None
    log: bytes

    @property
    def names(self) -> frozenset[str]:
        """Words of its command and fields of its request, the names of its options among them."""
        return frozenset((*self.argv, *(self.request or ())))

    @property
    def is_good(self) -> bool:
        """Whether it ended well."""
        return self.sample.status is Status.OK


def program_of(engine: str, spec: RunSpec, install: Install) -> Program:
    """Return the program that shows what an engine measured; of the library, the server or a small one."""
    if ENGINES[engine] is Program.SERVER or (engine == "inprocess" and Program.SERVER in install.programs):
        return Program.SERVER
    return program_for(engine, spec)


def split_options(words: Sequence[str], listed: options.ListedFlags) -> list[tuple[str, ...]]:
    """Return a command's options, each with its value, in their order."""
    parts: list[tuple[str, ...]] = []
    for word in words:
        lacks_value = bool(parts) and len(parts[-1]) == 1 and listed.value_hint(parts[-1][0]) is not None
        if parts and (lacks_value or not word.startswith("-")):
            parts[-1] = (*parts[-1], word)
        else:
            parts.append((word,))
    return parts


def list_droppable(run: ReducedRun, program: Program, install: Install) -> tuple[str, ...]:
    """Return the options of a command and the fields of its request without which it can still be asked."""
    executable = install.executable(program)
    given = split_options(run.argv[len(executable.argv) :], executable.options)
    names = dict.fromkeys((*(option[0] for option in given), *(run.request or ())))
    return tuple(name for name in names if name not in _NEEDED)


def run_reduced(
    spec: RunSpec, install: Install, *, program: Program, dropped: Set[str], timeout_s: float | None
) -> ReducedRun:
    """Run a specification once by its command, without some options.

    Args:
        spec: what to run; its model files have paths.
        install: the llama.cpp that runs it.
        program: which of its programs.
        dropped: names of options, and of fields of the request, that are left out.
        timeout_s: time limit for the program, and for a load and an answer.

    Raises:
        GgufspecError: it has no such program, or a prompt is too long for a command.
    """
    executable = install.executable(program)

    def without(argv: tuple[str, ...]) -> tuple[str, ...]:
        given = split_options(argv[len(executable.argv) :], executable.options)
        return (*executable.argv, *chain.from_iterable(kept for kept in given if kept[0] not in dropped))

    if program is Program.SERVER:
        argv, server = start_served(
            lambda port: without(commands.serving_argv(spec, install, slots=1, port=port)),
            timeout_s=timeout_s,
        )
        asked = body(spec, per_request=spec.drafting is not None, caches=False)
        request = {name: value for name, value in asked.items() if name not in dropped}
        try:
            parsed, log = _ask(server, spec, request, timeout_s)
        except Failure as failure:
            sample = Sample(status=failure.status, program=Program.SERVER)
            parsed, log = Parsed(sample=sample, remark=failure.reason), failure.log
        return ReducedRun(argv=argv, request=request, sample=parsed.sample, error=parsed.remark, log=log)
    if commands.needs_file(spec.prompt.text):
        raise GgufspecError("the prompt is too long for a command", "show it with a shorter one")
    argv = without(commands.argv(spec, install, program=program))
    with temporary.folder() as scratch:
        log_file = scratch / "run"
        measured = run_program(
            argv, spec, install, log_file, program=program, scratch=scratch, timeout_s=timeout_s
        )
        written = log_file.with_suffix(".err")
        log = written.read_bytes() if written.exists() else b""
    return ReducedRun(argv=argv, request=None, sample=measured.sample, error=measured.error, log=log)


def _ask(
    server: Server | Failure, spec: RunSpec, request: Mapping[str, Any], timeout_s: float | None
) -> tuple[Parsed, bytes]:
    """Return what a server answers and logs, and end it.

    Raises:
        Failure: it does not serve, or does not answer; with its log.
    """
    if isinstance(server, Failure):
        raise server
    record, drafting = io.StringIO(), spec.drafting
    run = {} if drafting is None else {"n_draft": drafting.n_max, "method": drafting.method.value}
    note(record, run=run, request=request)
    with closing(server):
        try:
            send(server, request, record, timeout_s=timeout_s)
            if (death := server.death()) is not None:
                raise death
        except Failure as failure:
            failure.log = server.log.read_bytes()
            raise
        return parse_response(record.getvalue()), server.read_log(until=b"total time =")
