"""The raw logs of a stored run -> the sample that its engine made of them: pure, and nothing is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ggufspec.domain import ENGINES, MethodCounts, Program, RunResult, Sample, Status
from ggufspec.engines.binary import generated_text, read_log
from ggufspec.engines.placement import as_drafter
from ggufspec.errors import LogError
from ggufspec.llama.logs import parsing

TARGET_PLACEMENT, DRAFTER_PLACEMENT = ("target", "devices"), ("drafter",)
"""The fields of a sample that tell where the models are."""


def reread_run(run: RunResult, out: bytes, err: bytes) -> Sample:
    """Return the sample that a run's raw logs show.

    An engine that keeps models loaded logs their placement only with the first run of a load; see
    ``placements``. The status is that of a program that ended with exit code 0, which no log has.

    Args:
        run: its engine, specification and prompt say how the logs are read; its own sample is not looked at.
        out: the log with the suffix ``.out``.
        err: the log with the suffix ``.err``.

    Raises:
        LogError: the engine is unknown, or its record is not what it writes.
    """
    if run.engine not in ENGINES:
        raise LogError(f"there is no engine {run.engine!r}", "a newer ggufspec may know it")
    if run.engine == "inprocess":
        sample = _reread_library(run, out)
    elif ENGINES[run.engine] is Program.SERVER:
        from ggufspec.engines.server import response  # its package starts slowly

        sample = response.parse_response(out.decode(errors="replace")).sample
    else:
        sample = read_log(err, Program.PLAIN if run.spec.drafting is None else ENGINES[run.engine])
        prompt = run.spec.prompt.text
        text = generated_text(out.decode(errors="replace"), prompt) if prompt else None
        sample = replace(sample, text=text)
    return sample if sample.status is Status.OK else replace(sample, text=None)


def placements(engine: str, logs: Iterable[bytes]) -> Iterator[Sample]:
    """Yield samples with the placements and builds that the logs of one load show.

    A worker's log of a drafter that was loaded later names it as a model alone, so it is yielded as a drafter
    as well.

    Args:
        engine: a row of ENGINES that keeps models loaded.
        logs: the logs with the suffix ``.err`` of the runs that shared a load.
    """
    serves = ENGINES.get(engine) is Program.SERVER
    for log in logs:
        try:
            load = parsing.parse(log, program=Program.SERVER if serves else Program.PLAIN)
        except LogError:
            continue
        yield load
        if not serves:
            yield as_drafter(load)


def count_methods(logs: Iterable[bytes]) -> Iterator[tuple[MethodCounts, ...] | None]:
    """Yield what each method of a chain drafted in each request to a server; None where one method drafts.

    Args:
        logs: the logs with the suffix ``.err`` of one load, in the order of its requests. They show totals.
    """
    before: tuple[MethodCounts, ...] = ()
    for log in logs:
        yield parsing.count_by_method(log, before)
        before = parsing.count_by_method(log) or before


def _reread_library(run: RunResult, out: bytes) -> Sample:
    from ggufspec.engines.library import reading
    from ggufspec.engines.library.messages import LibraryRecord

    if not out.strip():  # the run failed
        return Sample(
            status=Status.SUMMARY_LOST, program=Program.PLAIN if run.spec.drafting is None else Program.SIMPLE
        )
    try:
        return reading.read_record(LibraryRecord.from_json(out.decode(errors="replace")))
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
        raise LogError("a record is not what the engine inprocess writes", "the file was changed") from error
