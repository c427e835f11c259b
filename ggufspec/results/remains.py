"""What is left of a damaged bench: the records whose references are still there, renumbered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from ggufspec.results.ledger import Ledger
from ggufspec.results.records import CallRecord, JudgedRecord, OutputRecord, SpecRecord, TextRecord

_New = dict[type, dict[int, int]]
"""Type of a shared record -> its id before -> its id now."""


def take_remains(ledger: Ledger, remains: Iterable[Any]) -> int:
    """Add what is left of a bench to an empty ledger; return how many records need one that is lost.

    A judgement names its run by its log, as lost lines make the count of runs unknown.
    """
    new: _New = {kind: {} for kind in (SpecRecord, CallRecord, TextRecord, OutputRecord)}
    lost = 0
    for record in remains:
        renumbered = _renumbered(record, new, ledger)
        if renumbered is None:
            lost += 1
            continue
        if type(record) in new:
            new[type(record)][record.id] = renumbered.id
        ledger.take([renumbered])
    return lost


def _renumbered(record: Any, new: _New, ledger: Ledger) -> Any:
    """Return a record with the numbers that it and what it refers to have in the ledger, or None."""
    match record:
        case SpecRecord():
            return structs.replace(record, id=len(ledger.specs))
        case CallRecord():
            return structs.replace(record, id=len(ledger.calls))
        case TextRecord():
            return structs.replace(record, id=len(ledger.texts))
        case OutputRecord():
            text = None if record.text is None else new[TextRecord].get(record.text)
            if text is None and record.text is not None:
                return None
            return structs.replace(record, id=len(ledger.outputs), text=text)
        case JudgedRecord():
            logs = [run.log for run in ledger.runs]
            if record.log not in logs:
                return None
            return structs.replace(record, run=len(logs) - 1 - logs[::-1].index(record.log))
    spec = new[SpecRecord].get(record.spec)
    call = new[CallRecord].get(record.call)
    output = new[OutputRecord].get(record.output)
    if spec is None or call is None or output is None:
        return None
    return structs.replace(record, spec=spec, call=call, output=output)
