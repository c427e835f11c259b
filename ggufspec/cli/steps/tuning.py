"""The steps of ``tune`` and its progress; the command that measures the chosen configuration again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ggufspec import tuning
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.options.shared import emit
from ggufspec.cli.options.values import TuneOptions
from ggufspec.cli.steps import benches, hub_access, limits, measuring
from ggufspec.domain import Chain, Method, Offload, Program, Role, RunSpec, Sampling
from ggufspec.errors import InconclusiveError
from ggufspec.harmless import one_line
from ggufspec.measure import Deadline, Request, api
from ggufspec.modelfiles import catalog
from ggufspec.prompts import EMBEDDED
from ggufspec.report.text import formats, tables
from ggufspec.report.text import tuned as tuned_report
from ggufspec.results import ResultSet
from ggufspec.steps import finish
from ggufspec.tuning import Bench, Stage, Tuned, TuningForecast
from ggufspec.units import counted

T = TypeVar("T")


def run_tuning(
    options: TuneOptions,
    *,
    name: str | None,
    forecast: bool,
    output: str,
    out: Path | None,
    strict: bool = False,
) -> None:
    """Forecast every configuration, measure the best, and print the winner.

    Args:
        options: what to choose from.
        name: the name of the stored result.
        forecast: print the forecasts and stop.
        output: the table's format.
        out: a file for the table; None for standard output.
        strict: raise an error if a warning puts the verdict in doubt.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts the verdict in doubt.
        InconclusiveError: nothing that was measured can be used; the forecast is printed.
        GgufspecError: something cannot work, or the first of the finalists failed.
    """
    deadline = limits.begin_tuning(options.max_time)
    since_s = deadline.elapsed_s
    request = hub_access.fetch_models(options.to_request(), yes=options.yes)
    deadline = limits.without_network(deadline, since_s)
    plan = tuning.prepare_tuning(make_request(options, request), deadline)
    limits.announce_limit(plan.deadline)
    measuring.print_notes(plan.session)
    measuring.announce_reading(plan.session)
    plan = tuning.identify(plan)
    warnings = measuring.check_machine(plan.session)
    outlook = look_with_progress(tuning.forecast_configurations(plan, forecast_only=forecast), plan.deadline)
    for note in outlook.notes:
        echo_sentence(note, err=True)
    if forecast:
        emit(_render_forecasts(outlook, plan.session.engine.name, output), out)
        return
    try:
        tuned = measure_finalists(
            tuning.measure_finalists(plan, outlook), warnings, _place_confirmation(name), plan.deadline
        )
    except InconclusiveError:
        echo("The forecast, which no measurement confirms:", err=True)
        emit(_render_forecasts(outlook, plan.session.engine.name, output), out)
        raise
    tuned = serve_and_keep(plan, tuned)
    if output in tables.FOR_PEOPLE:
        emit(render_text(plan, tuned, request, output), out)
    elif output == "json":
        emit(tuned_report.as_json(tuned, plan.session.install, _bench_command(plan, tuned, request)), out)
    else:
        emit(_render_finalists(tuned, output), out)
    measuring.raise_for_failures(tuned.results)
    if strict:
        open_ids = () if tuned.overall.is_decided else (tuned.results.meta.id,)
        benches.refuse_doubtful([tuned.results], undecided=open_ids)


def render_text(plan: tuning.Plan, tuned: Tuned, request: Request, output: str) -> str:
    """Return what ``tune`` and ``auto`` print of a tuning: verdict, table, commands, warnings."""
    return tuned_report.text(tuned, plan.session.install, _bench_command(plan, tuned, request), output)


def _bench_command(plan: tuning.Plan, tuned: Tuned, request: Request) -> str:
    """Return the command that measures the choice again; while it is undecided, the candidate."""
    overall = tuned.overall
    open_arm = None if overall.is_decided else overall.candidate
    spec = (open_arm or overall.arm).spec
    return bench_command(replace(request, engine=plan.session.engine.name), spec)


def make_request(options: TuneOptions, request: Request) -> tuning.TuneRequest:
    """Return what to choose from, and for how long.

    Args:
        options: as they were given.
        request: their request; its models may be files already.
    """
    return tuning.TuneRequest(
        request=request,
        methods=options.method,
        serve_ctx=options.serve_ctx,
        serve_parallel=options.serve_parallel,
        quantize_drafter=options.quantize_drafter or (),
        vram_bytes=options.vram,
        max_time_s=options.max_time,
        precision=options.precision,
        fresh=options.fresh,
    )


def serve_and_keep(plan: tuning.Plan, tuned: Tuned) -> Tuned:
    """Start llama-server once with the choice, and store the configuration."""
    if Program.SERVER in plan.session.install.programs:
        left = limits.describe_left(plan.deadline)
        echo(f"starting llama-server by the command that will be printed · {left}", err=True)
    tuned = tuning.serve(plan, tuned)
    tuning.keep(tuned)
    return tuned


def _place_confirmation(name: str | None) -> Callable[[Bench], tuple[str | None, str | None]]:
    """Return what names the bench that confirms, and continues benches as they ask."""
    names = iter((name,) if name is not None else ())

    def place(bench: Bench) -> tuple[str | None, str | None]:
        return (next(names, None) if bench.confirms else None), bench.resume

    return place


def measure_finalists(
    steps: Generator[Bench, ResultSet | None, Tuned],
    warnings: Mapping[str, str],
    place: Callable[[Bench], tuple[str | None, str | None]],
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

    def measure(bench: Bench) -> ResultSet:
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


def _describe_bench(bench: Bench) -> str:
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


def bench_command(request: Request, spec: RunSpec) -> str:
    """Return the command that measures a configuration with the target alone beside it.

    Args:
        request: what it was chosen for; its engine, prompts and llama.cpp are those of the command.
        spec: the configuration; the target alone where drafting does not pay.
    """
    words = ["ggufspec", "bench", *(("--engine", request.engine) if request.engine else ())]
    words += ["--parallel", str(spec.n_slots)] if spec.traffic is not None else []
    words += [*_models(spec), *_drafting(spec)]
    words += [*_placing(spec), *_sampling(spec.sampling), *_texts(request, spec)]
    words += [word for llama in request.llamas if llama for word in ("--llama", str(llama.absolute()))]
    words += ["--force"] if request.force else []
    runtime = spec.runtime if spec.drafting is not None else spec.runtime.without_drafting
    return shlex.join([*words, *_caches(spec), *runtime.words])


def _models(spec: RunSpec) -> Iterator[str]:
    yield from ("-m", str(spec.pair.target.path))
    if spec.drafter is not None:
        yield from ("-md", str(spec.drafter.path))


def _drafting(spec: RunSpec) -> Iterator[str]:
    drafting = spec.drafting
    if drafting is None:
        return
    if drafting.chain != Chain(Method.DRAFT_MODEL):
        yield from ("--method", str(drafting.chain))
    if str(drafting.ngram):
        yield from ("--ngram", str(drafting.ngram))
    yield from ("--draft", str(drafting.n_max))
    if drafting.p_min:
        yield from ("--p-min", str(drafting.p_min))


def _placing(spec: RunSpec) -> Iterator[str]:
    offload = spec.offload
    options: dict[str, object] = {
        "--ngl": offload.target.layers if offload.target.layers != "auto" else None,
        "--ngld": offload.drafter.layers if spec.drafter and offload.drafter.layers != "auto" else None,
        "--rpc": ",".join(offload.rpc),
        "--device": ",".join(offload.target.devices),
        "--device-draft": ",".join(offload.drafter.devices) if spec.drafter else None,
        "--tensor-split": ",".join(map(str, offload.tensor_split)),
        "--split-mode": offload.split_mode and offload.split_mode.value,
        "--main-gpu": offload.main_gpu,
        "--fit": None if offload.fit is None else "on" if offload.fit else "off",
        "-t": spec.threads,
        "-c": spec.context,
        "--ubatch-size": spec.ubatch,
    }
    for option, value in options.items():
        if value not in {None, ""}:
            yield from (option, str(value))
    yield from _experts(offload, is_drafting=spec.drafter is not None)


def _caches(spec: RunSpec) -> Iterator[str]:
    """Yield the options for the types of the caches."""
    target = spec.offload.target.caches
    if target is not None and target.type_k == target.type_v:
        yield from ("--kv-type", target.type_k)
    elif target is not None:
        yield from ("-ctk", target.type_k)
    offload = spec.offload if spec.drafting is not None else spec.offload.target_alone
    yield from offload.cache_words


def _experts(offload: Offload, *, is_drafting: bool) -> Iterator[str]:
    kept = {"": offload.target.cpu_moe, "-draft": offload.drafter.cpu_moe if is_drafting else None}
    for whose, experts in kept.items():
        if experts == "all":
            yield f"--cpu-moe{whose}"
        elif experts is not None:
            yield from (f"--n-cpu-moe{whose}", str(experts))


def _sampling(sampling: Sampling) -> Iterator[str]:
    values = {
        "--temp": (sampling.temperature, 0.0),
        "--top-k": (sampling.top_k, 1),
        "--top-p": (sampling.top_p, 1.0),
        "--min-p": (sampling.min_p, 0.0),
        "--seed": (sampling.seed, 1),
    }
    for option, (value, usual) in values.items():
        if value != usual:
            yield from (option, str(value))


def _texts(request: Request, spec: RunSpec) -> Iterator[str]:
    """Yield what makes the same prompts; files that are named have no suite of their own as a pair has."""
    yield from ("-n", str(spec.n_predict))
    named = request.suite is not None or request.prompt or request.prompt_file
    suite = EMBEDDED if not named and catalog.is_embedded(spec.pair.name) else request.suite
    if suite is not None:
        yield from ("--suite", suite)
    for text in request.prompt:
        yield from ("-p", text)
    for file in request.prompt_file:
        yield from ("-f", str(file.absolute()))
    if request.per_category is not None:
        yield from ("--per-category", str(request.per_category))
    if request.chat is not None:
        yield "--chat" if request.chat else "--raw"
    if request.system is not None:
        yield from ("--system", request.system)
