"""A sequence of RunResults that costs nothing to make, and whole columns of it for large benches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from ggufspec.domain import Conditions, RunResult, RunSpec
from ggufspec.results.ledger import OUTPUT, RUN, Ledger
from ggufspec.results.records import SAID, TIMES

if TYPE_CHECKING:  # numpy is heavy, and small benches need none of it
    import numpy as np
    from numpy.typing import NDArray

_CONDITIONS = frozenset(field.name for field in fields(Conditions))
_JUDGED = frozenset({"text_identical", "difference", "audit"})
_CALL = frozenset({"engine", "argv"})
_OUTPUT = frozenset({*OUTPUT, "decoded", "accept_rate"})  # no time enters these properties
_RUN = frozenset({*RUN, *TIMES})

CellKey = tuple[str, int, bool, bool]
"""What names a cell of a bench: its spec's key, which repeat, whether a warm-up, whether an anchor."""


class Runs(Sequence[RunResult]):
    """Some runs of a ledger, read-only; later additions to the ledger do not show.

    It compares equal to any sequence of the same runs.

    Args:
        ledger: what is stored.
        places: which of its runs; without it, all that are there now.
        n_judged: how many of its judgements count; without it, all that are there now.
    """

    __slots__ = ("_found", "_ledger", "_n_judged", "_places", "_said")

    def __init__(
        self, ledger: Ledger, places: Sequence[int] | None = None, n_judged: int | None = None
    ) -> None:
        self._ledger = ledger
        self._places = range(len(ledger.runs)) if places is None else places
        self._n_judged = ledger.n_judged if n_judged is None else n_judged
        self._found: list[Any] | None = None  # the records at the places, once somebody wants a column
        self._said: list[Any] | None = None  # and what they refer to as their outputs

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
        return (self._ledger.run(place, self._n_judged) for place in self._places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as a list: it holds what has no hash

    def __repr__(self) -> str:
        return f"<{len(self)} runs>"

    @property
    def specs(self) -> list[RunSpec]:
        """The specification of each run; runs of the same one share the object."""
        return self._through("spec", self._ledger.specs)

    @property
    def outputs(self) -> list[Any]:
        """What each run said: a Sample but for its text and its times; equal ones share the object."""
        if self._said is None:
            self._said = self._through("output", self._ledger.outputs)
        return self._said

    def select(self, places: Sequence[int]) -> Runs:
        """Return the runs at these places of this sequence."""
        return Runs(self._ledger, [self._places[place] for place in places], self._n_judged)

    def column(self, name: str) -> list[Any]:
        """Return one value of every run without making RunResults: some 10 ms for 100,000 runs.

        Args:
            name: of a field of RunResult (but ``sample`` and ``conditions``), of Conditions, of a field of
                Sample, or its ``decoded`` or ``accept_rate``.

        Raises:
            AttributeError: there is no such column.
        """
        ledger = self._ledger
        if name == "spec":
            return self.specs
        if name in _CALL:
            return self._through("call", [getattr(call, name) for call in ledger.calls])
        if name in SAID:
            texts = (None if each.text is None else ledger.texts[each.text] for each in ledger.outputs)
            return self._through("output", [text and getattr(text, name) for text in texts])
        if name in _OUTPUT:
            return list(map(attrgetter(name), self.outputs))
        if name in _CONDITIONS:
            return [getattr(state, name, None) for state in self._own("conditions")]
        if name not in _RUN:
            raise AttributeError(f"runs have no column {name!r}")
        return self._as_judged(name, self._own(name)) if name in _JUDGED else self._own(name)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers as an array; absent ones are NaN.

        Args:
            name: as for ``column``, or ``decode_tps`` of Sample.
        """
        import numpy as np

        if name == "decode_tps":
            decoded, gen_s, sampling_s = map(self.numbers, ("decoded", "gen_s", "sampling_s"))
            told = np.where((decoded > 0) & (gen_s > 0), decoded, np.nan)
            return told / (gen_s + np.nan_to_num(sampling_s))
        return np.array(self.column(name), dtype=np.float64)

    def by_spec(self) -> tuple[Sequence[RunSpec], NDArray[np.intp]]:
        """Return the specifications of the bench, and for each run the place of its own among them."""
        return tuple(self._ledger.specs), self._numbers_of("spec")

    def cells(self) -> list[CellKey]:
        """Return the cell of each run."""
        key_of = [spec.key for spec in self._ledger.specs]
        return [(key_of[r.spec], r.repeat, r.warmup, r.anchor) for r in self._records()]

    def newest(self) -> Runs:
        """Return the runs without warm-ups and anchors, of each cell the last, in order of the first."""
        first: dict[str, int] = {}
        same = [first.setdefault(spec.key, at) for at, spec in enumerate(self._ledger.specs)]
        runs = zip(self._records(), self._places, strict=True)
        # a cell is one number here: 100,000 tuples would wake the garbage collector
        last = {(same[r.spec] << 32) + r.repeat: place for r, place in runs if not (r.warmup or r.anchor)}
        return Runs(self._ledger, list(last.values()), self._n_judged)

    def _numbers_of(self, reference: str) -> NDArray[np.intp]:
        import numpy as np

        return np.array(self._own(reference), dtype=np.intp)

    def _records(self) -> list[Any]:
        if self._found is None:
            self._found = [self._ledger.runs[place] for place in self._places]
        return self._found

    def _own(self, name: str) -> list[Any]:
        return list(map(attrgetter(name), self._records()))

    def _through(self, reference: str, table: Sequence[Any]) -> list[Any]:
        return [table[number] for number in self._own(reference)]

    def _as_judged(self, name: str, values: list[Any]) -> list[Any]:
        for at, place in enumerate(self._places if self._ledger.judged else ()):
            judgement = self._ledger.judgement(place, self._n_judged)
            if judgement is not None:
                values[at] = getattr(judgement, name)
        return values
