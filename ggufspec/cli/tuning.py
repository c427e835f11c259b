"""``ggufspec tune``, ``auto`` and ``crossover``: what is fastest here; ``serve`` and ``chat``: it in use."""

from __future__ import annotations

import shlex
import sys
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn

import click

from ggufspec import api, options
from ggufspec.choices import ServerFormat
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, emit, emit_page
from ggufspec.cli.entry.terminal import Terminal, read_standard_input
from ggufspec.errors import InconclusiveError

if TYPE_CHECKING:
    from ggufspec.results import Configuration
    from ggufspec.tuning import ServerCommand


@command_of(options.TuneOptions)
def tune(asked: options.TuneOptions) -> None:
    """Find the fastest drafter, draft size and offload, or report that drafting does not pay off.

    A short measurement of target and drafters forecasts every configuration. The best few are then measured,
    and the winner and the runner-up are confirmed beside the target alone, with new loads and new runs. Only
    these figures are the verdict. --forecast stops before that, after short
    runs of the target and of one draft size.

    On a GPU, a mixture of experts is tried at the places that are fastest by forecast: layers, experts and
    drafter, within --vram and --ram. Without a GPU, --forecast with --machine, --host and --vram simulates
    one.

    With --parallel N, the choice is for N users at once: the forecast is of a server with N slots, and each
    run is one load of it under the requests of N clients, as `bench --parallel N` measures. Without it, one
    request follows another, and --serve-parallel only reserves memory.

    All runs have memory for the context that --serve-ctx and --serve-parallel ask for. Before the command for
    llama-server is printed, it is started once, and answers a short and a long request. The configuration is
    stored: `ggufspec bench --tuned NAME` measures it again, `chat`, `plan`, `report` and `compare` take it
    as well.

    \b
    ggufspec tune                                     the pair fetched last
    ggufspec tune -m big.gguf -md a.gguf -md b.gguf   two drafters, or none
    ggufspec tune --parallel 4 --serve-ctx 8192       a server for four users
    ggufspec tune --from llama.service                instead of what a unit runs today
    """
    from ggufspec.cli.steps import benches, pasting, tuning as steps
    from ggufspec.tuning import TuningForecast

    asked, _ = pasting.read_asked(asked)
    terminal = Terminal(steps.describe_ended)
    if asked.forecast:
        outlook = api.forecast_tuning(asked, sink=terminal)
        steps.print_forecasts(outlook, asked, terminal)
        return
    try:
        tuned = api.tune(asked, sink=terminal)
    except InconclusiveError:
        forecast = terminal.last(TuningForecast)
        if forecast is not None:
            echo("The forecast, which no measurement confirms:", err=True)
            steps.print_forecasts(forecast, asked, terminal)
        raise
    steps.print_tuned(tuned, asked, asked.output, asked.out, terminal)
    benches.raise_for_failures(tuned.results)
    if asked.strict:
        open_ids = () if tuned.overall.is_decided else (tuned.results.meta.id,)
        benches.refuse_doubtful([tuned.results], undecided=open_ids)


@command_of(options.AutoOptions)
def auto(asked: options.AutoOptions) -> None:
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
        steps.print_tuned(tuned, sources.tune_options(asked), tables.TERMINAL, None, terminal)
    print_commands(configuration, asked)
    if asked.serve:
        serving = options.ServeOptions(tuned=configuration.id, words=asked.words)
        run_server(api.serving_command(serving, sink=terminal))


def print_finished(configuration: Configuration) -> None:
    """Print an earlier tuning as ``show`` does: its verdict, its table and its warnings."""
    from ggufspec.cli.steps import benches
    from ggufspec.report.text import configuration as sentences, overview, tables

    for line in sentences.lines(configuration):
        echo(line)
    emit("\n" + overview.overview(benches.load_bench(configuration.id), tables.TERMINAL), None)


def print_commands(configuration: Configuration, asked: options.AutoOptions) -> None:
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


@command_of(options.CrossoverOptions)
def crossover(asked: options.CrossoverOptions) -> None:
    """Map the best γ and its speed-up over users and context depth, and say where drafting stops paying.

    The server is computed for all cells first, from a trace of the prompts and timed costs. The ends of both
    axes are measured next, and the other cells are forecast: as computed, corrected by the measured cells.
    Then cells are measured whose verdict is in doubt, until all are decided or --max-time is over. -o json
    prints the map with all draft sizes. `show` and `report` print and draw it again.

    --parallel takes lists and ranges: 1,2,4,8 or 1-16. A range of --depth doubles: 0-32k is 0, 4096, 8192,
    16384 and 32768 tokens.

    \b
    ggufspec crossover --pair demo --parallel 1,2,4,8 --depth 0,512
    ggufspec crossover -m big.gguf -md small.gguf --parallel 1-16 --depth 0-32k --max-time 2h
    """
    from ggufspec.analysis import review
    from ggufspec.cli.steps import benches
    from ggufspec.report.text import crossovers
    from ggufspec.results import load

    mapped = api.crossover(asked, sink=Terminal(benches.describe_continuing))
    results = load(mapped.bench)
    emit_page(
        lambda: crossovers.text(mapped, review.warnings(results), asked.output),
        lambda frames: frames.crossover(mapped),
        *(asked.output, asked.out),
        as_json=lambda: crossovers.as_json(mapped, results),
        meta=results.meta,
        title="crossover",
    )
    benches.raise_for_failures(results)
    if asked.strict:
        benches.refuse_doubtful([results])


@command_of(options.ServeOptions)
def serve(asked: options.ServeOptions) -> None:
    """Run llama-server at a tuned configuration, in place of this command.

    Options for llama-server follow --: --host, --port and --api-key-file, and others that the configuration
    does not decide. Without them, it listens on 127.0.0.1, at the port of the tuning. The models are compared
    with those that were tuned by their checksums.

    \b
    ggufspec serve
    ggufspec serve --tuned big -- --host 0.0.0.0 --port 8000 --api-key-file keys
    ggufspec serve --tuned big --export systemd --out ~/.config/systemd/user/llama.service
    """
    if asked.out is not None:
        if asked.export is None:
            raise click.UsageError("--out is for --export")
        from ggufspec import userfiles

        userfiles.check_writable(asked.out)
    server = api.serving_command(asked, sink=Terminal())
    if asked.export is None:
        run_server(server)
    from ggufspec.report.text import exports

    emit(exports.export(server, ServerFormat(asked.export)), asked.out)


def run_server(server: ServerCommand) -> NoReturn:
    """Become llama-server.

    Raises:
        WorkerError: a worker cannot be used; llama-server would wait for a busy one without end.
        ChildCrashedError: the system cannot start it.
    """
    from ggufspec import proc
    from ggufspec.llama.rpc import workers

    workers.read_workers(options.parse_workers(server.value("--rpc") or options.NO_WORKERS))
    proc.replace_process(server.argv, server.full_environment())


@command_of(options.TalkOptions)
def chat(asked: options.TalkOptions) -> None:
    """Chat with a pair of models, and see which tokens were drafted and the tokens per second.

    \b
    ggufspec chat                         the pair fetched last, or the embedded one
    ggufspec chat --tuned last            what the last tuning recommends
    ggufspec chat --once "Why is the sky blue?" -o json
    """
    from ggufspec import measure, paths
    from ggufspec.domain import Failure
    from ggufspec.engines import failure_error

    if asked.once is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "a chat needs a terminal; use --once PROMPT, or --once - to read standard input"
        )
    from ggufspec.console import talk as talks

    prompt = read_standard_input().rstrip("\n") if asked.once == "-" else asked.once
    with closing(talks.begin(measure.with_fetched(asked, Terminal()))) as talk:
        try:
            if prompt is None:
                from ggufspec.console import terminal

                terminal.ChatTerminal(talk, history=paths.data_dir() / "chat-history").run()
            else:
                from ggufspec.console import views

                views.show(talk, prompt, talk.facts(), as_json=asked.output == "json")
        except Failure as failure:
            raise failure_error(failure.status, failure.reason) from failure
