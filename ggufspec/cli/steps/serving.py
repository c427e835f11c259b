"""The steps of ``serve``: the command of a stored configuration, and its start in place of this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ggufspec import proc, tuning
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.llama.rpc import workers
from ggufspec.measure import api, identity
from ggufspec.modelfiles import locating
from ggufspec.options import NO_WORKERS, parse_workers
from ggufspec.results import LATEST, read_configuration
from ggufspec.tuning import ServerCommand


def prepare_server(name: str | None, words: Sequence[str]) -> ServerCommand:
    """Return the command that serves a stored configuration; print what has changed since it was tuned.

    Args:
        name: of the tuning; None for the one stored last.
        words: the user's options for llama-server.

    Raises:
        ResultsError: there is no such configuration, it was edited, or it cannot be served.
        GgufspecError: a model or the llama.cpp is not what was tuned, or an option contradicts it.
    """
    configuration = read_configuration(name or LATEST)
    pair = locating.locate_pair(configuration.spec)
    models = [model for model in (pair.target, pair.draft) if model is not None]
    api.say_reading(identity.unread(models), Terminal())
    server = tuning.prepare_server(configuration, words)
    echo(f"tuned: {configuration.id}, made on {configuration.made_at[:10]}", err=True)
    for note in server.notes:
        echo_sentence(note, err=True)
    return server


def run_server(server: ServerCommand) -> NoReturn:
    """Become llama-server.

    Raises:
        WorkerError: a worker cannot be used; llama-server would wait for a busy one without end.
        ChildCrashedError: the system cannot start it.
    """
    workers.read_workers(parse_workers(server.value("--rpc") or NO_WORKERS))
    proc.replace_process(server.argv, server.full_environment())
