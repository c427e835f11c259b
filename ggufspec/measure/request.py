"""What a user asks of a bench or a sweep, checked before anything runs: Request -> Session."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import product
from math import prod
from numbers import Real
from pathlib import Path
from typing import NamedTuple, TypeVar

from ggufspec import engines, machine, serving
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import (
    Build,
    Chain,
    Drafting,
    FileIdentity,
    Layers,
    Method,
    ModelFile,
    NgramSettings,
    Offload,
    Pair,
    Program,
    Prompt,
    Role,
    RunningServers,
    Runtime,
    Sampling,
    ServiceLevel,
    StoppingRule,
    offloading,
)
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import (
    check_arguments,
    commands,
    draft_sizes,
    longest_draft,
    unused_settings,
)
from ggufspec.llama.install import installs
from ggufspec.llama.install import options as llama_options
from ggufspec.llama.rpc import WorkerProblem, WorkerReport, workers
from ggufspec.measure import configured, fitting, identity, loading, naming, programs, texts, traffic
from ggufspec.measure.sweep import RunPlan, Sweep, distinct_layers
from ggufspec.modelfiles import catalog, choosing, gguf, hub
from ggufspec.modelfiles.compat import Head, judging, read_head, usable_methods
from ggufspec.prompts import Recording, Render, read_recording
from ggufspec.results import Configuration, read_configuration

_LEAST_REPEATS = 2  # one says nothing of how far they spread
_MOST_LOADS = 32  # at once; more would only be processes that wait
_MOST_NAMED = 8
_DECIDED = "decided"
_MOST_REPEATS = 20  # with --until decided
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
    ``offload`` is what places the
    models beside ``ngl`` and ``ngld``, ``runtime`` llama.cpp's other settings. ``ctx`` and ``threads``
    default to what fits and to the usable physical cores; ``timeout`` (of one run) and ``max_time`` (of the
    bench) are in seconds; ``precision`` is half of the speed-up's interval over the speed-up. With ``until``
    "decided", arms are repeated until every verdict is sure, ``max_repeats`` times at most. ``chat`` says
    whether the target's chat template makes the prompts; without it the suite decides. ``loads`` is how often
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
    repeats: int = 3
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
    url: str | None = None
    url_drafting: str | None = None
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
            GgufspecError: a number is NaN or infinite.
        """
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


def with_tuned(request: Request) -> tuple[Request, Configuration | None]:
    """Return a request with what its tuned configuration decides, and that configuration; None without one.

    Sampling, users and, for the embedded pair, prompts are as they were tuned, unless the request names
    others.

    Raises:
        GgufspecError: the request names what the configuration decides.
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    if request.tuned is None:
        return request, None
    configuration = read_configuration(request.tuned)
    fields = configured.fields_of(configuration)
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


@dataclass(frozen=True, kw_only=True)
class Session:
    """A checked bench, ready to run; ``notes`` say what was chosen, ``doubts`` are its warnings so far.

    ``files`` are the models, programs and libraries that it measures; None before ``identify``. ``builds``
    are its llama.cpps by ``RunSpec.build`` where there are several, of which ``llama`` is the first. It is
    None where servers are measured that run already. ``workers`` are those that lend their devices and
    answered. ``origin`` says which files of the Hub its prompts are from; None for those of this machine.
    """

    name: str  # of what is measured
    suite: RunPlan
    engine: engines.Engine
    llama: installs.Install | None
    render: Render | None
    notes: tuple[str, ...]
    doubts: tuple[MeasurementWarning, ...] = ()
    files: tuple[FileIdentity, ...] | None = None
    builds: Mapping[str, installs.Install] = field(default_factory=dict)
    workers: tuple[WorkerReport, ...] = ()
    origin: str | None = None

    @property
    def install(self) -> installs.Install:
        """The llama.cpp that is run, or the first of several."""
        assert self.llama is not None, "servers that run already need no llama.cpp"
        return self.llama

    @property
    def build(self) -> Build:
        """What measures, as results name it."""
        if self.llama is not None:
            return self.llama.describe()
        servers = self.suite.blocks[0].arms[0].servers
        assert servers is not None
        return describe_servers(servers)

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that llama.cpp lists; none for servers that run already."""
        return () if self.llama is None else self.llama.devices


def describe_servers(servers: RunningServers) -> Build:
    """Return what results name in place of a llama.cpp: the address, and llama-server's build."""
    endpoint = servers.alone or servers.drafting
    assert endpoint is not None
    known = endpoint.version if endpoint.is_llama_server else None
    version, _, commit = (known or "").partition("-")
    return Build(version=version or None, commit=commit or None, backend=None, path=endpoint.url)


def prepare_session(request: Request) -> Session:
    """Turn a request into something that can run.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    request, configuration = with_tuned(request)
    _check_until(request)
    stated = _stated_ways(request)
    name, targets, drafters, why, pair = _models(request, stated)
    cards = {model: hub.validate_model(model, pair) for model in (*targets, *drafters) if model.path}
    heads = {model: head for model, card in cards.items() if (head := read_head(card)) is not None}
    ways = stated or _infer_ways(drafters, heads)
    drafters = _check_sources(request, ways, targets, drafters, heads)
    rpcs = request.rpcs
    every = tuple(installs.find_install(named, with_rpc=any(rpcs)) for named in request.llamas)
    install = every[0]
    used, why_used = _choose_engine(request, every, ways, drafting=bool(drafters))
    request, left_out = _with_pairs_drafting(request, used)
    recording = read_replay(request)
    if recording is None:
        traffic.check_service_level(request.slo, list_axis(request.rate))
    depths = list_axis(request.depth or 0)
    _check_rpc(rpcs, every)
    lending, unusable = _measure_workers(rpcs, install)
    for one in every:
        if request.synthetic_accept is not None:
            methods = tuple(method for way in ways for method in way.methods)
            engines.check_synthetic(used, one, methods if drafters else ())
        for rpc in rpcs:
            if lending.keys() >= {*rpc}:
                _check_devices(
                    request.offload, workers.with_devices(one, [lending[address] for address in rpc])
                )
        for target, drafter, way in product(targets, drafters, ways):
            if way.method in usable_methods(heads.get(drafter)):
                _check_drafter(cards[target], cards[drafter], one, used, way.method)
    builds = identity.name_builds(every, used) if len(every) > 1 else {}
    runtimes = list_axis(request.runtime)
    for runtime in runtimes:
        check_arguments((*runtime.args, *runtime.draft_args))
    longest, never = _sizes(request, ways)
    traffic.check_batches(request.users, longest, runtimes)
    sources = request.text_sources
    is_embedded = pair is not None and catalog.is_embedded(pair.name)
    asked = (
        texts.read_texts(sources, cards[targets[0]], embedded=is_embedded)
        if recording is None
        else texts.PreparedTexts(
            prompts=texts.render_recording(recording, cards[targets[0]]), warmups=(), render=None, notes=()
        )
    )

    counter = texts.make_counter(targets[0], install)
    prefaces = {depth: texts.read_preface(request.context_file, depth, counter) for depth in depths}

    def read(depth: int) -> tuple[Prompt, ...]:
        """Return the prompts behind so many tokens of other text."""
        behind = replace(sources, preface=prefaces[depth])
        return texts.read_texts(behind, cards[targets[0]], embedded=is_embedded).prompts

    sweep = Sweep(
        name=name,
        targets=targets,
        drafters=drafters,
        n_predict=request.n_predict,
        context=texts.context(
            request.ctx,
            asked.prompts,
            targets[0],
            tuple(card for model, card in cards.items() if model in targets or model not in heads),
            install,
            n_predict=request.n_predict,
            longest_draft=longest,
            depth=max(depths),
            turns=max(len(preface.turns) for preface in prefaces.values()),
        ),
        target_layers=list_axis(request.ngl),
        draft_layers=list_axis(request.ngld),
        layer_counts={model: card.n_layers + 1 for model, card in cards.items()},
        methods=tuple(way.method for way in ways if not way.first),
        chains=tuple(way for way in ways if way.first),
        heads=heads,
        ngrams=list_axis(request.ngram),
        draft_sizes=list_axis(request.draft),
        p_mins=list_axis(request.p_min or 0.0),
        synthetic=_rates(request.synthetic_accept),
        threads=list_axis(request.threads or machine.usable_cores()),
        kv_types=list_axis(request.kv_type),
        ubatches=list_axis(request.ubatch),
        sampling=choose_sampling(request),
        runtimes=runtimes,
        offload=request.offload,
        rpcs=rpcs,
        builds=tuple(builds) or (None,),
        traffics=tuple(
            traffic.plan_traffics(
                {depth: read(depth) for depth in depths},
                request.users,
                list_axis(request.rate),
                service_level=request.slo,
                seed=request.seed,
            )
            if recording is None
            else traffic.plan_replays(
                recording,
                asked.prompts,
                request.users,
                n_predict=request.n_predict,
                service_level=request.slo,
            )
        ),
    )
    capacity = min(_MOST_LOADS, *(fitting.capacity(sweep, cards, one) for one in every))
    engine = _make_engine(used, request, install, builds, capacity)
    if request.offload != Offload() or any(rpcs) or runtimes != (Runtime(),) or builds:
        _check_options(sweep, engine, builds)
    tight = tuple(
        dict.fromkeys(
            note
            for one in every
            for note in fitting.check_memory(sweep, cards, one, force=request.force, lent=lending)
        )
    )
    stopping = _stopping(request, sweep)
    suite = RunPlan(
        blocks=sweep.blocks(),
        prompts=asked.prompts,
        warmup_prompts=asked.warmups,
        repeats=request.repeats if stopping is None else stopping.looks[0],
        warmups=request.warmup,
        seed=request.seed,
        precision=request.precision,
        stopping=stopping,
        max_time_s=request.max_time,
    )
    if sweep.has_traffic:
        suite = traffic.plan_runs(suite)
    suite, about_loads = loading.plan_loads(suite, request.loads, engine=used)
    return Session(
        name=name,
        suite=suite,
        engine=engine,
        llama=install,
        render=asked.render,
        notes=(
            *why_used,
            *_tuned(configuration, install),
            f"pair: {name} ({why})",
            *(f"llama.cpp: {one.version or 'unknown version'} in {one.root}" for one in every),
            *(f"llama.cpp: {reason}" for reason in install.passed_over),
            *_same_builds(builds),
            *asked.notes,
            *never,
            *_lowered_sizes(sweep),
            *left_out,
            *_same_layers(sweep),
            *_without_drafter(sweep),
            *traffic.describe([one for one in sweep.traffics if one is not None], sweep.ways),
            *traffic.describe_replay(recording, request.n_predict),
            *(f"worker {report.describe().summary}" for report in lending.values()),
            *dict.fromkeys(f"worker: {problem.reason}; its runs will fail" for problem in unusable),
            *tight,
            *about_loads,
            *_looks(stopping),
        ),
        doubts=tuple(
            dict.fromkeys(
                doubt
                for one in every
                for doubt in _doubts(sweep, cards, one, repeats=suite.repeats, tight=bool(tight))
            )
        ),
        builds=builds,
        workers=tuple(lending.values()),
        origin=asked.origin,
    )


def _check_until(request: Request) -> None:
    """Refuse what contradicts measuring until verdicts are decided.

    Raises:
        GgufspecError: the request has another rule as well, or nothing that can be decided so.
    """
    if request.until is None:
        if request.max_repeats is not None:
            raise GgufspecError("--max-repeats is for --until decided", "give both, or use --repeats")
        return
    if request.until != _DECIDED:
        raise GgufspecError(f"--until is {_DECIDED!r}, not {request.until!r}")
    if request.precision is not None:
        raise GgufspecError("--until and --precision both say when to stop", "use one of them")
    if len(request.llamas) > 1:
        raise GgufspecError(
            "--until decided measures one llama.cpp", "to compare several, use --repeats or --precision"
        )
    if request.users:
        raise GgufspecError(
            "--until decided measures one request after another", "with several users, use --repeats"
        )
    most = _most_repeats(request)
    if most < request.repeats:
        raise GgufspecError(
            f"--max-repeats is {most}, less than the {request.repeats} of --repeats",
            "raise --max-repeats, or lower --repeats",
        )


def _most_repeats(request: Request) -> int:
    return _MOST_REPEATS if request.max_repeats is None else request.max_repeats


def _stopping(request: Request, sweep: Sweep) -> StoppingRule | None:
    """Return when a bench is looked at, if it is measured until its verdicts are decided.

    Raises:
        GgufspecError: what is measured has no verdicts.
    """
    if request.until is None:
        return None
    comparisons = sweep.blocks().n_arms[Role.DRAFTING]
    if not comparisons:
        raise GgufspecError("nothing drafts, so there is no verdict to decide", "leave --until out")
    most = _most_repeats(request)
    return StoppingRule(least_repeats=request.repeats, most_repeats=most, comparisons=comparisons)


def _looks(stopping: StoppingRule | None) -> Iterator[str]:
    """Yield when a bench is looked at, if it is measured until its verdicts are decided."""
    if stopping is not None:
        looks = ", ".join(map(str, stopping.looks))
        yield f"until: every speed-up is decided; complete repeats at each look: {looks}"


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


def identify(session: Session) -> Session:
    """Return a session whose models and llama.cpp are known by their content.

    Files whose digest is not remembered are read, which takes a second for each 1 to 2 GB; ``unread_files``
    says beforehand which.

    Raises:
        ModelFileError: a file cannot be read.
    """
    models = identity.of_models(identity.models(session.suite.blocks))
    suite = replace(session.suite, blocks=identity.with_contents(session.suite.blocks, models))
    if session.llama is None:
        return replace(session, files=())
    installs_ = session.builds.values() or (session.llama,)
    llama = dict.fromkeys(
        file for install in installs_ for file in identity.of_llama(install, session.engine.name)
    )
    parts = dict.fromkeys(part for parts in models.values() for part in parts)
    return replace(session, suite=suite, files=(*parts, *llama))


def unread_files(session: Session) -> Mapping[Path, int]:
    """Return the files of models that ``identify`` has to read, and their sizes in bytes."""
    return identity.unread(identity.models(session.suite.blocks))


def _tuned(configuration: Configuration | None, install: installs.Install) -> Iterator[str]:
    """Yield which configuration is measured, and what is not as it was when that was tuned."""
    if configuration is None:
        return
    yield f"tuned: {configuration.id}, made on {configuration.made_at[:10]}"
    yield from configured.compare_machines(configuration, install)


def list_axis(values: T | tuple[T, ...]) -> tuple[T, ...]:
    """Return the values of an axis, each once."""
    return tuple(dict.fromkeys(values)) if isinstance(values, tuple) else (values,)


def _rates(accept: float | tuple[float, ...] | None) -> tuple[float, ...] | None:
    return (accept,) if isinstance(accept, float | int) else accept


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


def find_methods(request: Request) -> tuple[str, ...]:
    """Return what the models of a request draft by: the pair's own method, or what the headers say.

    Layers for MTP in a target count, too. Only headers are read.

    Raises:
        GgufspecError: as ``prepare_session`` does for models that cannot be used.
    """
    stated = _stated_ways(request)
    if stated:
        return tuple(map(str, stated))
    models = _named(request)
    cards = {model: gguf.read_card(model.path) for model in (*models.targets, *models.drafters) if model.path}
    heads = {model: head for model, card in cards.items() if (head := read_head(card)) is not None}
    ways = list(_infer_ways(models.drafters, heads))
    in_target = Chain(Method.DRAFT_MTP)
    if in_target not in ways and any(model in heads for model in models.targets):
        ways.append(in_target)
    return tuple(map(str, ways))


def find_drafters(request: Request) -> tuple[ModelFile, ...]:
    """Return the drafters of a request, which are on this machine: those that are named, or the pair's own.

    Raises:
        GgufspecError: as ``prepare_session`` does for models that cannot be used.
    """
    return _named(request).drafters


def _stated_ways(request: Request) -> tuple[Chain, ...]:
    """Return what drafts by the request or the catalogue; nothing where the headers of the files decide.

    Raises:
        CatalogError: no pair has this name.
        NotCachedError: files of the pair that was fetched last are gone.
        UnsupportedMethodError: it is a method that cannot be measured here.
        GgufspecError: a method is unknown.
    """
    if request.method is not None:
        return tuple(dict.fromkeys(map(_parse_way, list_axis(request.method))))
    if request.target is not None or request.draft_model is not None:
        return ()
    pair, _ = _pair(request)
    way = catalog.drafting_method(pair)
    return () if way is None or catalog.entry_of(pair) is None else (way,)


def _with_pairs_drafting(request: Request, engine: str) -> tuple[Request, tuple[str, ...]]:
    """Return a request with the draft size and p-min of the pair's catalogue entry, where it names none.

    The entry's values are for its own drafter and method. Notes say what the engine cannot do.
    """
    if request.target is not None or request.draft_model is not None:
        return request, ()
    entry = catalog.entry_of(_pair(request)[0])
    if entry is None or (request.method is not None and _stated_ways(request) != (entry.chain,)):
        return request, ()
    request = replace(request, draft=request.draft or entry.gamma or ())
    if request.p_min is not None or not entry.p_min:
        return request, ()
    if engines.ENGINES[engine] is Program.TREE:
        why = f"the engine {engine} has none; --engine server does"
        return request, (f"p-min: {entry.p_min:g} of the pair is left out, because {why}",)
    return replace(request, p_min=entry.p_min), ()


def _parse_way(name: str) -> Chain:
    try:
        return Chain.parse(name)
    except ValueError as error:
        raise GgufspecError(
            str(error), "name a method, or a chain such as ngram-mod+draft-model, with --method"
        ) from error


def _infer_ways(drafters: Sequence[ModelFile], heads: Mapping[ModelFile, Head]) -> tuple[Chain, ...]:
    """Return the usual method of each drafter; a draft model's where there is none."""
    methods = [usable_methods(heads.get(drafter))[0] for drafter in drafters] or [Method.DRAFT_MODEL]
    return tuple(dict.fromkeys(map(Chain, methods)))


def _check_sources(
    request: Request,
    ways: tuple[Chain, ...],
    targets: Sequence[ModelFile],
    drafters: Sequence[ModelFile],
    heads: Mapping[ModelFile, Head],
) -> tuple[ModelFile, ...]:
    """Return the drafters that draft by one of the methods.

    Raises:
        GgufspecError: a drafter that was named drafts by none of them, or a method has nothing to draft with.
    """
    methods = {way.method for way in ways}
    used = tuple(drafter for drafter in drafters if methods.intersection(usable_methods(heads.get(drafter))))
    unused = next((drafter for drafter in drafters if drafter not in used), None)
    if unused is not None and (request.draft_model is not None or Method.DRAFT_MODEL in methods):
        usual = usable_methods(heads.get(unused))[0].value
        raise GgufspecError(
            f"{unused.filename} drafts by {usual}, not by {', '.join(map(str, ways))}",
            f"add {usual} to --method, or leave this drafter out",
        )
    for method in sorted(method for method in methods if method.is_head):
        if any(method in usable_methods(heads.get(drafter)) for drafter in used):
            continue
        if method is not Method.DRAFT_MTP:
            raise GgufspecError(
                f"{method.value} needs a head, and no drafter is one", "name its GGUF with --draft-model"
            )
        bare = next((target for target in targets if target not in heads), None)
        if bare is not None:
            raise GgufspecError(
                f"{bare.filename} has no layers for MTP",
                "name a target that has them, or a GGUF of such layers with --draft-model",
            )
    return used


def _sizes(request: Request, ways: tuple[Chain, ...]) -> tuple[int, tuple[str, ...]]:
    """Return the longest draft of all arms in tokens, and notes on sizes at which a method drafts nothing.

    Raises:
        GgufspecError: a method drafts at no draft size, or no method has a setting of n-grams.
    """
    asked = list_axis(request.draft)
    longest = 0
    notes: dict[str, None] = {}
    for ngram in list_axis(request.ngram):
        unused = unused_settings(ways, ngram)
        if unused:
            raise GgufspecError(
                f"no n-gram method of this bench uses {', '.join(unused)}",
                "leave it out of --ngram, or name a method that uses it with --method",
            )
        for way in ways:
            sizes = draft_sizes(way.method, asked, ngram)
            left_out = ", ".join(str(size) for size in asked if size not in sizes)
            if not sizes:
                default = draft_sizes(way.method)[0]
                raise GgufspecError(
                    f"{way.method.value} drafts nothing at γ {left_out or ngram.size_m}",
                    f"llama.cpp's own γ for it is {default}: add --draft {default}, or leave --draft out",
                )
            if left_out and ngram.size_m is None:
                note = f"draft sizes: {way.method.value} drafts nothing at γ {left_out}, which is left out"
                notes[note] = None
            drafting = Drafting(n_max=max(sizes), method=way.method, first=way.first, ngram=ngram)
            longest = max(longest, longest_draft(drafting))
    return longest, tuple(notes)


class _Models(NamedTuple):
    """What is measured, why that, and the pair that it was made from, if any."""

    name: str
    targets: tuple[ModelFile, ...]
    drafters: tuple[ModelFile, ...]
    why: str
    pair: Pair | None


def _models(request: Request, ways: tuple[Chain, ...]) -> _Models:
    """Choose the models: named files, a named pair, the last fetched one, the embedded one.

    Drafters are left out where no method loads one.
    """
    models = _named(request)
    if not ways or any(way.method.drafts_with_model for way in ways):
        return models
    if request.draft_model is not None:
        raise GgufspecError(
            "a drafter was given, and no method that drafts with one", "add draft-model to --method"
        )
    return models._replace(drafters=())


def _named(request: Request) -> _Models:
    if request.target is not None:
        targets, drafters = _files(request, request.target), _files(request, request.draft_model)
        stems = [Path(model.filename).stem for model in (*targets, *drafters)]
        name = " + ".join(stems) if len(stems) <= 2 else f"{stems[0]} + {len(stems) - 1} more"
        return _Models(name, targets, drafters, "as given", None)
    drafters = tuple(naming.find_model(name, request.access) for name in request.models)
    listed, why = _pair(request)
    pair = hub.resolve(listed, offline=request.offline)
    own = (pair.draft,) if pair.draft else ()
    return _Models(pair.name, (pair.target,), drafters or own, why, pair)


def _pair(request: Request) -> tuple[Pair, str]:
    """Return the pair that is meant where no target is named; its files need not be here."""
    if request.pair is not None:
        return catalog.find_pair(request.pair), "as named"
    last = hub.last_pair()
    if last is not None:
        return last, "the last fetched pair"
    return catalog.find_pair(catalog.EMBEDDED), "the embedded pair, as nothing was fetched yet"


def _files(
    request: Request, names: naming.ModelName | tuple[naming.ModelName, ...] | None
) -> tuple[ModelFile, ...]:
    return tuple(naming.find_model(name, request.access) for name in naming.list_names(names))


def _choose_engine(
    request: Request, every: Sequence[installs.Install], ways: tuple[Chain, ...], *, drafting: bool
) -> programs.ChosenEngine:
    """Return the engine that is named, or the first one that can measure.

    Raises:
        GgufspecError: it cannot measure what is requested.
    """
    if request.engine is None:
        chosen = programs.choose_engine(every, ways, drafting=drafting)
        traffic.check_engine(request.users, chosen.name)
        return chosen
    traffic.check_engine(request.users, request.engine)
    programs.check_engine(request.engine, every, ways, drafting=drafting)
    return programs.ChosenEngine(request.engine)


def _make_engine(
    name: str,
    request: Request,
    install: installs.Install,
    builds: Mapping[str, installs.Install],
    capacity: int,
) -> engines.Engine:
    make = serving.make if request.users else engines.make
    if builds:
        return engines.make_for_builds(
            name, builds, timeout_s=request.timeout, capacity=capacity, per_arm=True, make_one=make
        )
    return make(name, install, timeout_s=request.timeout, capacity=capacity, per_arm=True)


def _check_options(sweep: Sweep, engine: engines.Engine, builds: Mapping[str, installs.Install]) -> None:
    """Miss an option now, not after the target has been measured.

    One llama.cpp may leave out an option that it does not know; of several, all have to know it.

    Raises:
        GgufspecError: naming what is lacking; of several llama.cpps, also which of them lacks it.
    """
    lacking: dict[str, list[str]] = {}
    few = replace(
        sweep.thinned(1),
        draft_sizes=(),
        p_mins=(max(sweep.p_mins),),
        runtimes=sweep.runtimes,
        kv_types=sweep.kv_types,
    )
    for arm in (arm for block in few.blocks() for arm in block.arms):
        if arm.build is None:
            engine.argv(arm)
            continue
        try:
            engine.argv(arm)
            program = engines.program_for(engine.name, arm)
            lacking.setdefault(arm.build, []).extend(commands.find_ignored(arm, builds[arm.build], program))
        except GgufspecError as error:
            lacking.setdefault(arm.build, []).append(error.message)
    messages = [
        f"llama.cpp {build} in {builds[build].root}: {'; '.join(dict.fromkeys(reasons))}"
        for build, reasons in lacking.items()
        if reasons
    ]
    if messages:
        raise GgufspecError(" | ".join(messages), "leave the option out, or compare builds that both have it")


def _same_builds(builds: Mapping[str, installs.Install]) -> Iterator[str]:
    """Yield a note where two llama.cpps are the same."""
    for name in builds:
        twins = [other for other in builds if other.startswith(f"{name}-")]
        if twins:
            yield f"llama.cpp: {name} and {', '.join(twins)} hold the same programs; any difference is chance"


def _check_drafter(
    target: gguf.ModelCard, draft: gguf.ModelCard, install: installs.Install, engine: str, method: Method
) -> None:
    rule = judging.rule_for(engines.ENGINES[engine], install.build_number)
    verdict = judging.check_pair(target, draft, rule, build=install.build_number, method=method)
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)


def _check_rpc(rpcs: Sequence[tuple[str, ...]], every: Sequence[installs.Install]) -> None:
    """Make sure that workers can be used at all.

    Raises:
        NoInstallError: a llama.cpp was built without RPC.
        GgufspecError: several llama.cpps would need the same worker at once.
    """
    if not any(rpcs):
        return
    for one in every:
        commands.check_rpc(one)
    if len(every) > 1:
        raise GgufspecError(
            "a worker serves one program at a time, so --rpc measures with one llama.cpp",
            "measure each llama.cpp in a bench of its own, and use `ggufspec compare`",
        )


def _measure_workers(
    rpcs: Sequence[tuple[str, ...]], install: installs.Install
) -> tuple[dict[str, WorkerReport], tuple[WorkerProblem, ...]]:
    """Return what all workers say, with the network to them, and why values of the axis cannot be measured.

    Raises:
        WorkerError: none of them can.
        NoInstallError: the llama.cpp was built without RPC.
    """
    reports: dict[str, WorkerReport] = {}
    without_answer: dict[str, WorkerProblem] = {}
    for address in dict.fromkeys(address for rpc in rpcs for address in rpc):
        try:
            reports[address] = workers.measure_worker(address)
        except WorkerProblem as problem:
            without_answer[address] = problem
    problems: list[WorkerProblem] = []
    for rpc in rpcs:
        try:
            if reports.keys() >= {*rpc}:
                workers.check_versions(install, rpc)
            else:
                problems.append(next(without_answer[address] for address in rpc if address not in reports))
        except WorkerProblem as problem:
            problems.append(problem)
    if len(problems) == len(rpcs):
        raise problems[0].to_error() from problems[0]
    return reports, tuple(problems)


def _check_devices(offload: Offload, install: installs.Install) -> None:
    """Refuse devices that the llama.cpp in use does not list; builds that cannot list any are believed.

    Raises:
        GgufspecError: one is not there.
    """
    program = next(iter(install.programs.values()), None)
    if program is not None and llama_options.DEVICES_FLAG not in program.options:
        return
    listed = [name.partition(":")[0] for name in install.devices]
    there = f"the llama.cpp in {install.root} lists {', '.join(install.devices) or 'no device'}"
    build = "`ggufspec build --backend cuda` makes one for a GPU"
    for device in (*offload.devices, *offload.draft_devices):
        if device not in {*listed, "none"}:
            raise GgufspecError(
                f"there is no device {device}: {there}",
                "name one of these, or leave --device out" if listed else f"leave --device out; {build}",
            )
    usable = len(offload.devices or listed)
    if offload.main_gpu is not None and listed and offload.main_gpu >= usable:
        raise GgufspecError(
            f"there is no GPU {offload.main_gpu} for --main-gpu: {there}",
            f"give a number below {usable}: they count from 0",
        )


def _same_layers(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each model of which several numbers of layers would be the same."""
    models = (
        *((model, "--ngl", sweep.target_layers, sweep.target_layers_of(model)) for model in sweep.targets),
        *((model, "--ngld", sweep.draft_layers, sweep.draft_layers_of(model)) for model in sweep.drafters),
    )
    for model, option, asked, kept in models:
        left_out = [str(layers) for layers in asked if layers not in kept]
        if left_out:
            count = sweep.layer_counts[model]
            same = next(layers for layers in kept if distinct_layers((layers, "all"), count) == (layers,))
            yield (
                f"layers: {model.filename} has {count} with its output; {option} {_few(left_out)} would be "
                f"the same as {option} {same}, which is measured"
            )


def _lowered_sizes(sweep: Sweep) -> Iterator[str]:
    """Yield a note for each head of which several draft sizes would be the same."""
    for model, head in sweep.heads.items():
        lowered = [str(size) for size in sweep.draft_sizes if head.most is not None and size > head.most]
        if lowered and any(way.method is head.method for way in sweep.ways):
            yield (
                f"draft sizes: {model.filename} drafts at most {head.most} tokens; "
                f"--draft {_few(lowered)} would be the same as {head.most}, which is measured"
            )


def _few(words: Sequence[str]) -> str:
    """Return words in a row; of many, the first and the last."""
    return ", ".join(words) if len(words) <= _MOST_NAMED else f"{words[0]}, …, {words[-1]}"


def _without_drafter(sweep: Sweep) -> Iterator[str]:
    """Yield a note where a drafter could draft and none was named."""
    if sweep.drafters or all(way.method is not Method.DRAFT_MODEL for way in sweep.ways):
        return
    others = [str(way) for way in sweep.ways if way.method is not Method.DRAFT_MODEL]
    measured = f"the target alone and drafting by {', '.join(others)} are" if others else "only the target is"
    yield (
        f"drafter: none, so {measured} measured; name one with -md FILE, or find one with `ggufspec suggest`"
    )
    if any(target in sweep.heads for target in sweep.targets) and Chain(Method.DRAFT_MTP) not in sweep.ways:
        yield "drafter: the target has layers for MTP, which draft with --method draft-mtp"


def _doubts(
    sweep: Sweep,
    cards: Mapping[ModelFile, gguf.ModelCard],
    install: installs.Install,
    *,
    repeats: int,
    tight: bool,
) -> Iterator[MeasurementWarning]:
    """Yield the warnings before anything runs."""
    layers = (*sweep.target_layers, *(sweep.draft_layers if sweep.drafters else ()))
    if install.gpu is False and () in sweep.rpcs and any(offloading.wants_gpu(number) for number in layers):
        yield MeasurementWarning.GPU_LESS_BUILD
    pairs = product(sweep.targets, sweep.drafters)
    if any(_weights(cards[drafter]) > _weights(cards[target]) for target, drafter in pairs):
        yield MeasurementWarning.MODELS_SWAPPED
    if max(sweep.threads) > machine.usable_cores():
        yield MeasurementWarning.THREADS_ABOVE_FREE_CORES
    if repeats < _LEAST_REPEATS:
        yield MeasurementWarning.FEW_REPEATS
    if tight:
        yield MeasurementWarning.MEMORY_TIGHT


def _weights(card: gguf.ModelCard) -> int:
    """Return how many weights a model has; the one with fewer may be the larger file."""
    return sum(prod(tensor.shape) for tensor in card.tensors)
