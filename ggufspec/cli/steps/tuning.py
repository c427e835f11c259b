"""What ``tune`` and ``auto`` print: verdict, table, the command that measures the choice again."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path

from ggufspec.cli.entry.output import emit_page
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.domain import Chain, Method, RunSpec
from ggufspec.measure import Session, options_of
from ggufspec.modelfiles import catalog
from ggufspec.options import BenchOptions, MeasureOptions, TuneOptions
from ggufspec.prompts import EMBEDDED
from ggufspec.report.text import tuned as tuned_report
from ggufspec.results import ResultSet
from ggufspec.tuning import Tuned, TuningForecast


def describe_ended(results: ResultSet) -> str:
    """Return where to see a bench of a tuning that ended early."""
    return f" `ggufspec show {results.meta.id}` shows what was measured."


def print_tuned(tuned: Tuned, asked: TuneOptions, output: str, out: Path | None, terminal: Terminal) -> None:
    """Print or write a tuning; ``terminal`` was told in which session it was measured."""
    session = terminal.last(Session)
    assert session is not None
    overall = tuned.overall
    compared = overall.spec if overall.is_decided else overall.candidate or overall.spec
    command = bench_command(asked.replace(engine=session.engine.name), compared)
    emit_page(
        lambda: tuned_report.text(tuned, session.install, command, output),
        lambda frames: frames.finalists(tuned),
        *(output, out),
        as_json=lambda: tuned_report.as_json(tuned, session.install, command),
        meta=tuned.results.meta,
        title="finalists",
        schema="finalists",
    )


def print_forecasts(outlook: TuningForecast, asked: TuneOptions, terminal: Terminal) -> None:
    """Print or write the forecasts of a tuning."""
    session = terminal.last(Session)
    assert session is not None
    page = partial(tuned_report.table, outlook, session.engine.name, asked.output)
    rows = outlook.prospects
    emit_page(page, lambda frames: frames.prospects(rows), asked.output, asked.out, title="forecasts")


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
