"""The protocol of all engines, and what several of them share.

That is the engine for several builds, the processes that are kept between runs, and how samples and errors
follow from logs.
"""

from __future__ import annotations

import statistics
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from ggufspec import errors
from ggufspec.domain import ENGINES, OWN_PROCESSES, Failure, Program, RunSpec, Sample, Status
from ggufspec.llama.install import Install
from ggufspec.llama.logs import parsing
from ggufspec.llama.rpc import workers

K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound="HeldProcess")
_ERRORS: dict[Status, type[errors.GgufspecError]] = {
    Status.SUMMARY_LOST: errors.SummaryLostError,
    Status.DRAFTING_INACTIVE: errors.DraftingInactiveError,
    Status.DRAFTER_REFUSED: errors.DrafterRefusedError,
    Status.PROMPT_TOO_LONG: errors.ContextTooSmallError,
    Status.LOAD_FAILED: errors.ModelFileError,
    Status.OUT_OF_MEMORY: errors.OutOfMemoryError,
    Status.DISK_FULL: errors.DiskFullError,
    Status.TIMED_OUT: errors.ChildTimedOutError,
    Status.IMPLAUSIBLE: errors.ImplausibleError,
    Status.NO_TEXT: errors.ImplausibleError,
    **dict.fromkeys(workers.HINTS, errors.WorkerError),
}  # any other is that of a program that failed
_HINTS = {
    Status.OUT_OF_MEMORY: "put fewer layers on the GPU (--ngl), or use a smaller --ctx or quantization",
    Status.TIMED_OUT: "allow more time with --timeout, or ask for fewer tokens with -n",
    Status.LOG_TOO_LARGE: "leave out options after -- that make llama.cpp print more; is `ulimit -f` low?",
    Status.PROMPT_TOO_LONG: "use a larger --ctx or a shorter prompt",
    **workers.HINTS,
}


class Engine(Protocol):
    """Measures one RunSpec once. A failing run is a Measurement with a status, not an exception.

    Engines are context managers, because some keep models loaded between runs.
    """

    timeout_s: float | None
    """Time limit in seconds for a run, and for a load; None for no limit. It may be changed between runs."""

    @property
    def name(self) -> str:
        """The row of ENGINES that made this engine."""
        raise NotImplementedError

    @property
    def capacity(self) -> int | None:
        """How many processes with loaded models are kept at once.

        None if there is no limit, or if every run loads its models.
        """
        return None

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command that ``measure`` runs, ready to paste into a shell."""
        raise NotImplementedError

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once. Raw output is written to ``log`` with the suffixes ``.out`` and ``.err``, then parsed."""
        raise NotImplementedError

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return a key for what must be loaded for a run; runs with equal keys share it.

        None if every run loads its models.
        """
        return None

    def close(self) -> None:
        """End all processes kept between runs. The engine can be used again afterwards."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one run; ``error`` is one line that says why it failed, or None.

    ``load`` is the number of the engine's load, from 0. None for a run with a load of its own.
    """

    sample: Sample
    argv: tuple[str, ...]
    wall_s: float
    peak_rss_bytes: int | None = None
    error: str | None = None
    load: int | None = None


def program_for(name: str, spec: RunSpec) -> Program:
    """Return the program that an engine runs for a specification, or whose rules apply."""
    drafting = ENGINES[name]
    return drafting if spec.drafting is not None or drafting is Program.SERVER else Program.PLAIN


def keeps_loads(name: str) -> bool:
    """Return whether the engine of that name makes several runs with one load; False for unknown names."""
    return name in ENGINES.keys() - OWN_PROCESSES


@dataclass(kw_only=True)
class BuildsEngine(Engine):
    """Engines of one name, by ``RunSpec.build``; together they hold no more loads than one of them."""

    engines: Mapping[str, Engine]

    @property
    def name(self) -> str:
        """The row of ENGINES that made all of them."""
        return next(iter(self.engines.values())).name

    @property
    def timeout_s(self) -> float | None:
        """The time limit for a run, and for a load."""
        return next(iter(self.engines.values())).timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float | None) -> None:
        for engine in self.engines.values():
            engine.timeout_s = seconds

    @property
    def capacity(self) -> int | None:
        """How many loads are held at once, by all builds together."""
        held = [engine.capacity for engine in self.engines.values() if engine.capacity is not None]
        return min(held, default=None)

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command of one run, with the programs of its build."""
        return self._of(spec).argv(spec)

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once with the programs of its build."""
        if self.capacity is not None:
            for build, engine in self.engines.items():
                if build != spec.build:
                    engine.close()  # its loads would take the memory that this build's may have
        measurement = self._of(spec).measure(spec, log)
        if measurement.load is None:
            return measurement
        number = list(self.engines).index(str(spec.build))  # each engine counts its loads from 0
        return replace(measurement, load=measurement.load * len(self.engines) + number)

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return what must be loaded for a run; builds share no load."""
        key = self._of(spec).load_key(spec)
        return None if key is None else (spec.build, key)

    def close(self) -> None:
        """End whatever the engines keep."""
        for engine in self.engines.values():
            engine.close()

    def _of(self, spec: RunSpec) -> Engine:
        assert spec.build is not None
        return self.engines[spec.build]


class HeldProcess(Protocol):
    """A process that keeps models loaded."""

    @property
    def is_usable(self) -> bool:
        """Whether it still runs and answers."""

    def close(self) -> None:
        """End it."""


@dataclass(kw_only=True)
class Pool(Generic[K, P]):
    """Processes with loaded models by key: at most ``capacity`` at once; None sets no limit.

    The least recently used one ends first.
    """

    capacity: int | None
    _held: OrderedDict[K, P] = field(default_factory=OrderedDict)

    def get(self, key: K) -> P | None:
        """Return the usable process of a key and mark it as used; None without one."""
        self.drop_unusable(key)
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def holds(self, key: K) -> bool:
        """Whether a key has a usable process; this does not count as a use."""
        return key in self._held and self._held[key].is_usable

    def make_room(self) -> None:
        """End processes until one more may be held."""
        while self.capacity is not None and len(self._held) >= max(1, self.capacity):
            self.drop(next(iter(self._held)))

    def put(self, key: K, process: P) -> None:
        """Hold a process; call ``make_room`` first."""
        self._held[key] = process

    def drop(self, key: K) -> None:
        """End the process of a key, if there is one."""
        process = self._held.pop(key, None)
        if process is not None:
            process.close()

    def drop_unusable(self, key: K) -> None:
        """End the process of a key if it is not usable."""
        if key in self._held and not self._held[key].is_usable:
            self.drop(key)

    def forget(self, process: P) -> None:
        """End a process that may be held under several keys."""
        for key in [key for key, held in self._held.items() if held is process]:
            self.drop(key)

    def clear(self) -> None:
        """End all processes at once: a busy one may take a second."""
        ending = list({id(process): process for process in self._held.values()}.values())
        self._held.clear()
        if len(ending) == 1:
            ending[0].close()
        elif ending:
            with ThreadPoolExecutor(max_workers=len(ending)) as executor:
                closing = [executor.submit(process.close) for process in ending]
            for closed in closing:
                closed.result()


@dataclass(kw_only=True)
class LoadingEngine(Engine, Generic[P]):
    """An engine that keeps up to ``capacity`` processes with loaded models.

    With ``per_arm``, each arm has one of its own.
    """

    install: Install
    name: str
    capacity: int | None = None
    timeout_s: float | None = None  # for a load, and for a run
    per_arm: bool = False
    _pool: Pool[Hashable, P] = field(init=False)
    _load_numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self._pool = Pool(capacity=self.capacity)

    def close(self) -> None:
        """End all processes."""
        self._pool.clear()

    def failed(self, spec: RunSpec, failure: Failure) -> Sample:
        """Return the sample of a run that failed."""
        size = spec.drafting.n_max if spec.drafting else None
        return Sample(status=failure.status, program=program_for(self.name, spec), n_draft=size)


def read_log(log: bytes, program: Program) -> Sample:
    """Parse a log; if it has no output of llama.cpp, the sample has a status and no numbers."""
    try:
        return parsing.parse(log, program=program)
    except errors.LogError:
        return Sample(status=Status.SUMMARY_LOST, program=program)


def median_gap(times: Sequence[float]) -> float | None:
    """Return the median time between two events; None of fewer than two."""
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return statistics.median(gaps) if gaps else None


def as_drafter(load: Sample) -> Sample:
    """Return the placement that a model's own load log shows, as the placement of a drafter."""
    return replace(load, drafter=load.target)


def with_placement(sample: Sample, load: Sample, drafter_load: Sample | None) -> Sample:
    """Return a run's sample with the placement of its models.

    Args:
        sample: the run's figures.
        load: parsed load log of the model that writes the text, as its target.
        drafter_load: parsed load log of the drafter, as its drafter; None if no model drafts.
    """
    drafter = sample.drafter if drafter_load is None else drafter_load.drafter
    return replace(sample, devices=load.devices, target=load.target, drafter=drafter)


def failure_error(status: Status, message: str, otherwise: str | None = None) -> errors.GgufspecError:
    """Return the error for a status, with its own hint or ``otherwise``."""
    return _ERRORS.get(status, errors.ChildCrashedError)(message, _HINTS.get(status, otherwise))
