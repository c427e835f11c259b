"""The steps of a measurement, with its notes, progress and table."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from ggufspec import errors, redaction, units
from ggufspec.analysis import Arm, MeasurementWarning, arms, warnings
from ggufspec.cli.entry.live import LiveText
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.tables import emit
from ggufspec.cli.steps import benches, building, hub_access, limits
from ggufspec.domain import RunResult, Status
from ggufspec.engines import failures
from ggufspec.harmless import CONTROL
from ggufspec.llama.install import environment
from ggufspec.measure import (
    NO_DEADLINE,
    Deadline,
    Session,
    api,
    identify,
    refuse_endless,
    unread_files,
)
from ggufspec.options import BenchOptions
from ggufspec.report.text import formats, growing, overview, tables
from ggufspec.results import ResultSet

_READ_BYTES_PER_S = 1e9  # and computing the digest
_LONG_BYTES = 1 << 30
_OWN = {"LC_ALL": "C.UTF-8", "XDG_CONFIG_HOME": "/nonexistent"}

GROUPING_SHARE = 50.0
"""Seconds of measuring for each second of grouping runs into arms."""

READ_AS = "ggufspec.read_as"
"""The key of click's context for the command line that a pasted command was read as."""

_PRINTED_AT_ONCE = {MeasurementWarning.THREADS_ABOVE_FREE_CORES.value}
"""Warnings that are printed before the table: they can make hours of measuring useless."""


def prepare_bench(asked: BenchOptions) -> Session:
    """Check a bench; print what was chosen, and the warnings that are known already.

    On a terminal, offers to build llama.cpp where none is found.
    """
    if asked.llamas == (None,) and not asked.names_servers:
        building.offer_build()
    deadline = limits.begin_limit(asked.max_time)
    since_s = deadline.elapsed_s
    models = hub_access.fetch_models(asked)
    deadline = limits.without_network(deadline, since_s)
    session = api.prepare(models)
    print_notes(session)
    return session if asked.max_time is None else replace(session, deadline=deadline)


def print_notes(session: Session) -> None:
    """Print on standard error what was chosen, and the warnings before the first run."""
    for note in session.notes:
        echo_sentence(note, err=True)
    print_warnings(warnings.warning_advice(session.doubts))


def print_warnings(advice: Mapping[str, str]) -> None:
    """Print warnings in the form in which they follow a table."""
    for name, text in advice.items():
        echo_sentence(f"warning {name}: {text}", err=True)


def show_commands(session: Session, out: Path | None) -> None:
    """Print the commands of a bench, one line per distinct run, ready to paste into a shell.

    Of servers that run already, it is where requests are sent.
    """
    switches = environment.switches()
    needed = [name for name in environment.inherited() if name not in {*switches, *_OWN}]
    env = " ".join(
        [
            "env -i",
            *(f'{name}="${name}"' for name in sorted(needed)),
            shlex.join(f"{name}={value}" for name, value in (switches | _OWN).items()),
        ]
    )
    suite = session.suite
    specs = [spec for block in suite.blocks for prompt in suite.prompts for spec in block.on(prompt)]
    if session.llama is None:
        emit("".join(dict.fromkeys(f"{' '.join(session.engine.argv(spec))}\n" for spec in specs)), out)
        return
    lines = dict.fromkeys(
        f'(cd "$(mktemp -d)" && {env} {" ".join(map(_quote, session.engine.argv(spec)))} </dev/null)\n'
        for spec in specs
    )
    emit("".join(lines), out)


def _quote(word: str) -> str:
    """Return a word quoted for a shell; control characters become escapes."""
    if not re.search(CONTROL, word):
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    escaped = re.sub(
        CONTROL, lambda match: "".join(f"\\x{byte:02x}" for byte in os.fsencode(match[0])), plain
    )
    return f"$'{escaped}'"


def announce_reading(session: Session) -> None:
    """Print that models are read for their digests, if that takes long."""
    announce_files(unread_files(session))


def announce_files(sizes: Mapping[Path, int]) -> None:
    """Print that files are read for their digests, if that takes long; ``sizes`` are in bytes."""
    total = sum(sizes.values())
    if total >= _LONG_BYTES:
        seconds = units.format_duration(max(10.0, total / _READ_BYTES_PER_S))
        files = f"{units.counted(len(sizes), 'model file')} ({units.format_bytes(total)})"
        echo(f"reading {files} once to compute checksums: about {seconds}", err=True)


def run_bench(session: Session, asked: BenchOptions) -> ResultSet:
    """Measure while the table grows on the terminal, and print it at the end, even after an interruption.

    Returns the bench.

    Raises:
        DoubtfulError: ``strict`` is set, and a warning puts a verdict in doubt.
        GgufspecError: the class that belongs to the first failed run.
    """
    refuse_endless(session.suite)  # before reading large models
    announce_reading(session)
    session = identify(session)
    warnings = check_machine(session)
    opened = api.begin(
        session, command=command_line(), name=asked.name, resume=asked.resume, warnings=warnings
    )

    def show_table(results: ResultSet) -> str:
        emit(table(results, asked.output), asked.out)
        return describe_continuing(results)

    finished = measure(session, opened, show_table)
    emit(table(finished, asked.output), asked.out)
    raise_for_failures(finished)
    if asked.strict:
        benches.refuse_doubtful([finished])
    return finished


def describe_continuing(results: ResultSet) -> str:
    """Return a sentence with the command that continues a bench of this command line."""
    return benches.describe_command(benches.command_line(command_line(), results.meta.id))


def measure(
    session: Session, opened: ResultSet, describe_ended: Callable[[ResultSet], str] | None = None
) -> ResultSet:
    """Measure a bench to its end, while a table of the results grows on the terminal.

    Args:
        session: what to measure.
        opened: its store.
        describe_ended: returns a sentence about how to see or continue a bench that ended early; None where
            the caller says that.
    """
    benches.warn_of_damage(opened)
    screen = _Screen(session, opened)
    try:
        with screen.live:
            return api.run(session, opened, screen.show)
    except BaseException as error:
        if describe_ended is not None:
            with api.defer_interrupts():
                how = describe_ended(screen.results)
                echo(f"{_describe_end(error, screen.results)}{how}", err=True)
        raise


def check_machine(session: Session) -> dict[str, str]:
    """Return the warnings about this machine now; print those that were not printed before."""
    advice, printed = api.look_around(session), warnings.warning_advice(session.doubts)
    print_warnings({name: text for name, text in advice.items() if name not in printed})
    return advice


def _describe_end(error: BaseException, results: ResultSet) -> str:
    """Return a sentence about a bench that ended early, by a signal or an error."""
    reason = "Stopped by an error" if isinstance(error, Exception) else "Interrupted"
    return f"{reason} after {benches.format_progress(results)}."


def command_line() -> tuple[str, ...]:
    """Return this program's command line as text, without a token; bytes that are not UTF-8 are replaced.

    Of a pasted command, it is what it was read as: its own text may hold secrets.
    """
    context = click.get_current_context(silent=True)
    if context is not None and READ_AS in context.meta:
        read_as: tuple[str, ...] = context.meta[READ_AS]
        return read_as
    words = redaction.without_token_option(sys.argv)
    return tuple(os.fsencode(word).decode(errors="replace") for word in words)


class _Screen:
    """The table of a bench, which grows on the terminal; ``results`` are what was shown last."""

    def __init__(self, session: Session, opened: ResultSet) -> None:
        self.live = LiveText()
        self.results = opened
        self._pace = _Pace.start(session, opened)
        self._printed = {*opened.meta.doubts}

    def show(self, results: ResultSet) -> None:
        """Show a bench before its next run; after a run, print the warnings that cannot wait."""
        n_shown, self.results = len(self.results.runs), results
        if len(results.runs) > n_shown:  # counted one by one: counting all again takes longer each time
            last = results.runs[-1]
            self._pace.n_done += not (last.warmup or last.anchor or last.rerun or last.remeasured)
            for warning in _PRINTED_AT_ONCE.intersection(last.doubts) - self._printed:
                self._printed.add(warning)
                self.live.print(f"warning {warning}: {warnings.ADVICE[MeasurementWarning(warning)]}")
        if results.upcoming is not None:
            pace, progress = self._pace, self._pace.progress(results)
            self.live.show(
                lambda height: growing.growing_table(pace.group(results), progress, height=height),
                lambda: growing.growing_line(pace.group(results), progress),
            )


@dataclass(kw_only=True)
class _Pace:
    """How far a bench is, and the arms as they were when they were grouped last.

    To group many runs takes long. So it is done again only after fifty times the seconds that it took.
    """

    n_done: int
    n_planned: int
    is_most: bool
    deadline: Deadline
    n_before: int  # runs of an earlier session
    started: float
    _groups: Sequence[Arm] = ()
    _group_again_at: float = 0.0

    @classmethod
    def start(cls, session: Session, opened: ResultSet) -> _Pace:
        suite = session.suite
        now, n_done = time.monotonic(), len(opened.current)
        return cls(
            n_done=n_done,
            n_planned=suite.n_runs,
            is_most=suite.stopping is not None,
            deadline=session.deadline or NO_DEADLINE,
            n_before=n_done,
            started=now,
        )

    def progress(self, store: ResultSet) -> growing.Progress:
        now, n_measured = time.monotonic(), self.n_done - self.n_before
        left = None
        if n_measured:
            left = (now - self.started) / n_measured * (self.n_planned - self.n_done)
            left = min(left, max(0.0, self.deadline.left_s))
        return growing.Progress(
            n_done=self.n_done,
            n_planned=max(self.n_planned, self.n_done),
            is_most=self.is_most,
            left_s=left,
            running=store.upcoming,
        )

    def group(self, store: ResultSet) -> Sequence[Arm]:
        started = time.monotonic()
        if started >= self._group_again_at:
            self._groups = arms.group(store)
            ended = time.monotonic()
            self._group_again_at = ended + GROUPING_SHARE * (ended - started)
        return self._groups


def table(results: ResultSet, output: str) -> str | bytes:
    """Return a bench's table in a format."""
    if output in tables.FOR_PEOPLE:
        return benches.describe_incomplete(results) + overview.overview(results, output)
    from ggufspec.report import frames  # pandas is slow to import, and Markdown tables do not need it

    origin = frames.origin(results.meta)
    return formats.render(frames.summary(results), output, title="summary", origin=origin, schema="summary")


def raise_for_failures(results: ResultSet) -> None:
    """Raise the error of the first failed run of a finished bench.

    Raises:
        GgufspecError: the class that belongs to the run's status.
    """
    failed = [run for run in results.current if run.sample.status is not Status.OK]
    if failed:
        raise _error(failed[0], len(failed), results)


def _error(run: RunResult, count: int, results: ResultSet) -> errors.GgufspecError:
    status = run.sample.status
    log = results.folder / "logs" / f"{run.log}.err"
    summary = (
        f"{count} of {len(results.current)} runs failed, first {run.spec.role.value} on {run.spec.prompt.id}"
    )
    error = failures.failure_error(
        status, f"{summary}: {status.value}: {run.error or 'see the log'}", f"the log is {log}"
    )
    if status is Status.TIMED_OUT and "--max-time" in (run.error or ""):
        error.hint = "allow more time with --max-time, or ask for fewer tokens with -n"
    if status is Status.TIMED_OUT and MeasurementWarning.THREADS_ABOVE_FREE_CORES.value in run.doubts:
        error.hint = warnings.ADVICE[MeasurementWarning.THREADS_ABOVE_FREE_CORES]
    return error
