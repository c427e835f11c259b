"""What a run measures: models, prompts and settings."""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from ggufspec.choices import Chain, Experts, Layers, Method, Role, SplitMode


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

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The target, and the drafter if there is one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)


@dataclass(frozen=True, kw_only=True)
class Offload:
    """How many layers of each model go to the GPU, to which devices, and how they are split.

    Except for the layers, None and () are llama.cpp's defaults. Devices are named as ``--list-devices`` does
    (``CUDA0``; ``none`` for no device); a drafter without devices of its own uses the target's.
    ``tensor_split`` (shares of the devices, in their order), ``split_mode`` and ``main_gpu`` hold for both
    models. ``fit`` is whether llama.cpp may lower "auto" layers until the model fits.

    ``rpc`` are the addresses (HOST:PORT) of workers, which lend their devices over the network. llama.cpp
    numbers these ``RPC0``, ``RPC1``, … and puts layers there before the GPUs of this machine. A drafter
    stays on this machine unless ``draft_devices`` names one of them.
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
    rpc: tuple[str, ...] = ()

    @property
    def drafter_devices(self) -> tuple[str, ...]:
        """The devices that were named for the drafter; of the target's only those of this machine."""
        if self.draft_devices or not self.rpc:
            return self.draft_devices or self.devices
        return tuple(name for name in self.devices if not is_remote(name))

    @property
    def lends_to_drafter(self) -> bool:
        """Whether a worker computes for the drafter, too."""
        return bool(self.rpc) and any(map(is_remote, self.draft_devices))

    @property
    def target_alone(self) -> Offload:
        """The offload of a run that loads only the target."""
        return replace(self, draft_layers="auto", draft_devices=(), draft_cpu_moe=None)

    @property
    def drafter_alone(self) -> Offload:
        """The offload of a run that loads only the drafter."""
        return replace(
            self,
            target_layers="auto",
            devices=(),
            draft_devices=self.drafter_devices,
            cpu_moe=None,
            rpc=self.rpc if self.lends_to_drafter else (),
        )

    @property
    def drafter_as_target(self) -> Offload:
        """The drafter's offload in the fields of a target, for a run that loads it alone."""
        part = self.drafter_alone
        as_target = replace(
            part, target_layers=part.draft_layers, devices=part.draft_devices, cpu_moe=part.draft_cpu_moe
        )
        return as_target.target_alone


def is_remote(device: str) -> bool:
    """Whether a device, named as ``--list-devices`` does, is a worker's."""
    return device.startswith("RPC")


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """llama.cpp's settings besides placement, threads and sizes. None and () are the build's defaults.

    ``kv_type_v`` is the type of the V cache, where it is not ``RunSpec.kv_type``. ``draft_kv_type`` and
    ``draft_kv_type_v`` are the types of the drafter's caches, where they are not the target's. ``batch`` is
    in tokens; ``mmap`` False does not map the file. ``override_tensor``, ``numa``, ``cpu_mask``, ``prio`` and
    ``poll`` are values of llama.cpp's options of these names. ``draft_backend_sampling`` says whether draft
    tokens are sampled where the drafter is evaluated. ``args`` are passed to every program as they are,
    ``draft_args`` only in runs that draft.
    """

    kv_type_v: str | None = None
    draft_kv_type: str | None = None
    draft_kv_type_v: str | None = None
    draft_backend_sampling: str | None = None
    flash_attn: str | None = None
    batch: int | None = None
    override_tensor: str | None = None
    mlock: bool | None = None
    mmap: bool | None = None
    numa: str | None = None
    cpu_mask: str | None = None
    prio: int | None = None
    poll: int | None = None
    args: tuple[str, ...] = ()
    draft_args: tuple[str, ...] = ()

    @property
    def target_alone(self) -> Runtime:
        """The settings of a run that loads only the target."""
        return replace(
            self, draft_kv_type=None, draft_kv_type_v=None, draft_backend_sampling=None, draft_args=()
        )

    @property
    def drafter_alone(self) -> Runtime:
        """The settings of a run that loads only the drafter."""
        return replace(self, draft_backend_sampling=None, draft_args=())

    @property
    def words(self) -> tuple[str, ...]:
        """The settings besides the defaults, in llama.cpp's spelling and as options of a bench."""
        options: dict[str, object] = {
            "-ctv": self.kv_type_v,
            "-ctkd": self.draft_kv_type,
            "-ctvd": self.draft_kv_type_v,
            "--draft-backend-sampling": self.draft_backend_sampling,
            "-fa": self.flash_attn,
            "-b": self.batch,
            "-ot": self.override_tensor,
            "--numa": self.numa,
            "-C": self.cpu_mask,
            "--prio": self.prio,
            "--poll": self.poll,
        }
        words = [word for name, value in options.items() if value is not None for word in (name, str(value))]
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
    """

    n_max: int
    method: Method = Method.DRAFT_MODEL
    n_min: int = 0
    p_min: float = 0.0
    synthetic: tuple[float, ...] | None = None
    first: tuple[Method, ...] = ()
    ngram: NgramSettings = field(default_factory=NgramSettings)

    @property
    def chain(self) -> Chain:
        """The methods, in the order in which they are asked."""
        return Chain(self.method, self.first)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One text to continue, with a name that is stable between runs.

    ``message`` is the user's message, if a chat template made the text. In a suite, ``followups`` are the
    user's later turns. In a run there are none: each turn is a prompt of its own, whose text includes the
    target's answers to the earlier turns. ``messages`` are the role and the content of each message of a chat
    that a server that runs already puts into its template; empty where ``text`` is the only one.
    """

    id: str
    text: str
    category: str | None = None
    message: str | None = None
    followups: tuple[str, ...] = ()
    messages: tuple[tuple[str, str], ...] = ()


NO_PROMPT = Prompt(id="", text="")
"""The prompt of a specification that stands for an arm or a load with any prompt."""


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """What a request has to keep to count as good, in seconds; None for no limit.

    Attributes:
        ttft_s: most time to the first token.
        token_s: most mean time between tokens.
    """

    ttft_s: float | None = None
    token_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Several users at once, each of whom sends a request as soon as the last one was answered.

    With ``rate``, requests arrive instead at random times, whether earlier ones are answered or not, and with
    ``arrivals`` at recorded ones.

    Attributes:
        users: how many; the server has a slot for each.
        prompts: what they send, in the order in which prompts are dealt, over and over. Empty in a
            specification that stands for a load of the models.
        n_requests: how many requests count.
        depth: tokens of other text before each prompt, which is part of its text.
        rate: mean number of requests that arrive in a second (a Poisson process); None for users who wait.
        service_level: which requests count as good, where they arrive by themselves.
        arrivals: seconds from the first request to each, as recorded; each prompt is sent once.
        answer_tokens: the most tokens of the answer to each prompt, with ``arrivals``.
    """

    users: int
    prompts: tuple[Prompt, ...] = ()
    n_requests: int = 0
    depth: int = 0
    rate: float | None = None  # requests/s
    service_level: ServiceLevel | None = None
    arrivals: tuple[float, ...] = ()
    answer_tokens: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether requests arrive by themselves."""
        return self.rate is not None or bool(self.arrivals)

    @property
    def mean_rate(self) -> float | None:
        """Requests/s that arrive; None for users who wait for their answers."""
        if self.arrivals:
            return (len(self.arrivals) - 1) / self.arrivals[-1] if self.arrivals[-1] else None
        return self.rate

    def tokens_of(self, n_predict: int) -> tuple[int, ...]:
        """Return the most tokens of the answer to each prompt, where ``n_predict`` is that of the others."""
        return self.answer_tokens or (n_predict,) * len(self.prompts)


LLAMA_SERVER = "llama-server"
"""The name of llama.cpp's server, as an ``Endpoint`` has it."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server that runs already, as it describes itself. What it does not report is None.

    Attributes:
        url: its address.
        model: the name by which it serves the model.
        software: ``llama-server``, ``vLLM`` or ``SGLang``.
        version: of that software.
        model_path: the file or repository that it has loaded.
        model_bytes: size of the model.
        n_params: weights of the model.
        context: tokens of one request, its answer included.
        slots: requests that it answers at once.
        drafts: whether it drafts.
        draft_size: tokens that it drafts in a round, γ.
    """

    url: str
    model: str
    software: str | None = None
    version: str | None = None
    model_path: str | None = None
    model_bytes: int | None = None
    n_params: int | None = None
    context: int | None = None
    slots: int | None = None
    drafts: bool | None = None
    draft_size: int | None = None

    @property
    def is_llama_server(self) -> bool:
        """Whether it is llama.cpp's, which reports times and drafts with each answer."""
        return self.software == LLAMA_SERVER

    @property
    def file_name(self) -> str:
        """The model's name without folders: llama-server names models by their path."""
        return PurePath(self.model).name if self.model.endswith(".gguf") else self.model

    @property
    def summary(self) -> str:
        """The server in words: ``model.gguf on llama-server b9976-1a2b3c4 at http://…, drafting``."""
        software = " ".join(filter(None, (self.software or "an unknown server", self.version)))
        size = "" if self.draft_size is None else f" γ = {self.draft_size}"
        drafts = {True: f", drafting{size}", False: ", not drafting", None: ""}[self.drafts]
        return f"{self.file_name} on {software} at {self.url}{drafts}"


@dataclass(frozen=True, kw_only=True)
class RunningServers:
    """Servers that run already, in place of models that are loaded for the bench.

    Attributes:
        alone: serves the target alone; None where only a server that drafts is measured.
        drafting: serves the same target and drafts; None in a run of the target alone.
        chat: whether prompts are messages, which the servers put into their own chat template.
        system: the system prompt, with ``chat``.
    """

    alone: Endpoint | None = None
    drafting: Endpoint | None = None
    chat: bool = False
    system: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that decides what one run measures. ``drafting`` is None for plain decoding.

    ``kv_type`` is the type of the caches in llama.cpp's spelling (``q8_0``), unless ``runtime`` says
    otherwise, ``ubatch`` the number of tokens evaluated at once; None is the build's default. ``build`` names
    the llama.cpp that runs it, by the keys of ``Meta.builds``, where a bench measures several; None where it
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
    kv_type: str | None = None
    ubatch: int | None = None
    runtime: Runtime = field(default_factory=Runtime)
    build: str | None = None
    traffic: Traffic | None = None
    servers: RunningServers | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The workers and llama.cpp's other settings, in its spelling and as options of a bench."""
        rpc = ("--rpc", ",".join(self.offload.rpc)) if self.offload.rpc else ()
        return (*rpc, *self.runtime.words)

    @property
    def endpoint(self) -> Endpoint | None:
        """The server that answers, where it runs already."""
        if self.servers is None:
            return None
        return self.servers.drafting if self.role is Role.DRAFTING else self.servers.alone

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
    def cache_types(self) -> tuple[str | None, str | None]:
        """The types of the K and V caches of the model that writes this run's text."""
        if self.role is Role.DRAFTER:
            return self.draft_cache_types
        return self.kv_type, self.runtime.kv_type_v or self.kv_type

    @property
    def draft_cache_types(self) -> tuple[str | None, str | None]:
        """The types of the drafter's K and V caches."""
        runtime = self.runtime
        return (
            runtime.draft_kv_type or self.kv_type,
            runtime.draft_kv_type_v or runtime.draft_kv_type or runtime.kv_type_v or self.kv_type,
        )

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
            runtime=self.runtime.target_alone,
            drafting=None,
            servers=None if self.servers is None else replace(self.servers, drafting=None),
        )

    @property
    def drafter_alone(self) -> RunSpec:
        """The drafter of this run without its target, on the same prompt under the same settings."""
        return replace(self, role=Role.DRAFTER, offload=self.offload.drafter_alone, drafting=None)

    @cached_property
    def key(self) -> str:
        """Twelve hexadecimal digits that identify what is measured, stable between processes.

        The pair's name, and a drafter that this run does not load, do not count. A model is identified by
        its content if that is known, otherwise by its name and origin.
        """
        facts = {**vars(self), "pair": (self.model, self.drafter)}
        if self.runtime == Runtime():  # keys of earlier benches do not know it
            facts.pop("runtime", None)
        if self.build is None:  # keys of benches of one llama.cpp do not know it
            facts.pop("build", None)
        if self.traffic is None:  # keys of one request after another do not know it
            facts.pop("traffic", None)
        if self.servers is None:  # keys of benches that load models do not know it
            facts.pop("servers", None)
        canonical = json.dumps(facts, sort_keys=True, default=_plain)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    if not is_dataclass(value):
        return str(value)
    if isinstance(value, ModelFile) and value.content is not None:
        return {"content": value.content}
    fields = vars(value).items()
    if isinstance(value, Runtime):
        return {name: part for name, part in fields if part not in (None, ())}
    unset = (None, (), NgramSettings())
    return {name: part for name, part in fields if part not in unset or name not in _ADDED_LATER}


_ADDED_LATER = {
    *("synthetic", "fit", "devices", "draft_devices", "tensor_split", "split_mode", "main_gpu", "rpc"),
    *("cpu_moe", "draft_cpu_moe", "content", "first", "ngram", "messages", "arrivals", "answer_tokens"),
}
"""Fields that older keys do not have: they change a key only if they are set."""
