"""A request, checked before anything runs: BenchOptions -> Session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path

from ggufspec import engines, machine
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import Build, FileIdentity, ModelFile, ModelRun, RunningServers
from ggufspec.llama.install import Install, installs
from ggufspec.llama.rpc import WorkerReport
from ggufspec.measure import configured, identity
from ggufspec.measure.arms import plan_arms, plan_memory
from ggufspec.measure.configured import with_tuned
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.loading import check_until, describe_looks, plan_runs, plan_stopping
from ggufspec.measure.models import ChosenModels, choose_models
from ggufspec.measure.programs import ChosenEngine, find_engine, make_engine
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Sweep
from ggufspec.measure.texts import read_asked, read_bench_texts
from ggufspec.modelfiles import gguf
from ggufspec.options import BenchOptions
from ggufspec.prompts import Render
from ggufspec.results import Configuration

LEAST_REPEATS = 2
"""One says nothing of how far they spread."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A checked bench, ready to run; ``notes`` say what was chosen, ``doubts`` are its warnings so far.

    ``files`` are the models, programs and libraries that it measures; None before ``identify``. ``builds``
    are its llama.cpps by ``RunSpec.build`` where there are several, of which ``llama`` is the first. It is
    None where servers are measured that run already. ``workers`` are those that lend their devices and
    answered. ``origin`` says which files of the Hub its prompts are from; None for those of this machine.
    ``cards`` are the headers of its models; none where servers are measured that run already.
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
    cards: Mapping[ModelFile, gguf.ModelCard] = field(default_factory=dict, repr=False)
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


def prepare_session(request: BenchOptions, *, simulates_gpu: bool = False) -> Session:
    """Turn a request into something that can run, in steps that use what the earlier ones found.

    Args:
        request: what to measure.
        simulates_gpu: places are kept apart also where there is no GPU, because one stands in for it.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    load_watch = machine.LoadWatch.start()
    request, configuration = with_tuned(request)
    check_until(request)
    models = choose_models(request)
    asked = read_asked(request, models)
    engine = find_engine(request, models, asked.needs)
    texts = read_bench_texts(request, asked, models, engine)
    sweep, about_arms = plan_arms(request, models, engine, texts, simulated=simulates_gpu)
    loads_at_once, about_memory = plan_memory(request, models, engine, sweep)
    rule = plan_stopping(request, sweep)
    suite, about_runs = plan_runs(request, engine, texts, sweep, rule)
    return Session(
        name=models.name,
        suite=suite,
        engine=make_engine(request, engine, sweep, loads_at_once),
        llama=engine.install,
        render=texts.render,
        notes=(
            *engine.reasons,  # first, because they say what cannot be measured
            *describe_tuned(configuration, engine.install),
            f"pair: {models.name} ({models.reason})",
            *engine.notes,
            *texts.notes,
            *about_arms,
            *about_memory,
            *about_runs,
            *describe_looks(rule),
        ),
        doubts=_find_doubts(models, engine, sweep, suite, is_tight=bool(about_memory)),
        builds=engine.builds,
        workers=tuple(engine.workers.values()),
        origin=texts.origin,
        cards=models.cards,
        load_watch=load_watch,
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


def describe_tuned(configuration: Configuration | None, install: Install) -> Iterator[str]:
    """Yield which configuration is measured, and what is not as it was when that was tuned."""
    if configuration is None:
        return
    yield f"tuned: {configuration.id}, made on {configuration.made_at[:10]}"
    yield from configured.compare_machines(configuration, install)


def _find_doubts(
    models: ChosenModels, engine: ChosenEngine, sweep: Sweep, suite: RunPlan, *, is_tight: bool
) -> tuple[MeasurementWarning, ...]:
    """Return the warnings before anything runs, each once."""
    warnings = [warning for install in engine.installs for warning in _warnings_of(sweep, models, install)]
    if suite.repeats < LEAST_REPEATS:
        warnings.append(MeasurementWarning.FEW_REPEATS)
    if is_tight:
        warnings.append(MeasurementWarning.MEMORY_TIGHT)
    return tuple(dict.fromkeys(warnings))


def _warnings_of(sweep: Sweep, models: ChosenModels, install: Install) -> Iterator[MeasurementWarning]:
    layers = (*sweep.target_layers, *(sweep.draft_layers if sweep.drafters else ()))
    wants_gpu = any(ModelRun(layers=number).wants_gpu for number in layers)
    if wants_gpu and install.gpu is False and () in sweep.rpcs:
        yield MeasurementWarning.GPU_LESS_BUILD
    pairs = product(sweep.targets, sweep.drafters)
    if any(_weights(models.cards[drafter]) > _weights(models.cards[target]) for target, drafter in pairs):
        yield MeasurementWarning.MODELS_SWAPPED
    if max(sweep.threads) > machine.usable_cores():
        yield MeasurementWarning.THREADS_ABOVE_FREE_CORES


def _weights(card: gguf.ModelCard) -> int:
    """Return how many weights a model has; the one with fewer may be the larger file."""
    return sum(prod(tensor.shape) for tensor in card.tensors)
