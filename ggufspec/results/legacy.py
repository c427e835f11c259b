"""Benches of schema version 1, where every line of runs.jsonl was a whole RunResult."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from ggufspec.domain import Conditions, RunResult
from ggufspec.results import records
from ggufspec.results.ledger import Ledger
from ggufspec.results.writer import whole_lines


class _Moved(msgspec.Struct):
    """What stands elsewhere today."""

    others_cores: float | None = None


def read(file: Path) -> tuple[Ledger, int]:
    """Return what is stored, and how many bytes of it are whole lines.

    Raises:
        ValueError: a line is no run.
    """
    whole = msgspec.json.Decoder(RunResult, dec_hook=records.decode_hook)
    moved = msgspec.json.Decoder(_Moved)
    ledger, lines = Ledger(), whole_lines(file.read_bytes())
    for line in lines.splitlines():
        others_cores = moved.decode(line).others_cores
        conditions = None if others_cores is None else Conditions(others_cores=others_cores)
        ledger.take(ledger.records_of(replace(whole.decode(line), conditions=conditions)))
    return ledger, len(lines)
