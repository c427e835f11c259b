"""What is asked: models, prompts, and everything that decides what one run measures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, is_dataclass, replace
from enum import StrEnum
from functools import cached_property
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
    """Where draft tokens come from: a second model, or the text so far."""

    DRAFT_MODEL = "draft-model"
    NGRAM_SIMPLE = "ngram-simple"  # what followed the last place where the text read as it does now
    NGRAM_MAP_K = "ngram-map-k"
    NGRAM_MAP_K4V = "ngram-map-k4v"
    NGRAM_MOD = "ngram-mod"
    NGRAM_CACHE = "ngram-cache"

    @property
    def needs_drafter(self) -> bool:
        """Whether a second model is loaded."""
        return self is Method.DRAFT_MODEL


class Program(StrEnum):
    """What a llama.cpp program does, whatever its name is in an era."""

    PLAIN = "plain"  # main, llama-cli of old, llama-completion
    TREE = "speculative"  # speculative, llama-speculative
    SIMPLE = "speculative-simple"
    SERVER = "server"


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
    """How draft tokens are proposed: at most ``n_max`` (γ) per round.

    A draft ends early before a token that the drafter gives less than ``p_min``; drafts shorter than
    ``n_min`` are not verified. Programs of the tree kind know neither.
    """

    n_max: int
    method: Method = Method.DRAFT_MODEL
    n_min: int = 0
    p_min: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One text to continue, with a name that is stable between runs.

    ``message`` is what the user says where a chat template made the text of it. In a suite, ``followups``
    are the user's later turns of a conversation; a run has none left: each turn is a prompt of its own,
    with the target's answers to the earlier ones in its text.
    """

    id: str
    text: str
    category: str | None = None
    message: str | None = None
    followups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what one run measures. ``drafting is None`` is plain decoding.

    ``kv_type`` is the type of both caches as llama.cpp spells it (``q8_0``), ``ubatch`` the tokens that are
    evaluated at once; None leaves the build's own default.
    """

    pair: Pair
    role: Role
    prompt: Prompt
    n_predict: int
    context: int
    threads: int
    offload: Offload = field(default_factory=Offload)
    sampling: Sampling = field(default_factory=Sampling)
    drafting: Drafting | None = None
    kv_type: str | None = None
    ubatch: int | None = None

    @property
    def model(self) -> ModelFile:
        """The model that this run's text comes from."""
        if self.role is Role.DRAFTER:
            assert self.pair.draft is not None
            return self.pair.draft
        return self.pair.target

    @property
    def drafter(self) -> ModelFile | None:
        """The model that drafts in this run, if one does."""
        return self.pair.draft if self.drafting is not None else None

    @property
    def baseline(self) -> RunSpec:
        """What this run is compared with: the target alone, on the same prompt under the same settings."""
        return replace(
            self,
            pair=replace(self.pair, draft=None),
            role=Role.TARGET,
            offload=Offload(target_layers=self.offload.target_layers),
            drafting=None,
        )

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that name what is measured, stable between processes.

        The pair's name and a drafter that this run does not load are not part of it.
        """
        facts = {**vars(self), "pair": (self.model, self.drafter)}
        canonical = json.dumps(facts, sort_keys=True, default=_plain)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    return vars(value) if is_dataclass(value) else str(value)
