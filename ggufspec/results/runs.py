"""A sequence of RunResults that are made on demand, with columns for large benches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from ggufspec.domain import Conditions, RunResult, RunSpec
from ggufspec.results.ledger import OUTPUT_FIELDS, RUN_FIELDS, Ledger
from ggufspec.results.records import TEXT_FIELDS, TIME_FIELDS

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
