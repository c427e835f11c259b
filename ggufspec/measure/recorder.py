"""One cell -> stored RunResults: lost summaries and disturbed runs are measured again, texts compared."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ggufspec import machine, results
from ggufspec.analysis import warnings
from ggufspec.domain import Role, RunResult, RunSpec, Status
from ggufspec.engines import Measurement, plausibility
from ggufspec.llama.install import Install
from ggufspec.measure import audit, identity
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.runplan import Cell
from ggufspec.measure.session import Session
from ggufspec.results import ResultSet

_ATTEMPTS = 6  # recent builds lose the end of about one log in ten of very short runs, more on a busy machine
_RERUNS = 2  # of one disturbed run
_ROOM_BYTES = 1 << 16  # of a log
_PATIENCE = 6  # disturbed reruns in a row, after which this machine counts as busy for good


@dataclass(kw_only=True)
class Recorder:
    """Measures cells and stores every run as it ends; ``results`` grows with each.

    A run is not stored if a file of the session was changed before its end, nor if the time limit ended it.
    """

    session: Session
    results: ResultSet
    deadline: Deadline
    _own: dict[str, RunResult] = field(default_factory=dict)  # the target's own texts, by their spec's key
    _waiting: dict[str, list[RunResult]] = field(default_factory=dict)  # drafting runs that came before
    _disturbed_in_a_row: int = 0
    _load_numbers: dict[int, int] = field(default_factory=dict)  # the engine's number -> the bench's
    _next_load: int = 0

    def __post_init__(self) -> None:
        """Continue a bench that is resumed; a kill may have come before some texts were compared."""
        identity.check_unchanged(self.session.files or ())
        numbers = (number for number in self.results.runs.column("load") if number is not None)
        self._next_load = 1 + max(numbers, default=-1)
        for run in self.results.runs:
            if run.text_identical is None:
                self._compared(run)
        for key in [key for key in self._waiting if key in self._own]:
            for waited in self._waiting.pop(key):
                self.results = results.judge(self.results, self._compare_with_target(waited, self._own[key]))

    def measure(self, cell: Cell) -> Iterator[RunResult]:
        """Measure a cell and yield its run; one that others disturbed is kept, and measured again.

        Nothing is yielded for a run that the time limit ended. Who has no time for another run takes no more.

        Raises:
            DiskFullError: the run cannot be stored; what was stored before stays.
            ResultsError: a file that is measured was changed.
        """
        before = _RERUNS + 1 if cell.remeasured else 0  # reruns that the cell may have had
        for rerun in range(_RERUNS + 1):
            run = self._once(cell, before + rerun)
            if run is None:
                return
            yield run
            if run.sample.status is not Status.OK:
                return  # there are no figures that others could have spoilt
            if warnings.MeasurementWarning.BUSY_MACHINE not in run.doubts:
                self._disturbed_in_a_row = 0
                return
            self._disturbed_in_a_row += rerun > 0
            if cell.warmup or cell.anchor or self._disturbed_in_a_row > _PATIENCE:
                return

    def answer(self, spec: RunSpec) -> str | None:
        """Return what the target wrote for a specification, if it was measured and ended well."""
        own = self._own.get(spec.key)
        return own.sample.text if own else None

    def _once(self, cell: Cell, rerun: int) -> RunResult | None:
        """Measure a cell once and store its run; None where the time limit ended it."""
        log = self.results.folder / "logs" / _log_name(len(self.results.runs), cell)
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        started = time.perf_counter()
        with machine.Watch.start() as watch, results.disk(log.parent):
            measurement, attempts = self._attempt(cell, log)
            measurement = _judged(cell.spec, measurement)
            conditions = watch.conditions()
        identity.check_unchanged(self.session.files or ())
        if measurement.sample.status is Status.TIMED_OUT:
            if self.deadline.is_over():
                for ending in (".out", ".err"):
                    log.with_suffix(ending).unlink(missing_ok=True)
                return None
            measurement = replace(measurement, error=self._name_limit(measurement.error))
        run = RunResult(
            spec=cell.spec,
            repeat=cell.repeat,
            warmup=cell.warmup,
            anchor=cell.anchor,
            rerun=rerun,
            remeasured=cell.remeasured,
            engine=self.session.engine.name,
            sample=measurement.sample,
            argv=measurement.argv,
            log=log.name,
            started_at=started_at,
            wall_s=time.perf_counter() - started,
            program_s=measurement.wall_s,
            peak_rss_bytes=measurement.peak_rss_bytes,
            error=measurement.error,
            attempts=attempts,
            conditions=conditions,
            load=self._number_load(measurement.load),
        )
        cores = self.results.meta.machine.cores
        install = self._install_of(run.spec)
        raised = warnings.of_run(run, gpu=None if install is None else install.gpu, cores=cores)
        run = replace(run, doubts=tuple(warning.value for warning in raised))
        late = self._release_waiting(run)
        run = self._compared(run)
        self.results = results.append(self.results, run)
        for waited in late:
            self.results = results.judge(self.results, waited)
        return run

    def _name_limit(self, error: str | None) -> str | None:
        """Return why a run was killed, with the option that allows it more time."""
        longest_s = self.deadline.longest_run_s
        own_s = self.session.engine.timeout_s
        if (math.inf if own_s is None else own_s) <= longest_s:
            return error
        return f"{error}: no run may take more than a quarter of {self.deadline.describe()}"

    def _number_load(self, load: int | None) -> int:
        """Return the number, within the bench, of one of the engine's loads, or of a run's own load."""
        number = self._next_load if load is None else self._load_numbers.setdefault(load, self._next_load)
        self._next_load = max(self._next_load, number + 1)
        return number

    def _attempt(self, cell: Cell, log: Path) -> tuple[Measurement, int]:
        """Measure until the summary has arrived; every lost log is kept beside the good one."""
        for attempt in range(1, _ATTEMPTS + 1):
            with self.deadline.limiting(self.session.engine):
                measurement = self.session.engine.measure(cell.spec.at_repeat(cell.repeat), log)
            if measurement.sample.status is not Status.OK:
                _check_room(log)
            is_last = attempt == _ATTEMPTS or self.deadline.is_over()
            if measurement.sample.status is not Status.SUMMARY_LOST or is_last:
                return measurement, attempt
            for file in (log.with_suffix(ending) for ending in (".out", ".err")):
                if file.exists():
                    file.rename(file.with_name(f"{log.name}.lost{attempt}{file.suffix}"))
        raise AssertionError("unreachable: the last attempt returns")

    def _compared(self, run: RunResult) -> RunResult:
        """Compare a greedy run with what the target alone wrote first; without that, let it wait.

        The target's own repeats are compared as well: they show whether its text is the same every time.

        With simulated acceptance, the text is not the target's, so it is not compared.
        """
        if not audit.has_text(run.sample) or run.spec.role is Role.DRAFTER:
            return run
        key = run.spec.baseline.key
        if run.spec.role is Role.TARGET:
            own = self._own.setdefault(key, run)
            return run if own is run or not run.spec.sampling.greedy else self._compare_with_target(run, own)
        if not run.spec.sampling.greedy or (run.spec.drafting and run.spec.drafting.synthetic):
            return run
        if key in self._own:
            return self._compare_with_target(run, self._own[key])
        self._waiting.setdefault(key, []).append(run)
        return run

    def _release_waiting(self, run: RunResult) -> list[RunResult]:
        """Return the runs that waited for this one's text, compared with it."""
        if run.spec.role is not Role.TARGET or not audit.has_text(run.sample):
            return []
        return [self._compare_with_target(waited, run) for waited in self._waiting.pop(run.spec.key, ())]

    def _compare_with_target(self, run: RunResult, own: RunResult) -> RunResult:
        if run.sample.traffic is not None and own.sample.traffic is not None:
            return replace(run, text_identical=audit.compare_answers(run, own))
        install = self._install_of(run.spec)
        assert install is not None, "running servers are measured under traffic"
        difference = audit.locate(
            run.sample, own.sample, install, str(run.spec.pair.target.path), n_predict=run.spec.n_predict
        )
        return replace(run, text_identical=difference is None, difference=difference)

    def _install_of(self, spec: RunSpec) -> Install | None:
        return self.session.llama if spec.build is None else self.session.builds[spec.build]


def _judged(spec: RunSpec, measurement: Measurement) -> Measurement:
    """Return a measurement, as a failed one if its figures cannot be true."""
    verdict = plausibility.judge(spec, measurement.sample, wall_s=measurement.wall_s)
    if verdict is None:
        return measurement
    status, reason = verdict
    sample = replace(measurement.sample, status=status, text=None, tokens=None)
    return replace(measurement, sample=sample, error=reason)


def _check_room(log: Path) -> None:
    """Raise an OSError where the disk is full: a log that found no room on it looks like any failed run."""
    probe = log.with_suffix(".room")
    try:
        probe.write_bytes(bytes(_ROOM_BYTES))
    finally:
        probe.unlink(missing_ok=True)


def _log_name(number: int, cell: Cell) -> str:
    spec = cell.spec
    size = f"-g{spec.drafting.n_max}" if spec.drafting else ""
    build = f"-{spec.build}" if spec.build else ""
    prompt = re.sub(r"[^\w-]+", "_", spec.prompt.id)[:40]
    kind = "w" if cell.warmup else "a" if cell.anchor else "r"
    return f"{number:04d}-{spec.role.value}{size}{build}-{prompt}-{kind}{cell.repeat}"
