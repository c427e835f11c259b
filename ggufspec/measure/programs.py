"""Which engine measures, and whether the llama.cpps in use have the programs and options that it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from ggufspec import engines, serving
from ggufspec.domain import IMAGE, Chain, Failure, Method, Offload, Program, Runtime, SplitMode
from ggufspec.errors import GgufspecError, ModelFileError, NoInstallError
from ggufspec.llama.command import check_chain, check_fork, commands
from ggufspec.llama.install import Install, installs, options as llama_options
from ggufspec.llama.rpc import WorkerReport, workers
from ggufspec.measure import identity, traffic
from ggufspec.measure.configured import choose_sampling
from ggufspec.measure.models import ChosenModels
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.compat import judging, usable_methods, why_not_split_by_tensor
from ggufspec.options import BenchOptions


def check_rpc(rpcs: Sequence[tuple[str, ...]], installs: Sequence[Install]) -> None:
    """Make sure that workers can be used at all.

    Raises:
        NoInstallError: a llama.cpp was built without RPC.
        GgufspecError: several llama.cpps would need the same worker at once.
    """
    if not any(rpcs):
        return
    for install in installs:
        commands.check_rpc(install)
    if len(installs) > 1:
        raise GgufspecError(
            "a worker serves one program at a time, so --rpc measures with one llama.cpp",
            "measure each llama.cpp in a bench of its own, and use `ggufspec compare`",
        )


def measure_workers(
    rpcs: Sequence[tuple[str, ...]], install: Install
) -> tuple[dict[str, WorkerReport], tuple[Failure, ...]]:
    """Return what all workers say, with the network to them, and why values of the axis cannot be measured.

    Raises:
        WorkerError: none of them can.
        NoInstallError: the llama.cpp was built without RPC.
    """
    reports: dict[str, WorkerReport] = {}
    without_answer: dict[str, Failure] = {}
    for address in dict.fromkeys(address for rpc in rpcs for address in rpc):
        try:
            reports[address] = workers.measure_worker(address)
        except Failure as problem:
            without_answer[address] = problem
    problems: list[Failure] = []
    for rpc in rpcs:
        try:
            if reports.keys() >= {*rpc}:
                workers.check_versions(install, rpc)
            else:
                problems.append(next(without_answer[address] for address in rpc if address not in reports))
        except Failure as problem:
            problems.append(problem)
    if len(problems) == len(rpcs):
        raise workers.failure_error(problems[0]) from problems[0]
    return reports, tuple(problems)


def check_devices(offload: Offload, install: Install) -> None:
    """Refuse devices that the llama.cpp in use does not list; builds that cannot list any are believed.

    Raises:
        GgufspecError: one is not there.
    """
    program = next(iter(install.programs.values()), None)
    if program is not None and llama_options.DEVICES_FLAG not in program.options:
        return
    listed = [name.partition(":")[0] for name in install.devices]
    listing = f"the llama.cpp in {install.root} lists {', '.join(install.devices) or 'no device'}"
    build = "`ggufspec build --backend cuda` makes one for a GPU"
    for device in (*offload.target.devices, *offload.drafter.devices):
        if device not in {*listed, "none"}:
            raise GgufspecError(
                f"there is no device {device}: {listing}",
                "name one of these, or leave --device out" if listed else f"leave --device out; {build}",
            )
    usable = len(offload.target.devices or listed)
    if offload.main_gpu is not None and listed and offload.main_gpu >= usable:
        raise GgufspecError(
            f"there is no GPU {offload.main_gpu} for --main-gpu: {listing}",
            f"give a number below {usable}: they count from 0",
        )


_LIMITS = {
    "server": "it measures memory for a process, not for a run",
    "inprocess": "it drafts only with a draft model, and serves one request after another",
}
"""Engine -> what it cannot measure, for those that are not the first choice."""


@dataclass(frozen=True, kw_only=True)
class ChosenEngine:
    """What measures: an engine, with its llama.cpps and the workers that lend devices.

    Attributes:
        name: a row of ENGINES.
        installs: the llama.cpps; the first one tokenizes, too.
        builds: the same by ``RunSpec.build`` where there are several, otherwise empty.
        workers: what workers that answered say, by their addresses.
        reasons: why it is not the first engine.
        notes: which llama.cpps and workers these are.
    """

    name: str
    installs: tuple[Install, ...]
    builds: Mapping[str, Install]
    workers: Mapping[str, WorkerReport]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def install(self) -> Install:
        """The llama.cpp, or the first of several."""
        return self.installs[0]


def find_engine(
    request: BenchOptions, models: ChosenModels, needs: frozenset[str] = frozenset()
) -> ChosenEngine:
    """Find the llama.cpps that are named, and the engine that is named or the first one that can measure.

    Args:
        request: names llama.cpps, perhaps an engine, and workers.
        models: what drafts, and how.
        needs: what the requests among the prompts need.

    Raises:
        NoInstallError: there is no llama.cpp, or it lacks a program.
        WorkerError: no worker can be used.
        DrafterRefusedError: a drafter does not fit a target.
        GgufspecError: the engine or a llama.cpp cannot do what is requested.
    """
    llamas = tuple(map(installs.find_install, request.llamas))
    if request.mmproj is not None:
        needs |= {IMAGE}
    elif IMAGE in needs:
        raise GgufspecError(
            "prompts have images, and nothing reads them", "name the target's projector: --mmproj FILE"
        )
    reasons: tuple[str, ...] = ()
    if (name := request.engine) is None:
        name, reasons = _choose_first(llamas, models.ways, needs, drafting=bool(models.drafters))
    traffic.check_engine(request.users, name)  # first: to get what such an engine lacks would not help
    if request.engine is not None:
        check_engine(name, llamas, models.ways, needs, drafting=bool(models.drafters))
    check_rpc(request.rpcs, llamas)
    reports, unusable = measure_workers(request.rpcs, llamas[0])
    for install in llamas:
        _check_abilities(request, models, install, name, reports)
    builds = identity.name_builds(llamas, name) if len(llamas) > 1 else {}
    return ChosenEngine(
        name=name,
        installs=llamas,
        builds=builds,
        workers=reports,
        reasons=reasons,
        notes=(
            *(f"llama.cpp: {install.version or 'unknown version'} in {install.root}" for install in llamas),
            *(f"llama.cpp: {reason}" for reason in llamas[0].passed_over),
            *_describe_same_builds(builds),
            *(f"worker {report.describe().summary}" for report in reports.values()),
            *dict.fromkeys(f"worker: {problem.reason}; its runs will fail" for problem in unusable),
        ),
    )


def _choose_first(
    llamas: Sequence[Install], ways: Sequence[Chain], needs: frozenset[str], *, drafting: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the first engine that can measure with all of these llama.cpps, and why no earlier one does.

    Args:
        llamas: the llama.cpps to measure with.
        ways: what drafts.
        needs: the fields of all requests among the prompts.
        drafting: whether there is a drafter.

    Raises:
        GgufspecError: none can; the message says what the engine lacks that comes nearest.
    """
    failures: dict[str, GgufspecError] = {}
    for name in engines.ENGINES:
        try:
            check_engine(name, llamas, ways, needs, drafting=drafting)
        except GgufspecError as error:
            failures[name] = error
        else:
            return name, (_note_engine(name, failures["binary"].message),) if failures else ()
    if any(not install.programs for install in llamas):
        raise failures["inprocess"]
    if needs or any(install.fork is not None for install in llamas):
        raise failures["server"]
    if all(way == Chain(Method.DRAFT_MODEL) for way in ways):
        raise failures["binary"]
    nearest = (failures["binary-simple"], failures["server"])
    for failure in nearest:
        if not isinstance(failure, NoInstallError):
            raise failure
    way = next(way for way in ways if way != Chain(Method.DRAFT_MODEL))
    lacking = next(install for install in llamas if Program.SERVER not in install.programs)
    raise NoInstallError(
        f"no program of the llama.cpp in {lacking.root} drafts by {way}",
        "it lacks llama-server and llama-speculative-simple; `ggufspec build` makes a complete one",
    )


def check_engine(
    name: str,
    llamas: Sequence[Install],
    ways: Sequence[Chain],
    needs: frozenset[str] = frozenset(),
    *,
    drafting: bool,
) -> None:
    """Miss a program now, not after the target has been measured; see ``_choose_first``.

    Raises:
        NoInstallError: a llama.cpp lacks a program or the library.
        GgufspecError: the engine cannot measure with several, or does not draft in one of the ways.
    """
    if name == "inprocess" and len(llamas) > 1:
        raise GgufspecError(
            "the engine inprocess measures one llama.cpp", "use --engine binary or server to compare two"
        )
    for install in llamas:
        _check_install(name, install, ways, drafting=drafting)
        engines.check_requests(name, install, needs, drafting=drafting)


def _check_install(name: str, install: Install, ways: Sequence[Chain], *, drafting: bool) -> None:
    check_fork(install, engines.ENGINES[name])
    others = [way for way in ways if way != Chain(Method.DRAFT_MODEL)]
    if name == "inprocess":
        if others:
            raise GgufspecError(
                f"the engine {name} drafts only with a draft model, not by {others[0]}",
                "use --engine server or binary-simple"
                if install.programs
                else "`ggufspec build` makes a llama.cpp with programs that can",
            )
        engines.check_library(install)
        return
    drafts_with = engines.ENGINES[name]
    install.executable(Program.SERVER if drafts_with is Program.SERVER else Program.PLAIN)
    for way in others:
        check_chain(install, drafts_with, way)
    if drafting:
        program = install.executable(drafts_with)
        if drafts_with is Program.SERVER and not commands.can_draft(program.options):
            raise GgufspecError(f"the {program.name} in {install.root} cannot draft", "use --engine binary")
        if drafts_with is Program.SERVER and not commands.reports_drafts(install.build_number):
            raise GgufspecError(
                f"the {program.name} in {install.root} does not report how many tokens it drafts",
                "use --engine binary or binary-simple, or llama.cpp b4984 or newer",
            )


def describe_engine(name: str, install: Install) -> tuple[str, ...]:
    """Return the note on an engine that was chosen for a llama.cpp without programs; none for others."""
    if install.programs:
        return ()
    return (_note_engine(name, f"the llama.cpp in {install.root} has no programs"),)


def _note_engine(name: str, reason: str) -> str:
    limit = f"; {_LIMITS[name]}" if name in _LIMITS else ""
    return f"engine: {name}, because {reason}{limit}"


def make_engine(
    request: BenchOptions, chosen: ChosenEngine, sweep: Sweep, loads_at_once: int
) -> engines.Engine:
    """Return what measures the arms of a sweep; of several llama.cpps, each measures its own arms.

    Raises:
        GgufspecError: a llama.cpp lacks an option that an arm needs.
    """
    make: Callable[..., engines.Engine] = serving.TrafficEngine if request.users else engines.make
    make_one = partial(make, timeout_s=request.timeout, capacity=loads_at_once, per_arm=True)
    name = chosen.name
    engine: engines.Engine
    if chosen.builds:
        engine = engines.BuildsEngine(
            engines={build: make_one(name=name, install=install) for build, install in chosen.builds.items()}
        )
    else:
        engine = make_one(name=name, install=chosen.install)
    is_usual = request.offload == Offload() and request.runtimes == (Runtime(),) and not any(request.rpcs)
    if not is_usual or chosen.builds:
        _check_options(sweep, engine, chosen.builds)
    return engine


def _check_options(sweep: Sweep, engine: engines.Engine, builds: Mapping[str, Install]) -> None:
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
        caches=sweep.caches,
        draft_caches=sweep.draft_caches,
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


def _check_abilities(
    request: BenchOptions,
    models: ChosenModels,
    install: Install,
    engine: str,
    reports: Mapping[str, WorkerReport],
) -> None:
    """Make sure that a llama.cpp can do what is requested: read the models, simulate acceptance, draft.

    Raises:
        GgufspecError: naming what it cannot.
    """
    for model, card in models.cards.items() if install.fork is None else ():
        if types := [name for name, _ in card.types if name in gguf.IK_TYPES]:
            raise ModelFileError(
                f"{model.filename} has tensors of type {', '.join(types)}, which llama.cpp does not read",
                "ik_llama.cpp does: name the folder of its programs with --llama",
            )
    methods = tuple(method for way in models.ways for method in way.methods)
    if request.synthetic_accept is not None:
        engines.check_synthetic(engine, install, methods if models.drafters else ())
    if request.draft_sampling is not None:
        engines.check_draft_sampling(
            engine, install, methods, request.draft_samplings, choose_sampling(request)
        )
    for rpc in request.rpcs:
        if reports.keys() >= {*rpc}:
            lent = [reports[address] for address in rpc]
            check_devices(request.offload, workers.with_devices(install, lent))
    if request.fit == "on" and install.gpu is False and () in request.rpcs:
        raise NoInstallError(
            f"--fit on: the llama.cpp in {install.root} has no GPU to fit layers to",
            "leave --fit out, or use a llama.cpp with a GPU: `ggufspec build --backend cuda`",
        )
    if SplitMode.TENSOR in request.split_modes:
        _refuse_tensor_split(models, install)
    _check_drafters(models, install, engine)


def _refuse_tensor_split(models: ChosenModels, install: Install) -> None:
    """Refuse heads with which llama.cpp aborts where models are split by tensors.

    Raises:
        GgufspecError: naming the file, and why.
    """
    for target, drafter in product(models.targets, (None, *models.drafters)):
        card = None if drafter is None else models.cards[drafter]
        why = why_not_split_by_tensor(models.cards[target], card, install.build_number)
        if why is not None:
            raise GgufspecError(
                f"llama.cpp aborts with --split-mode tensor and {(drafter or target).filename}: {why}",
                "use --split-mode layer, or draft in another way",
            )


def _check_drafters(models: ChosenModels, install: Install, engine: str) -> None:
    """Make sure that every drafter fits every target, as the engine's program judges it.

    Raises:
        DrafterRefusedError: one does not.
    """
    rule = judging.rule_for(engines.ENGINES[engine], install.build_number)
    for target, drafter, way in product(models.targets, models.drafters, models.ways):
        if way.method not in usable_methods(models.heads.get(drafter)):
            continue
        verdict = judging.check_pair(
            models.cards[target], models.cards[drafter], rule, build=install.build_number, method=way.method
        )
        if verdict.outcome is judging.CompatOutcome.REFUSED:
            raise judging.refusal(verdict)


def _describe_same_builds(builds: Mapping[str, Install]) -> Iterator[str]:
    """Yield a note where two llama.cpps are the same."""
    for name in builds:
        twins = [other for other in builds if other.startswith(f"{name}-")]
        if twins:
            yield f"llama.cpp: {name} and {', '.join(twins)} hold the same programs; any difference is chance"
