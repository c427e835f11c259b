"""What users choose from: methods, programs, engines, split modes. Light: every ``--help`` imports it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

Layers = int | Literal["all", "auto"]
"""How many layers go to the GPU. Never -1, because its meaning changed between versions of llama.cpp."""

Experts = int | Literal["all"]
"""How many layers, counted from the first, keep the experts of a mixture on the processor."""


class Role(StrEnum):
    """What a run measures."""

    TARGET = "target"
    DRAFTER = "drafter"
    DRAFTING = "drafting"


class Method(StrEnum):
    """Where draft tokens come from: a second model, or the text so far."""

    DRAFT_MODEL = "draft-model"
    NGRAM_SIMPLE = "ngram-simple"  # the tokens after the last earlier place with the same ending
    NGRAM_MAP_K = "ngram-map-k"
    NGRAM_MAP_K4V = "ngram-map-k4v"
    NGRAM_MOD = "ngram-mod"
    NGRAM_CACHE = "ngram-cache"

    @property
    def needs_drafter(self) -> bool:
        """Whether a second model is loaded."""
        return self is Method.DRAFT_MODEL


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
