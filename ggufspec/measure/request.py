"""What a user asks of a bench or a sweep, under the names of the command line's options: Request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TypeVar

from ggufspec.domain import (
    CacheTypes,
    Layers,
    ModelFile,
    NgramSettings,
    Offload,
    Runtime,
    Sampling,
    ServiceLevel,
)
from ggufspec.errors import GgufspecError
from ggufspec.llama.rpc import workers
from ggufspec.measure import configured, naming, texts
from ggufspec.modelfiles import choosing, hub
from ggufspec.notebooks import fit_fields
from ggufspec.prompts import Recording, read_recording
from ggufspec.results import Configuration, read_configuration

_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that can be said about a bench, under the names of the command line's options.

    ``target`` and ``draft_model`` are paths or model references such as ``user/repo:Q4_K_M``; the drafter
    ``auto`` is the head beside the target. ``offline`` and ``token`` are for the Hub, from which ``bench``
    fetches what is not on this machine. Tuples are axes: every combination is measured. ``method`` is what
    drafts, a method or a chain such as ``ngram-mod+draft-mtp``, by default what the catalogue states for the
    pair or the drafter's header says; without ``draft`` and ``p_min``, the pair's catalogue entry decides,
    otherwise each method has its own size, and no draft ends early. ``ngram`` has settings of n-gram methods.
    Decoding is greedy unless ``temp`` is positive, or left out and ``top_k``, ``top_p`` or ``min_p`` ask for
    sampling, then at temperature 1; ``top_k`` defaults to llama.cpp's 40 there. ``synthetic_accept``
    simulates acceptance: each token's probability, or the shares of rounds that accept each position.
    ``offload`` is what places the models beside ``ngl`` and ``ngld``, ``runtime`` llama.cpp's other settings.
    ``kv_type`` is the type of the target's caches, or of its K and its V cache (``q8_0,f16``),
    ``kv_type_draft`` that of the drafter's. ``ctx`` and ``threads`` default to what fits and to the usable
    physical cores; ``timeout`` (of one run) and ``max_time`` (of the
    bench) are in seconds; ``precision`` is half of the speed-up's interval over the speed-up. With ``until``
    "decided", arms are repeated until every verdict is sure, ``max_repeats`` times at most. ``chat`` says
    whether the target's chat template makes the prompts; without it the suite decides. ``repeats`` is 5, or 3
    where loads take long or ``max_time`` is too short for 5. ``loads`` is how often
    an engine that keeps models loaded loads each arm, by default for every repeat, or less often where
    ``max_time`` is too short for that. Several paths of ``llama`` compare the first llama.cpp with each other
    one. Without ``engine``, the first one of ENGINES measures that can. ``tuned`` names a tuned
    configuration, which decides the models, how they draft, where they are, llama.cpp's settings, the context
    and the engine. With ``parallel``, that many users send requests at once, each the next one when the last
    was answered; only the engine ``server`` can measure that. ``depth`` is how many tokens of other text
    stand before each prompt, from ``context_file`` or a built-in text; it needs the same engine, and one user
    unless ``parallel`` says more. With ``rate``, that many requests/s arrive by themselves, and ``parallel``
    is the number of slots; those that keep ``slo`` are good.

    ``rpc`` names workers that lend their devices over the network, such as "a:50052,b:50052", or "none";
    several values are an axis. It replaces ``offload.rpc``.

    ``replay`` is a log of requests, which are sent again when they arrived, in place of other prompts.

    ``url`` is the address of a server that runs already, and ``url_drafting`` that of one that serves the
    same target and drafts; nothing is loaded then. ``served_model`` names one of several models that they
    serve. ``api_key_file`` holds the key of both servers, or there is one file for each; without it, the
    environment variable GGUFSPEC_API_KEY holds it.
    """

    tuned: str | None = None
    pair: str | None = None
    target: naming.ModelName | tuple[naming.ModelName, ...] | None = None
    draft_model: naming.ModelName | tuple[naming.ModelName, ...] | None = None
    offline: bool = False
    token: str | None = field(default=None, repr=False)
    ngl: Layers | tuple[Layers, ...] = "auto"
    ngld: Layers | tuple[Layers, ...] = "auto"
    offload: Offload = field(default_factory=Offload)
    rpc: str | tuple[str, ...] | None = None
    method: str | tuple[str, ...] | None = None
    ngram: NgramSettings | tuple[NgramSettings, ...] = field(default_factory=NgramSettings)
    draft: int | tuple[int, ...] = ()
    p_min: float | tuple[float, ...] | None = None
    synthetic_accept: float | tuple[float, ...] | None = None
    kv_type: str | tuple[str, ...] | None = None
    kv_type_draft: str | tuple[str, ...] | None = None
    ubatch: int | tuple[int, ...] | None = None
    runtime: Runtime | tuple[Runtime, ...] = field(default_factory=Runtime)
    threads: int | tuple[int, ...] | None = None
    n_predict: int = 250
    ctx: int | None = None
    temp: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    suite: str | None = None
    prompt: tuple[str, ...] = ()
    prompt_file: tuple[Path, ...] = ()
    per_category: int | None = None
    chat: bool | None = None
    system: str | None = None
    repeats: int | None = None
    loads: int | None = None
    warmup: int = 1
    precision: float | None = None
    until: str | None = None
    max_repeats: int | None = None
    max_time: float | None = None
    timeout: float = 3600.0
    llama: Path | tuple[Path, ...] | None = None
    engine: str | None = None
    force: bool = False
    parallel: int | tuple[int, ...] | None = None
    depth: int | tuple[int, ...] | None = None
    context_file: Path | None = None
    rate: float | tuple[float, ...] | None = None
    slo: ServiceLevel | None = None
    replay: Path | None = None
    url: str | tuple[str, ...] | None = None
    url_drafting: str | tuple[str, ...] | None = None
    served_model: str | None = None
    api_key_file: Path | tuple[Path, ...] = ()

    @property
    def users(self) -> tuple[int, ...]:
        """The numbers of users to measure; empty for one request after another."""
        if self.parallel is None:
            asks_for_it = (self.depth, self.rate, self.replay, self.url, self.url_drafting)
            return (1,) if any(value is not None for value in asks_for_it) else ()
        return list_axis(self.parallel)

    @property
    def depths(self) -> tuple[int, ...]:
        """How many tokens of other text stand before each prompt."""
        return list_axis(self.depth or 0)

    @property
    def llamas(self) -> tuple[Path | None, ...]:
        """The llama.cpps to measure with; None for the one that is found."""
        return (self.llama if isinstance(self.llama, tuple) else (self.llama,)) or (None,)

    @property
    def rpcs(self) -> tuple[tuple[str, ...], ...]:
        """The addresses of the workers of each value of the axis; () is this machine alone.

        Raises:
            GgufspecError: a value is not a list of addresses.
        """
        if self.rpc is None:
            return (self.offload.rpc,)
        return tuple(dict.fromkeys(map(workers.parse_workers, list_axis(self.rpc))))

    @property
    def access(self) -> hub.Access:
        """Access to the Hub."""
        return hub.Access(token=self.token, offline=self.offline)

    @property
    def text_sources(self) -> texts.TextSources:
        """Where its prompts come from."""
        return texts.TextSources(
            prompt=self.prompt,
            prompt_file=self.prompt_file,
            suite=self.suite,
            per_category=self.per_category,
            seed=self.seed,
            chat=self.chat,
            system=self.system,
            access=self.access,
        )

    @property
    def names_servers(self) -> bool:
        """Whether servers that run already are measured."""
        return self.url is not None or self.url_drafting is not None

    @property
    def models(self) -> tuple[naming.ModelName, ...]:
        """The names of all targets and drafters.

        Raises:
            GgufspecError: a drafter is named without a target.
        """
        if self.draft_model is not None and self.target is None and self.pair is None:
            raise GgufspecError("a drafter was given without a target", "add --target")
        return (*naming.list_names(self.target), *naming.list_names(self.draft_model))

    def with_head(self) -> Request:
        """Return the request with the name of the head beside the target in place of the drafter ``auto``.

        Raises:
            DrafterRefusedError: no head beside the target belongs to it.
            GgufspecError: there are several targets, or none, or one is not available.
        """
        names = naming.list_names(self.draft_model)
        if choosing.AUTO not in names:
            return self
        of_pair = () if self.pair is None else (f"{self.pair}:target",)
        targets = naming.list_names(self.target) or of_pair
        if len(targets) != 1:
            raise GgufspecError(
                "-md auto finds the head beside one target", "name one with --target, or a pair with --pair"
            )
        head = naming.find_head(targets[0], self.access)
        return replace(self, draft_model=tuple(head if name == choosing.AUTO else name for name in names))

    def with_models(self, models: Mapping[str, ModelFile]) -> Request:
        """Return the request with model files in place of the texts that name them."""

        def files(
            names: naming.ModelName | tuple[naming.ModelName, ...] | None,
        ) -> tuple[naming.ModelName, ...] | None:
            listed = naming.list_names(names)
            return tuple(models.get(name, name) if isinstance(name, str) else name for name in listed) or None

        return replace(self, target=files(self.target), draft_model=files(self.draft_model))

    def __post_init__(self) -> None:
        """Refuse what the command line refuses, too.

        Raises:
            GgufspecError: a value has the wrong type, or a number is NaN or infinite.
        """
        fit_fields(self)
        check_finite(self)


def check_finite(request: object) -> None:
    """Raise where a field of a dataclass, or of one in it, is not a finite number.

    Raises:
        GgufspecError: naming the field.
    """
    for name, value in vars(request).items():
        if is_dataclass(value) and not isinstance(value, type):
            check_finite(value)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, Real) and not math.isfinite(number):
                raise GgufspecError(
                    f"{name} is {number}", f"give a finite number for {name}, or leave it out"
                )


_DEFAULT = Request()


def with_tuned(request: Request, *, compares: bool = True) -> tuple[Request, Configuration | None]:
    """Return a request with what its tuned configuration decides, and that configuration; None without one.

    Sampling, users and, for the embedded pair, prompts are as they were tuned, unless the request names
    others.

    Args:
        request: names the configuration.
        compares: take the candidate of an undecided one, to be measured beside the target alone; otherwise
            the target alone, which is what is safe.

    Raises:
        GgufspecError: the request names what the configuration decides.
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    if request.tuned is None:
        return request, None
    configuration = read_configuration(request.tuned)
    fields = configured.fields_of(configuration, compares=compares)
    named = [name for name in configured.DECIDED if getattr(request, name) != getattr(_DEFAULT, name)]
    if request.engine not in {_DEFAULT.engine, fields["engine"]}:
        named.append("engine")
    if named:
        raise GgufspecError(
            f"the tuned configuration {configuration.id} decides {named[0]}", f"leave {named[0]} or tuned out"
        )
    if all(getattr(request, name) == getattr(_DEFAULT, name) for name in _SAMPLING):
        sampling = configuration.spec.sampling
        fields |= {name: getattr(sampling, field) for name, field in _SAMPLING.items()}
    if not (request.suite or request.prompt or request.prompt_file):
        fields["suite"] = configured.suite_of(configuration)
    if request.parallel is None:
        fields["parallel"] = configured.users_of(configuration)
    if request.llama is None:
        fields["llama"] = configured.llama_of(configuration)
    return replace(request, tuned=None, **fields), configuration


_WITHOUT_REPLAY = ("suite", "prompt", "prompt_file", "per_category", "chat", "system", "rate", "depth")
"""Fields of a request that recorded requests decide."""


def read_replay(request: Request) -> Recording | None:
    """Return the recorded requests that are to be sent again; None where none are.

    Raises:
        GgufspecError: the file cannot be used, or the request names what the recording decides.
    """
    if request.replay is None:
        return None
    named = [name for name in _WITHOUT_REPLAY if getattr(request, name) != getattr(_DEFAULT, name)]
    if named:
        option = f"--{named[0].replace('_', '-')}"
        raise GgufspecError(f"recorded requests decide {option}", f"leave {option} or --replay out")
    return read_recording(request.replay)


def list_caches(texts: str | tuple[str, ...] | None) -> tuple[CacheTypes | None, ...]:
    """Return the types of caches that an axis names, each once."""
    return tuple(None if text is None else CacheTypes.parse(text) for text in list_axis(texts))


def list_axis(values: T | tuple[T, ...]) -> tuple[T, ...]:
    """Return the values of an axis, each once."""
    return tuple(dict.fromkeys(values)) if isinstance(values, tuple) else (values,)


def choose_sampling(request: Request) -> Sampling:
    """Return how tokens are chosen; see ``Request``."""
    asked_for = request.top_k not in {None, 1} or request.top_p < 1 or request.min_p > 0
    temperature = request.temp if request.temp is not None else float(asked_for)
    return Sampling(
        temperature=temperature,
        top_k=request.top_k if request.top_k is not None else (40 if temperature > 0 else 1),
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
    )
