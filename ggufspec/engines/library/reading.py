"""A worker's record -> a Sample: pure."""

from __future__ import annotations

import statistics
from itertools import pairwise

from ggufspec.domain import Program, Round, Sample, Status
from ggufspec.engines.library.messages import LibraryRecord


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
        itl_s=_median_gap(record.at_s),
        load_ms=None if record.load_s is None else record.load_s * 1000,
        text=record.text,
        tokens=record.tokens,
    )
    return _with_rounds(common, record) if drafts else common


def _with_rounds(common: Sample, record: LibraryRecord) -> Sample:
    records = record.rounds or ()
    rounds = tuple(Round(len(entry.drafted), entry.accepted) for entry in records)
    n_drafted = sum(entry.drafted for entry in rounds)
    return Sample(
        **vars(common)
        | {
            "status": Status.OK if n_drafted or record.p_min else Status.DRAFTING_INACTIVE,
            "n_draft": record.n_draft,
            "n_drafted": n_drafted,
            "n_accepted": sum(entry.accepted for entry in rounds),
            "rounds": rounds,
            "accepted_at": tuple(
                sum(entry.accepted > position for entry in rounds) for position in range(record.n_draft or 0)
            ),
            "draft_s": sum(entry.draft_s + entry.absorb_s for entry in records),
            "verify_s": sum(entry.verify_s for entry in records),
        }
    )


def _median_gap(times: tuple[float, ...]) -> float | None:
    gaps = [later - earlier for earlier, later in pairwise(times)]
    return statistics.median(gaps) if gaps else None
