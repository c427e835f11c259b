"""Building llama.cpp where a bench needs one and none is found."""

from __future__ import annotations

import sys

import click
from rich.console import Console

from ggufspec import api
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.llama.install import installs
from ggufspec.options import BenchOptions, BuildOptions


def offer_for(asked: BenchOptions, terminal: Terminal) -> None:
    """Where a bench needs a llama.cpp and none is found, ask on a terminal whether to build it, and do so.

    Without a terminal nothing happens: the error that follows says which command builds one.
    """
    if asked.llamas == (None,) and not asked.names_servers:
        offer_build(terminal)


def offer_build(terminal: Terminal) -> None:
    """Ask on a terminal whether to build llama.cpp if no usable one is found, and do so."""
    is_asked = sys.stdin is not None and sys.stdin.isatty() and Console(stderr=True).is_terminal
    if terminal.is_quiet or not is_asked or installs.is_any_found():
        return
    question = "No usable llama.cpp was found. Build it now? It takes some minutes."
    if click.confirm(question, default=True, err=True):
        api.build(BuildOptions(), sink=terminal)
