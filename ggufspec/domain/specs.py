"""What a run measures: its models, its settings and its prompt."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ggufspec import units
from ggufspec.choices import DraftSampling, Experts, Layers, Method, Role, SplitMode
from ggufspec.domain.requests import Asking, Endpoint, Prompt, Request, RunningServers, Traffic


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One GGUF, on disk (``path``) or on the Hub (``repo`` and ``filename``).

    ``content`` identifies the content: the SHA-256 of the file or, for a model in several files, of the list
    of their checksums; None until the files are read. ``sha256`` is the checksum on the Hub.
    """

    filename: str
    repo: str | None = None
    revision: str | None = None
    quant: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    path: Path | None = None
    content: str | None = None

    @property
    def reference(self) -> str:
        """What names it: its repository and file, or its path."""
        return str(self.path) if self.repo is None else f"{self.repo}/{self.filename}"


ModelName = str | Path | ModelFile
"""A path, or a text as ``hub.parse_reference`` reads it: ``user/repo:Q4_K_M``, ``demo:target``, a path."""


@dataclass(frozen=True, kw_only=True)
class HeadFile(ModelFile):
    """A file whose head drafts, and by which method; layers for MTP may lie in the target's own file."""

    method: Method

    @classmethod
    def of(cls, model: ModelFile, method: Method) -> HeadFile:
        """Return the head in a file."""
        return cls(**_facts(model), method=method)

    @property
    def file(self) -> ModelFile:
        """The file alone."""
        return ModelFile(**_facts(self))


def _facts(model: ModelFile) -> dict[str, Any]:
    return {field.name: getattr(model, field.name) for field in fields(ModelFile)}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A target and its drafter; ``draft`` is None where drafting needs no second model."""

    name: str
    target: ModelFile
    draft: ModelFile | None = None

    def with_models(self, change: Callable[[ModelFile], ModelFile]) -> Pair:
        """Return the pair with what a function makes of each model."""
        target = change(self.target)
        return replace(self, target=target, draft=None if self.draft is None else change(self.draft))

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The target, and the drafter if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)


@dataclass(frozen=True)
class Chain:
    """Methods that are asked for a draft in turn; a round uses the first draft.

    llama.cpp fixes the order: n-gram methods in the order of ``Method``, then the one that drafts with a
    model. A single method is a chain without ``first``.
    """

    method: Method
    first: tuple[Method, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Chain:
        """Return the chain that a text such as ``ngram-mod+draft-mtp`` names, in any order.

        Raises:
            ValueError: it names no method, an unknown one, or no chain that can be measured.
        """
        names = [name.strip() for name in text.split("+")]
        unknown = next((name for name in names if name not in list(Method)), None)
        if unknown is not None:
            raise ValueError(f"no drafting method is called {unknown!r}; there are {', '.join(Method)}")
        methods = [method for method in Method if method.value in names]
        with_model = [method for method in methods if method.drafts_with_model]
        if len(methods) == 1:
            return cls(methods[0])
        if len(with_model) != 1:
            raise ValueError(
                f"{text} is not a chain: one of its methods drafts with a model, and the others are n-grams"
            )
        return cls(with_model[0], tuple(method for method in methods if not method.drafts_with_model))

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods in the order in which they are asked."""
        return (*self.first, self.method)

    def __str__(self) -> str:
        return "+".join(method.value for method in self.methods)


@dataclass(frozen=True)
class CacheTypes:
    """The types of a model's K and V caches, in llama.cpp's spelling (``q8_0``)."""

    type_k: str
    type_v: str

    @classmethod
    def parse(cls, text: str) -> CacheTypes:
        """Return the types in a text: one for both caches, or ``q8_0,f16`` for K and V."""
        k, _, v = text.partition(",")
        return cls(k, v or k)

    def __str__(self) -> str:
        return self.type_k if self.type_k == self.type_v else f"{self.type_k},{self.type_v}"


@dataclass(frozen=True, kw_only=True)
class ModelRun:
    """How one model runs, target and drafter alike; None and () are llama.cpp's defaults.

    ``devices`` are named as ``--list-devices`` does (``CUDA0``; ``none`` for no device).
    """

    layers: Layers = "auto"  # on the GPU
    devices: tuple[str, ...] = ()
    cpu_moe: Experts | None = None  # layers whose experts stay on the processor
    caches: CacheTypes | None = None

    @property
    def wants_gpu(self) -> bool | None:
        """Whether layers are requested for a GPU; None where llama.cpp decides."""
        return None if self.layers == "auto" else self.layers != 0


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Where each model runs, and what holds for both; None and () are llama.cpp's defaults.

    A drafter without devices or types of caches of its own has the target's.

    ``rpc`` are the addresses (HOST:PORT) of workers, which lend their devices over the network. llama.cpp
    numbers these ``RPC0``, ``RPC1``, … and puts layers there before the GPUs of this machine. A drafter
    stays on this machine unless its own devices name one of them.
    """

    target: ModelRun = ModelRun()
    drafter: ModelRun = ModelRun()
    fit: bool | None = None  # whether llama.cpp may lower "auto" layers until the model fits
    tensor_split: tuple[float, ...] = ()  # shares of the devices, in their order
    split_mode: SplitMode | None = None
    main_gpu: int | None = None
    rpc: tuple[str, ...] = ()

    @property
    def drafter_devices(self) -> tuple[str, ...]:
        """The devices that were named for the drafter; of the target's only those of this machine."""
        if self.drafter.devices or not self.rpc:
            return self.drafter.devices or self.target.devices
        return tuple(name for name in self.target.devices if not is_remote(name))

    @property
    def drafter_caches(self) -> CacheTypes | None:
        """The types of the drafter's caches."""
        return self.drafter.caches or self.target.caches

    @property
    def on_processor(self) -> Offload:
        """The same without a GPU or a worker."""
        return Offload(
            target=ModelRun(layers=0, caches=self.target.caches),
            drafter=ModelRun(layers=0, caches=self.drafter.caches),
        )

    @property
    def cache_words(self) -> tuple[str, ...]:
        """The types of caches beside the target's K cache, as options of a bench."""
        target, drafter = self.target.caches, self.drafter.caches
        words = ("-ctv", target.type_v) if target is not None and target.type_v != target.type_k else ()
        return (*words, *(("-ctkd", drafter.type_k, "-ctvd", drafter.type_v) if drafter is not None else ()))

    @property
    def place_words(self) -> tuple[str, ...]:
        """The experts on the processor and the split over GPUs, as options of a bench."""
        given = {
            "--n-cpu-moe": self.target.cpu_moe,
            "--n-cpu-moe-draft": self.drafter.cpu_moe,
            "-sm": self.split_mode,
            "-ts": ",".join(f"{share:g}" for share in self.tensor_split) or None,
        }
        return tuple(
            word for name, value in given.items() if value is not None for word in (name, str(value))
        )

    @property
    def lends_to_drafter(self) -> bool:
        """Whether a worker computes for the drafter, too."""
        return bool(self.rpc) and any(map(is_remote, self.drafter.devices))

    @property
    def target_alone(self) -> Offload:
        """The offload of a run that loads only the target."""
        return replace(self, drafter=ModelRun())

    @property
    def drafter_alone(self) -> Offload:
        """The offload of a run that loads only the drafter."""
        return replace(
            self,
            target=ModelRun(),
            drafter=replace(self.drafter, devices=self.drafter_devices, caches=self.drafter_caches),
            rpc=self.rpc if self.lends_to_drafter else (),
        )

    @property
    def drafter_as_target(self) -> Offload:
        """The drafter's offload as that of a target, for a run that loads it alone."""
        alone = self.drafter_alone
        return replace(alone, target=alone.drafter, drafter=ModelRun())

    def with_layers(self, target: Layers | None = None, drafter: Layers | None = None) -> Offload:
        """Return the same with other numbers of layers on the GPU; None keeps a model's."""
        return replace(
            self,
            target=self.target if target is None else replace(self.target, layers=target),
            drafter=self.drafter if drafter is None else replace(self.drafter, layers=drafter),
        )


def is_remote(device: str) -> bool:
    """Whether a device, named as ``--list-devices`` does, is a worker's."""
    return device.startswith("RPC")


def _setting(option: str) -> Any:
    """Declare a setting that a bench has an option of the same name for."""
    return field(default=None, metadata={"option": option})


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """llama.cpp's settings of both models, besides where they run; None and () are the build's defaults.

    ``batch`` is in tokens; ``mmap`` False does not map the file. ``override_tensor``, ``numa``, ``cpu_mask``,
    ``prio`` and ``poll`` are values of llama.cpp's options of these names. ``draft_backend_sampling`` says
    whether draft tokens are sampled where the drafter is evaluated. ``mmproj`` reads images for the target.
    ``chat_template_file`` takes the place of the target's own template. ``args`` are passed to every program
    as they are, ``draft_args`` only in runs that draft.
    """

    draft_backend_sampling: str | None = _setting("--draft-backend-sampling")
    flash_attn: str | None = _setting("-fa")
    batch: int | None = _setting("-b")
    override_tensor: str | None = _setting("-ot")
    mlock: bool | None = None
    mmap: bool | None = None
    numa: str | None = _setting("--numa")
    cpu_mask: str | None = _setting("-C")
    prio: int | None = _setting("--prio")
    poll: int | None = _setting("--poll")
    mmproj: Path | None = field(default=None, metadata={"option": "--mmproj"})
    chat_template_file: Path | None = field(default=None, metadata={"option": "--chat-template-file"})
    args: tuple[str, ...] = ()
    draft_args: tuple[str, ...] = ()

    @classmethod
    def settings(cls) -> dict[str, str]:
        """Return the options of a bench that have a field of their name, by that name."""
        return {of.name: of.metadata["option"] for of in fields(cls) if "option" in of.metadata}

    @property
    def without_drafting(self) -> Runtime:
        """The settings of a run that loads one model."""
        return replace(self, draft_backend_sampling=None, draft_args=())

    @property
    def files(self) -> tuple[Path, ...]:
        """What is read beside the models."""
        return tuple(file for file in (self.mmproj, self.chat_template_file) if file is not None)

    @property
    def of_texts(self) -> Runtime:
        """The settings of a program that gets complete texts: a server alone puts chats into a template."""
        return replace(self, chat_template_file=None)

    @property
    def words(self) -> tuple[str, ...]:
        """The settings besides the defaults, in llama.cpp's spelling and as options of a bench."""
        given = {option: getattr(self, name) for name, option in self.settings().items()}
        words = [
            word for option, value in given.items() if value is not None for word in (option, str(value))
        ]
        words += ["--mlock"] if self.mlock else []
        words += ["--no-mmap"] if self.mmap is False else []
        words += ["--draft-args", shlex.join(self.draft_args)] if self.draft_args else []
        return (*words, *(("--", *self.args) if self.args else ()))


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
class NgramSettings:
    """What n-gram methods look for and how much they draft. None is ggufspec's default for the method.

    ``size_n`` is how many tokens must recur, ``size_m`` how many are drafted at most, ``min_hits`` how often
    the tokens must have recurred; drafts shorter than ``n_min`` are dropped. For a method that drafts alone,
    ``size_m`` is None: there it is γ.
    """

    size_n: int | None = None
    size_m: int | None = None
    min_hits: int | None = None
    n_min: int | None = None

    def __str__(self) -> str:
        values = {name.replace("_", "-"): value for name, value in vars(self).items() if value is not None}
        return ",".join(f"{name}={value}" for name, value in values.items())


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How draft tokens are proposed: at most ``n_max`` (γ) per round.

    A draft ends before a token to which the drafter gives a probability below ``p_min``; drafts shorter than
    ``n_min`` are not verified. Tree programs have neither setting.

    ``synthetic`` simulates acceptance: the probability that a round accepts the draft's first, second, …
    token; ``n_max`` numbers that do not increase. The text is then meaningless.

    ``first`` are n-gram methods of a chain, asked before ``method`` in this order; ``ngram`` are the settings
    of all n-gram methods. In a chain, ``n_max`` is the draft size of the model.

    ``sampling`` is how the model's drafts are chosen; None where the program has no choice.
    """

    n_max: int
    method: Method = Method.DRAFT_MODEL
    n_min: int = 0
    p_min: float = 0.0
    synthetic: tuple[float, ...] | None = None
    first: tuple[Method, ...] = ()
    ngram: NgramSettings = field(default_factory=NgramSettings)
    sampling: DraftSampling | None = None

    @property
    def chain(self) -> Chain:
        """The methods, in the order in which they are asked."""
        return Chain(self.method, self.first)

    @property
    def manner(self) -> tuple[str, ...]:
        """How a model drafts besides its draft size, in words: ``p-min 0.7``, ``probabilistic drafts``."""
        words = {
            f"p-min {units.format_number(self.p_min)}": self.p_min,
            f"drafts of {self.n_min} tokens and more": self.n_min,
            f"{self.sampling} drafts": self.sampling,
        }
        return tuple(text for text, is_set in words.items() if is_set)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what one run measures. ``drafting`` is None for plain decoding.

    ``ubatch`` is the number of tokens evaluated at once; None is the build's default. ``build`` names the
    llama.cpp that runs it, by the keys of ``Meta.builds``, where a bench measures several; None where it
    measures one. With ``traffic``, ``prompt`` only names it, and ``context`` is that of each user.

    With ``servers``, nothing is loaded: the models are those of servers that run already, named as these
    name them. Then ``drafting`` is None even where a server drafts, ``context`` is 0 if it is not reported,
    and placement, threads and settings of llama.cpp have no meaning.
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
    ubatch: int | None = None
    runtime: Runtime = field(default_factory=Runtime)
    build: str | None = None
    traffic: Traffic | None = None
    servers: RunningServers | None = None
    asking: Asking = field(default_factory=Asking)

    @property
    def asks(self) -> bool:
        """Whether more than a text is asked, by this run's prompt or one of several users'.

        A server that runs already has its own template in any case, so messages are as good as a text there.
        """
        usual = frozenset() if self.servers is None else {"messages"}
        return self.asking != Asking() or any(prompt.needs - usual for prompt in self.prompts)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Its prompt, or those that several users send."""
        return (self.prompt,) if self.traffic is None else self.traffic.prompts

    @property
    def request(self) -> Request | None:
        """What is asked beside the text of this run's prompt, or instead of it."""
        return self.asking.change(self.prompt.request)

    @property
    def words(self) -> tuple[str, ...]:
        """How prompts are asked, workers, experts, caches and llama.cpp's other settings, as in a bench."""
        offload = self.offload
        rpc = ("--rpc", ",".join(offload.rpc)) if offload.rpc else ()
        return (*self.asking.words, *rpc, *offload.place_words, *offload.cache_words, *self.runtime.words)

    @property
    def endpoint(self) -> Endpoint | None:
        """The server that answers, where it runs already."""
        if self.servers is None:
            return None
        return self.servers.drafting if self.role is Role.DRAFTING else self.servers.alone

    def at_repeat(self, repeat: int) -> RunSpec:
        """Return the same with the servers that answer in a repeat, where several take turns."""
        return self if self.servers is None else replace(self, servers=self.servers.at_repeat(repeat))

    @property
    def draft_size(self) -> int | None:
        """γ, where something drafts and it is known."""
        if self.drafting is not None:
            return self.drafting.n_max
        return self.endpoint.draft_size if self.endpoint is not None and self.role is Role.DRAFTING else None

    @property
    def n_slots(self) -> int:
        """How many requests a server answers at once."""
        return 1 if self.traffic is None else self.traffic.users

    @property
    def caches(self) -> CacheTypes | None:
        """The types of the caches of the model that writes this run's text; None for the build's default."""
        return self.own_offload.target.caches

    @property
    def kv_type(self) -> str | None:
        """The type of its K cache."""
        return None if self.caches is None else self.caches.type_k

    @property
    def model(self) -> ModelFile:
        """The model that writes this run's text."""
        if self.role is Role.DRAFTER:
            assert self.pair.draft is not None
            return self.pair.draft
        return self.pair.target

    @property
    def drafter(self) -> ModelFile | None:
        """The model that drafts in this run, if one does."""
        return self.pair.draft if self.drafting is not None else None

    @property
    def drafts_by(self) -> Drafting:
        """How this run drafts; only runs that draft are asked."""
        assert self.drafting is not None
        return self.drafting

    @property
    def draft_source(self) -> ModelFile | None:
        """The weights that draft in this run: a draft model, or a head; None where no weights do."""
        if self.drafting is None or not self.drafting.method.is_head:
            return self.drafter
        return HeadFile.of(self.drafter or self.pair.target, self.drafting.method)

    @property
    def own_offload(self) -> Offload:
        """The offload of the model that writes this run's text, in the fields of a target."""
        return self.offload.drafter_as_target if self.role is Role.DRAFTER else self.offload

    @property
    def baseline(self) -> RunSpec:
        """The run to compare with: the target alone, with the same prompt and settings."""
        return replace(
            self,
            pair=replace(self.pair, draft=None),
            role=Role.TARGET,
            offload=self.offload.target_alone,
            runtime=self.runtime.without_drafting,
            drafting=None,
            servers=None if self.servers is None else self.servers.target_alone,
        )

    @property
    def drafter_alone(self) -> RunSpec:
        """The drafter of this run without its target, on the same prompt under the same settings."""
        return replace(
            self,
            role=Role.DRAFTER,
            offload=self.offload.drafter_alone,
            runtime=self.runtime.without_drafting,
            drafting=None,
        )

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that identify what is measured, stable between processes.

        The pair's name, and a drafter that this run does not load, do not count. A model is identified by
        its content if that is known, otherwise by its name and origin.
        """
        facts = {**_values(self), "pair": (self.model, self.drafter)}
        canonical = json.dumps(facts, sort_keys=True, default=_plain)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    if not is_dataclass(value):
        return str(value)
    if isinstance(value, ModelFile) and value.content is not None:
        return {"content": value.content}
    if isinstance(value, Endpoint):
        return {name: part for name, part in _values(value).items() if name != "start"}
    return _values(value)


def _values(value: Any) -> dict[str, object]:
    """Return the fields of a value, without what it computed and keeps beside them."""
    return {each.name: getattr(value, each.name) for each in fields(value)}
