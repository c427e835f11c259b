"""The raw logs of a stored run -> the sample that its engine made of them: pure, and nothing is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ggufspec.domain import ENGINES, MethodCounts, Program, Round, RunResult, Sample, Status
from ggufspec.engines.binary import generated_text
from ggufspec.engines.engine import as_drafter, median_gap, program_for, read_log
from ggufspec.engines.library.messages import LibraryRecord
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
        sample = read_log(err, program_for(run.engine, run.spec))
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
    if not out.strip():  # the run failed
        return Sample(status=Status.SUMMARY_LOST, program=program_for(run.engine, run.spec))
    try:
        return read_record(LibraryRecord.from_json(out.decode(errors="replace")))
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise LogError("a record is not what the engine inprocess writes", "the file was changed") from error


def read_record(record: LibraryRecord) -> Sample:
    """Return the figures of a run, defined as in llama.cpp's programs.

    The plain program reports the evaluations after the prompt; the simple drafting program evaluates every
    token that it reports.
    """
    drafts = record.rounds is not None
    common = Sample(
        status=Status.OK,
        program=Program.SIMPLE if drafts else Program.PLAIN,
        prompt_tokens=record.prompt_tokens,
        prompt_tps=record.prompt_tokens / record.prompt_s if record.prompt_s else None,
        gen_tokens=record.gen_tokens,
        gen_tps=record.gen_tokens / record.gen_s if record.gen_s else None,
        gen_s=record.gen_s,
        n_rounds=record.gen_tokens if record.rounds is None else len(record.rounds),
        ttft_s=record.ttft_s,
        itl_s=median_gap(record.at_s),
        load_ms=None if record.load_s is None else record.load_s * 1000,
        text=record.text,
        tokens=record.tokens,
    )
    return _with_rounds(common, record) if drafts else common


def _with_rounds(common: Sample, record: LibraryRecord) -> Sample:
    records = record.rounds or ()
    rounds = tuple(Round(len(entry.drafted), entry.accepted) for entry in records)
    n_drafted = sum(entry.drafted for entry in rounds)
    return replace(
        common,
        status=Status.OK if n_drafted or record.p_min else Status.DRAFTING_INACTIVE,
        n_draft=record.n_draft,
        n_drafted=n_drafted,
        n_accepted=sum(entry.accepted for entry in rounds),
        rounds=rounds,
        accepted_at=tuple(
            sum(entry.accepted > position for entry in rounds) for position in range(record.n_draft or 0)
        ),
        draft_s=sum(entry.draft_s + entry.absorb_s for entry in records),
        verify_s=sum(entry.verify_s for entry in records),
    )
