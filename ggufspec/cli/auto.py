"""``ggufspec auto``: from the name of a model to the fastest way to serve it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from ggufspec import api
from ggufspec.cli import serve
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import AutoOptions, ServeOptions

if TYPE_CHECKING:
    from ggufspec.results import Configuration


@command_of(AutoOptions)
def command(asked: AutoOptions) -> None:
    """Find everything that may draft for TARGET, download it, tune, and say how to serve it.

    TARGET is user/repo:QUANT, a file, or a pair of the catalogue. Drafters are smaller models of its family
    that llama.cpp accepts, and heads; n-gram methods and layers of the target need no file. What is found is
    listed with its size before anything is downloaded. The tuning is that of `ggufspec tune`.

    After an interruption, the same command goes on: downloads resume, and stored runs are not repeated.

    \b
    ggufspec auto Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec auto big.gguf -md small.gguf -md eagle3.gguf --max-time 20m
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --parallel 4    the best for four users at once
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M -f my-prompts.jsonl   judged by texts of yours
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --yes --max-download 8G --serve -- --port 8000
    """
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import tuning as steps
    from ggufspec.report.text import tables
    from ggufspec.tuning import DraftSources, Tuned

    if asked.words and not asked.serve:
        raise click.UsageError("options for llama-server need --serve")
    terminal = Terminal(steps.describe_ended)
    try:
        configuration = api.auto(asked, sink=terminal)
    except (KeyboardInterrupt, SystemExit):
        if terminal.last(DraftSources) is not None:
            echo("Run the same command again to go on from here.", err=True)
        raise
    tuned, sources = terminal.last(Tuned), terminal.last(DraftSources)
    if tuned is None or sources is None:
        print_finished(configuration)
    else:
        emit(steps.render(tuned, sources.tune_options(asked), tables.TERMINAL, terminal), None)
    print_commands(configuration, asked)
    if asked.serve:
        serving = ServeOptions(tuned=configuration.id, words=asked.words)
        serve.run_server(api.serving_command(serving, sink=terminal))


def print_finished(configuration: Configuration) -> None:
    """Print an earlier tuning as ``show`` does: its verdict, its table and its warnings."""
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import benches
    from ggufspec.report.text import configuration as sentences
    from ggufspec.report.text import overview, tables

    for line in sentences.lines(configuration):
        echo(line)
    emit("\n" + overview.overview(benches.load_bench(configuration.id), tables.TERMINAL), None)


def print_commands(configuration: Configuration, asked: AutoOptions) -> None:
    """Print by which texts was judged, the report's name, and the command that serves what was found."""
    from ggufspec import results
    from ggufspec.report.text import configuration as sentences

    name = shlex.quote(configuration.id)
    hint = "" if asked.suite or asked.prompt or asked.prompt_file else " -p, -f or --suite names others."
    echo(sentences.judged_by(results.load(configuration.id)) + hint)
    echo(f"Stored as {name}: `ggufspec report {name}` writes its report.")
    if configuration.serving_argv:
        meanwhile = "" if configuration.overall.is_decided else " (the target alone, meanwhile)"
        echo(f"Serve it{meanwhile}: ggufspec serve --tuned {name}")
