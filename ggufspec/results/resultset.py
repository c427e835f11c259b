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
        ledger: the stored records; all runs that are stored now.
        chosen: runs of the ledger and the indices of some of them, for these alone.

    Attributes:
        places: where each run is in the ledger.
        n_judged: how many judgements of the ledger apply.
    """

    __slots__ = ("_chosen", "_columns", "_indices", "_ledger", "_numbers", "n_judged", "places")

    def __init__(self, ledger: Ledger, chosen: tuple[Runs, NDArray[np.intp]] | None = None) -> None:
        self._ledger = ledger
        self._chosen = chosen
        self._columns: dict[str, list[Any]] = {}  # that were read
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._indices: dict[str, NDArray[np.intp]] = {}
        self.places: range | NDArray[np.intp]
        if chosen is None:
            self.places, self.n_judged = range(len(ledger.runs)), ledger.n_judged
        else:
            runs, at = chosen
            self.places = at if isinstance(runs.places, range) else runs.places[at]
            self.n_judged = runs.n_judged

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> RunResult: ...

    @overload
    def __getitem__(self, index: slice) -> Runs: ...

    def __getitem__(self, index: int | slice) -> RunResult | Runs:
        if isinstance(index, slice):
            return self.select(range(len(self))[index])
        return self._ledger.run(int(self.places[index]), self.n_judged)

    def __iter__(self) -> Iterator[RunResult]:
        return (self._ledger.run(int(number), self.n_judged) for number in self.places)

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
        return self.column("spec")

    @property
    def outputs(self) -> list[Any]:
        """The output of each run: a Sample without its text and times; equal ones are one object."""
        return self.column("output")

    @property
    def counted_outputs(self) -> list[tuple[int, Any]]:
        """The outputs of these runs, each once, behind how many of the runs have it."""
        import numpy as np

        numbers, counts = np.unique(self.indices("output"), return_counts=True)
        outputs = map(self._ledger.outputs.__getitem__, numbers.tolist())
        return list(zip(counts.tolist(), outputs, strict=True))

    def select(self, numbers: Sequence[int] | NDArray[np.intp]) -> Runs:
        """Return the runs at these indices of this sequence. They share the columns that were read."""
        import numpy as np

        return Runs(self._ledger, (self, np.asarray(numbers, dtype=np.intp)))

    def column(self, name: str) -> list[Any]:
        """Return one value of every run without making RunResults: some 10 ms for 100,000 runs.

        The list is kept, and must not be changed.

        Args:
            name: a field of RunResult (except ``sample`` and ``conditions``), of Conditions or of Sample, or
                ``decoded`` or ``accept_rate`` of Sample; or ``output``.

        Raises:
            AttributeError: there is no such column.
        """
        if name not in self._columns:
            if self._chosen is None:
                self._columns[name] = self._read_column(name)
            else:
                runs, at = self._chosen
                values = runs.column(name)
                self._columns[name] = [*map(values.__getitem__, at.tolist())]
        return self._columns[name]

    def _read_column(self, name: str) -> list[Any]:
        ledger = self._ledger
        if name == "spec":
            return self._look_up("spec", ledger.specs)
        if name == "output":
            return self._look_up("output", ledger.outputs)
        if name in _CALL:
            return self._look_up("call", [getattr(call, name) for call in ledger.calls])
        if name in TEXT_FIELDS:
            texts = (None if output.text is None else ledger.texts[output.text] for output in ledger.outputs)
            return self._look_up("output", [text and getattr(text, name) for text in texts])
        if name in _OUTPUT:
            return self._look_up("output", [getattr(output, name) for output in ledger.outputs])
        if name in _CONDITIONS:
            return [getattr(state, name, None) for state in self._values("conditions")]
        if name not in _RUN:
            raise AttributeError(f"runs have no column {name!r}")
        return self._apply_judgements(name, self._values(name)) if name in _JUDGED else self._values(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers as an array, which is kept; absent ones are NaN.

        Args:
            name: as for ``column``, or ``decode_tps`` of Sample.
        """
        if name not in self._numbers:
            if self._chosen is None:
                self._numbers[name] = self._read_numbers(name)
            else:
                runs, at = self._chosen
                self._numbers[name] = runs.numbers(name)[at]
            self._numbers[name].flags.writeable = False
        return self._numbers[name]

    def _read_numbers(self, name: str) -> NDArray[np.float64]:
        import numpy as np

        if name == "decode_tps":
            decoded, gen_s, sampling_s = map(self.numbers, ("decoded", "gen_s", "sampling_s"))
            decoded = np.where((decoded > 0) & (gen_s > 0), decoded, np.nan)
            return decoded / (gen_s + np.nan_to_num(sampling_s))
        if name in _OUTPUT:
            outputs, output_of = self.by_output()
            return np.array([getattr(output, name) for output in outputs], dtype=np.float64)[output_of]
        return np.array(self.column(name), dtype=np.float64)

    def by_spec(self) -> tuple[Sequence[RunSpec], NDArray[np.intp]]:
        """Return the specifications of the bench, and for each run the index of its specification."""
        return tuple(self._ledger.specs), self.indices("spec")

    def by_output(self) -> tuple[Sequence[Any], NDArray[np.intp]]:
        """Return the outputs of the bench, and for each run the index of its output."""
        return tuple(self._ledger.outputs), self.indices("output")

    def cells(self) -> list[CellKey]:
        """Return the cell of each run."""
        key_of = [spec.key for spec in self._ledger.specs]
        columns = map(self.column, ("repeat", "warmup", "anchor"))
        return list(zip(map(key_of.__getitem__, self.indices("spec").tolist()), *columns, strict=True))

    def newest(self) -> Runs:
        """Return the runs without warm-ups and anchors: the last of each cell, in order of the first."""
        import numpy as np

        first: dict[str, int] = {}
        same = np.array([first.setdefault(spec.key, at) for at, spec in enumerate(self._ledger.specs)] or [0])
        columns = (np.array(self.column(name), dtype=np.int64) for name in ("warmup", "anchor", "repeat"))
        warmup, anchor, repeat = columns
        counting = np.flatnonzero((warmup | anchor) == 0)
        cells = ((same[self.indices("spec")] << 32) + repeat)[counting]
        # a cell is one number here, because 100,000 tuples make the garbage collector run
        if len(np.unique(cells)) == len(cells):
            return self.select(counting)
        return self.select([*dict(zip(cells.tolist(), counting.tolist(), strict=True)).values()])

    def indices(self, reference: str) -> NDArray[np.intp]:
        """Return for each run the index of what it shares with others, in the ledger's table of that.

        Args:
            reference: spec, output or call.
        """
        import numpy as np

        if reference not in self._indices:
            if self._chosen is None:
                self._indices[reference] = np.array(self._values(reference), dtype=np.intp)
            else:
                runs, at = self._chosen
                self._indices[reference] = runs.indices(reference)[at]
        return self._indices[reference]

    def _values(self, name: str) -> list[Any]:
        """Return a field of the record of every run of the ledger."""
        return list(map(attrgetter(name), self._ledger.runs[: len(self)]))

    def _look_up(self, reference: str, table: Sequence[Any]) -> list[Any]:
        """Return what each run has of the ledger's table."""
        return [*map(table.__getitem__, self.indices(reference).tolist())]

    def _apply_judgements(self, name: str, values: list[Any]) -> list[Any]:
        for at, number in enumerate(self.places if self._ledger.judged else ()):
            judgement = self._ledger.judgement(number, self.n_judged)
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
class ResultSet(notebooks.Shown):
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
    recorded = recorded.copy()
    numbers: dict[ServerStart, int] = {}
    for load, start in enumerate(list_starts(runs)):
        if start is not None:
            recorded[load] = numbers.setdefault(start, len(numbers))
    return recorded


def list_starts(runs: Runs) -> Iterator[ServerStart | None]:
    """Yield the start of the server that answered each run; None for a run that loaded its own models."""
    for spec, repeat in zip(runs.specs, runs.column("repeat"), strict=True):
        endpoint = None if spec.servers is None else spec.at_repeat(repeat).endpoint
        yield None if endpoint is None else (endpoint.url, endpoint.start)
