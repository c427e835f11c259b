"""Whether figures can be true: compared with what was asked, what arrived, and the client's clock. Pure.

Programs and servers are believed only as far as nothing contradicts them. Limits leave room for busy
machines: a run that was measured well must never be called implausible.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ggufspec.domain import Program, RunSpec, Sample, Status
from ggufspec.llama.command import longest_draft
from ggufspec.units import counted, format_count, format_duration, format_rate

MOST_TPS = 1e6
"""Tokens decoded per second of one text. A call of llama_decode takes several µs, whatever the model."""
_MOST_PROMPT_TPS = 1e8  # prompts are evaluated in batches of up to thousands of tokens
_CLOCK_SHARE = 1.05  # clocks differ by far less; rounded figures of short runs differ by this much
_CLOCK_S = 0.1  # what is timed around a program or a request misses its first and last moments
_FASTER = 2.0  # a server's time below the client's by this factor is no matter of scheduling
_EVENT_S = 0.0002  # what reading an event takes a busy client, so that very fast tokens queue
_START_S = 0.01  # a time slice of the scheduler, about which the first event may be early
_SPARE_EVENTS = 4  # chat templates split a token now and then, where reasoning ends and at the end


def judge(spec: RunSpec, sample: Sample, *, wall_s: float) -> tuple[Status, str] | None:
    """Return the status of a run that ended well but whose figures cannot be true, and why; else None.

    Args:
        spec: what was asked for.
        sample: what was measured.
        wall_s: seconds of the program or the request, by our own clock.
    """
    if sample.status is not Status.OK:
        return None
    reason = _find_impossible(spec, sample, wall_s)
    if reason is not None:
        return Status.IMPLAUSIBLE, reason
    answers = [(sample.text, sample.decoded or 0)]
    if sample.traffic is not None:
        answers = [(answer.text, answer.tokens - 1) for answer in sample.traffic.answers]
    if any(text == "" and decoded > 0 for text, decoded in answers):
        return Status.NO_TEXT, "tokens were counted, but there is no text: the model or the build is broken"
    if not sample.decode_tps:
        return Status.NO_TEXT, "the answer ended with its first token, so there is no speed"
    return None


def most_tokens(spec: RunSpec, sample: Sample) -> int:
    """Return how many tokens an answer has at most.

    Servers and plain programs stop at -n. Drafting programs look only after each round, and stop if they
    have more: ``n_predict > params.n_predict`` in speculative.cpp and speculative-simple.cpp. So the last
    round may begin with -n tokens, and adds a draft and a token of the target's own.
    """
    stops_late = spec.drafting is not None and sample.program is not Program.SERVER
    return spec.n_predict + (longest_draft(spec.drafting) + 2 if spec.drafting and stops_late else 0)


def _find_impossible(spec: RunSpec, sample: Sample, wall_s: float) -> str | None:
    decoded, drafting = sample.decoded or 0, spec.drafting
    gen_s = (sample.gen_s or 0.0) + (sample.sampling_s or 0.0)
    if gen_s > wall_s * _CLOCK_SHARE + _CLOCK_S:
        return f"decoding took {format_duration(gen_s)} of {format_duration(wall_s)}"
    if decoded > gen_s * MOST_TPS:
        return f"{counted(decoded, 'token')} in {format_duration(gen_s)}"
    if (sample.prompt_tps or 0.0) > _MOST_PROMPT_TPS:
        return f"a prompt was evaluated with {format_rate(sample.prompt_tps or 0.0)} tokens/s"
    tokens = sample.gen_tokens or 0
    if sample.traffic is None and spec.n_predict > 0 and tokens > most_tokens(spec, sample):
        return f"{counted(tokens, 'token')}, but {spec.n_predict} were asked for"
    drafted, accepted, rounds = sample.n_drafted, sample.n_accepted, sample.n_rounds
    if drafted is not None and accepted is not None and not 0 <= accepted <= drafted:
        return f"{accepted} of {drafted} drafted tokens were accepted"
    longest = sample.n_draft if drafting is None or not drafting.first else longest_draft(drafting)
    if drafted is not None and rounds is not None and longest and drafted > rounds * longest:
        return f"{counted(drafted, 'drafted token')} in {counted(rounds, 'round')} of at most {longest}"
    parts_s = (sample.draft_s or 0.0) + (sample.verify_s or 0.0)
    if parts_s > (sample.gen_s or 0.0) * 1.1 + 0.01:  # both are rounded, and drafting is timed in pieces
        return f"drafting and verification took {format_duration(parts_s)} of {format_duration(gen_s)}"
    return None


def find_contradiction(
    *, tokens: int, asked: int | None, gen_s: float | None, arrivals: Sequence[float], end_s: float
) -> str | None:
    """Return how a server's account of one answer contradicts what its client saw; None if it does not.

    Delays of events do not add up: the last one may come late, but then others come together with it, after
    a gap. So without the longest gap the client saw no more time than the server needed.

    Args:
        tokens: as the server counts them.
        asked: at most so many tokens were asked for; None for no limit.
        gen_s: the server's time from its first to its last token; None where it reports none.
        arrivals: when each event with text came, in seconds.
        end_s: when the answer ended, in seconds since it was asked for.
    """
    if asked is not None and asked > 0 and tokens > asked:
        return f"the server counts {format_count(tokens)} tokens, but {asked} were asked for"
    if len(arrivals) > tokens + max(_SPARE_EVENTS, tokens // 10):
        return f"the server counts {counted(tokens, 'token')}, but {len(arrivals)} pieces of text came"
    if gen_s is None or len(arrivals) < 2:
        return None
    if gen_s > end_s * _CLOCK_SHARE + _CLOCK_S:
        return f"the server decoded for {format_duration(gen_s)} of {format_duration(end_s)}"
    longest_gap = max(later - earlier for earlier, later in pairwise(arrivals))
    seen_s = arrivals[-1] - arrivals[0] - longest_gap - len(arrivals) * _EVENT_S - _START_S
    if gen_s * _FASTER < seen_s:
        span_s = arrivals[-1] - arrivals[0]
        times = f"{format_duration(gen_s)}, but its text came within {format_duration(span_s)}"
        return f"the server says that it decoded for {times}"
    return None
