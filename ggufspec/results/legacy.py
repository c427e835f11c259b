"""Benches of schema version 1, where every line of runs.jsonl was a complete RunResult."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ggufspec.domain import Conditions, RunResult
from ggufspec.results import records
from ggufspec.results.ledger import Ledger


class _Moved(msgspec.Struct):
    """What stands elsewhere today."""

    others_cores: float | None = None


_run_decoder = msgspec.json.Decoder(RunResult, dec_hook=records.decode_hook)
_moved_decoder = msgspec.json.Decoder(_Moved)


def decode(lines: bytes, *, first: int = 1) -> list[RunResult]:
    """Return the runs of complete lines.

    Raises:
        ValueError: a line is not a run; says which, where the first one has the number ``first``.
    """
    runs = []
    for number, line in enumerate(lines.removesuffix(b"\n").split(b"\n"), start=first):
        try:
            others_cores = _moved_decoder.decode(line).others_cores
            conditions = None if others_cores is None else Conditions(others_cores=others_cores)
            runs.append(replace(_run_decoder.decode(line), conditions=conditions))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return runs


def take(ledger: Ledger, runs: Sequence[RunResult]) -> int:
    """Add runs to a ledger; return how many cannot be added: none, as no run refers to another line."""
    for run in runs:
        ledger.take(ledger.records_of(run))
    return 0
