"""The steps of ``bisect``: history, builds, trials, verdict."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from ggufspec import paths, results, units
from ggufspec.choices import Backend, Quantity
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.steps import benches, hub_access, measuring
from ggufspec.cli.steps import building as build_steps
from ggufspec.errors import (
    BuildError,
    DiskFullError,
    GgufspecError,
    InconclusiveError,
    NoInstallError,
    ResultsError,
    SourceError,
)
from ggufspec.llama.build import building, toolchain
from ggufspec.llama.install import store
from ggufspec.llama.source import choose_source
from ggufspec.measure import Session, api, identify
from ggufspec.options import BisectOptions
from ggufspec.report import frames
from ggufspec.report.text import bisection as text
from ggufspec.report.text import formats, tables
from ggufspec.results import ResultSet
from ggufspec.tuning import bisect
from ggufspec.tuning.bisect import BisectFinding, Bisection, Measure, Trial, Verdict

_NO_VERDICT = {BisectFinding.NO_DIFFERENCE, BisectFinding.UNDECIDED}


def run_bisection(asked: BisectOptions) -> None:
    """Build and measure versions until the step is found, and print the verdict.

    Raises:
        InconclusiveError: the ends do not differ, or the allowed repeats do not decide.
        GgufspecError: the bad version is the better one, or one of both cannot be measured.
    """
    bisection = _open(asked)
    fetched = hub_access.fetch_models(asked)
    builds = _Builds(asked, bisection)
    builds.announce()
    try:
        verdict, bisection = _bisect(fetched, bisection, builds)
    except BaseException:
        command = benches.command_line(measuring.command_line(), bisection.name)
        echo(f"Interrupted.{benches.describe_command(command)}", err=True)
        raise
    if asked.output in tables.FOR_PEOPLE:
        emit(text.bisection(bisection, verdict, asked.output), asked.out)
    else:
        rows = frames.bisection(bisection, verdict)
        emit(formats.render(rows, asked.output, title="bisection"), asked.out)
    if verdict.finding in _NO_VERDICT:
        raise InconclusiveError(
            text.conclusion(bisection, verdict),
            "raise --max-repeats, or measure on a quiet machine",
        )
    if verdict.finding is BisectFinding.REVERSED:
        raise GgufspecError(text.conclusion(bisection, verdict), "name a newer version that is worse")


def _open(asked: BisectOptions) -> Bisection:
    """Return a new bisection, or a stored one that asks the same."""
    name, resume = asked.name, asked.resume
    versions = bisect.find_versions(asked.good, asked.bad, asked.source)
    wanted = Bisection(
        name=name or resume or f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        source=None if asked.source is None else str(asked.source.absolute()),
        versions=versions,
        quantity=Quantity(asked.quantity),
        most_repeats=asked.max_repeats,
    )
    if resume is None:
        if bisect.is_stored(wanted.name):
            raise ResultsError(f"there is a bisection {name} already", f"continue it with --resume {name}")
        bisect.save_bisection(wanted)
        return wanted
    stored = bisect.load_bisection(resume)
    ends = (stored.versions[0], stored.versions[-1])
    if replace(stored, versions=(), skipped={}) != replace(wanted, versions=()) or ends != (
        versions[0],
        versions[-1],
    ):
        raise ResultsError(
            f"the bisection {resume} compares {stored.quantity} of {ends[0]} and {ends[1]} in other ways",
            "resume it with the same versions and options, or start a new one",
        )
    return stored


def _bisect(asked: BisectOptions, bisection: Bisection, builds: _Builds) -> tuple[Verdict, Bisection]:
    """Measure trials until there is a verdict; return it, and the bisection with what was skipped."""
    trials: list[Trial] = []
    while True:
        step = bisect.choose_next(
            len(bisection.versions),
            trials,
            bisection.skipped_places,
            most_repeats=bisection.most_repeats,
        )
        if isinstance(step, Verdict):
            return step, bisection
        try:
            trial = _measure(asked, bisection, step, builds)
        except _CannotMeasureError as failure:
            bisection = replace(bisection, skipped={**bisection.skipped, failure.version: failure.reason})
            bisect.save_bisection(bisection)
            echo(f"skipped {failure.version}: {failure.reason}", err=True)
            continue
        trials[step.number :] = [trial]


def _measure(asked: BisectOptions, bisection: Bisection, step: Measure, builds: _Builds) -> Trial:
    """Measure a trial up to some repeats and read it.

    Raises:
        _CannotMeasureError: a version between the ends cannot be built or measured.
    """
    llamas = [builds.provide(place) for place in step.places]
    named = ", ".join(map(bisection.label, step.places))
    echo(f"comparing {named}: {units.counted(step.repeats, 'repeat')}", err=True)
    inner = [place for place in step.places if 0 < place < len(bisection.versions) - 1]
    candidate = bisection.versions[inner[0]] if len(inner) == 1 else None
    try:
        session = bisect.prepare_trial(asked, llamas, step.repeats)
        bench = _record(identify(session), bisection.bench(step.number, step.places))
        return bisect.read_trial(step.places, bench, bisection.quantity, step.repeats)
    except GgufspecError as error:
        if candidate is None or isinstance(error, DiskFullError):
            raise
        raise _CannotMeasureError(candidate, error.message) from error


def _record(session: Session, name: str) -> ResultSet:
    """Measure what a bench still lacks, and return it."""
    is_new = name not in results.ids()
    opened = api.begin(
        session,
        command=measuring.command_line(),
        name=name if is_new else None,
        resume=None if is_new else name,
        warnings={},
    )
    return measuring.measure(session, opened)


class _CannotMeasureError(Exception):
    """A version cannot be built or measured."""

    def __init__(self, version: str, reason: str) -> None:
        super().__init__(reason)
        self.version = version
        self.reason = reason


class _Builds:
    """The builds of a history, made when they are needed."""

    def __init__(self, options: BisectOptions, bisection: Bisection) -> None:
        backend = toolchain.choose_backend()[0] if options.backend == "auto" else Backend(options.backend)
        source = None if bisection.source is None else f"git+{bisection.source}"
        self._bisection = bisection
        self._requests = [
            building.BuildRequest(
                source=choose_source(source, version),
                backend=backend,
                jobs=options.jobs or toolchain.default_jobs(),
                architectures=toolchain.cuda_architectures(None) if backend is Backend.CUDA else (),
            )
            for version in bisection.versions
        ]

    def announce(self) -> None:
        """Print how many versions there are, and what building may take.

        Raises:
            DiskFullError: there is less room than the builds need.
        """
        count = len(self._requests)
        missing = sum(store.find_build(request.key()) is None for request in self._requests)
        most = min(missing, 2 + max(0, count - 2).bit_length())
        echo(f"versions: {count}, of which at most {most} have to be built", err=True)
        known = [paths.size_bytes(built.path) for built in store.installed()]
        if not most or not known:
            return
        need, free = most * max(known), shutil.disk_usage(paths.data_dir().parent).free
        echo(
            f"disk space: about {units.format_bytes(need)} for builds as large as the largest one here, and "
            f"room for compiling one; {units.format_bytes(free)} are free",
            err=True,
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
            if existing is not None and existing.files is not None:
                return existing.bin
            echo(f"building {self._bisection.label(place)}", err=True)
            return build_steps.build_with_progress(building.build(request), "built").bin
        except (BuildError, SourceError, NoInstallError) as error:
            if place in {0, len(self._requests) - 1}:
                raise
            raise _CannotMeasureError(version, error.message) from error
