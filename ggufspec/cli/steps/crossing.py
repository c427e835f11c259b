"""The steps of ``crossover``: measure what is asked for next, until the map is decided or time is over."""

from __future__ import annotations

from pathlib import Path

from ggufspec import tuning
from ggufspec.analysis import CrossoverMap, review
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.options.shared import emit
from ggufspec.cli.options.values import CrossoverOptions
from ggufspec.cli.steps import benches, hub_access, limits, measuring
from ggufspec.cli.steps.tuning import look_with_progress
from ggufspec.report.text import crossovers, formats, tables
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import CrossoverStep


def run_crossover(
    options: CrossoverOptions,
    *,
    name: str | None,
    resume: str | None,
    output: str,
    out: Path | None,
    strict: bool = False,
) -> None:
    """Measure step by step, and print the map.

    Args:
        options: what to map.
        name: the name of the stored bench.
        resume: the name of a stored crossover to continue.
        output: the format of the map.
        out: a file for it; None for standard output.
        strict: raise an error if a warning puts a verdict in doubt.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts a verdict in doubt.
        GgufspecError: something cannot work, or the class that belongs to the first failed run.
    """
    measuring.refuse_two_names(name, resume)
    deadline = limits.begin_tuning(options.max_time)
    since_s = deadline.elapsed_s
    request = hub_access.fetch_models(options.to_request(), yes=options.yes)
    deadline = limits.without_network(deadline, since_s)
    asked = tuning.CrossoverRequest(request=request, max_time_s=options.max_time)
    plan = tuning.prepare_crossover(asked, deadline)
    limits.announce_limit(plan.deadline)
    measuring.print_notes(plan.session)
    measuring.announce_reading(plan.session)
    plan = tuning.identify_crossover(plan)
    warnings = measuring.check_machine(plan.session)
    known = plan.session.notes
    plan = look_with_progress(tuning.expect_cells(plan, resume=resume), plan.deadline)
    for note in plan.session.notes[len(known) :]:
        echo_sentence(note, err=True)
    command = measuring.command_line()
    measured: list[ResultSet] = []

    def measure(step: CrossoverStep) -> ResultSet:
        echo(f"{step.note} · {limits.describe_left(plan.deadline)}", err=True)
        opened = tuning.begin_crossover(
            plan, step, command=command, name=name, resume=resume, warnings=warnings
        )
        measured.append(measuring.measure(step.session, opened, measuring.describe_continuing))
        return measured[-1]

    crossover = finish(tuning.measure_crossover(plan), measure)
    results = measured[-1]
    emit(_render(crossover, results, output), out)
    measuring.raise_for_failures(results)
    if strict:
        benches.refuse_doubtful([results])


def _render(crossover: CrossoverMap, results: ResultSet, output: str) -> str | bytes:
    if output in tables.FOR_PEOPLE:
        return crossovers.text(crossover, review.warnings(results), output)
    if output == "json":
        return crossovers.as_json(crossover, results)
    from ggufspec.report import frames

    table, origin = frames.crossover(crossover), frames.origin(results.meta)
    return formats.render(table, output, title="crossover", origin=origin)
