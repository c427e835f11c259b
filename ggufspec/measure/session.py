"""A request, checked before anything runs: BenchOptions -> Session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ggufspec import engines, machine
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import Build, FileIdentity, RunningServers
from ggufspec.llama.install import installs
from ggufspec.llama.rpc import WorkerReport
from ggufspec.measure import identity
from ggufspec.measure.arms import plan_arms
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.fitting import plan_memory
from ggufspec.measure.loading import plan_runs
from ggufspec.measure.models import choose_models
from ggufspec.measure.notes import describe_tuned, find_doubts
from ggufspec.measure.programs import find_engine, make_engine
from ggufspec.measure.request import with_tuned
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.stopping import check_until, describe_looks, plan_stopping
from ggufspec.measure.texts import read_bench_texts
from ggufspec.options import BenchOptions
from ggufspec.prompts import Render


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
    """Turn a request into something that can run, in steps that use what the earlier ones found.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    load_watch = machine.LoadWatch.start()
    request, configuration = with_tuned(request)
    check_until(request)
    models = choose_models(request)
    engine = find_engine(request, models)
    texts = read_bench_texts(request, models, engine)
    arms = plan_arms(request, models, engine, texts)
    memory = plan_memory(request, models, engine, arms)
    rule = plan_stopping(request, arms)
    runs = plan_runs(request, engine, texts, arms, rule)
    return Session(
        name=models.name,
        suite=runs.suite,
        engine=make_engine(request, engine, arms.sweep, memory.loads_at_once),
        llama=engine.install,
        render=texts.plain.render,
        notes=(
            *engine.reasons,  # first, because they say what cannot be measured
            *describe_tuned(configuration, engine.install),
            *models.notes,
            *engine.notes,
            *texts.notes,
            *arms.notes,
            *memory.notes,
            *runs.notes,
            *describe_looks(rule),
        ),
        doubts=find_doubts(models, engine, arms, memory, runs),
        builds=engine.builds,
        workers=tuple(engine.workers.values()),
        origin=texts.plain.origin,
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
