"""The result of a run: its sample, its outcome, its conditions, and what is said of its text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ggufspec.choices import Program
from ggufspec.domain.specs import RunSpec


class Status(StrEnum):
    """How a run ended. Only ``OK`` carries numbers that may enter a table."""

    OK = "ok"
    SUMMARY_LOST = "summary lost"  # exit 0, but the log has no summary
    DRAFTING_INACTIVE = "drafting inactive"
    DRAFTER_REFUSED = "drafter refused"
    PROMPT_TOO_LONG = "prompt too long"
    LOAD_FAILED = "load failed"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    LOG_TOO_LARGE = "log too large"  # the program printed without end
    CRASHED = "crashed"  # a signal, or an abort
    FAILED = "failed"  # an exit code other than 0
    TIMED_OUT = "timed out"
    IMPLAUSIBLE = "implausible"  # figures contradict each other, what was asked for, or the clock
    NO_TEXT = "no text"  # although tokens were counted, or nothing to time
    WORKER_UNREACHABLE = "worker unreachable"  # a machine that lends its devices
    WORKER_MISMATCH = "worker version differs"
    WORKER_BUSY = "worker busy"  # with another program
    WORKER_LOST = "worker lost"  # during the run


class Failure(Exception):  # noqa: N818  # it becomes a row of the results, not an error
    """A run failed; ``status`` and ``reason`` go into its Measurement.

    ``log`` is the output of a program that failed before its first run.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.log = b""


class RunProblem(StrEnum):
    """What is wrong with a run that ended well; see ``outcome`` in analysis/warnings.py."""

    GPU_LESS_BUILD = "GPU-less build"
    FEWER_LAYERS = "fewer layers"  # on the GPU than requested
    SPILLED = "spilled"  # out of a GPU's own memory
    DEVICE_UNUSED = "device unused"
    DRAFTER_ON_CPU = "drafter on CPU"
    TEXT_DIFFERS = "text differs"
    DISTURBED = "disturbed"  # other programs used the processor meanwhile


RunOutcome = Status | RunProblem
"""What a run counts as: how it ended, or the problem of one that ended well."""


class RequestOutcome(StrEnum):
    """How one of several users' requests ended."""

    OK = "ok"
    UNAVAILABLE = "unavailable"  # HTTP 503
    REFUSED = "refused"  # any other HTTP status than 200
    SERVER_ERROR = "server error"  # reported in the stream
    CUT_OFF = "cut off"  # the stream ended before the answer did
    UNREADABLE = "unreadable"  # something that is not an event of a completion
    DISCONNECTED = "disconnected"  # no connection, or it broke
    TIMED_OUT = "timed out"
    STOPPED = "stopped"  # by ggufspec: it only kept the other users company, or the bench was interrupted


class TextVerdict(StrEnum):
    """Why a text of drafting differs from the target's own."""

    NEAR_TIE = "near-tie"  # two tokens are almost equally likely, so that the batch size may decide
    DIVERGENCE = "divergence"  # rounding does not explain it: one token is much likelier


_COUNTS_FIRST = (Program.TREE, Program.SERVER)
"""The programs whose count includes the token from the evaluation of the prompt."""


class Round(NamedTuple):
    """One verification round: how many tokens were drafted, and how many of them accepted."""

    drafted: int
    accepted: int


class MethodCounts(NamedTuple):
    """What one method of a chain drafted: its drafts, which are rounds, their tokens, and those accepted."""

    method: str
    n_drafts: int
    n_drafted: int
    n_accepted: int


class Segment(StrEnum):
    """What a part of an answer is, see ``prompts.segments``."""

    THINKING = "thinking"
    TOOL_NAME = "tool name"
    KEYS = "JSON keys and punctuation"  # and the tags around calls
    VALUES = "JSON values"
    CODE = "code"
    PROSE = "prose"


class SegmentCounts(NamedTuple):
    """What was written and drafted in the parts of one kind of an answer, its first token left out.

    An accepted token counts where it stands. The target's own token of a round ends it, so the round counts
    where that token stands, and there the rejected tokens count: the target wrote it in place of the first.
    """

    segment: Segment
    n_tokens: int
    n_drafted: int
    n_accepted: int
    n_rounds: int


class UserRequest(NamedTuple):
    """One request of several users.

    ``prompt`` counts the prompts of ``RunSpec.traffic`` from 0; ``is_steady`` is whether it was sent after
    every user had received an answer. ``token_s`` is the mean time between two of its tokens. What the server
    did not count is None.
    """

    prompt: int
    outcome: RequestOutcome
    is_steady: bool
    tokens: int  # that arrived
    ttft_s: float | None = None  # from the request to its first token
    token_s: float | None = None
    prompt_tokens: int | None = None  # that were evaluated
    cached_tokens: int | None = None  # of the prompt, that the server had evaluated before
    drafted: int | None = None
    accepted: int | None = None


class PromptAnswer(NamedTuple):
    """What was answered to a prompt; ``prompt`` counts the prompts of ``RunSpec.traffic`` from 0."""

    prompt: int
    text: str
    tokens: int


@dataclass(frozen=True, kw_only=True)
class TrafficSample:
    """The requests of several users in one run.

    Attributes:
        requests: those that count, in the order in which they were sent. Requests that were only sent so that
            no user was idle before the last of these ended are left out.
        answers: the first complete answer to each prompt, by prompt.
        window_tokens: tokens of all users that arrived in the steady window, whose seconds are
            ``Sample.gen_s``: from the moment at which every user had received an answer until the last
            request that counts had ended.
        burst_share: the share of tokens that arrived together with the token before them, 0 to 1.
        client_share: the processor time of the client over the time of the window: its share of the time
            between two tokens.
        is_saturated: whether requests arrived faster than they were answered; None for users who wait.
        others_share: the share of the tokens that a running server generated meanwhile for other clients, 0
            to 1, from its own counters; None where it has none.
    """

    requests: tuple[UserRequest, ...]
    answers: tuple[PromptAnswer, ...] = ()
    window_tokens: int = 0
    burst_share: float | None = None
    client_share: float | None = None
    is_saturated: bool | None = None
    others_share: float | None = None


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The memory of one model on one device, in bytes, from the log; what it does not name is None.

    ``device`` is llama.cpp's name: ``CPU``, ``CUDA0``; ``CUDA_Host`` is the host's memory, locked for a GPU,
    and ``RPC0[host:port]`` a device of a worker on another machine.
    ``spilled_bytes`` is how much it exceeds the free memory of the device before; None where unknown.
    """

    device: str
    model_bytes: int | None = None
    kv_bytes: int | None = None
    compute_bytes: int | None = None
    output_bytes: int | None = None
    spilled_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """The sum of all parts."""
        kinds = (self.model_bytes, self.kv_bytes, self.compute_bytes, self.output_bytes)
        return sum(size or 0 for size in kinds)

    @property
    def on_host(self) -> bool:
        """Whether the device is the host's memory."""
        return self.device == "CPU" or self.device.endswith("_Host")


@dataclass(frozen=True, kw_only=True)
class LoadedModel:
    """Where a model is, according to the log of its load; target and drafter alike."""

    offloaded_layers: int | None = None
    total_layers: int | None = None
    placement: tuple[Placement, ...] = ()

    @property
    def gpu_bytes(self) -> int | None:
        """Its GPU memory; None where unknown."""
        return (
            sum(part.total_bytes for part in self.placement if not part.on_host) if self.placement else None
        )


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The measurements of one run. Times in seconds or milliseconds as named; absent is None, never 0.

    ``gen_tokens``, ``gen_tps``, ``prompt_tokens`` and ``prompt_tps`` are the program's own numbers, by its
    own definition; ``decode_tps`` has one definition for all programs.
    """

    status: Status
    program: Program | None = None
    build: str | None = None  # "2697 (9958c81b)"
    prompt_tokens: int | None = None
    prompt_tps: float | None = None
    cached_tokens: int | None = None  # of the prompt, beside ``prompt_tokens``: they were not evaluated again
    kept_tokens: int | None = None  # of a later turn: what the turn before certainly left in the cache
    gen_tokens: int | None = None
    gen_tps: float | None = None
    gen_s: float | None = None  # drafting programs: the complete window; plain ones: evaluation only
    sampling_s: float | None = None  # plain programs only: drafting programs count it in gen_s
    n_draft: int | None = None  # γ as requested
    n_drafted: int | None = None
    n_accepted: int | None = None
    n_rounds: int | None = None  # the target's evaluations after the prompt's own, drafts or not
    rounds: tuple[Round, ...] | None = None  # if the program reports them
    accepted_at: tuple[int, ...] | None = None  # how often the draft's first, second, … token was accepted
    by_method: tuple[MethodCounts, ...] | None = None  # for a chain, in the order in which they are asked
    by_segment: tuple[SegmentCounts, ...] | None = None  # if it is known how many tokens came when
    segment_s: tuple[float, ...] | None = None  # seconds of decoding, of each of ``by_segment``
    draft_s: float | None = None  # seconds of gen_s spent on drafting
    verify_s: float | None = None  # seconds of gen_s spent on the target's evaluations
    ttft_s: float | None = None  # from the request to its first token, as the client sees it
    itl_s: float | None = None  # median time between two tokens; tokens of one round arrive together
    load_ms: float | None = None
    reads_zeros: bool | None = None  # of a prompt with images: whether the drafter was given zeros for them
    devices: tuple[str, ...] = ()  # devices that hold model weights, e.g. ("CPU", "CUDA0")
    target: LoadedModel | None = None  # or the one model that the run loads
    drafter: LoadedModel | None = None  # beside it
    text: str | None = None
    tokens: tuple[int, ...] | None = None  # ids of the generated tokens, if the program reports them
    traffic: TrafficSample | None = None  # of several users; then the other figures are of all requests

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; None when nothing was drafted."""
        if not self.n_drafted or self.n_accepted is None:
            return None
        return self.n_accepted / self.n_drafted

    @property
    def decoded(self) -> int | None:
        """Tokens decoded after the prompt, without the first one; of several users, those of the window.

        The first token comes from the evaluation of the prompt, so it is subtracted if the program
        counts it: plain programs report N-1 evaluations; the tree program and the server report N tokens in
        a window that evaluates N-1; the simple program evaluates every token it reports.
        """
        if self.traffic is not None:
            return self.traffic.window_tokens
        if self.gen_tokens is None:
            return None
        return self.gen_tokens - 1 if self.program in _COUNTS_FIRST else self.gen_tokens

    @property
    def decode_tps(self) -> float | None:
        """Tokens decoded after the prompt per second of decoding, drafting, verification and sampling.

        Of several users: all their tokens per second of the steady window, prompts included.
        """
        if not self.gen_s or not self.decoded or self.decoded < 0:
            return None
        return self.decoded / (self.gen_s + (self.sampling_s or 0.0))


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The machine's state during a run; what cannot be read is None.

    The time covers the complete run with loading and failed attempts. NVIDIA's GPUs are read several times a
    second; those that CUDA_VISIBLE_DEVICES allows count, idle ones included.
    """

    others_cores: float | None = None  # cores that other programs kept busy, steal included
    steal_cores: float | None = None  # cores that the hypervisor gave to others
    cpu_mhz: float | None = None  # mean over the cores, at the end
    cpu_c: float | None = None  # the hottest sensor of the processor, at the end
    cpu_w: float | None = None  # mean power of the processor's packages
    cpu_j: float | None = None  # energy of the packages
    swapped_bytes: int | None = None  # moved to and from swap by all programs
    gpu_mhz: float | None = None  # mean clock of the GPUs' multiprocessors
    gpu_memory_mhz: float | None = None  # mean clock of their memory
    gpu_c: float | None = None  # highest temperature of the hottest GPU
    gpu_w: float | None = None  # mean power of all GPUs together, boards included
    gpu_peak_w: float | None = None  # highest power read
    gpu_power_limit_w: float | None = None  # power limit of all GPUs together
    gpu_j: float | None = None  # their energy, from their counters or from the power read
    gpu_used_bytes: int | None = None  # GPU memory in use before the run, by all programs
    gpu_peak_bytes: int | None = None  # most GPU memory read in use, by all programs
    gpu_throttled: tuple[str, ...] | None = None  # reasons of throttling, see machine/nvml.py; () for none


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a text of drafting differs from the target's own; places count generated text, from 0.

    ``target_token`` and ``drafting_token`` are the tokens of the two texts there; None where they are not
    known, or that text had ended. ``margin`` is the target's log-probability of the first less that of the
    second, in nats; None until the place was judged. ``unjudged`` is why judging it failed.
    """

    at_char: int
    at_token: int | None  # None without a tokenizer program
    target_token: int | None = None
    drafting_token: int | None = None
    margin: float | None = None
    verdict: TextVerdict | None = None
    unjudged: str | None = None


@dataclass(frozen=True, kw_only=True)
class TextAudit:
    """What the target says of every token of a text, each seen behind the prompt and the tokens before it.

    The end of a text that was not cut counts as a token. A greedy text has near-ties and divergent tokens:
    the target's likeliest token is likelier than the one that was written, within the margin of near-ties or
    beyond it. A sampled text has ``places`` and ``impossible`` tokens, which the sampler leaves out.

    Attributes:
        tokens: how many were judged.
        near_ties: how many of them differ from the target's choice, but within the margin.
        divergent: how many differ by more.
        first_divergent: the place of the first of these, from 0.
        worst_margin: the largest margin in nats; None if it is not finite.
        places: how many tokens lie in each tenth of the distributions they should be from; see
            ``stats.place_token``.
        impossible: tokens of probability 0.
        unjudged: why no token was judged, where that was tried in vain.
    """

    tokens: int
    near_ties: int | None = None
    divergent: int | None = None
    first_divergent: int | None = None
    worst_margin: float | None = None
    places: tuple[int, ...] | None = None
    impossible: int | None = None
    unjudged: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run with its specification, sample and conditions. A failed run is a row, not an exception."""

    spec: RunSpec
    repeat: int
    engine: str
    sample: Sample
    argv: tuple[str, ...]
    log: str  # the raw logs' common path, relative to the run's folder, without ending
    started_at: str  # ISO 8601, UTC
    wall_s: float  # all attempts, and ggufspec's own work
    program_s: float  # the llama.cpp process of the last attempt
    peak_rss_bytes: int | None = None
    error: str | None = None
    attempts: int = 1
    warmup: bool = False
    anchor: bool = False  # measures one configuration again, to detect drift
    rerun: int = 0  # 1, 2, … replace an earlier run of the same cell, which stays stored
    remeasured: bool = False  # with all arms of its prompt and repeat, because one of them had collapsed
    load: int | None = None  # number of the load in the bench; runs with one number shared a process
    conditions: Conditions | None = None
    text_identical: bool | None = None  # greedy: whether the text is that of the target's first run
    difference: Difference | None = None
    audit: TextAudit | None = None  # of the complete text, drafting or the target's own
    doubts: tuple[str, ...] = ()  # names of warnings, see analysis/warnings.py
