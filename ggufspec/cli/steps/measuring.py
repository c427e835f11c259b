"""A bench on the command line: an offer to build, the growing table, the table at its end, the exit code."""

from __future__ import annotations

import os
import re
import shlex
import sys

import click
from rich.console import Console

from ggufspec import api
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.cli.steps import benches
from ggufspec.harmless import CONTROL
from ggufspec.llama.install import environment, installs
from ggufspec.measure import Session
from ggufspec.options import BenchOptions, BuildOptions, DemoOptions
from ggufspec.results import ResultSet


def offer_build(asked: BenchOptions, terminal: Terminal) -> None:
    """Where a bench needs a llama.cpp and none is found, ask on a terminal whether to build it, and do so.

    Without a terminal nothing happens: the error that follows says which command builds one.
    """
    needs_one = asked.llamas == (None,) and not asked.names_servers
    can_ask = sys.stdin is not None and sys.stdin.isatty() and Console(stderr=True).is_terminal
    if not needs_one or not can_ask or terminal.is_quiet or installs.is_any_found():
        return
    question = "No usable llama.cpp was found. Build it now? It takes some minutes."
    if click.confirm(question, default=True, err=True):
        api.build(BuildOptions(), sink=terminal)


_OWN = {"LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": "/nonexistent"}


def plan(asked: BenchOptions) -> Session:
    """Return what a bench would run."""
    terminal = Terminal()
    offer_build(asked, terminal)
    session: Session = api.plan_bench(asked, sink=terminal)
    return session


def run(asked: BenchOptions) -> ResultSet:
    """Measure while the table grows on the terminal, and print it at the end, even after an interruption.

    Returns the bench.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts a verdict in doubt.
        GgufspecError: the class that belongs to the first failed run.
    """
    terminal = terminal_for(asked)
    offer_build(asked, terminal)
    results: ResultSet = api.bench(asked, sink=terminal)
    finish(results, asked)
    return results


def terminal_for(asked: BenchOptions | DemoOptions) -> Terminal:
    """Return a terminal that prints the table of a bench that ends early."""

    def show_table(results: ResultSet) -> str:
        benches.print_table(results, asked.output, asked.out)
        return benches.describe_continuing(results)

    return Terminal(show_table)


def finish(results: ResultSet, asked: BenchOptions | DemoOptions) -> None:
    """Print the table of a bench.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts a verdict in doubt.
        GgufspecError: the class that belongs to the first failed run.
    """
    benches.print_table(results, asked.output, asked.out)
    benches.raise_for_failures(results)
    if isinstance(asked, BenchOptions) and asked.strict:
        benches.refuse_doubtful([results])


def render_commands(session: Session) -> str:
    """Return the commands of a bench, one line per distinct run, ready to paste into a shell.

    Of servers that run already, it is where requests are sent.
    """
    switches = environment.switches()
    needed = [name for name in environment.inherited() if name not in {*switches, *_OWN}]
    env = " ".join(
        [
            "env -i",
            *(f'{name}="${name}"' for name in sorted(needed)),
            shlex.join(f"{name}={value}" for name, value in (switches | _OWN).items()),
        ]
    )
    suite = session.suite
    specs = [spec for block in suite.blocks for prompt in suite.prompts for spec in block.on(prompt)]
    if session.llama is None:
        return "".join(dict.fromkeys(f"{' '.join(session.engine.argv(spec))}\n" for spec in specs))
    lines = dict.fromkeys(
        f'(cd "$(mktemp -d)" && {env} {" ".join(map(_quote, session.engine.argv(spec)))} </dev/null)\n'
        for spec in specs
    )
    return "".join(lines)


def _quote(word: str) -> str:
    """Return a word quoted for a shell; control characters become escapes."""
    if not re.search(CONTROL, word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    escaped = re.sub(
        CONTROL, lambda match: "".join(f"\\x{byte:02x}" for byte in os.fsencode(match[0])), plain
    )
    return f"$'{escaped}'"
