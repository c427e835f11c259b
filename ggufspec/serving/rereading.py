"""The raw logs of a stored run, also under traffic -> the sample that follows from them: pure."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import TextIO

import msgspec

from ggufspec.domain import RunResult, RunSpec, Sample
from ggufspec.engines import rereading
from ggufspec.engines.server import Parsed
from ggufspec.errors import LogError
from ggufspec.serving.figures import read_records, summarize
from ggufspec.serving.running import RUNNING, read_record


class _Noted(msgspec.Struct, frozen=True):
    n_draft: int | None = None


class _NotedLine(msgspec.Struct, frozen=True):
    run: _Noted = _Noted()
    reads_zeros: bool | None = None


_NOTES = ('{"run":', '{"reads_zeros":')
"""How the lines about a run begin, which are the first ones and the last one of a record."""


def reread_run(run: RunResult, out: bytes, err: bytes) -> Sample:
    """Return the sample that a run's raw logs show; see ``engines.rereading.reread_run``.

    Under traffic, everything follows from the record of the requests: the window, the tokens and times in it,
    acceptance, and of a server that runs already what its counters say.

    Raises:
        LogError: the engine is unknown, or its record is not what it writes.
    """
    if run.spec.traffic is None:
        return rereading.reread_run(run, out, err)
    text = out.decode(errors="replace")

    def read_lines() -> TextIO:
        return io.StringIO(text, newline="\n")

    try:
        if run.engine == RUNNING:
            return read_record(run.spec, read_lines).sample
        return read_server_record(run.spec, read_lines).sample
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise LogError("a record of requests is not what ggufspec writes", "the file was changed") from error


def read_server_record(spec: RunSpec, read_lines: Callable[[], TextIO]) -> Parsed:
    """Return what the record of several users' requests to our own server shows.

    Args:
        spec: the run.
        read_lines: opens the record. Lines of its own say the draft size, which a head may have lowered, and
            whether the drafter was given zeros for images.
    """
    n_draft: int | None = None
    reads_zeros: bool | None = None
    with read_lines() as lines:
        for line in lines:
            if line.startswith(_NOTES):
                noted = msgspec.json.decode(line, type=_NotedLine)
                n_draft, reads_zeros = noted.run.n_draft or n_draft, noted.reads_zeros or reads_zeros
    parsed = summarize(spec, lambda: read_records(read_lines))
    return replace(parsed, sample=replace(parsed.sample, n_draft=n_draft, reads_zeros=reads_zeros))
