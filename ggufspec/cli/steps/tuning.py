"""The steps of ``tune`` and its progress; the command that measures the chosen configuration again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar

from ggufspec import tuning
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.steps import benches, hub_access, limits, measuring
from ggufspec.domain import Chain, Method, Program, Role, RunSpec
from ggufspec.errors import InconclusiveError
from ggufspec.harmless import one_line
from ggufspec.measure import Deadline, api, options_of
from ggufspec.modelfiles import catalog
from ggufspec.options import BenchOptions, MeasureOptions, TuneOptions
from ggufspec.prompts import EMBEDDED
from ggufspec.report.text import formats, tables
from ggufspec.report.text import tuned as tuned_report
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import NextBench, Stage, Tuned, TuningForecast
from ggufspec.units import counted

T = TypeVar("T")


def run_tuning(asked: TuneOptions) -> None:
    """Forecast every configuration, measure the best, and print the winner.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts the verdict in doubt.
        InconclusiveError: nothing that was measured can be used; the forecast is printed.
        GgufspecError: something cannot work, or the first of the finalists failed.
    """
    deadline = limits.begin_tuning(asked.max_time)
    since_s = deadline.elapsed_s
    fetched = hub_access.fetch_models(asked)
    deadline = limits.without_network(deadline, since_s)
    plan = tuning.prepare_tuning(fetched, deadline)
    limits.announce_limit(plan.deadline)
    measuring.print_notes(plan.session)
    measuring.announce_reading(plan.session)
    plan = tuning.identify(plan)
    warnings = measuring.check_machine(plan.session)
    steps = tuning.forecast_configurations(plan, forecast_only=asked.forecast)
    outlook = look_with_progress(steps, plan.deadline)
    for note in outlook.notes:
        echo_sentence(note, err=True)
    if asked.forecast:
        emit(_render_forecasts(outlook, plan.session.engine.name, asked.output), asked.out)
        return
    try:
        tuned = measure_finalists(
            tuning.measure_finalists(plan, outlook), warnings, _place_confirmation(asked.name), plan.deadline
        )
    except InconclusiveError:
        echo("The forecast, which no measurement confirms:", err=True)
        emit(_render_forecasts(outlook, plan.session.engine.name, asked.output), asked.out)
        raise
    tuned = serve_and_keep(plan, tuned)
    if asked.output in tables.FOR_PEOPLE:
        emit(render_text(plan, tuned, fetched, asked.output), asked.out)
    elif asked.output == "json":
        command = _bench_command(plan, tuned, fetched)
        emit(tuned_report.as_json(tuned, plan.session.install, command), asked.out)
    else:
        emit(_render_finalists(tuned, asked.output), asked.out)
    measuring.raise_for_failures(tuned.results)
    if asked.strict:
        open_ids = () if tuned.overall.is_decided else (tuned.results.meta.id,)
        benches.refuse_doubtful([tuned.results], undecided=open_ids)


def render_text(plan: tuning.Plan, tuned: Tuned, asked: TuneOptions, output: str) -> str:
    """Return what ``tune`` and ``auto`` print of a tuning: verdict, table, commands, warnings."""
    return tuned_report.text(tuned, plan.session.install, _bench_command(plan, tuned, asked), output)


def _bench_command(plan: tuning.Plan, tuned: Tuned, asked: TuneOptions) -> str:
    """Return the command that measures the choice again; while it is undecided, the candidate."""
    overall = tuned.overall
    open_arm = None if overall.is_decided else overall.candidate
    spec = (open_arm or overall.arm).spec
    return bench_command(asked.replace(engine=plan.session.engine.name), spec)


def serve_and_keep(plan: tuning.Plan, tuned: Tuned) -> Tuned:
    """Start llama-server once with the choice, and store the configuration."""
    if Program.SERVER in plan.session.install.programs:
        left = limits.describe_left(plan.deadline)
        echo(f"starting llama-server by the command that will be printed · {left}", err=True)
    tuned = tuning.serve(plan, tuned)
    tuning.keep(tuned)
    return tuned


def _place_confirmation(name: str | None) -> Callable[[NextBench], tuple[str | None, str | None]]:
    """Return what names the bench that confirms, and continues benches as they ask."""
    names = iter((name,) if name is not None else ())

    def place(bench: NextBench) -> tuple[str | None, str | None]:
        return (next(names, None) if bench.confirms else None), bench.resume

    return place


def measure_finalists(
    steps: Generator[NextBench, ResultSet | None, Tuned],
    warnings: Mapping[str, str],
    place: Callable[[NextBench], tuple[str | None, str | None]],
    deadline: Deadline,
) -> Tuned:
    """Measure each bench that a tuning asks for, and return the verdict.

    Args:
        steps: the tuning.
        warnings: about this machine, to store with each bench.
        place: returns the name of a new bench, and that of a stored one to go on with; each or None.
        deadline: the time limit of the tuning.

    Raises:
        InconclusiveError: nothing that was measured can be used.
        GgufspecError: a bench cannot be stored.
    """

    def measure(bench: NextBench) -> ResultSet:
        if bench.note is not None:
            echo(bench.note, err=True)
        echo(f"{_describe_bench(bench)} · {limits.describe_left(deadline)}", err=True)
        name, resume = place(bench)
        command = measuring.command_line()
        opened = api.begin(bench.session, command=command, name=name, resume=resume, warnings=warnings)
        return measuring.measure(
            bench.session,
            opened,
            lambda results: f" `ggufspec show {results.meta.id}` shows what was measured.",
        )

    return finish(steps, measure)


def _describe_bench(bench: NextBench) -> str:
    """Return what is measured next."""
    suite = bench.session.suite
    candidates = counted(suite.n_arms[Role.DRAFTING], "candidate")
    prompts = counted(len(suite.prompts), "prompt")
    if bench.confirms:
        return f"confirming: {candidates} and the target alone on {prompts}"
    further = " more" if bench.resume is not None else ""
    return f"selecting{further}: {candidates} and the target alone on {prompts}"


def _render_finalists(tuned: Tuned, output: str) -> str | bytes:
    from ggufspec.report import frames

    origin = frames.origin(tuned.results.meta)
    return formats.render(
        frames.finalists(tuned), output, title="finalists", origin=origin, schema="finalists"
    )


def look_with_progress(steps: Generator[Stage, None, T], deadline: Deadline) -> T:
    """Return what is forecast, with its notes, and its progress: a bar on a terminal, else a line a stage."""
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class LeftColumn(ProgressColumn):
        """How much of the time limit has passed and is left."""

        def render(self, task: Task) -> Text:
            return Text(limits.describe_left(deadline))

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), LeftColumn())
    printed: str | None = None
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("forecasting")

        def show(stage: Stage) -> None:
            nonlocal printed
            name = one_line(stage.name)
            kind = name.partition(" · ")[0]
            if kind != printed and not console.is_terminal:
                echo(f"{kind} · {limits.describe_left(deadline)}", err=True)
            printed = kind
            for note in stage.notes:
                progress.print(note, markup=False, highlight=False, soft_wrap=True)
            progress.update(task, description=escape(name), completed=stage.done, total=stage.total)

        return finish(steps, show)


def _render_forecasts(outlook: TuningForecast, engine: str, output: str) -> str | bytes:
    if output in tables.FOR_PEOPLE:
        return tuned_report.table(outlook, engine, output)
    from ggufspec.report import frames

    return formats.render(frames.prospects(outlook.prospects), output, title="forecasts")


def bench_command(asked: MeasureOptions, spec: RunSpec) -> str:
    """Return the command that measures a configuration with the target alone beside it.

    Args:
        asked: what it was chosen for; its engine, prompts and llama.cpp are those of the command.
        spec: the configuration; the target alone where drafting does not pay.
    """
    sampling, found = spec.sampling, options_of(spec)
    if spec.drafting is not None and spec.drafting.chain == Chain(Method.DRAFT_MODEL):
        del found["method"]  # that of a draft model, which its header says
    is_unnamed = asked.suite is None and not asked.prompt and not asked.prompt_file
    bench = BenchOptions(
        **found,
        engine=asked.engine,
        parallel=None if spec.traffic is None else spec.n_slots,
        temp=sampling.temperature or None,
        top_k=None if sampling.top_k == 1 else sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        seed=sampling.seed,
        n_predict=spec.n_predict,
        # files that are named have no suite of their own as a pair has
        suite=EMBEDDED if is_unnamed and catalog.is_embedded(spec.pair.name) else asked.suite,
        prompt=asked.prompt,
        prompt_file=[file.absolute() for file in asked.prompt_file],
        per_category=asked.per_category,
        chat=asked.chat,
        system=asked.system,
        llama=[llama.absolute() for llama in asked.llama or ()],
        force=asked.force,
    )
    return shlex.join(["ggufspec", "bench", *bench.to_argv()])
