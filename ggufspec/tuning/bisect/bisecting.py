"""``ggufspec bisect``: history, builds, trials, verdict."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ggufspec import paths, results, units
from ggufspec.choices import Quantity
from ggufspec.errors import (
    BuildError,
    DiskFullError,
    GgufspecError,
    NoInstallError,
    ResultsError,
    SourceError,
)
from ggufspec.llama.build import request_build, run_build, toolchain
from ggufspec.llama.install import store
from ggufspec.measure import api, identify, with_fetched
from ggufspec.options import BisectOptions, BuildOptions, takes
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning.bisect.decisions import Measure, Trial, Verdict, choose_next
from ggufspec.tuning.bisect.running import (
    is_stored,
    load_bisection,
    prepare_trial,
    read_trial,
    save_bisection,
)
from ggufspec.tuning.bisect.values import Bisection, find_versions


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
    verdict, bisection = _bisect(fetched, bisection, builds, sink)
    return Bisected(bisection=bisection, verdict=verdict)


def _open(asked: BisectOptions) -> Bisection:
    """Return a new bisection, or a stored one that asks the same."""
    name, resume = asked.name, asked.resume
    versions = find_versions(asked.good, asked.bad, asked.source)
    wanted = Bisection(
        name=name or resume or f"bisect-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        source=None if asked.source is None else str(asked.source.absolute()),
        versions=versions,
        quantity=Quantity(asked.quantity),
        most_repeats=asked.max_repeats,
    )
    if resume is None:
        if is_stored(wanted.name):
            raise ResultsError(f"there is a bisection {name} already", f"continue it with --resume {name}")
        save_bisection(wanted)
        return wanted
    stored = load_bisection(resume)
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


def _bisect(
    asked: BisectOptions, bisection: Bisection, builds: _Builds, sink: Sink
) -> tuple[Verdict, Bisection]:
    """Measure trials until there is a verdict; return it, and the bisection with what was skipped."""
    trials: list[Trial] = []
    while True:
        step = choose_next(
            len(bisection.versions),
            trials,
            bisection.skipped_places,
            most_repeats=bisection.most_repeats,
        )
        if isinstance(step, Verdict):
            return step, bisection
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
        session = prepare_trial(asked, llamas, step.repeats)
        name = bisection.bench(step.number, step.places)
        is_new = name not in results.ids()
        session = identify(session)
        opened = api.begin(
            session,
            command=sink.command("bisect", asked),
            name=name if is_new else None,
            resume=None if is_new else name,
            warnings={},
        )
        bench = api.run(session, opened, sink)
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
        source = None if bisection.source is None else f"git+{bisection.source}"
        self._bisection, self._sink = bisection, sink
        self._requests = [
            request_build(BuildOptions(source=source, version=version, backend=backend, jobs=asked.jobs))[0]
            for version in bisection.versions
        ]

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
            if existing is not None and existing.files is not None:
                return existing.bin
            self._sink.say(f"building {self._bisection.label(place)}")
            return run_build(request, self._sink).bin
        except (BuildError, SourceError, NoInstallError) as error:
            if place in {0, len(self._requests) - 1}:
                raise
            raise _CannotMeasureError(version, error.message) from error
