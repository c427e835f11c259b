"""``ggufspec bisect``: history, builds, trials, verdict."""

from __future__ import annotations

import math
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from ggufspec import paths, results, units
from ggufspec.analysis import Arm, arms
from ggufspec.choices import Quantity
from ggufspec.domain import Role
from ggufspec.errors import (
    BuildError,
    DiskFullError,
    GgufspecError,
    InconclusiveError,
    NoInstallError,
    ResultsError,
    SourceError,
)
from ggufspec.llama.build import request_build, run_build, toolchain
from ggufspec.llama.install import store
from ggufspec.measure import Session, api, identify, prepare_session, with_fetched
from ggufspec.options import BenchOptions, BisectOptions, BuildOptions, takes
from ggufspec.results import ResultSet
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning.bisect.decisions import (
    Bisection,
    Measure,
    Trial,
    Verdict,
    choose_next,
    find_versions,
    name_source,
)


def save_bisection(bisection: Bisection) -> None:
    """Store a bisection under its name."""
    results.write_object(_file(bisection.name), bisection, makes_folder=True)


def load_bisection(name: str) -> Bisection:
    """Return a stored bisection.

    Raises:
        ResultsError: there is none of this name, or it cannot be read.
    """
    file = _file(name)
    if not file.exists():
        raise ResultsError(f"there is no bisection {name}", f"its file would be {file}")
    return results.read_stored(file, Bisection, "a bisection", newest=0, remedy="begin a new one")


@dataclass(frozen=True, kw_only=True)
class BisectedBench:
    """The last trial of a bisection, and the step that it found.

    Attributes:
        bench: the trial's.
        quantity: what was compared.
        good, bad: ``RunSpec.build`` of the last good and the first bad version.
        versions: their names.
    """

    bench: ResultSet
    quantity: Quantity
    good: str
    bad: str
    versions: tuple[str, str]


def is_bisection(name: str) -> bool:
    """Whether a bisection of that name is stored."""
    return _file(name).exists()


def read_bisected(name: str) -> BisectedBench:
    """Return the step that a stored bisection found, from the benches of its trials.

    Raises:
        ResultsError: it has not ended, or a bench is missing.
        InconclusiveError: it found no step.
    """
    bisection = load_bisection(name)
    trials: list[Trial] = []
    read: Measure | None = None
    while True:
        step = choose_next(
            len(bisection.versions), trials, bisection.skipped_places, most_repeats=bisection.most_repeats
        )
        if isinstance(step, Verdict):
            break
        if step == read:
            raise ResultsError(f"the bisection {name} has not ended", f"continue it with --resume {name}")
        read, bench = step, results.load(bisection.bench(step.number, step.places))
        trials[step.number :] = [read_trial(step.places, bench, bisection.quantity, step.repeats)]
    if step.step is None or read is None:
        raise InconclusiveError(f"the bisection {name} found no step: {step.finding}", "see its verdict")
    builds = dict(zip(read.places, bench.meta.builds, strict=True))
    ends = step.step.first, step.step.second
    return BisectedBench(
        bench=bench,
        quantity=bisection.quantity,
        good=builds[ends[0]],
        bad=builds[ends[1]],
        versions=(bisection.label(ends[0]), bisection.label(ends[1])),
    )


def prepare_trial(asked: BisectOptions, llamas: Sequence[Path], repeats: int) -> Session:
    """Return the session that measures some builds in turn, only the arms that a quantity needs.

    Raises:
        GgufspecError: something cannot work with one of the builds.
    """
    session = prepare_session(asked.to(BenchOptions, llama=tuple(llamas), repeats=repeats, max_repeats=None))
    suite = session.suite
    roles = {*Quantity(asked.quantity).roles}
    if any(prompt.followups for prompt in suite.prompts):
        roles.add(Role.TARGET)  # its answers stand between the turns of a conversation
    blocks = tuple(block.where(lambda arm: arm.role in roles) for block in suite.blocks)
    return replace(session, suite=replace(suite, blocks=blocks))


def read_trial(indices: Sequence[int], bench: ResultSet, quantity: Quantity, measured: int) -> Trial:
    """Return a trial's values, of its builds in their order, for each repeat that is complete.

    Speeds are natural logarithms, averaged over prompts and arms. Prompts that a build failed on count for
    none of them.

    Args:
        indices: of the builds in the history.
        bench: the trial's.
        quantity: what the bisection compares.
        measured: repeats that the bench has, complete or not.

    Raises:
        ResultsError: no prompt was measured with every build.
    """
    groups = [arm for arm in arms.group(bench) if arm.role in quantity.roles]
    by_build: Mapping[str | None, list[Arm]] = {
        build: [arm for arm in groups if arm.spec.build == build] for build in bench.meta.builds
    }
    cells = [{*arm.rates} for arm in groups]
    repeats = sorted(set.union(*({repeat for _, repeat in rates} for rates in cells)))
    prompts = set.intersection(*({prompt for prompt, _ in rates} for rates in cells))
    complete = [
        repeat
        for repeat in repeats
        if all((prompt, repeat) in rates for rates in cells for prompt in prompts)
    ]
    if not prompts:
        raise ResultsError(
            f"no prompt of {bench.meta.id} was measured with every build", f"`ggufspec show {bench.meta.id}`"
        )
    value = _mean_log if quantity.is_ratio else _acceptance
    return Trial(
        places=tuple(indices),
        repeats=tuple(
            tuple(value(build_arms, prompts, repeat) for build_arms in by_build.values())
            for repeat in complete
        ),
        lost=max(0, measured - len(complete)),
    )


def _mean_log(groups: Sequence[Arm], prompts: set[str], repeat: int) -> float:
    """Return the mean logarithm of one build's tokens/s; of its speed-up, where the target is among them."""
    by_role = {
        role: fmean(
            math.log(arm.rates[prompt, repeat]) for arm in groups if arm.role is role for prompt in prompts
        )
        for role in {arm.role for arm in groups}
    }
    if by_role.keys() == Quantity.SPEED_UP.roles:
        return by_role[Role.DRAFTING] - by_role[Role.TARGET]
    return next(iter(by_role.values()))


def _acceptance(groups: Sequence[Arm], prompts: set[str], repeat: int) -> float:
    """Return accepted over drafted tokens of one build."""
    drafted = accepted = 0
    for arm in groups:
        columns = (arm.good.specs, arm.good.column("repeat"), arm.good.outputs)
        for spec, run_arm, output in zip(*columns, strict=True):
            if run_arm == repeat and spec.prompt.id in prompts:
                drafted += output.n_drafted or 0
                accepted += output.n_accepted or 0
    if not drafted:
        raise ResultsError(
            "nothing was drafted, so there is no acceptance rate", "check the pair and --draft"
        )
    return accepted / drafted


def _file(name: str) -> Path:
    return paths.data_dir() / "bisections" / f"{name}.json"


@dataclass(frozen=True, kw_only=True)
class Bisected:
    """A bisection that has ended, with what was skipped, and what it found."""

    bisection: Bisection
    verdict: Verdict


@takes(BisectOptions)
def bisect(asked: BisectOptions, sink: Sink = SILENT) -> Bisected:
    """Find the version of llama.cpp at which drafting became slower, as ``ggufspec bisect`` does.

    Versions are built when they are needed. A verdict may be that the ends do not differ, or that the allowed
    repeats do not decide.

    Raises:
        GgufspecError: one of the ends cannot be built or measured, or something else cannot work.
    """
    bisection = _open(asked)
    sink.show(bisection)
    fetched = with_fetched(asked, sink)
    builds = _Builds(asked, bisection, sink)
    builds.announce()
    return _bisect(fetched, bisection, builds, sink)


def _open(asked: BisectOptions) -> Bisection:
    """Return a new bisection, or a stored one that asks the same."""
    name, resume = asked.name, asked.resume
    versions = find_versions(asked.good, asked.bad, asked.source)
    wanted = Bisection(
        name=name or resume or f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        source=name_source(asked.source),
        versions=versions,
        quantity=Quantity(asked.quantity),
        most_repeats=asked.max_repeats,
    )
    if resume is None:
        if _file(wanted.name).exists():
            raise ResultsError(f"there is a bisection {name} already", f"continue it with --resume {name}")
        save_bisection(wanted)
        return wanted
    stored = load_bisection(resume)
    ends, others = ((known[0], known[-1]) for known in (stored.versions, versions))
    if replace(stored, versions=ends, skipped={}) != replace(wanted, versions=others):
        raise ResultsError(
            f"the bisection {resume} compares {stored.quantity} of {ends[0]} and {ends[1]} in other ways",
            "resume it with the same versions and options, or start a new one",
        )
    return stored


def _bisect(asked: BisectOptions, bisection: Bisection, builds: _Builds, sink: Sink) -> Bisected:
    """Measure trials until there is a verdict."""
    trials: list[Trial] = []
    while True:
        step = choose_next(
            len(bisection.versions), trials, bisection.skipped_places, most_repeats=bisection.most_repeats
        )
        if isinstance(step, Verdict):
            return Bisected(bisection=bisection, verdict=step)
        try:
            trial = _measure(asked, bisection, step, builds, sink)
        except _CannotMeasureError as failure:
            bisection = replace(bisection, skipped={**bisection.skipped, failure.version: failure.reason})
            save_bisection(bisection)
            sink.say(f"skipped {failure.version}: {failure.reason}")
            continue
        trials[step.number :] = [trial]


def _measure(asked: BisectOptions, bisection: Bisection, step: Measure, builds: _Builds, sink: Sink) -> Trial:
    """Measure a trial up to some repeats and read it.

    Raises:
        _CannotMeasureError: a version between the ends cannot be built or measured.
    """
    llamas = [builds.provide(place) for place in step.places]
    named = ", ".join(map(bisection.label, step.places))
    sink.say(f"comparing {named}: {units.counted(step.repeats, 'repeat')}")
    inner = [place for place in step.places if 0 < place < len(bisection.versions) - 1]
    candidate = bisection.versions[inner[0]] if len(inner) == 1 else None
    try:
        session = identify(prepare_trial(asked, llamas, step.repeats))
        name, resume = api.place(bisection.bench(step.number, step.places))
        command = sink.command("bisect", asked)
        bench = api.measure(session, sink, command=command, name=name, resume=resume)
        return read_trial(step.places, bench, bisection.quantity, step.repeats)
    except GgufspecError as error:
        if candidate is None or isinstance(error, DiskFullError):
            raise
        raise _CannotMeasureError(candidate, error.message) from error


class _CannotMeasureError(Exception):
    """A version cannot be built or measured."""

    def __init__(self, version: str, reason: str) -> None:
        super().__init__(reason)
        self.version = version
        self.reason = reason


class _Builds:
    """The builds of a history, made when they are needed."""

    def __init__(self, asked: BisectOptions, bisection: Bisection, sink: Sink) -> None:
        backend = toolchain.choose_backend()[0].value if asked.backend == "auto" else asked.backend
        self._bisection, self._sink = bisection, sink
        wanted = BuildOptions(source=bisection.source, backend=backend, jobs=asked.jobs)
        self._requests = [request_build(wanted.replace(version=version))[0] for version in bisection.versions]

    def announce(self) -> None:
        """Say how many versions there are, and what building may take.

        Raises:
            DiskFullError: there is less room than the builds need.
        """
        count = len(self._requests)
        missing = sum(store.find_build(request.key()) is None for request in self._requests)
        most = min(missing, 2 + max(0, count - 2).bit_length())
        self._sink.say(f"versions: {count}, of which at most {most} have to be built")
        known = [paths.size_bytes(built.path) for built in store.installed()]
        if not most or not known:
            return
        need, free = most * max(known), shutil.disk_usage(paths.data_dir().parent).free
        self._sink.say(
            f"disk space: about {units.format_bytes(need)} for builds as large as the largest one here, and "
            f"room for compiling one; {units.format_bytes(free)} are free"
        )
        if need > free:
            raise DiskFullError(
                f"no room for {units.counted(most, 'build')}", "free some disk space, or set GGUFSPEC_CACHE"
            )

    def provide(self, place: int) -> Path:
        """Return the folder with the programs of a version.

        Raises:
            _CannotMeasureError: a version between the ends cannot be built.
            GgufspecError: one of the ends cannot be built.
        """
        request, version = self._requests[place], self._bisection.versions[place]
        try:
            existing = store.find_build(request.key())
            if existing is not None:
                return existing.bin
            self._sink.say(f"building {self._bisection.label(place)}")
            return run_build(request, self._sink).bin
        except (BuildError, SourceError, NoInstallError) as error:
            if place in {0, len(self._requests) - 1}:
                raise
            raise _CannotMeasureError(version, error.message) from error
