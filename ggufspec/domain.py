"""The values that travel through ggufspec: frozen, free of I/O, named as the field names them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

Layers = int | Literal["all", "auto"]
"""How many layers go to the GPU. Never a magic -1: its meaning changed between eras of llama.cpp."""


class Role(StrEnum):
    """What a run measures."""

    TARGET = "target"
    DRAFTER = "drafter"
    DRAFTING = "drafting"


class Method(StrEnum):
    """Where draft tokens come from."""

    DRAFT_MODEL = "draft-model"


class Program(StrEnum):
    """What a llama.cpp program does, whatever its name is in an era."""

    PLAIN = "plain"  # main, llama-cli of old, llama-completion
    TREE = "speculative"  # speculative, llama-speculative
    SIMPLE = "speculative-simple"
    SERVER = "server"


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


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One GGUF, on disk (``path``) or on the Hub (``repo`` and ``filename``)."""

    filename: str
    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target and the drafter that drafts for it, or None where drafting needs no second model."""

    name: str
    target: ModelFile
    draft: ModelFile | None = None


@dataclass(frozen=True, kw_only=True)
class Offload:
    """How many layers of each model go to the GPU."""

    target_layers: Layers = "auto"
    draft_layers: Layers = "auto"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen; temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 1
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature <= 0.0 or self.top_k == 1


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How draft tokens are proposed: at most ``n_max`` (γ) per round."""

    n_max: int
    method: Method = Method.DRAFT_MODEL
    n_min: int = 0
    p_min: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One text to continue, with a name that is stable between runs."""

    id: str
    text: str
    category: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what one run measures. ``drafting is None`` is plain decoding."""

    pair: Pair
    role: Role
    prompt: Prompt
    n_predict: int
    context: int
    threads: int
    offload: Offload = field(default_factory=Offload)
    sampling: Sampling = field(default_factory=Sampling)
    drafting: Drafting | None = None

    @property
    def model(self) -> ModelFile:
        """The model that this run's text comes from."""
        if self.role is Role.DRAFTER:
            assert self.pair.draft is not None
            return self.pair.draft
        return self.pair.target

    @property
    def key(self) -> str:
        """Twelve hexadecimal digits that name this specification, stable between processes."""
        canonical = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one run's log says. Times in seconds or milliseconds as named; absent is None, never 0.

    ``gen_tokens``, ``gen_tps``, ``prompt_tokens`` and ``prompt_tps`` are the log's own figures, on the
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
    load_ms: float | None = None
    offloaded_layers: int | None = None
    total_layers: int | None = None
    devices: tuple[str, ...] = ()  # devices that hold model weights, e.g. ("CPU", "CUDA0")
    text: str | None = None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens, 0 to 1; None when nothing was drafted."""
        if not self.n_drafted or self.n_accepted is None:
            return None
        return self.n_accepted / self.n_drafted

    @property
    def decode_tps(self) -> float | None:
        """Tokens decoded after the prompt per second of decoding, drafting, verification and sampling.

        The first token comes for free from the prompt's own evaluation, so it is not counted where the
        program counts it: plain programs report N-1 evaluations; the tree program reports N tokens in
        a window that evaluates N-1; the simple program evaluates every token it reports.
        """
        if not self.gen_s or self.gen_tokens is None:
            return None
        match self.program:
            case Program.PLAIN:
                decoded, seconds = self.gen_tokens, self.gen_s + (self.sampling_s or 0.0)
            case Program.TREE:
                decoded, seconds = self.gen_tokens - 1, self.gen_s
            case _:
                decoded, seconds = self.gen_tokens, self.gen_s
        return decoded / seconds if decoded > 0 else None


@dataclass(frozen=True, kw_only=True)
class Build:
    """Which llama.cpp measured."""

    version: str | None  # the build number or release that the programs report
    commit: str | None
    backend: str | None  # cpu, cuda, metal, vulkan, hip
    path: str


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a measurement was taken."""

    hostname: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where a drafting text leaves the target's own; both count what was generated, from 0."""

    at_char: int
    at_token: int | None  # None without a tokenizer program


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
    others_cores: float | None = None  # cores that other programs kept busy meanwhile
    text_identical: bool | None = None  # greedy drafting runs: is the text the target's own?
    difference: Difference | None = None
    doubts: tuple[str, ...] = ()  # names of warnings, see doubts.py
