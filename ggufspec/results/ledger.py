"""The runs of a bench in memory: stored records, and RunResults made from them on demand."""

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
    TEXT_FIELDS,
    TIME_FIELDS,
    CallRecord,
    ConditionsRecord,
    JudgedRecord,
    OutputRecord,
    RunRecord,
    SpecRecord,
    TextRecord,
)

OUTPUT_FIELDS = frozenset(field.name for field in fields(Sample)) - {*TEXT_FIELDS, *TIME_FIELDS}
RUN_FIELDS = frozenset(field.name for field in fields(RunResult)) - {
    "spec",
    "engine",
    "argv",
    "sample",
    "conditions",
}


@dataclass(kw_only=True)
class Ledger:
    """All records of a bench. It only grows; runs in it never change."""

    runs: list[Any] = field(default_factory=list)  # RunRecord
    specs: list[RunSpec] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    texts: list[TextRecord] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)  # OutputRecord
    judged: dict[int, list[tuple[int, JudgedRecord]]] = field(
        default_factory=dict
    )  # by run: (number of the judgement, record)
    n_judged: int = 0
    made: dict[int, RunResult] = field(default_factory=dict)  # RunResults made so far
    known: dict[bytes, int] = field(default_factory=dict)  # digest of a shared record -> its id

    def add(self, added: Sequence[Any]) -> None:
        """Add records in their stored order.

        Raises:
            ValueError: a record refers to one that does not exist.
        """
        runs = [record for record in added if type(record) is RunRecord]
        before = len(self.runs)
        self.runs += runs
        for record in added if len(runs) < len(added) else ():
            if type(record) is not RunRecord:
                self._judge(record) if type(record) is JudgedRecord else self._share(record)
        specs, calls, outputs = len(self.specs), len(self.calls), len(self.outputs)
        for number, run in enumerate(runs, start=before):
            if run.spec >= specs or run.call >= calls or run.output >= outputs:
                raise ValueError(f"run {number} refers to a missing record")

    def records_of(self, run: RunResult) -> list[Any]:
        """Return the new records of a run: those that no earlier run has, then its own."""
        new: list[Any] = []
        text = None
        if run.sample.text is not None or run.sample.tokens is not None:
            text = self._id(
                TextRecord(id=len(self.texts), text=run.sample.text, tokens=run.sample.tokens), new
            )
        output = {name: getattr(run.sample, name) for name in OUTPUT_FIELDS}
        conditions = run.conditions and ConditionsRecord(**vars(run.conditions))
        record = RunRecord(
            spec=self._id(SpecRecord(id=len(self.specs), spec=run.spec, key=run.spec.key), new),
            call=self._id(CallRecord(id=len(self.calls), engine=run.engine, argv=run.argv), new),
            output=self._id(OutputRecord(id=len(self.outputs), text=text, **output), new),
            conditions=conditions,
            **{name: getattr(run.sample, name) for name in TIME_FIELDS},
            **{name: getattr(run, name) for name in RUN_FIELDS},
        )
        return [*new, record]

    def run(self, number: int, n_judged: int) -> RunResult:
        """Return one run with the first ``n_judged`` judgements applied."""
        judged = self.judgement(number, n_judged)
        if number not in self.made:
            self.made[number] = self._make(self.runs[number])
        if judged is None:
            return self.made[number]
        return replace(
            self.made[number],
            text_identical=judged.text_identical,
            difference=judged.difference,
            audit=judged.audit,
        )

    def judgement(self, index: int, n_judged: int) -> JudgedRecord | None:
        """Return the last judgement of a run among the first ``n_judged`` of the bench; None without one."""
        of_run = reversed(self.judged.get(index, ()))
        return next((record for number, record in of_run if number < n_judged), None)

    def sample(self, output: Any, times: Mapping[str, Any] = MappingProxyType({})) -> Sample:
        """Return the Sample of an output record with these times; without them they are None."""
        text = TextRecord(id=0) if output.text is None else self.texts[output.text]
        fixed = {name: getattr(output, name) for name in OUTPUT_FIELDS}
        return Sample(**fixed, **times, text=text.text, tokens=text.tokens)

    def _make(self, record: Any) -> RunResult:
        call = self.calls[record.call]
        return RunResult(
            spec=self.specs[record.spec],
            engine=call.engine,
            argv=call.argv,
            sample=self.sample(
                self.outputs[record.output], {name: getattr(record, name) for name in TIME_FIELDS}
            ),
            conditions=record.conditions and Conditions(**structs.asdict(record.conditions)),
            **{name: getattr(record, name) for name in RUN_FIELDS},
        )

    def _id(self, record: Any, new: list[Any]) -> int:
        """Return the id of a shared record; append it to ``new`` if it is not stored yet."""
        if not self.known:
            for shared in self._shared():
                self.known[_digest(shared)] = shared.id
        known_id = self.known.get(_digest(record))
        if known_id is None:
            new.append(record)
            return int(record.id)
        return known_id

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
            raise ValueError(f"run {record.run} was judged but does not exist")
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
                    raise ValueError(f"output {record.id} refers to a missing text")
                return self.outputs, record


def _digest(record: Any) -> bytes:
    content = records.encode(structs.replace(record, id=0))
    return hashlib.blake2b(content, digest_size=16).digest()
