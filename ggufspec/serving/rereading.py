"""The raw logs of a stored run, also under traffic -> the sample that follows from them: pure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from ggufspec.domain import RunResult, RunSpec, Sample
from ggufspec.engines import rereading
from ggufspec.engines.server import Parsed, response
from ggufspec.errors import LogError
from ggufspec.serving.figures import decode_records, summarize
from ggufspec.serving.running import RUNNING, read_record

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
    lines = io.StringIO(out.decode(errors="replace"), newline="\n").readlines()
    try:
        read = read_record if run.engine == RUNNING else read_server_record
        return read(run.spec, lines).sample
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise LogError("a record of requests is not what ggufspec writes", "the file was changed") from error


def read_server_record(spec: RunSpec, lines: Sequence[str]) -> Parsed:
    """Return what the record of several users' requests to our own server shows.

    Args:
        spec: the run.
        lines: of the record. Some of its own say the draft size, which a head may have lowered, and whether
            the drafter was given zeros for images.
    """
    notes = [msgspec.json.decode(line, type=response.RecordLine) for line in lines if line.startswith(_NOTES)]
    n_draft = next((note.run.n_draft for note in notes if note.run is not None), None)
    reads_zeros = any(note.reads_zeros for note in notes) or None
    parsed = summarize(spec, [*decode_records(lines)])
    return replace(parsed, sample=replace(parsed.sample, n_draft=n_draft, reads_zeros=reads_zeros))
