"""Requests and replies between the engine and its worker: frozen values, sent pickled.

Times are in seconds by the worker's clock, and cover only the work that their names say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from ggufspec.domain import Drafting, Experts, Method, Program, Sampling, Status

BEFORE_MTP = (100, 100)
"""What a server reads right before each run of a layer for MTP: token ids that every vocabulary has.

Before a text's first token, that layer takes the target's last state, which llama-server keeps from the
request before (``pending_h`` of common/speculative.cpp in b11312; neither ``/slots?action=erase`` nor
``cache_prompt: false`` clears it). After the same request, it is the same in every run.
"""


@dataclass(frozen=True, kw_only=True)
class ModelLoad:
    """How to load one model with a context, which later runs share.

    None and () mean the library's default. Fields for the placement are those of ``domain.Offload``. ``head``
    is the method of a head, which reads the target's states; None for a model that needs no other.
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
    rpc: tuple[str, ...] = ()
    head: Method | None = None
    with_mtp: bool = False  # with the layers for MTP, which a target alone does not need


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Load a target, and drafters that must be compatible with it; models already loaded stay."""

    target: ModelLoad
    threads: int
    drafters: tuple[ModelLoad, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Everything is loaded; ``load_s`` covers loading and warming up, None if nothing had to be loaded."""

    load_s: float | None


@dataclass(frozen=True, kw_only=True)
class TextTask:
    """What every request about a text says: the loaded models, the prompt, and how the target goes on.

    ``n_predict`` is the most tokens that are generated. ``sampling`` is how the target chooses them.
    """

    target: ModelLoad
    drafters: tuple[ModelLoad, ...] = ()
    prompt: str
    n_predict: int
    threads: int
    sampling: Sampling


@dataclass(frozen=True, kw_only=True)
class WorkerRun(TextTask):
    """Generate one text, with one drafter or with the target alone."""

    drafting: Drafting | None


class RoundRecord(msgspec.Struct, frozen=True):
    """One round: the drafted tokens, their probabilities, and how many were accepted.

    Probabilities are the drafter's. For greedy drafts they are among its ten likeliest tokens, as llama.cpp
    compares them with ``p_min``; otherwise they are of the distribution that the token was drawn from.
    ``absorb_s`` is the drafter's second evaluation of the round's tokens, which llama.cpp's programs do too.
    ``at_s`` is the end of the round, in seconds since the request.
    """

    drafted: tuple[int, ...]
    accepted: int
    probabilities: tuple[float, ...]
    draft_s: float
    absorb_s: float
    verify_s: float
    at_s: float


@dataclass(frozen=True, kw_only=True)
class LibraryRecord:
    """One text and how it was generated.

    ``gen_tokens`` counts the tokens evaluated during ``gen_s``: with a drafter all of the text, without one
    all but the first, which comes from the evaluation of the prompt.
    """

    n_draft: int | None
    prompt_tokens: int
    prompt_s: float
    ttft_s: float
    gen_tokens: int
    gen_s: float
    tokens: tuple[int, ...]
    text: str
    at_s: tuple[float, ...]  # when each token was generated, since the request
    ended: bool  # the last token is an end of generation
    rounds: tuple[RoundRecord, ...] | None = None
    load_s: float | None = None
    p_min: float | None = None

    def to_json(self) -> str:
        """Return the record as one line of JSON."""
        return msgspec.json.encode(self).decode() + "\n"

    @classmethod
    def from_json(cls, text: str) -> LibraryRecord:
        """Read what ``to_json`` wrote.

        Raises:
            ValueError: it is something else.
        """
        return msgspec.json.decode(text, type=cls)


class DraftLimits(NamedTuple):
    """The draft sizes γ, and the values of p_min, for which rounds will be asked for.

    ``starts`` are the tokens before a round that does not follow a complete one: the first of a run (the
    prompt's own evaluation gives one token to most programs), and one behind a draft that the end of a run
    cut.
    """

    sizes: tuple[int, ...]
    p_mins: tuple[float, ...] = (0.0,)
    starts: tuple[int, ...] = (0, 1)


DEFAULT_LIMITS = DraftLimits(sizes=(16,))

NEAR_TIE = 3.0
"""A near-tie is within this many times the largest movement of logits that was seen at some hundred of them.

Of a hundred normally distributed movements the largest is 2.5 standard deviations, so this is more than 7.
"""


@dataclass(frozen=True, kw_only=True)
class TraceRun(TextTask):
    """Let the target generate one text, and let every drafter evaluate it.

    With ``writing`` (the index of a drafter, and a draft size), that drafter drafts while the text is
    generated, and the target verifies its drafts. That is faster and does not change a greedy text but for
    near-ties. Heads draft within ``limits``. The prompt is evaluated in the batches of ``program``. With
    ``twice``, a greedy text with near-ties is written token by token and in batches, see RecordedTrace.
    """

    writing: tuple[int, int] | None = None
    limits: DraftLimits = DEFAULT_LIMITS
    program: Program = Program.SIMPLE
    twice: bool = False


@dataclass(frozen=True, kw_only=True)
class Written:
    """A target's text; ``seconds`` is the target's time for prompt and text.

    Greedy texts have ``leads``, by how many nats each token is likelier than any other, and ``spread``, by
    how many nats the target's logits move against each other in batches of other sizes. It is None where the
    cache cannot be rolled back.
    """

    tokens: tuple[int, ...]
    text: str
    ended: bool  # the last token is an end of generation
    seconds: float
    leads: tuple[float, ...] | None = None
    spread: float | None = None


class HeadDraft(NamedTuple):
    """A head's draft: how many tokens are right up to the first miss, and the confidence in each token.

    A head that drafts token by token stops there: it has one confidence more than accepted tokens, unless the
    draft had its full length. One that drafts a block has them up to the first one below every p_min of its
    trace, however many tokens are right. ``leads`` are by how many nats the target's token is likelier than
    any other, to the head: below 0 at the first miss, where they end.
    """

    accepted: int
    confidences: tuple[float, ...]
    leads: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DrafterTrace:
    """What one drafter would have drafted for each token of the target's text, given the text before it.

    ``matches``: whether its likeliest token is the target's. ``confidences``: that token's probability among
    the ten likeliest, which ``p_min`` is compared with. ``overlaps``: Σ min(p, q), the probability that exact
    speculative sampling accepts a draft there; None for greedy sampling. ``seconds``: the drafter's time.
    ``drafts``: for a head that drafts token by token, what a draft that begins there comes to; ``matches``
    and ``confidences`` are those of its first token. ``blocks``: for one that drafts blocks, by draft size
    and by the number of tokens before the draft, those drafts with which rounds begin; ``matches`` and
    ``confidences`` are then False and 0. ``leads`` are by how many nats the target's token is likelier than
    any other, to the drafter; those of heads are in their drafts. ``spread`` is by how many nats its logits
    move against each other where the text is evaluated in batches of other sizes. Both are None for sampling.
    ``served_drafts``: of a layer for MTP, ``drafts`` in a server's run, which follows ``BEFORE_MTP``.
    """

    load: ModelLoad
    matches: tuple[bool, ...]
    confidences: tuple[float, ...]
    overlaps: tuple[float, ...] | None
    seconds: float
    drafts: tuple[HeadDraft, ...] | None = None
    blocks: Mapping[int, Mapping[int, HeadDraft]] | None = None
    leads: tuple[float, ...] | None = None
    spread: float | None = None
    served_drafts: tuple[HeadDraft, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedTrace:
    """The target's text, and one DrafterTrace per drafter with one entry per token of the text.

    ``other`` is the same of the text that the target writes in batches of another size, where that is another
    text: kernels for one token and for several add in another order, and near-ties fall otherwise.
    """

    prompt: tuple[int, ...]
    written: Written
    drafters: tuple[DrafterTrace, ...]
    other: RecordedTrace | None = None


@dataclass(frozen=True, kw_only=True)
class ScoreRun(TextTask):
    """Let the target look at a text that is known already, all of it in a few batches.

    ``answer`` is what was written after the prompt: tokens, or text where nobody told the tokens. ``ended``
    says that the writer ended it there; else it was cut.
    """

    answer: tuple[int, ...] | str
    ended: bool


@dataclass(frozen=True, kw_only=True)
class TextScores:
    """What the target says of each token of a text, and of its end where it ended.

    ``margins`` are by how many nats the target's likeliest token is likelier than the one that was written: 0
    for the target's own choice. Sampled texts have ``places`` instead: where each token lies in the
    cumulative distribution that it should have been drawn from, see ``stats.place_token``; None for a token
    that could not have been drawn.
    """

    margins: tuple[float, ...] = ()
    places: tuple[float | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExpertRun(TextTask):
    """Let the target read a text that it wrote after a prompt, and tell which experts each token uses."""

    answer: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ExpertChoices:
    """The experts of each token, in layers that have some: ``layers[number][token]``.

    The tokens are those that a target reads while it writes the answer: the prompt's last one, and all of the
    answer but its last.
    """

    layers: Mapping[int, tuple[tuple[int, ...], ...]]


@dataclass(frozen=True, kw_only=True)
class CurveRun(TextTask):
    """Time rounds of every size at every depth, in the order in which runs mix them.

    ``batches``: sizes of the target's batch in tokens (the round's first token and its draft). ``depths``:
    tokens in the caches before the round, taken from the prompt, which is repeated as needed. Each of the
    ``repeats`` gives two samples.
    """

    batches: tuple[int, ...]
    depths: tuple[int, ...]
    repeats: int


class RoundPart(StrEnum):
    """The part of a round that a Timing measures."""

    DRAFT = "draft"  # the drafter evaluates and chooses tokens one by one, or a block of them
    VERIFY = "verify"  # the target evaluates its batch
    CHOOSE = "choose"  # the target chooses a token at each output of that batch
    ABSORB = "absorb"  # the drafter evaluates the round's tokens again
    RESIZE = "resize"  # VERIFY and ABSORB of a round whose batch has another size than the one before


class Timing(NamedTuple):
    """One measurement; ``tokens`` is the size of the batch, or the number of drafted tokens.

    ``drafter`` is an index into CurveRun.drafters; None for the target alone.
    """

    part: RoundPart
    drafter: int | None
    tokens: int
    depth_tokens: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Raw samples in the order of measurement."""

    timings: tuple[Timing, ...]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a request failed, in one line."""

    status: Status
    reason: str


WorkerRequest = Prepare | TextTask
WorkerReply = Prepared | LibraryRecord | RecordedTrace | TextScores | ExpertChoices | Curve | Refusal
