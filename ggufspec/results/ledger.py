"""The runs of a bench in memory: records as they are stored, RunResults made of them when asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from msgspec import structs

from ggufspec.domain import Conditions, RunResult, RunSpec, Sample
from ggufspec.results import records
from ggufspec.results.records import (
    SAID,
    TIMES,
    CallRecord,
    ConditionsRecord,
    JudgedRecord,
    OutputRecord,
    RunRecord,
    SpecRecord,
    TextRecord,
)

OUTPUT = frozenset(field.name for field in fields(Sample)) - {*SAID, *TIMES}
RUN = frozenset(field.name for field in fields(RunResult)) - {
    "spec",
    "engine",
    "argv",
    "sample",
    "conditions",
}


@dataclass(kw_only=True)
class Ledger:
    """Everything that is stored of a bench. It only grows: its first so many runs never change."""

    runs: list[Any] = field(default_factory=list)  # RunRecord
    specs: list[RunSpec] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    texts: list[TextRecord] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)  # OutputRecord
    judged: dict[int, list[tuple[int, JudgedRecord]]] = field(default_factory=dict)  # by run, with its number
    n_judged: int = 0
    made: dict[int, RunResult] = field(default_factory=dict)  # RunResults that somebody asked for
    known: dict[bytes, int] = field(default_factory=dict)  # digest of a shared record -> its id

    def take(self, found: Sequence[Any]) -> None:
        """Add records in the order in which they are stored.

        Raises:
            ValueError: a record refers to what is not there.
        """
        runs = [record for record in found if type(record) is RunRecord]
        before = len(self.runs)
        self.runs += runs
        for record in found if len(runs) < len(found) else ():
            if type(record) is not RunRecord:
                self._judge(record) if type(record) is JudgedRecord else self._share(record)
        specs, calls, outputs = len(self.specs), len(self.calls), len(self.outputs)
        for place, run in enumerate(runs, start=before):
            if run.spec >= specs or run.call >= calls or run.output >= outputs:
                raise ValueError(f"run {place} refers to what is not there")

    def records_of(self, run: RunResult) -> list[Any]:
        """Return the records that a run adds, those that it shares with no earlier run first."""
        new: list[Any] = []
        text = None
        if run.sample.text is not None or run.sample.tokens is not None:
            text = self._id(
                TextRecord(id=len(self.texts), text=run.sample.text, tokens=run.sample.tokens), new
            )
        output = {name: getattr(run.sample, name) for name in OUTPUT}
        conditions = run.conditions and ConditionsRecord(**vars(run.conditions))
        record = RunRecord(
            spec=self._id(SpecRecord(id=len(self.specs), spec=run.spec, key=run.spec.key), new),
            call=self._id(CallRecord(id=len(self.calls), engine=run.engine, argv=run.argv), new),
            output=self._id(OutputRecord(id=len(self.outputs), text=text, **output), new),
            conditions=conditions,
            **{name: getattr(run.sample, name) for name in TIMES},
            **{name: getattr(run, name) for name in RUN},
        )
        return [*new, record]

    def run(self, place: int, n_judged: int) -> RunResult:
        """Return one run as it was after so many judgements."""
        judged = self.judgement(place, n_judged)
        if place not in self.made:
            self.made[place] = self._make(self.runs[place])
        if judged is None:
            return self.made[place]
        return replace(
            self.made[place],
            text_identical=judged.text_identical,
            difference=judged.difference,
            audit=judged.audit,
        )

    def judgement(self, place: int, n_judged: int) -> JudgedRecord | None:
        """Return the last of the first so many judgements that is about a run."""
        of_run = reversed(self.judged.get(place, ()))
        return next((record for number, record in of_run if number < n_judged), None)

    def sample(self, output: Any, times: Mapping[str, Any] = MappingProxyType({})) -> Sample:
        """Return the Sample of an output record, with these times or without."""
        said = TextRecord(id=0) if output.text is None else self.texts[output.text]
        fixed = {name: getattr(output, name) for name in OUTPUT}
        return Sample(**fixed, **times, text=said.text, tokens=said.tokens)

    def _make(self, record: Any) -> RunResult:
        call = self.calls[record.call]
        return RunResult(
            spec=self.specs[record.spec],
            engine=call.engine,
            argv=call.argv,
            sample=self.sample(self.outputs[record.output], {name: getattr(record, name) for name in TIMES}),
            conditions=record.conditions and Conditions(**structs.asdict(record.conditions)),
            **{name: getattr(record, name) for name in RUN},
        )

    def _id(self, record: Any, new: list[Any]) -> int:
        """Return the id of a shared record; one that is not stored yet is added to the new ones."""
        if not self.known:
            for each in self._shared():
                self.known[_digest(each)] = each.id
        found = self.known.get(_digest(record))
        if found is None:
            new.append(record)
            return int(record.id)
        return found

    def _shared(self) -> Iterator[Any]:
        yield from (SpecRecord(id=number, spec=spec, key=spec.key) for number, spec in enumerate(self.specs))
        yield from self.calls
        yield from self.texts
        yield from self.outputs

    def _share(self, record: Any) -> None:
        table, value = self._place(record)
        if record.id != len(table):
            raise ValueError(f"{type(record).__name__} {record.id} is number {len(table)} of its kind")
        table.append(value)
        if self.known:
            self.known[_digest(record)] = record.id

    def _judge(self, record: JudgedRecord) -> None:
        if record.run >= len(self.runs):
            raise ValueError(f"run {record.run} was judged and is not there")
        self.judged.setdefault(record.run, []).append((self.n_judged, record))
        self.n_judged += 1

    def _place(self, record: Any) -> tuple[list[Any], Any]:
        match record:
            case SpecRecord():
                return self.specs, record.spec
            case CallRecord():
                return self.calls, record
            case TextRecord():
                return self.texts, record
            case _:
                if record.text is not None and record.text >= len(self.texts):
                    raise ValueError(f"output {record.id} refers to a text that is not there")
                return self.outputs, record


def _digest(record: Any) -> bytes:
    content = records.encode(structs.replace(record, id=0))
    return hashlib.blake2b(content, digest_size=16).digest()
