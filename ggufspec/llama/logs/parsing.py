"""A llama.cpp log of any era -> a Sample."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ggufspec.domain import MethodCounts, Program, Sample, Status
from ggufspec.errors import LogError
from ggufspec.llama.logs.failures import FailureCause, diagnose, explain
from ggufspec.llama.logs.lines import hits
from ggufspec.llama.logs.offload import with_placement
from ggufspec.llama.logs.rounds import (
    Statistics,
    find_statistics,
    find_statistics_lines,
    total_by_method,
    with_requests,
    with_rounds,
)
from ggufspec.llama.logs.statements import Closing, find_closing

__all__ = ["FailureCause", "count_by_method", "diagnose", "explain", "gives_zeros", "lowered_size", "parse"]

_REQUEST = re.compile(
    rb"eval time += +(\d{1,12}\.\d\d) ms / +(\d{1,12}) (?:tokens|runs) +"
    rb"\( *\S{1,12} ms per token, +(\d{1,12}\.\d\d) tokens per second\)"
)
_REQUEST_DRAFT = re.compile(
    rb"draft acceptance(?: rate)? = +\S{1,12} \( *(\d{1,12}) accepted / +(\d{1,12}) generated\)"
)
_LEAD_BYTES = 20
_LOOKUP = re.compile(
    rb"spec +common_specu: - (?:size_n=\d+, size_m|size_key=\d+, size_value|n_match=\d+, n_max|n_draft)"
    rb"=(\d{1,6}),"
)
_P_MIN = re.compile(rb" - n_max=\d{1,6}, n_min=\d{1,6}, p_min=(\d{1,3}\.\d{1,9})")
_LOWERED = re.compile(rb"exceeds the trained block size \d{1,6} -- clamping to (\d{1,6})")
_BUILD = re.compile(
    r"(?:main: build = |build: |version: |.*print_info: build )(?P<number>\d+ \(\w+\))"
    r"|version: (?P<release>\S+ \(build \d+, commit \w+\))"
    r'|.*build info .* build=(?P<build>\d+) commit="(?P<commit>\w+)"'
)

# found only in the logs of some programs, for closing statements that are lost or alike
_SIMPLE_MARKS = (b"speculative implementation", b"tokens will be translated")
_TREE_MARKS = (b"llama_print_timings", b"llama_perf_print")  # older than the simple program
_NAMES = (b"llama", b"ggml", b"common_", b"srv ")


class _RequestTime(NamedTuple):
    """The figures of one line of a request: of its prompt, or of its answer."""

    ms: float
    tokens: int
    tps: float


def parse(text: str | bytes, *, program: Program | None = None) -> Sample:
    """Parse a log of any llama.cpp program of any era.

    A server's tokens and seconds are totals over all requests; its rates are averages weighted by time. With
    one request, they are the printed figures.

    Args:
        text: the captured log; it may have colours, prefixes or JSONL, and mix stdout and stderr.
        program: the program that wrote it, if known.

    Returns:
        A sample with the status ``OK`` if it has all figures that the program prints.

    Raises:
        LogError: the text contains no output of llama.cpp.
    """
    data = text if isinstance(text, bytes) else text.encode(errors="replace")
    serves = program is Program.SERVER or (program is None and is_server(data))
    closing = None if serves else find_closing(data, program)  # a server's drafter may print timings
    if closing is not None:
        return sample_statement(data, closing, program)
    sample = (sample_requests(data) if program in (None, Program.SERVER) else None) or _unfinished(data)
    if sample is None:
        hint = "pass the standard error of main, speculative, speculative-simple or server"
        raise LogError("the text contains no output of llama.cpp", hint)
    sample = with_load(data, sample)
    return sample if program is None else replace(sample, program=program)


def sample_statement(data: bytes, closing: Closing, program: Program | None = None) -> Sample:
    """Return the figures of a run that ended with a closing statement.

    Args:
        data: the run's log, with the statement.
        closing: the statement, by its position in ``data``.
        program: the program that wrote it, if known.
    """
    head = data[: closing.start]
    sample = with_load(head, _drafting_program(data, closing.sample))
    sample = sample if program is None else replace(sample, program=program)
    if sample.program not in (Program.TREE, Program.SIMPLE):
        return sample
    line_end = data.find(b"\n", closing.start, closing.end)  # text may precede it in its first line
    statistics = find_statistics(data, line_end, closing.end) if line_end >= 0 else []
    return with_rounds(_with_method(head, sample, statistics), statistics, closing.target, closing.drafter)


def count_by_method(data: bytes, before: Sequence[MethodCounts] = ()) -> tuple[MethodCounts, ...] | None:
    """Return what each method of a chain drafted in one request to a server; None if the log does not say.

    Args:
        data: what the server logged about the request.
        before: the totals of its earlier requests, which this function returned for an empty ``before``.
    """
    totals = total_by_method(find_statistics(data))
    if totals is None:
        return None
    earlier = {counts.method: counts for counts in before}
    counted = []
    for method, *counts in totals:
        _, *less = earlier.get(method, MethodCounts(method, 0, 0, 0))
        counted.append(MethodCounts(method, *(now - then for now, then in zip(counts, less, strict=True))))
    return tuple(counted)


def lowered_size(data: bytes) -> int | None:
    """Return the draft size to which a head lowered γ as the models were loaded; None if it did not."""
    lowered = _LOWERED.search(data)
    return int(lowered[1]) if lowered else None


def gives_zeros(data: bytes) -> bool:
    """Whether the drafter gets zeros for images, as its width is not the target's; a log says it once."""
    return b"do not fit the draft input width" in data  # common/speculative.cpp:325 of b11434


def _drafting_program(data: bytes, sample: Sample) -> Sample:
    """Add which of the two drafting programs wrote a summary.

    The tree program drafts ``n_draft`` tokens in every round but the first, which drafts none. Most builds do
    not log the program's name, so a run of the other program with matching counts is taken for a tree's.
    """
    if sample.program is not None:
        return sample
    if any(mark in data for mark in _SIMPLE_MARKS):
        return replace(sample, program=Program.SIMPLE)
    if any(mark in data for mark in _TREE_MARKS):
        return replace(sample, program=Program.TREE)
    if sample.gen_tokens is None or not sample.n_draft or sample.n_accepted is None:
        return sample  # without drafts both programs write the same
    rounds = sample.gen_tokens - sample.n_accepted - 1
    is_tree = sample.n_drafted == rounds * sample.n_draft
    return replace(sample, program=Program.TREE if is_tree else Program.SIMPLE)


def _with_method(head: bytes, sample: Sample, statistics: Sequence[Statistics]) -> Sample:
    """Correct what the summary says of drafts, by what the log says of the drafting method.

    Its γ is the one requested of a model, which a head may have lowered. Nothing at all is drafted where a
    model that was asked was never as sure as p-min, or where an n-gram method finds no repetition.
    """
    if not statistics:
        return sample
    last = statistics[-1]
    idle = sample.status is Status.DRAFTING_INACTIVE
    if last.method.startswith("draft-"):
        lowered, p_min = lowered_size(head), _P_MIN.search(head)
        unsure = idle and last.drafting > 0 and p_min is not None and float(p_min[1]) > 0.0
        return replace(
            sample, n_draft=lowered or sample.n_draft, status=Status.OK if unsure else sample.status
        )
    if len(statistics) != 1 or not last.method.startswith("ngram-"):
        return sample
    size = _LOOKUP.search(head)
    return replace(
        sample, status=Status.OK if idle else sample.status, n_draft=int(size[1]) if size else None
    )


def is_server(data: bytes) -> bool:
    """Whether the log shows a server that waits for requests."""
    return any(line.is_familiar for line in hits(data, b"listening"))


def has_request(data: bytes, start: int, end: int) -> bool:
    """Whether a part of a log has a line of a server's request."""
    return next(_find_requests(data, start, end), None) is not None


def find_request_lines(data: bytes) -> list[re.Match[bytes]]:
    """Return the lines with figures of a server's requests, in order."""
    drafts = [*_REQUEST_DRAFT.finditer(data), *find_statistics_lines(data)]
    return sorted([*_find_requests(data), *drafts], key=lambda match: match.start())


def _find_requests(data: bytes, start: int = 0, end: int | None = None) -> Iterator[re.Match[bytes]]:
    for request in _REQUEST.finditer(data, start, len(data) if end is None else end):
        lead = data[max(0, request.start() - _LEAD_BYTES) : request.start()]
        if b"_print:" not in lead and b"_timings:" not in lead:  # not lines of a plain program
            yield request


def sample_requests(data: bytes, *, parts: bool = False) -> Sample | None:
    """Return the figures of a server's requests; None if there were none.

    Args:
        data: the server's log.
        parts: also accept acceptance without speeds, as people quote it; the status tells.
    """
    prompts, answers = list[_RequestTime](), list[_RequestTime]()
    for request in _find_requests(data):  # up to hundreds of thousands of lines: this loop must be fast
        ms, tokens, tps = request.groups()
        if float(ms):  # a line with 0 ms, whose rate is infinite, tells nothing
            is_prompt = data.endswith(b"prompt ", 0, request.start())
            (prompts if is_prompt else answers).append(_RequestTime(float(ms), int(tokens), float(tps)))
    drafts = list(_REQUEST_DRAFT.finditer(data))
    if not answers and not (parts and drafts):
        return None
    inactive = not drafts and b"failed to initialize speculative decoding" in data
    accepted = [int(match[1]) for match in drafts]
    status = Status.DRAFTING_INACTIVE if inactive else Status.OK
    sample = Sample(
        status=status if answers else Status.SUMMARY_LOST,
        program=Program.SERVER,
        prompt_tokens=sum(line.tokens for line in prompts) or None,
        prompt_tps=_average_tps(prompts),
        gen_tokens=sum(line.tokens for line in answers) or None,
        gen_tps=_average_tps(answers),
        gen_s=sum(line.ms for line in answers) / 1000 or None,
        n_drafted=sum(int(match[2]) for match in drafts) if drafts else None,
        n_accepted=sum(accepted) if drafts else None,
    )
    return with_requests(sample, find_statistics(data), [line.tokens for line in answers], accepted)


def _average_tps(lines: Sequence[_RequestTime]) -> float | None:
    """Return tokens/s, averaged over time."""
    return sum(line.ms * line.tps for line in lines) / sum(line.ms for line in lines) if lines else None


def _unfinished(data: bytes) -> Sample | None:
    """Return the status of a program that printed no figures; None if it is not llama.cpp."""
    diagnosis = diagnose(data)
    familiar = (line for needle in _NAMES for line in hits(data, needle) if line.is_familiar)
    if diagnosis is None and next(familiar, None) is None:
        return None
    is_simple = any(mark in data for mark in _SIMPLE_MARKS)
    return Sample(
        status=diagnosis.status if diagnosis else Status.SUMMARY_LOST,
        program=Program.SERVER if is_server(data) else Program.SIMPLE if is_simple else None,
    )


def with_load(head: bytes, sample: Sample) -> Sample:
    """Add the build and the placement of the models, which are logged before generation."""
    builds = (
        _BUILD.match(line.message) for needle in (b"build", b"version: ") for line in hits(head, needle)
    )
    build = next(filter(None, builds), None)
    if sample.status is not Status.LOAD_FAILED:  # what was loaded is not certain then
        sample = with_placement(sample, head)
    if build is None:
        return replace(sample, build=None)
    name = build["number"] or build["release"] or f"{build['build']} ({build['commit']})"
    return replace(sample, build=name)
