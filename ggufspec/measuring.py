"""Suite x Engine -> RunResults: warm-ups, repeats, retries; a failing run is a row and the bench goes on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ggufspec import audit, doubts, machine, results
from ggufspec.domain import Role, RunResult, Status
from ggufspec.engines import Engine, Measurement
from ggufspec.llama.install import Install
from ggufspec.results import ResultSet
from ggufspec.sweep import Cell, Suite

_ATTEMPTS = 3  # recent builds lose the end of about one log in ten of very short runs


def record(
    suite: Suite, engine: Engine, install: Install, *, command: tuple[str, ...]
) -> Iterator[ResultSet]:
    """Measure a suite and store every run as it ends; yield the growing ResultSet, the empty one first.

    Args:
        suite: what to measure.
        engine: how to measure one run.
        install: the llama.cpp behind the engine, stored with the results.
        command: the command line that asked for it, stored with the results.

    Raises:
        DiskFullError: results cannot be stored; what was stored before stays.
    """
    here = machine.snapshot(install.devices)
    found = doubts.before(here, threads=suite.threads, busy_cores=machine.busy_cores())
    if suite.repeats < 2:
        found = (*found, doubts.Doubt.FEW_REPEATS)
    collected = results.create(
        engine=engine.name,
        command=command,
        build=install.describe(),
        machine=here,
        doubts=doubts.advise(found),
    )
    yield collected
    own_texts: dict[str, str] = {}
    for number, cell in enumerate(suite.cells()):
        run = _run(cell, engine, collected.folder / "logs" / _log_name(number, cell))
        if run.spec.role is Role.TARGET and run.sample.text is not None:
            own_texts.setdefault(run.spec.prompt.id, run.sample.text)
        run = _audited(run, own_texts.get(run.spec.prompt.id), install)
        run = replace(run, doubts=tuple(doubt.value for doubt in doubts.of_run(run, gpu=install.gpu)))
        collected = results.append(collected, run)
        yield collected


def _run(cell: Cell, engine: Engine, log: Path) -> RunResult:
    started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    started = time.perf_counter()
    watch = machine.LoadWatch.start()
    measurement, attempts = _measure(cell, engine, log)
    return RunResult(
        spec=cell.spec,
        repeat=cell.repeat,
        warmup=cell.warmup,
        engine=engine.name,
        sample=measurement.sample,
        argv=measurement.argv,
        log=log.name,
        started_at=started_at,
        wall_s=time.perf_counter() - started,
        program_s=measurement.wall_s,
        peak_rss_bytes=measurement.peak_rss_bytes,
        error=measurement.error,
        attempts=attempts,
        others_cores=watch.others(),
    )


def _audited(run: RunResult, own: str | None, install: Install) -> RunResult:
    """Compare a greedy drafting run's text with what the target alone wrote."""
    text = run.sample.text
    if run.spec.drafting is None or not run.spec.sampling.greedy or text is None or own is None:
        return run
    difference = audit.locate(text, own, install, str(run.spec.pair.target.path))
    return replace(run, text_identical=difference is None, difference=difference)


def _measure(cell: Cell, engine: Engine, log: Path) -> tuple[Measurement, int]:
    """Measure until the summary has arrived; every lost log is kept beside the good one."""
    for attempt in range(1, _ATTEMPTS + 1):
        measurement = engine.measure(cell.spec, log)
        if measurement.sample.status is not Status.SUMMARY_LOST or attempt == _ATTEMPTS:
            return measurement, attempt
        for file in log.parent.glob(f"{log.name}.*"):
            file.rename(file.with_name(f"{log.name}.lost{attempt}{file.suffix}"))
    raise AssertionError("unreachable: the last attempt returns")


def _log_name(number: int, cell: Cell) -> str:
    spec = cell.spec
    size = f"-g{spec.drafting.n_max}" if spec.drafting else ""
    prompt = re.sub(r"[^\w-]+", "_", spec.prompt.id)[:40]
    return f"{number:04d}-{spec.role.value}{size}-{prompt}-{'w' if cell.warmup else 'r'}{cell.repeat}"
