"""The whole bench as one function of its options, and its steps for what measures several benches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ggufspec import machine, results, units
from ggufspec.analysis import warnings as measurement_warnings
from ggufspec.domain import NO_PROMPT, FileUse, RunSpec
from ggufspec.errors import ResultsError
from ggufspec.llama import build as builds
from ggufspec.llama.install import installs, switches
from ggufspec.measure import identity, models, running
from ggufspec.measure.deadline import Deadline
from ggufspec.measure.measuring import record
from ggufspec.measure.runplan import RunPlan, refuse_endless
from ggufspec.measure.session import Session, identify, prepare_session, unread_files
from ggufspec.options import BenchOptions, BuildOptions, DemoOptions, SweepOptions, takes
from ggufspec.results import Meta, ResultSet, say_damage
from ggufspec.steps import SILENT, Sink

_DEMO_DRAFT_SIZES = (3, 8)
_READ_BYTES_PER_S = 1e9  # and computing the digest
_LONG_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class BenchProgress:
    """A bench before its next run (``results.upcoming``), or after one."""

    session: Session
    results: ResultSet


@takes(SweepOptions)
def bench(asked: BenchOptions, sink: Sink = SILENT) -> ResultSet:
    """Measure target alone, drafter alone and drafting, as ``ggufspec bench`` and ``ggufspec sweep`` do.

    Every combination of several values is measured. Models that are named by a reference such as
    ``user/repo:Q4_K_M`` are downloaded if they are not here.

    Returns:
        The runs, already stored; ``ggufspec.load(results.meta.id)`` reads them again.

    Raises:
        GgufspecError: something cannot work, said before any model is loaded; failing runs are rows instead.
    """
    session = plan_bench(asked, sink=sink)
    refuse_endless(session.suite)  # before reading large models
    session = identify_here(session, sink)
    command = sink.command("bench", asked)
    return measure(session, sink, command=command, name=asked.name, resume=asked.resume)


@takes(SweepOptions)
def plan_bench(asked: BenchOptions, sink: Sink = SILENT) -> Session:
    """Check a bench, download its models, and return what it would run, as ``--dry-run`` prints it.

    Returns:
        The session: ``session.suite`` has the blocks of arms, prompts and repeats.

    Raises:
        GgufspecError: something cannot work.
    """
    deadline = Deadline.start(asked.max_time, begun_s=sink.begun_s)
    asked, deadline = models.fetch_in_time(asked, deadline, sink)
    session = prepare(asked)
    sink.show(session)
    return session if asked.max_time is None else replace(session, deadline=deadline)


@takes(DemoOptions)
def demo(asked: DemoOptions, sink: Sink = SILENT) -> ResultSet:
    """Build llama.cpp if there is none, and measure the embedded pair, as ``ggufspec demo`` does.

    Raises:
        GgufspecError: it cannot be built or measured.
    """
    if not installs.is_any_found():
        builds.build(BuildOptions(), sink=sink)
    return bench(asked.to(BenchOptions, pair="demo", draft=_DEMO_DRAFT_SIZES), sink=sink)


def prepare(request: BenchOptions) -> Session:
    """Turn a request into something that can run, with models that are loaded or servers that run already.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before anything is measured.
    """
    if request.names_servers:
        return running.prepare_session(request)
    return prepare_session(request)


def measure(
    session: Session,
    sink: Sink,
    *,
    command: tuple[str, ...],
    name: str | None = None,
    resume: str | None = None,
) -> ResultSet:
    """Measure a session in a new bench, or go on with a stored one; see ``begin``."""
    return run(session, begin(session, command=command, name=name, resume=resume), sink)


def place(name: str) -> tuple[str | None, str | None]:
    """Return the name of a new bench, or that of the stored one to go on with; the other is None."""
    return (None, name) if name in results.ids() else (name, None)


def run(session: Session, store: ResultSet, sink: Sink = SILENT) -> ResultSet:
    """Measure a session to its end, end its programs, and return the results; see ``measuring.record``.

    Args:
        session: what to measure, after ``identify``.
        store: what ``begin`` returned.
        sink: gets the growing results, before each run (with it as ``upcoming``) and after it. No run is
            measured meanwhile, so it may take time.
    """
    say_damage(store, sink)
    try:
        return sink.finish(_record_to_end(session, store))
    finally:
        with defer_interrupts():  # a second Ctrl-C must not leave a server behind
            session.engine.close()


def _record_to_end(session: Session, store: ResultSet) -> Generator[BenchProgress, None, ResultSet]:
    results = store
    for results in record(session, store, announces=True):
        yield BenchProgress(session=session, results=results)
    return results


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C in the block, in which a bench is closed."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set and gets signals
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def identify_here(session: Session, sink: Sink) -> Session:
    """Return a session whose files are known by their content, and say what this machine does now."""
    say_reading(unread_files(session), sink)
    session = identify(session)
    check_machine(session, sink)
    return session


def say_reading(sizes: Mapping[Path, int], sink: Sink) -> None:
    """Say that files are read for their digests, if that takes long; ``sizes`` are in bytes."""
    total = sum(sizes.values())
    if total >= _LONG_BYTES:
        seconds = units.format_duration(max(10.0, total / _READ_BYTES_PER_S))
        files = f"{units.counted(len(sizes), 'model file')} ({units.format_bytes(total)})"
        sink.say(f"reading {files} once to compute checksums: about {seconds}")


def check_machine(session: Session, sink: Sink) -> None:
    """Say whether other programs use the processor now; takes up to 0.3 s.

    It is not stored: each run has what they used while it was measured.
    """
    crowded = measurement_warnings.MeasurementWarning.THREADS_ABOVE_FREE_CORES
    busy_cores = machine.busy_cores(session.load_watch)
    found = measurement_warnings.before(
        machine.usable_cores(), threads=session.suite.threads, busy_cores=busy_cores
    )
    if crowded in found and crowded not in session.doubts:
        sink.say(
            "processor: other programs leave fewer cores free than --threads takes, and then llama.cpp "
            "becomes many times slower: stop them, or lower it"
        )
    elif measurement_warnings.MeasurementWarning.BUSY_MACHINE in found:
        sink.say("processor: other programs use it now: stop them for narrower intervals")


def begin(
    session: Session, *, command: tuple[str, ...], name: str | None = None, resume: str | None = None
) -> ResultSet:
    """Open the store of a bench: a new one, under its own or a given name, or one that was cut off.

    Args:
        session: what is going to be measured, after ``identify``.
        command: the command line that asked for it, stored with the results.
        name: what to call a new bench.
        resume: the name or id of a stored one to go on with.

    Raises:
        ResultsError: no such bench, one that another process writes to, or one of another build or machine.
        GgufspecError: there is more to measure than ever can be.
    """
    refuse_endless(session.suite)
    assert session.files is not None, "identify the session first"
    here = machine.snapshot(session.devices)
    build = session.build
    if resume is not None:
        store = results.reopen(resume, build=build, machine=here)
        try:
            _refuse_mixture(session, store)
            return results.amend(
                store,
                planned_runs=_planned_runs(session.suite, store),
                files=tuple(dict.fromkeys((*(store.meta.files or ()), *session.files))),
                suite_sha256=identity.of_prompts(session.suite.prompts, session.origin),
            )
        except ResultsError:
            results.close(store)
            raise
    meta = Meta(
        id="",
        started_at="",
        engine=session.engine.name,
        command=command,
        build=build,
        machine=here,
        doubts=measurement_warnings.warning_advice(session.doubts),
        planned_runs=session.suite.n_runs,
        files=session.files,
        environment=switches(),
        builds={name: install.describe() for name, install in session.builds.items()},
        software=identity.of_software(),
        suite_sha256=identity.of_prompts(session.suite.prompts, session.origin),
        stopping=session.suite.stopping,
        workers=tuple(report.describe() for report in session.workers),
    )
    return results.create(meta, name)


def _planned_runs(suite: RunPlan, store: ResultSet) -> int:
    """Return how many runs there will be: those of a suite, and stored ones that it does not have."""
    arms = {arm.key for block in suite.blocks for arm in block.arms}
    prompts = {prompt.id for prompt in suite.prompts}

    @cache
    def is_planned(spec: RunSpec) -> bool:
        first_turn = spec.prompt.id.partition("#")[0]
        return first_turn in prompts and replace(spec, prompt=NO_PROMPT).key in arms

    current = store.current
    others: int = sum(
        repeat >= suite.most_repeats or not is_planned(spec)
        for spec, repeat in zip(current.specs, current.column("repeat"), strict=True)
    )
    return suite.n_runs + others


def _refuse_mixture(session: Session, store: ResultSet) -> None:
    """Raise where new runs would stand beside stored ones that they cannot be compared with."""
    if store.meta.files is None:
        raise ResultsError(
            f"the bench {store.meta.id} does not say which files it was begun with",
            "so it cannot be told whether they are the same: start a new one",
        )
    for what, same in _find_mixture(session, store):
        raise ResultsError(what, f"resume it with {same}, or start a new one")


def _find_mixture(session: Session, store: ResultSet) -> Iterator[tuple[str, str]]:
    """Yield why new runs could not be compared with the stored ones beside them, and what to do."""
    meta, specs, begun = store.meta, store.runs.specs, f"the bench {store.meta.id} was begun"
    if session.engine.name != meta.engine:
        yield f"{begun} with the engine {meta.engine}, not {session.engine.name}", f"--engine {meta.engine}"
    if session.builds.keys() != meta.builds.keys():
        stored, given = (
            ", ".join(sorted(builds)) or "one llama.cpp" for builds in (meta.builds, session.builds)
        )
        yield f"{begun} with {stored}, not with {given}", "the same --llama options"
    if session.suite.stopping != meta.stopping:
        how = "without --until" if meta.stopping is None else "with --until decided"
        yield f"{begun} {how}, and with other looks or arms than these", "the options that it was begun with"
    files, known_files = session.files or (), meta.files or ()
    for file in files:
        same = [known for known in known_files if (known.use, known.name) == (file.use, file.name)]
        if same and file.sha256 not in {known.sha256 for known in same}:
            what = f"{file.path} is not what {begun} with: {same[0].summary} then, {file.summary} now"
            yield what, "the same file"
    before, now = (
        {file.name for file in either if file.use is not FileUse.MODEL} for either in (known_files, files)
    )
    for other in sorted(before ^ now):
        yield f"{begun} {'with' if other in before else 'without'} llama.cpp's {other}", "the same llama.cpp"
    was_set, is_set = meta.environment or {}, switches()
    for name in sorted(was_set.keys() | is_set.keys()):
        stored, given = (repr(known[name]) if name in known else "not set" for known in (was_set, is_set))
        if stored != given:
            yield f"{name} is {given}, and was {stored} when {begun}", f"{name} as it was"
    contexts, context = {spec.context for spec in specs}, session.suite.blocks[0].arms[0].context
    if contexts and context not in contexts:
        most = max(contexts)
        yield f"{begun} with a context of {most} tokens, not {context}", f"--ctx {most} if that is enough"
    contents = {spec.prompt.id: spec.prompt.content for spec in specs}
    for prompt in (*session.suite.prompts, *session.suite.warmup_prompts):
        if contents.get(prompt.id, prompt.content) != prompt.content:
            what = f"prompt {prompt.id} has another text than when {begun}"
            yield what, "the same prompts in the same order, new ones last"
