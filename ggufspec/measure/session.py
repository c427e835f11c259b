"""A request, checked before anything runs: BenchOptions -> Session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggufspec import engines, machine
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import (
    Build,
    FileIdentity,
    NgramSettings,
    Offload,
    Prompt,
    RunningServers,
    Runtime,
    Traffic,
)
from ggufspec.llama.command import check_arguments
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import WorkerReport, workers
from ggufspec.measure import (
    devices,
    fitting,
    identity,
    loading,
    notes,
    programs,
    stopping,
    texts,
    traffic,
)
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.models import ChosenModels, check_draft_sizes, choose_models, with_pairs_drafting
from ggufspec.measure.request import choose_sampling, read_replay, with_tuned
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Sweep
from ggufspec.options import BenchOptions
from ggufspec.prompts import Recording, Render

_MOST_LOADS = 32  # at once; more would only be processes that wait


@dataclass(frozen=True, kw_only=True)
class Session:
    """A checked bench, ready to run; ``notes`` say what was chosen, ``doubts`` are its warnings so far.

    ``files`` are the models, programs and libraries that it measures; None before ``identify``. ``builds``
    are its llama.cpps by ``RunSpec.build`` where there are several, of which ``llama`` is the first. It is
    None where servers are measured that run already. ``workers`` are those that lend their devices and
    answered. ``origin`` says which files of the Hub its prompts are from; None for those of this machine.
    ``load_watch`` has watched other programs since the session was prepared. ``deadline`` ends it; None for
    the suite's ``max_time_s`` from the first run on.
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
    load_watch: machine.LoadWatch = field(default_factory=machine.LoadWatch.start)
    deadline: Deadline | None = None

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


def prepare_session(request: BenchOptions) -> Session:
    """Turn a request into something that can run.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    load_watch = machine.LoadWatch.start()
    request, configuration = with_tuned(request)
    stopping.check_until(request)
    models = choose_models(request)
    rpcs = request.rpcs
    every = tuple(installs.find_install(named) for named in request.llamas)
    install = every[0]
    used, why_used = programs.find_engine(request, every, models.ways, drafting=bool(models.drafters))
    request, left_out = with_pairs_drafting(request, used)
    recording = read_replay(request)
    if recording is None:
        traffic.check_service_level(request.slo, request.rate or (None,))
    devices.check_rpc(rpcs, every)
    rpc_workers, unusable = devices.measure_workers(rpcs, install)
    for one in every:
        _check_install(request, models, one, used, rpc_workers)
    builds = identity.name_builds(every, used) if len(every) > 1 else {}
    runtimes = request.runtimes
    for runtime in runtimes:
        check_arguments((*runtime.args, *runtime.draft_args))
    longest_draft, never_drafting_notes = check_draft_sizes(request, models.ways)
    traffic.check_batches(request.users, longest_draft, runtimes)
    asked = _read_texts(request, models, install, recording)
    sweep = _plan_sweep(request, models, install, asked, longest_draft=longest_draft, builds=tuple(builds))
    capacity = min(_MOST_LOADS, *(fitting.capacity(sweep, models.cards, one) for one in every))
    engine = programs.make_engine(used, request, install, builds, capacity)
    if request.offload != Offload() or any(rpcs) or runtimes != (Runtime(),) or builds:
        programs.check_options(sweep, engine, builds)
    memory_notes = tuple(
        dict.fromkeys(
            note
            for one in every
            for note in fitting.check_memory(
                sweep, models.cards, one, engine=used, force=request.force, lent=rpc_workers
            )
        )
    )
    until = stopping.plan_stopping(request, sweep)
    suite = RunPlan(
        blocks=sweep.blocks(),
        prompts=asked.plain.prompts,
        warmup_prompts=asked.plain.warmups,
        repeats=(request.repeats or loading.REPEATS) if until is None else until.looks[0],
        warmups=request.warmup,
        seed=request.seed,
        precision=request.precision,
        stopping=until,
        max_time_s=request.max_time,
    )
    if sweep.has_traffic:
        suite = traffic.plan_runs(suite)
    suite, about_repeats = loading.plan_repeats(
        suite, engine=used, is_given=request.repeats is not None or request.loads is not None
    )
    suite, about_loads = loading.plan_loads(suite, request.loads, engine=used)
    return Session(
        name=models.name,
        suite=suite,
        engine=engine,
        llama=install,
        render=asked.plain.render,
        notes=(
            *why_used,
            *notes.describe_tuned(configuration, install),
            f"pair: {models.name} ({models.reason})",
            *(f"llama.cpp: {one.version or 'unknown version'} in {one.root}" for one in every),
            *(f"llama.cpp: {reason}" for reason in install.passed_over),
            *notes.describe_same_builds(builds),
            *asked.plain.notes,
            *never_drafting_notes,
            *notes.describe_lowered_sizes(sweep),
            *notes.describe_refused_p_mins(sweep),
            *left_out,
            *notes.describe_same_layers(sweep),
            *notes.describe_missing_drafter(sweep),
            *traffic.describe([one for one in sweep.traffics if one is not None], sweep.ways),
            *traffic.describe_replay(recording, request.n_predict),
            *(f"worker {report.describe().summary}" for report in rpc_workers.values()),
            *dict.fromkeys(f"worker: {problem.reason}; its runs will fail" for problem in unusable),
            *memory_notes,
            *about_repeats,
            *about_loads,
            *stopping.describe_looks(until),
        ),
        doubts=tuple(
            dict.fromkeys(
                doubt
                for one in every
                for doubt in notes.find_doubts(
                    sweep, models.cards, one, repeats=suite.repeats, tight=bool(memory_notes)
                )
            )
        ),
        builds=builds,
        workers=tuple(rpc_workers.values()),
        origin=asked.plain.origin,
        load_watch=load_watch,
    )


def _check_install(
    request: BenchOptions,
    models: ChosenModels,
    install: installs.Install,
    engine: str,
    rpc_workers: Mapping[str, WorkerReport],
) -> None:
    """Make sure that a llama.cpp can do what is asked of it: simulate acceptance, use devices, draft.

    Raises:
        GgufspecError: naming what it cannot.
    """
    if request.synthetic_accept is not None:
        methods = tuple(method for way in models.ways for method in way.methods)
        engines.check_synthetic(engine, install, methods if models.drafters else ())
    for rpc in request.rpcs:
        if rpc_workers.keys() >= {*rpc}:
            lent = [rpc_workers[address] for address in rpc]
            devices.check_devices(request.offload, workers.with_devices(install, lent))
    programs.check_drafters(models, install, engine)


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The texts of a bench: as they are, behind so many tokens of other text, or in recorded requests."""

    plain: texts.PreparedTexts
    behind: Mapping[int, tuple[Prompt, ...]]  # empty without users
    most_turns: int  # of the other text
    recording: Recording | None


def _read_texts(
    request: BenchOptions, models: ChosenModels, install: installs.Install, recording: Recording | None
) -> _Asked:
    """Return the prompts, rendered for the first target.

    Raises:
        GgufspecError: a file is not here or cannot be used, or the template cannot render it.
    """
    target, embedded = models.targets[0], models.is_embedded
    card, counter = models.cards[target], texts.make_counter(target, install)
    prefaces = {depth: texts.read_preface(request.context_file, depth, counter) for depth in request.depths}
    behind: dict[int, tuple[Prompt, ...]] = {}
    if recording is not None:
        rendered = texts.render_recording(recording, card)
        plain = texts.PreparedTexts(prompts=rendered, warmups=(), render=None, notes=())
    else:
        plain = texts.read_texts(request, card, embedded=embedded)
        for depth, preface in prefaces.items() if request.users else ():
            behind[depth] = texts.read_texts(request, card, embedded=embedded, preface=preface).prompts
    most_turns = max(len(preface.turns) for preface in prefaces.values())
    return _Asked(plain=plain, behind=behind, most_turns=most_turns, recording=recording)


def _plan_sweep(
    request: BenchOptions,
    models: ChosenModels,
    install: installs.Install,
    asked: _Asked,
    *,
    longest_draft: int,
    builds: tuple[str, ...],
) -> Sweep:
    """Return everything that is to be combined.

    Raises:
        GgufspecError: the context is too small for the prompts.
    """
    cards, heads = models.cards, models.heads
    return Sweep(
        name=models.name,
        targets=models.targets,
        drafters=models.drafters,
        n_predict=request.n_predict,
        context=texts.context(
            request.ctx,
            asked.plain.prompts,
            models.targets[0],
            tuple(card for model, card in cards.items() if model in models.targets or model not in heads),
            install,
            n_predict=request.n_predict,
            longest_draft=longest_draft,
            depth=max(request.depths),
            turns=asked.most_turns,
        ),
        target_layers=request.ngl,
        draft_layers=request.ngld,
        layer_counts={model: card.n_layers + 1 for model, card in cards.items()},
        methods=tuple(way.method for way in models.ways if not way.first),
        chains=tuple(way for way in models.ways if way.first),
        heads=heads,
        ngrams=request.ngram or (NgramSettings(),),
        draft_sizes=request.draft,
        p_mins=request.p_min or (0.0,),
        synthetic=request.synthetic_accept,
        threads=request.threads or (machine.usable_cores(),),
        caches=request.caches,
        draft_caches=request.draft_caches,
        ubatches=request.ubatch or (None,),
        sampling=choose_sampling(request),
        runtimes=request.runtimes,
        offload=request.offload,
        rpcs=request.rpcs,
        builds=builds or (None,),
        traffics=tuple(_plan_traffics(request, asked)),
    )


def _plan_traffics(request: BenchOptions, asked: _Asked) -> Iterable[Traffic | None]:
    if asked.recording is not None:
        return traffic.plan_replays(
            asked.recording,
            asked.plain.prompts,
            request.users,
            n_predict=request.n_predict,
            service_level=request.slo,
        )
    return traffic.plan_traffics(
        asked.behind,
        request.users,
        request.rate or (None,),
        service_level=request.slo,
        seed=request.seed,
    )


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
