"""ResultSet: the results of a bench as a frozen value, with its runs as rows and as columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ggufspec import notebooks
from ggufspec.domain import (
    Build,
    Conditions,
    FileIdentity,
    Machine,
    RpcWorker,
    RunResult,
    RunSpec,
    StoppingRule,
)
from ggufspec.results.records import OUTPUT_FIELDS, RUN_FIELDS, TEXT_FIELDS, TIME_FIELDS, Ledger
from ggufspec.results.writer import Writer

if TYPE_CHECKING:  # numpy is heavy, and small benches need none of it
    import numpy as np
    from numpy.typing import NDArray

_CONDITIONS = frozenset(field.name for field in fields(Conditions))
_JUDGED = frozenset({"text_identical", "difference", "audit"})
_CALL = frozenset({"engine", "argv"})
_OUTPUT = frozenset({*OUTPUT_FIELDS, "decoded", "accept_rate"})  # properties that use no time
_RUN = frozenset({*RUN_FIELDS, *TIME_FIELDS})

CellKey = tuple[str, int, bool, bool]
"""The key of a cell: the spec's key, the repeat, whether it is a warm-up, whether it is an anchor."""


class Runs(Sequence[RunResult]):
    """Some runs of a ledger, read-only; later additions to the ledger do not show.

    It compares equal to any sequence of the same runs.

    Args:
        ledger: the stored records.
        places: indices of the runs; None for all runs stored now.
        n_judged: how many judgements apply; None for all stored now.
    """

    __slots__ = ("_columns", "_ledger", "_n_judged", "_outputs", "_places", "_run_records")

    def __init__(
        self, ledger: Ledger, numbers: Sequence[int] | None = None, n_judged: int | None = None
    ) -> None:
        self._ledger = ledger
        self._places = range(len(ledger.runs)) if numbers is None else numbers
        self._n_judged = ledger.n_judged if n_judged is None else n_judged
        self._run_records: list[Any] | None = None  # of the places, once a column is read
        self._outputs: list[Any] | None = None  # the output records of these runs
        self._columns: dict[str, list[Any]] = {}  # that were read

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> RunResult: ...

    @overload
    def __getitem__(self, index: slice) -> Runs: ...

    def __getitem__(self, index: int | slice) -> RunResult | Runs:
        if isinstance(index, slice):
            return Runs(self._ledger, self._places[index], self._n_judged)
        return self._ledger.run(self._places[index], self._n_judged)

    def __iter__(self) -> Iterator[RunResult]:
        return (self._ledger.run(number, self._n_judged) for number in self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # like a list: its items have no hash

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    @property
    def specs(self) -> list[RunSpec]:
        """The specification of each run; equal ones are one object."""
        return self._look_up("spec", self._ledger.specs)

    @property
    def outputs(self) -> list[Any]:
        """The output of each run: a Sample without its text and times; equal ones are one object."""
        if self._outputs is None:
            self._outputs = self._look_up("output", self._ledger.outputs)
        return self._outputs

    @property
    def distinct_outputs(self) -> list[Any]:
        """The outputs of these runs, each once."""
        return [self._ledger.outputs[number] for number in dict.fromkeys(self._values("output"))]

    def select(self, numbers: Sequence[int]) -> Runs:
        """Return the runs at these indices of this sequence."""
        return Runs(self._ledger, [self._places[number] for number in numbers], self._n_judged)

    def column(self, name: str) -> list[Any]:
        """Return one value of every run without making RunResults: some 10 ms for 100,000 runs.

        The list is kept, and must not be changed.

        Args:
            name: a field of RunResult (except ``sample`` and ``conditions``), of Conditions or of Sample, or
                ``decoded`` or ``accept_rate`` of Sample.

        Raises:
            AttributeError: there is no such column.
        """
        if name not in self._columns:
            self._columns[name] = self._read_column(name)
        return self._columns[name]

    def _read_column(self, name: str) -> list[Any]:
        ledger = self._ledger
        if name == "spec":
            return self.specs
        if name in _CALL:
            return self._look_up("call", [getattr(call, name) for call in ledger.calls])
        if name in TEXT_FIELDS:
            texts = (None if output.text is None else ledger.texts[output.text] for output in self.outputs)
            return [text and getattr(text, name) for text in texts]
        if name in _OUTPUT:
            return list(map(attrgetter(name), self.outputs))
        if name in _CONDITIONS:
            return [getattr(state, name, None) for state in self._values("conditions")]
        if name not in _RUN:
            raise AttributeError(f"runs have no column {name!r}")
        return self._apply_judgements(name, self._values(name)) if name in _JUDGED else self._values(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers as an array; absent ones are NaN.

        Args:
            name: as for ``column``, or ``decode_tps`` of Sample.
        """
        import numpy as np

        if name == "decode_tps":
            decoded, gen_s, sampling_s = map(self.numbers, ("decoded", "gen_s", "sampling_s"))
            decoded = np.where((decoded > 0) & (gen_s > 0), decoded, np.nan)
            return decoded / (gen_s + np.nan_to_num(sampling_s))
        return np.array(self.column(name), dtype=np.float64)

    def by_spec(self) -> tuple[Sequence[RunSpec], NDArray[np.intp]]:
        """Return the specifications of the bench, and for each run the index of its specification."""
        return tuple(self._ledger.specs), self._numbers_of("spec")

    def cells(self) -> list[CellKey]:
        """Return the cell of each run."""
        key_of = [spec.key for spec in self._ledger.specs]
        return [(key_of[r.spec], r.repeat, r.warmup, r.anchor) for r in self._records()]

    def newest(self) -> Runs:
        """Return the runs without warm-ups and anchors: the last of each cell, in order of the first."""
        first: dict[str, int] = {}
        same = [first.setdefault(spec.key, at) for at, spec in enumerate(self._ledger.specs)]
        runs = zip(self._records(), self._places, strict=True)
        # a cell is one number here, because 100,000 tuples make the garbage collector run
        last = {(same[r.spec] << 32) + r.repeat: number for r, number in runs if not (r.warmup or r.anchor)}
        return Runs(self._ledger, list(last.values()), self._n_judged)

    def _numbers_of(self, reference: str) -> NDArray[np.intp]:
        import numpy as np

        return np.array(self._values(reference), dtype=np.intp)

    def _records(self) -> list[Any]:
        if self._run_records is None:
            self._run_records = [self._ledger.runs[number] for number in self._places]
        return self._run_records

    def _values(self, name: str) -> list[Any]:
        return list(map(attrgetter(name), self._records()))

    def _look_up(self, reference: str, table: Sequence[Any]) -> list[Any]:
        return [table[number] for number in self._values(reference)]

    def _apply_judgements(self, name: str, values: list[Any]) -> list[Any]:
        for at, number in enumerate(self._places if self._ledger.judged else ()):
            judgement = self._ledger.judgement(number, self._n_judged)
            if judgement is not None:
                values[at] = getattr(judgement, name)
        return values


SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What all runs of one bench share. ``doubts`` maps the names of warnings to their advice.

    ``number`` counts the benches of a store, so that a wrong clock does not change their order.
    ``planned_runs`` is the number of counted runs of a complete bench. ``files`` are the measured models and
    the programs and libraries of llama.cpp, ``environment`` the variables that may change their speed.
    ``software`` has the versions of ggufspec, Python and the packages that it uses, ``suite_sha256``
    identifies the prompts. None is not recorded.

    ``builds`` maps the ``RunSpec.build`` of a bench of several llama.cpps to each of them, in the order in
    which they were given; ``build`` is the first. It is empty for a bench of one. ``stopping`` is when a
    bench that is measured until its verdicts are decided is looked at; None for other benches. ``workers``
    lent their devices to the target.
    """

    id: str
    started_at: str  # ISO 8601, UTC
    engine: str
    command: tuple[str, ...]  # ggufspec's own command line
    build: Build
    machine: Machine
    doubts: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    planned_runs: int | None = None
    files: tuple[FileIdentity, ...] | None = None
    environment: Mapping[str, str] | None = None
    builds: Mapping[str, Build] = field(default_factory=dict)
    software: Mapping[str, str] | None = None
    suite_sha256: str | None = None
    stopping: StoppingRule | None = None
    workers: tuple[RpcWorker, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def build_of(self, spec: RunSpec) -> Build:
        """Return the llama.cpp that ran a specification."""
        return self.build if spec.build is None else self.builds[spec.build]


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """The runs of one bench, in the order of measurement.

    ``damage`` says in sentences what could not be read; it is empty for an undamaged bench.
    """

    meta: Meta
    folder: Path
    runs: Runs
    damage: tuple[str, ...] = field(default=(), compare=False)
    writer: Writer | None = field(default=None, repr=False, compare=False)  # None: opened for reading only
    upcoming: RunSpec | None = field(default=None, repr=False, compare=False)  # about to be measured

    @property
    def measured(self) -> Runs:
        """The runs without warm-ups."""
        return self.runs.select([i for i, warmup in enumerate(self.runs.column("warmup")) if not warmup])

    @cached_property
    def current(self) -> Runs:
        """The runs that count: the newest of each cell, without warm-ups and anchors."""
        return self.runs.newest()

    @property
    def first_measured(self) -> Runs:
        """As ``current``, but without what was measured again because a run had collapsed."""
        remeasured = self.runs.column("remeasured")
        if not any(remeasured):
            return self.current
        return self.runs.select([i for i, again in enumerate(remeasured) if not again]).newest()

    @property
    def is_complete(self) -> bool | None:
        """Whether every planned run exists, failed ones included; None where the plan is not known."""
        planned = self.meta.planned_runs
        return None if planned is None else len(self.current) >= planned

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return notebooks.html(self)


def cell(spec: RunSpec, repeat: int, *, warmup: bool = False, anchor: bool = False) -> CellKey:
    """Return the key of a cell of a bench."""
    return (spec.key, repeat, warmup, anchor)


def finished(results: ResultSet) -> frozenset[CellKey]:
    """Return the cells that have a run, failed or not."""
    return frozenset(results.runs.cells())


ServerStart = tuple[str, str | None]
"""A start of a server that ran already: its address, and what it says of its start."""


def number_loads(runs: Runs) -> NDArray[np.float64]:
    """Return the number of the load that made each run; NaN where none is recorded.

    A server that ran already is one load until it says that it was started again, however often it is asked.
    """
    recorded = runs.numbers("load")
    if all(spec.servers is None for spec in runs.by_spec()[0]):
        return recorded
    numbers: dict[ServerStart, int] = {}
    for load, start in enumerate(list_starts(runs)):
        if start is not None:
            recorded[load] = numbers.setdefault(start, len(numbers))
    return recorded


def list_starts(runs: Runs) -> Iterator[ServerStart | None]:
    """Yield the start of the server that answered each run; None for a run that loaded its own models."""
    for spec, repeat in zip(runs.specs, runs.column("repeat"), strict=True):
        yield _start(spec, repeat)


def _start(spec: RunSpec, repeat: int) -> ServerStart | None:
    endpoint = None if spec.servers is None else spec.at_repeat(repeat).endpoint
    return None if endpoint is None else (endpoint.url, endpoint.start)
