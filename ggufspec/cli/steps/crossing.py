"""The steps of ``crossover``: measure what is asked for next, until the map is decided or time is over."""

from __future__ import annotations

from ggufspec import tuning
from ggufspec.analysis import CrossoverMap, review
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.steps import benches, hub_access, limits, measuring
from ggufspec.cli.steps.tuning import look_with_progress
from ggufspec.options import CrossoverOptions
from ggufspec.report.text import crossovers, formats, tables
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import CrossoverStep


def run_crossover(asked: CrossoverOptions) -> None:
    """Measure step by step, and print the map.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts a verdict in doubt.
        GgufspecError: something cannot work, or the class that belongs to the first failed run.
    """
    deadline = limits.begin_tuning(asked.max_time)
    since_s = deadline.elapsed_s
    fetched = hub_access.fetch_models(asked)
    deadline = limits.without_network(deadline, since_s)
    plan = tuning.prepare_crossover(fetched, deadline)
    limits.announce_limit(plan.deadline)
    measuring.print_notes(plan.session)
    measuring.announce_reading(plan.session)
    plan = tuning.identify_crossover(plan)
    warnings = measuring.check_machine(plan.session)
    known = plan.session.notes
    plan = look_with_progress(tuning.expect_cells(plan, resume=asked.resume), plan.deadline)
    for note in plan.session.notes[len(known) :]:
        echo_sentence(note, err=True)
    command = measuring.command_line()
    measured: list[ResultSet] = []

    def measure(step: CrossoverStep) -> ResultSet:
        echo(f"{step.note} · {limits.describe_left(plan.deadline)}", err=True)
        opened = tuning.begin_crossover(
            plan, step, command=command, name=asked.name, resume=asked.resume, warnings=warnings
        )
        measured.append(measuring.measure(step.session, opened, measuring.describe_continuing))
        return measured[-1]

    crossover = finish(tuning.measure_crossover(plan), measure)
    results = measured[-1]
    emit(_render(crossover, results, asked.output), asked.out)
    measuring.raise_for_failures(results)
    if asked.strict:
        benches.refuse_doubtful([results])


def _render(crossover: CrossoverMap, results: ResultSet, output: str) -> str | bytes:
    if output in tables.FOR_PEOPLE:
        return crossovers.text(crossover, review.warnings(results), output)
    if output == "json":
        return crossovers.as_json(crossover, results)
    from ggufspec.report import frames

    table, origin = frames.crossover(crossover), frames.origin(results.meta)
    return formats.render(table, output, title="crossover", origin=origin)
