"""What goes to and fro between the engine and its worker: plain frozen values, all pickled.

Times are in seconds by the worker's own clock, around nothing but the work that their names say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ggufspec.domain import Drafting, Experts, Sampling, Status


@dataclass(frozen=True, kw_only=True)
class ModelLoad:
    """One model with a context; what it decides is not asked again for each run.

    None and () leave the library's own default; what places the model is as in ``domain.Offload``.
    """

    path: str
    context_tokens: int
    gpu_layers: int | None = None
    kv_type: str | None = None
    ubatch_tokens: int | None = None
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: str | None = None
    main_gpu: int | None = None
    cpu_moe: Experts | None = None


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Load a target, and drafters that must be able to draft for it; what is loaded already stays."""

    target: ModelLoad
    threads: int
    drafters: tuple[ModelLoad, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """``load_s`` covers loading and warming up; None where everything was loaded before."""

    load_s: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Write one text: with a drafter where there is one, else with the target alone."""

    target: ModelLoad
    drafter: ModelLoad | None
    prompt: str
    n_predict: int
    threads: int
    sampling: Sampling
    drafting: Drafting | None


class RoundRecord(NamedTuple):
    """One round: what was drafted, with which probability each, and how much of it was accepted.

    Probabilities are the drafter's own of what it drafted: greedy among its ten likeliest tokens, as
    llama.cpp compares them with ``p_min``; else of the distribution that the token was drawn from.
    ``absorb_s`` is the drafter's second look at the round's tokens, which llama.cpp's programs take too.
    ``at_s`` is when the round ended, counted from the request.
    """

    drafted: tuple[int, ...]
    accepted: int
    probabilities: tuple[float, ...]
    draft_s: float
    absorb_s: float
    verify_s: float
    at_s: float


@dataclass(frozen=True, kw_only=True)
class Record:
    """One text and how it came about.

    ``gen_tokens`` counts the tokens whose evaluations fill ``gen_s``: with a drafter all that were written,
    without one all but the first, which comes from the prompt's own evaluation.
    """

    n_draft: int | None
    prompt_tokens: int
    prompt_s: float
    ttft_s: float
    gen_tokens: int
    gen_s: float
    tokens: tuple[int, ...]
    text: str
    at_s: tuple[float, ...]  # when each token arrived, counted from the request
    ended: bool  # the last token ends the generation
    rounds: tuple[RoundRecord, ...] | None = None
    load_s: float | None = None

    def to_json(self) -> str:
        """Return one line."""
        rounds = None if self.rounds is None else [one._asdict() for one in self.rounds]
        return json.dumps(asdict(self) | {"rounds": rounds}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Read what ``to_json`` wrote."""
        facts: dict[str, Any] = json.loads(text)
        rounds = facts["rounds"]
        return cls(
            **facts
            | {
                "tokens": tuple(facts["tokens"]),
                "at_s": tuple(facts["at_s"]),
                "rounds": None if rounds is None else tuple(map(_round, rounds)),
            }
        )


def _round(facts: Mapping[str, Any]) -> RoundRecord:
    drafted, probabilities = tuple(facts["drafted"]), tuple(facts["probabilities"])
    return RoundRecord(**{**facts, "drafted": drafted, "probabilities": probabilities})


@dataclass(frozen=True, kw_only=True)
class TraceRun:
    """Let the target write one text, and let every drafter look at it.

    With ``writing``, a place and a draft size, the drafter of that place looks ahead while the text is being
    written, and the target verifies what it sees: faster, and nothing else changes, for a greedy text is the
    target's own.
    """

    target: ModelLoad
    drafters: tuple[ModelLoad, ...]
    prompt: str
    n_predict: int
    threads: int
    sampling: Sampling
    writing: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """A target's text; ``seconds`` are the target's own, from the prompt's first token on."""

    tokens: tuple[int, ...]
    text: str
    ended: bool  # the last token ends the generation
    seconds: float


@dataclass(frozen=True, kw_only=True)
class DrafterTrace:
    """How one drafter would have continued the target's text at each of its tokens, seen the text so far.

    ``matches`` says whether its likeliest token is the target's; ``confidences`` are that token's
    probabilities among the ten likeliest, as ``p_min`` is compared with; ``overlaps`` are Σ min(p, q), the
    probability that exact speculative sampling accepts a draft there, None in greedy mode. ``seconds`` are
    the drafter's own.
    """

    load: ModelLoad
    matches: tuple[bool, ...]
    confidences: tuple[float, ...]
    overlaps: tuple[float, ...] | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RecordedTrace:
    """The target's text, and one DrafterTrace per drafter with as many places as it has tokens."""

    prompt: tuple[int, ...]
    written: Written
    drafters: tuple[DrafterTrace, ...]


@dataclass(frozen=True, kw_only=True)
class CurveRun:
    """Time rounds of every size at every depth, in the order in which runs mix them.

    ``batches`` are target batches in tokens, the round's first token and its draft; ``depths`` the tokens
    that the caches hold before, taken from ``text``, again and again where it is shorter. Each of ``repeats``
    gives two samples. ``sampling`` is how the target chooses its tokens.
    """

    target: ModelLoad
    drafters: tuple[ModelLoad, ...]
    text: str
    threads: int
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    repeats: int
    sampling: Sampling


class Part(StrEnum):
    """What a Timing is of; what a round consists of."""

    DRAFT = "draft"  # the drafter's tokens, one after the other: evaluation and choice
    VERIFY = "verify"  # the target's batch: its evaluation
    CHOOSE = "choose"  # the choice of a token at each output of that batch
    ABSORB = "absorb"  # the drafter's second look at a round's tokens
    RESIZE = "resize"  # VERIFY and ABSORB of a round whose batch has another size than the one before


class Timing(NamedTuple):
    """One measurement; ``tokens`` is the size of the batch, for a draft how many were evaluated for it.

    ``drafter`` is the place in CurveRun.drafters of the one in this round; None for the target alone.
    """

    part: Part
    drafter: int | None
    tokens: int
    depth_tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Raw samples in the order in which they were taken."""

    timings: tuple[Timing, ...]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request was not fulfilled, in one line."""

    status: Status
    reason: str


Request = Prepare | Run | TraceRun | CurveRun
Reply = Prepared | Record | RecordedTrace | Curve | Refusal
