"""What is asked: models, prompts, and everything that decides what one run measures."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from pathlib import Path

from ggufspec.choices import Experts, Layers, Method, Role, SplitMode


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One GGUF, on disk (``path``) or on the Hub (``repo`` and ``filename``).

    ``content`` is what it holds, whatever its name: the SHA-256 of the file, or of a model in several files
    that of the list of theirs. None until the files were read for it. ``sha256`` is what the Hub lists.
    """

    filename: str
    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    path: Path | None = None
    content: str | None = None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target and the drafter that drafts for it, or None where drafting needs no second model."""

    name: str
    target: ModelFile
    draft: ModelFile | None = None


@dataclass(frozen=True, kw_only=True)
class Offload:
    """How many layers of each model go to the GPU, to which devices, and how they are spread over them.

    Beside the layers, None and () leave it to llama.cpp. Devices are named as ``--list-devices`` does
    (``CUDA0``; ``none`` for none at all); a drafter without devices of its own uses the target's.
    ``tensor_split`` (shares of the devices, in their order), ``split_mode`` and ``main_gpu`` hold for both
    models. ``fit`` is whether llama.cpp may lower what is "auto" until it fits.
    """

    target_layers: Layers = "auto"
    draft_layers: Layers = "auto"
    fit: bool | None = None
    devices: tuple[str, ...] = ()
    draft_devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode | None = None
    main_gpu: int | None = None
    cpu_moe: Experts | None = None
    draft_cpu_moe: Experts | None = None

    @property
    def target_alone(self) -> Offload:
        """What is left of it where only the target is loaded."""
        return replace(self, draft_layers="auto", draft_devices=(), draft_cpu_moe=None)

    @property
    def drafter_alone(self) -> Offload:
        """What is left of it where only the drafter is loaded."""
        own = self.draft_devices or self.devices
        return replace(self, target_layers="auto", devices=(), draft_devices=own, cpu_moe=None)

    @property
    def drafter_as_target(self) -> Offload:
        """The drafter's part, said as a target's: what loads it alone says it so."""
        part = self.drafter_alone
        said = replace(
            part, target_layers=part.draft_layers, devices=part.draft_devices, cpu_moe=part.draft_cpu_moe
        )
        return said.target_alone


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

    ``synthetic`` lets dice decide what is accepted instead of the target: the share of rounds that accept
    the draft's first, second, … token, ``n_max`` numbers that never rise. The text means nothing then.
    """

    n_max: int
    method: Method = Method.DRAFT_MODEL
    n_min: int = 0
    p_min: float = 0.0
    synthetic: tuple[float, ...] | None = None


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


NO_PROMPT = Prompt(id="", text="")
"""The prompt of a specification that stands for an arm or a load, on any prompt."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what one run measures. ``drafting is None`` is plain decoding.

    ``kv_type`` is the type of both caches as llama.cpp spells it (``q8_0``), ``ubatch`` the tokens that are
    evaluated at once; None leaves the build's own default. ``build`` names the llama.cpp that runs it, by the
    keys of ``Meta.builds``, where a bench measures several; None where it measures one.
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
    build: str | None = None

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
    def own_offload(self) -> Offload:
        """The offload of the model that this run's text comes from, said as a target's."""
        return self.offload.drafter_as_target if self.role is Role.DRAFTER else self.offload

    @property
    def baseline(self) -> RunSpec:
        """What this run is compared with: the target alone, on the same prompt under the same settings."""
        return replace(
            self,
            pair=replace(self.pair, draft=None),
            role=Role.TARGET,
            offload=self.offload.target_alone,
            drafting=None,
        )

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that name what is measured, stable between processes.

        The pair's name and a drafter that this run does not load are not part of it. A model is named by its
        content where that is known, else by all that says where it came from.
        """
        facts = {**vars(self), "pair": (self.model, self.drafter)}
        if self.build is None:  # keys of benches of one llama.cpp do not know it
            del facts["build"]
        canonical = json.dumps(facts, sort_keys=True, default=_plain)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    if not is_dataclass(value):
        return str(value)
    if isinstance(value, ModelFile) and value.content is not None:
        return {"content": value.content}
    given = vars(value).items()
    return {name: part for name, part in given if part not in (None, ()) or name not in _ADDED_LATER}


_ADDED_LATER = {
    *("synthetic", "fit", "devices", "draft_devices", "tensor_split", "split_mode", "main_gpu"),
    *("cpu_moe", "draft_cpu_moe", "content"),
}
"""Fields that stored keys do not know: they change a key only where they are given."""
