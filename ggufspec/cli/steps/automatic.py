"""The steps of ``auto``: find what may draft, download it, tune, and print how to serve the result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from ggufspec import results, tuning
from ggufspec.cli.entry.output import echo, echo_sentence, echo_table
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.cli.steps import benches, limits, measuring
from ggufspec.cli.steps import tuning as steps
from ggufspec.measure import Deadline, identity
from ggufspec.modelfiles import api, hub
from ggufspec.options import AutoOptions
from ggufspec.report.text import configuration as sentences
from ggufspec.report.text import overview, tables
from ggufspec.results import Configuration, read_configuration
from ggufspec.tuning import DraftSource, DraftSources
from ggufspec.units import format_bytes


def find_sources(asked: AutoOptions) -> DraftSources:
    """Find what may draft for a target, and list it.

    Raises:
        GgufspecError: the target or a drafter that was named is not available, or cannot be used here.
    """
    echo(f"looking for what may draft for {asked.target}", err=True)
    sources = tuning.find_sources(asked)
    for note in sources.notes:
        echo_sentence(note, err=True)
    echo_table(["drafts", "method", "size", ""], list(map(_describe_source, sources.sources)), err=True)
    return sources


def _describe_source(source: DraftSource) -> list[str]:
    model = None if source.survey is None else source.survey.pair.target
    size = "" if model is None else format_bytes(model.size_bytes or 0)
    state = source.left_out or source.note or ("to download" if source.missing_bytes else "")
    return [source.name, source.method.value, size, state]


@contextmanager
def explain_interruption() -> Iterator[None]:
    """Say after Ctrl-C or a signal that nothing is lost."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        echo("Run the same command again to go on from here.", err=True)
        raise


def fetch_sources(sources: DraftSources, asked: AutoOptions, deadline: Deadline) -> Deadline:
    """Download the target and the drafters that are tried, after one question.

    Returns the time limit, in which neither the download nor the question counts.

    Raises:
        ConsentNeededError: there is no terminal to ask on, and ``yes`` is not set.
        GgufspecError: the disk is full, or the download fails.
    """
    survey = sources.survey
    if not survey.missing_bytes:
        return deadline
    since_s = deadline.elapsed_s
    terminal = Terminal()
    hub.download(survey, hub.Access.of(asked), terminal, yes=asked.yes, ask_above_bytes=0, remember=False)
    api.pin_files(survey, terminal)
    return limits.without_network(deadline, since_s)


def tune_sources(sources: DraftSources, asked: AutoOptions, deadline: Deadline) -> Configuration:
    """Tune, from where an earlier attempt stopped, print the result, and return the stored configuration.

    Raises:
        InconclusiveError: nothing that was measured can be used.
        GgufspecError: something cannot work, or a bench cannot be stored.
    """
    measuring.announce_files(identity.unread(sources.models))
    attempt = tuning.find_attempt(sources.tune_options(asked), deadline)
    if (finished := attempt.finished) is not None:
        echo(f"tuned already: {finished.id}; --fresh tunes again", err=True)
        _print_finished(finished)
        return finished
    plan, outlook = attempt.plan, attempt.outlook
    measuring.print_notes(plan.session)
    warnings = measuring.check_machine(plan.session)
    if outlook is None:
        outlook = steps.look_with_progress(tuning.forecast_configurations(plan), plan.deadline)
        attempt.keep_outlook(outlook)
    else:
        echo("going on with the forecasts and the runs of an earlier attempt", err=True)
    for note in outlook.notes:
        echo_sentence(note, err=True)
    finalists = tuning.measure_finalists(plan, outlook)
    tuned = steps.measure_finalists(finalists, warnings, attempt.place_bench, plan.deadline)
    tuned = steps.serve_and_keep(plan, tuned)
    attempt.discard_outlook()
    emit(steps.render_text(plan, tuned, sources.tune_options(asked), tables.TERMINAL), None)
    return read_configuration(tuned.results.meta.id)


def _print_finished(configuration: Configuration) -> None:
    """Print an earlier tuning as ``show`` does: its verdict, its table and its warnings."""
    for line in sentences.lines(configuration):
        echo(line)
    stored = benches.load_bench(configuration.id)
    emit("\n" + overview.overview(stored, tables.TERMINAL), None)


def print_commands(configuration: Configuration, asked: AutoOptions) -> None:
    """Print by which texts was judged, the report's name, and the command that serves what was found."""
    name = shlex.quote(configuration.id)
    hint = "" if asked.suite or asked.prompt or asked.prompt_file else " -p, -f or --suite names others."
    echo(sentences.judged_by(results.load(configuration.id)) + hint)
    echo(f"Stored as {name}: `ggufspec report {name}` writes its report.")
    if configuration.serving_argv:
        meanwhile = "" if configuration.overall.is_decided else " (the target alone, meanwhile)"
        echo(f"Serve it{meanwhile}: ggufspec serve --tuned {name}")
