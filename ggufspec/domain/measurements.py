"""What came out: one run's sample, how it ended, where and under which conditions it was measured."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import NamedTuple

from ggufspec.choices import Program
from ggufspec.domain.specs import RunSpec

_DIGITS = 12  # of a SHA-256 in a message


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
    CRASHED = "crashed"  # a signal, or an abort
    FAILED = "failed"  # another exit code than 0
    TIMED_OUT = "timed out"


class RunOutcome(StrEnum):
    """What a run is worth: its status, or what is wrong with one that ended well (``analysis.warnings``)."""

    OK = "ok"
    SUMMARY_LOST = "summary lost"
    DRAFTING_INACTIVE = "drafting inactive"
    DRAFTER_REFUSED = "drafter refused"
    PROMPT_TOO_LONG = "prompt too long"
    LOAD_FAILED = "load failed"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    CRASHED = "crashed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    IMPLAUSIBLE = "implausible"  # figures that contradict each other or the clock
    GPU_LESS_BUILD = "GPU-less build"
    FEWER_LAYERS = "fewer layers"  # on the GPU than were asked for
    SPILLED = "spilled"  # out of a GPU's own memory
    DEVICE_UNUSED = "device unused"
    DRAFTER_ON_CPU = "drafter on CPU"
    TEXT_DIFFERS = "text differs"
    DISTURBED = "disturbed"  # others used the processor meanwhile


class TextVerdict(StrEnum):
    """Why a drafting text leaves the target's own."""

    NEAR_TIE = "near-tie"  # two tokens are almost equally likely: the size of a batch may decide
    DIVERGENCE = "divergence"  # the target would not have written this


def _on_gpus(placement: tuple[Placement, ...]) -> int | None:
    return sum(each.total_bytes for each in placement if not each.on_host) if placement else None


_COUNTS_FIRST = (Program.TREE, Program.SERVER)
"""The programs that count the token which comes from the prompt's own evaluation."""


class Round(NamedTuple):
    """One verification round: how many tokens were drafted, and how many of them accepted."""

    drafted: int
    accepted: int


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What one model occupies on one device, in bytes, as the log says; kinds that it does not name are None.

    ``device`` is llama.cpp's name: ``CPU``, ``CUDA0``; ``CUDA_Host`` is the host's memory, locked for a GPU.
    ``spilled_bytes`` is by how much it exceeds what the device had free before; None where nobody tells.
    """

    device: str
    model_bytes: int | None = None
    kv_bytes: int | None = None
    compute_bytes: int | None = None
    output_bytes: int | None = None
    spilled_bytes: int | None = None

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        kinds = (self.model_bytes, self.kv_bytes, self.compute_bytes, self.output_bytes)
        return sum(size or 0 for size in kinds)

    @property
    def on_host(self) -> bool:
        """Whether it is the processor's own memory."""
        return self.device == "CPU" or self.device.endswith("_Host")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one run says. Times in seconds or milliseconds as named; absent is None, never 0.

    ``gen_tokens``, ``gen_tps``, ``prompt_tokens`` and ``prompt_tps`` are the program's own figures, on the
    definition of the program that wrote them; ``decode_tps`` puts all programs on one definition.
    """

    status: Status
    program: Program | None = None
    build: str | None = None  # "2697 (9958c81b)"
    prompt_tokens: int | None = None
    prompt_tps: float | None = None
    gen_tokens: int | None = None
    gen_tps: float | None = None
    gen_s: float | None = None  # drafting programs: the whole window; plain ones: the evaluation alone
    sampling_s: float | None = None  # plain programs only: drafting programs count it in gen_s
    n_draft: int | None = None  # γ as requested
    n_drafted: int | None = None
    n_accepted: int | None = None
    n_rounds: int | None = None  # the target's evaluations after the prompt's own, drafts or not
    rounds: tuple[Round, ...] | None = None  # each of them, where the program tells
    accepted_at: tuple[int, ...] | None = None  # how often the draft's first, second, … token was accepted
    draft_s: float | None = None  # seconds of gen_s spent on drafting
    verify_s: float | None = None  # seconds of gen_s spent on the target's evaluations
    ttft_s: float | None = None  # from the request to its first token, as the client sees it
    itl_s: float | None = None  # median time between two tokens' arrivals; tokens of one round come at once
    load_ms: float | None = None
    offloaded_layers: int | None = None
    total_layers: int | None = None
    devices: tuple[str, ...] = ()  # devices that hold model weights, e.g. ("CPU", "CUDA0")
    placement: tuple[Placement, ...] = ()  # of the target, or of the one model that the run loads
    draft_offloaded_layers: int | None = None  # of the drafter beside it
    draft_total_layers: int | None = None
    draft_placement: tuple[Placement, ...] = ()
    text: str | None = None
    tokens: tuple[int, ...] | None = None  # what was generated, where the program tells ids

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; None when nothing was drafted."""
        if not self.n_drafted or self.n_accepted is None:
            return None
        return self.n_accepted / self.n_drafted

    @property
    def gpu_bytes(self) -> int | None:
        """What the target, or the one model of the run, occupies on GPUs; None where nobody tells."""
        return _on_gpus(self.placement)

    @property
    def draft_gpu_bytes(self) -> int | None:
        """The same of the drafter beside it."""
        return _on_gpus(self.draft_placement)

    @property
    def decoded(self) -> int | None:
        """Tokens decoded after the prompt, without the one that comes for free.

        The first token comes from the prompt's own evaluation, so it is not counted where the program
        counts it: plain programs report N-1 evaluations; the tree program and the server report N tokens in
        a window that evaluates N-1; the simple program evaluates every token it reports.
        """
        if self.gen_tokens is None:
            return None
        return self.gen_tokens - 1 if self.program in _COUNTS_FIRST else self.gen_tokens

    @property
    def decode_tps(self) -> float | None:
        """Tokens decoded after the prompt per second of decoding, drafting, verification and sampling."""
        if not self.gen_s or not self.decoded or self.decoded < 0:
            return None
        return self.decoded / (self.gen_s + (self.sampling_s or 0.0))


@dataclass(frozen=True, kw_only=True)
class Build:
    """Which llama.cpp measured."""

    version: str | None  # the build number or release that the programs report
    commit: str | None
    backend: str | None  # cpu, cuda, metal, vulkan, hip
    path: str


class FileUse(StrEnum):
    """What a file that was measured with is."""

    MODEL = "model"  # or one part of it
    PROGRAM = "program"
    LIBRARY = "library"


@dataclass(frozen=True, kw_only=True)
class FileIdentity:
    """A file that a bench was measured with, by its content; ``sha256`` in lower-case hexadecimal."""

    use: FileUse
    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return PurePath(self.path).name

    @property
    def summary(self) -> str:
        """The file's content in a few characters."""
        return f"SHA-256 {self.sha256[:_DIGITS]}… ({self.size_bytes} bytes)"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a measurement was taken."""

    hostname: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None  # NVIDIA's, as NVML says it: "580.65.06"
    gpu_bytes: tuple[int, ...] = ()  # memory of each NVIDIA GPU that may be used


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """The machine's state while a run was measured; what cannot be read here is None.

    It begins before the run and ends after it, loading and lost attempts included. NVIDIA's GPUs are read
    some times a second meanwhile; only those that CUDA_VISIBLE_DEVICES allows count, idle ones too.
    """

    others_cores: float | None = None  # cores that other programs kept busy, steal included
    steal_cores: float | None = None  # cores that the hypervisor gave to others
    cpu_mhz: float | None = None  # mean over the cores, at the end
    cpu_c: float | None = None  # the hottest sensor of the processor, at the end
    cpu_w: float | None = None  # mean power of the processor's packages
    cpu_j: float | None = None  # what they used
    swapped_bytes: int | None = None  # moved from and to swap by everyone meanwhile
    gpu_mhz: float | None = None  # mean clock of the GPUs' multiprocessors
    gpu_memory_mhz: float | None = None  # and of their memory
    gpu_c: float | None = None  # the hottest GPU at its hottest
    gpu_w: float | None = None  # mean power of all GPUs together, boards included
    gpu_peak_w: float | None = None  # the most that was seen
    gpu_power_limit_w: float | None = None  # what all together may draw
    gpu_j: float | None = None  # what they used, by their counters or else by the power that was seen
    gpu_used_bytes: int | None = None  # GPU memory in use before the run, everyone's
    gpu_peak_bytes: int | None = None  # the most that was seen in use, everyone's
    gpu_throttled: tuple[str, ...] | None = None  # what held clocks back, see machine/nvml.py; () for nothing


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a drafting text leaves the target's own; places count what was generated, from 0.

    ``target_token`` and ``drafting_token`` are what each wrote there; ``margin`` is how much likelier the
    target's own is to the target itself, in nats; both None until the place was judged. ``unjudged`` is why
    it was not judged, where that was tried in vain.
    """

    at_char: int
    at_token: int | None  # None without a tokenizer program
    target_token: int | None = None
    drafting_token: int | None = None
    margin: float | None = None
    verdict: TextVerdict | None = None
    unjudged: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One run: what was asked, what came out, and where. A failed run is a row, not an exception."""

    spec: RunSpec
    repeat: int
    engine: str
    sample: Sample
    argv: tuple[str, ...]
    log: str  # the raw logs' common path, relative to the run's folder, without ending
    started_at: str  # ISO 8601, UTC
    wall_s: float  # all attempts and our own work around them
    program_s: float  # the llama.cpp process of the last attempt
    peak_rss_bytes: int | None = None
    error: str | None = None
    attempts: int = 1
    warmup: bool = False
    anchor: bool = False  # re-measures one configuration through the bench, to see drift
    rerun: int = 0  # 1, 2, … replace an earlier run of the same cell, which stays in the record
    remeasured: bool = False  # with all arms of its prompt and repeat, because one of them had collapsed
    load: int | None = None  # number of the load in the bench; runs with one number shared a process
    conditions: Conditions | None = None
    text_identical: bool | None = None  # greedy drafting runs: is the text the target's own?
    difference: Difference | None = None
    doubts: tuple[str, ...] = ()  # names of warnings, see analysis/warnings.py
