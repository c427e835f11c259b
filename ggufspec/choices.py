"""What users choose from: methods, programs, engines, split modes. Light: every ``--help`` imports it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

Layers = int | Literal["all", "auto"]
"""How many layers go to the GPU. Never -1, because its meaning changed between versions of llama.cpp."""

Experts = int | Literal["all"]
"""How many layers, counted from the first, keep the experts of a mixture on the processor."""

Reasoning = int | Literal["auto", "on", "off"]
"""Whether chats think, or for how many tokens at most; "auto" is what prompt and template say."""

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types of a KV cache, in llama.cpp's spelling."""

SUITES = ("agent", "demo", "domains", "edits", "general", "seven", "structured", "thinking", "work")
"""The built-in prompt suites."""

ON_HUB = "hf:"
"""How the name of a suite on the Hub begins: ``hf:USER/DATASET``, with ``@REVISION`` and ``:PART``."""


class Role(StrEnum):
    """What a run measures."""

    TARGET = "target"
    DRAFTER = "drafter"
    DRAFTING = "drafting"


class Method(StrEnum):
    """Where draft tokens come from: a draft model, a head that reads the target's states, or the text."""

    DRAFT_MODEL = "draft-model"
    DRAFT_MTP = "draft-mtp"  # layers of the target that predict further tokens, or such layers in a file
    DRAFT_EAGLE3 = "draft-eagle3"
    DRAFT_DFLASH = "draft-dflash"  # a block of drafts in one evaluation
    DRAFT_DSPARK = "draft-dspark"  # the same, each token chosen after the one before it
    NGRAM_SIMPLE = "ngram-simple"  # the tokens after the last earlier place with the same ending
    NGRAM_MAP_K = "ngram-map-k"
    NGRAM_MAP_K4V = "ngram-map-k4v"
    NGRAM_MOD = "ngram-mod"
    NGRAM_CACHE = "ngram-cache"
    SUFFIX = "suffix"  # the longest known ending, and what followed it most often; of ik_llama.cpp alone

    @property
    def needs_drafter(self) -> bool:
        """Whether a second file is required. Layers for MTP may be in the target."""
        return self.drafts_with_model and self is not Method.DRAFT_MTP

    @property
    def drafts_with_model(self) -> bool:
        """Whether weights draft: a draft model's or a head's. N-gram methods look into the text so far."""
        return self is Method.DRAFT_MODEL or self.is_head

    @property
    def is_head(self) -> bool:
        """Whether the drafter reads hidden states of its target, and so cannot run without it."""
        return self in _HEADS

    @property
    def drafts_block(self) -> bool:
        """Whether a draft is one evaluation of a block, whose first tokens depend on its length."""
        return self in {Method.DRAFT_DFLASH, Method.DRAFT_DSPARK}

    @property
    def stage(self) -> str:
        """What ik_llama.cpp calls it."""
        return "draft" if self is Method.DRAFT_MODEL else self.value.removeprefix("draft-")

    @property
    def samples_drafts(self) -> bool:
        """Whether llama-server can draw its drafts; see ``DraftSampling``."""
        return self in {Method.DRAFT_MODEL, Method.DRAFT_MTP}


_HEADS = frozenset({Method.DRAFT_MTP, Method.DRAFT_EAGLE3, Method.DRAFT_DFLASH, Method.DRAFT_DSPARK})


class DraftSampling(StrEnum):
    """How llama-server chooses the tokens of a draft where the target samples, from b11368 on."""

    GREEDY = "greedy"  # the drafter's likeliest; it is kept where the target happens to sample it, too
    PROBABILISTIC = "probabilistic"  # drawn at the target's temperature, and verified by rejection


class SplitMode(StrEnum):
    """How a model is split over several GPUs."""

    NONE = "none"  # one GPU, the main one
    LAYER = "layer"
    ROW = "row"
    TENSOR = "tensor"


class Program(StrEnum):
    """What a llama.cpp program does; its name depends on the version."""

    PLAIN = "plain"  # main, older llama-cli, llama-completion
    TREE = "speculative"  # speculative, llama-speculative
    SIMPLE = "speculative-simple"
    SERVER = "server"


ENGINES: Mapping[str, Program] = {
    "binary": Program.TREE,
    "binary-simple": Program.SIMPLE,
    "server": Program.SERVER,
    "inprocess": Program.SIMPLE,
}
"""Engine -> the program that drafts, or whose rules apply. The plain program runs arms without drafting."""

OWN_PROCESSES = frozenset(
    name for name, program in ENGINES.items() if program is not Program.SERVER and name != "inprocess"
)
"""The engines that start a program for every run; the others keep models loaded."""


class ServerFormat(StrEnum):
    """A file that starts llama-server at a stored configuration."""

    SYSTEMD = "systemd"
    COMPOSE = "compose"
    LLAMA_SWAP = "llama-swap"
    PRESET = "preset"  # llama.cpp's INI file for --models-preset
    ENV = "env"  # variables that llama-server reads


class Backend(StrEnum):
    """What computes in a build of llama.cpp."""

    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    HIP = "hip"


class FindingKind(StrEnum):
    """What can be wrong with a llama.cpp, the gravest first."""

    CRASH = "crash"
    TEXT = "text"
    OFF = "off"
    SLOWER = "slower"
    ACCEPTANCE = "acceptance"


class Quantity(StrEnum):
    """What is compared between versions; more of it is better."""

    SPEED_UP = "speed-up"
    TARGET = "target"
    DRAFTER = "drafter"
    DRAFTING = "drafting"
    ACCEPTANCE = "acceptance"

    @property
    def roles(self) -> frozenset[Role]:
        """The arms that have to be measured."""
        if self is Quantity.SPEED_UP:
            return frozenset({Role.TARGET, Role.DRAFTING})
        return frozenset({Role.DRAFTING if self is Quantity.ACCEPTANCE else Role(self.value)})

    @property
    def is_ratio(self) -> bool:
        """Whether versions are compared by a ratio of speeds; otherwise by a difference of fractions."""
        return self is not Quantity.ACCEPTANCE


class OutputFormat(StrEnum):
    """How a table is written."""

    TERMINAL = "table"  # fits the terminal
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"
    SQL = "sql"
    PARQUET = "parquet"


class StorageKind(StrEnum):
    """The kinds of stored items; a kind is the first part of an item's name."""

    BUILDS = "builds"
    SOURCES = "sources"
    CUDA = "cuda"
    MODELS = "models"
    DIGESTS = "digests"
    OTHER = "other"
    PROFILES = "profiles"
    RESULTS = "results"


class Where(StrEnum):
    """Which machines of a fleet measure a block."""

    SAME = "same"  # one of several equal ones
    EACH = "each"  # every one
