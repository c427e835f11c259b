"""Start processes: each in its own session, with a time limit, peak memory, and no process left behind.

Every child runs beside a small watcher, which waits on a pipe whose other end only this process holds. When
this process ends, even by SIGKILL, that pipe closes, and the watcher kills the child's process group. On an
exception in this process, such as Ctrl-C, the group is killed directly.

A descendant may leave the group, and its parent may end before it. The child's environment therefore has a
variable with a unique name, and every process that inherited it is killed too. (Jenkins finds the processes
of a build in the same way.)
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, NoReturn

import psutil

from ggufspec.errors import ChildCrashedError
from ggufspec.redaction import without_secrets

_LOG = logging.getLogger("ggufspec")  # `-v` shows it
_POLL_S = 0.05
_GRACE_S = 1.0
_KILL_POLL_S = 0.002
_KILL_WAIT_S = 10.0  # for processes to end after SIGKILL; the kernel may be waiting for a device
_LINE_END = re.compile(rb"\r?\n|\r(?!\n|\Z)")  # at the very end, a line feed may follow
_MARK_AT = 3  # in the arguments of the shell
_TAIL_LINES = 200
_BLOCK_BYTES = 512  # in which POSIX shells count file sizes
MOST_CAPTURED_BYTES = 64 << 20
"""Of the output of a short program, beyond which it is killed."""
# $0 is the mark. SIGTERM first: Ninja runs compilers in their own groups, and only it can end them.
_WATCHER_SCRIPT = f"""\
exec 3<&0 </dev/null
[ "$1" = - ] || ulimit -f "$1" 2>/dev/null
shift
(
  read -r _ <&3
  trap '' TERM
  kill -TERM 0
  sleep {_GRACE_S:g}
  read -r self _ </proc/self/stat
  for place in $(grep -ls "$0" /proc/[0-9]*/environ); do
    pid=${{place#/proc/}}
    [ "${{pid%/environ}}" = "$self" ] || kill -KILL "${{pid%/environ}}"
  done
  kill -KILL 0
) >/dev/null 2>&1 &
exec "$@" 3<&-
"""
_held: set[int] = set()  # our ends of the watchers' pipes


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a child ended.

    ``returncode`` follows the convention of ``subprocess``: negative if a signal ended the child; ``signal``
    is its name. ``peak_rss_bytes`` is sampled every 50 ms and misses shorter peaks. ``tail`` has the last
    lines that a child of ``stream`` printed.
    """

    argv: tuple[str, ...]
    returncode: int
    signal: str | None
    timed_out: bool
    wall_s: float
    peak_rss_bytes: int | None
    tail: tuple[str, ...] = ()


@contextmanager
def spawn(
    argv: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    most_file_bytes: int | None = None,
) -> Iterator[psutil.Popen]:
    """Start a child in its own group; on exit, it and its descendants are killed.

    A fork of this process (``os.fork``) can leave the context too, and kills nothing.

    Args:
        argv: program and arguments, not expanded by a shell.
        stdout: an open file or a constant of ``subprocess``. A descendant may keep a pipe open longer.
        stderr: as ``stdout``.
        env: the child's complete environment; None for this process's own without secrets.
        cwd: the child's working folder; None for this process's own.
        most_file_bytes: the largest file that it may write, its output too; SIGXFSZ ends it at the next byte.

    Raises:
        ChildCrashedError: the system cannot start it, for example because the arguments are too long.
    """
    _LOG.info("start: %s", shlex.join(map(str, argv)))
    mark = f"GGUFSPEC_CHILD_{secrets.token_hex(8)}"
    limit = "-" if most_file_bytes is None else str(most_file_bytes // _BLOCK_BYTES)
    before, owner = frozenset(psutil.pids()), os.getpid()
    lifeline, held = os.pipe()
    _held.add(held)
    try:
        child = psutil.Popen(
            ["/bin/sh", "-c", _WATCHER_SCRIPT, mark, limit, *argv],
            stdin=lifeline,
            stdout=stdout,
            stderr=stderr,
            env={**(without_secrets(os.environ) if env is None else env), mark: "1"},
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        _release(held)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ChildCrashedError(f"cannot start {argv[0]}: {reason}") from error
    except BaseException:
        _release(held)
        raise
    finally:
        os.close(lifeline)
    try:
        yield child
    finally:
        if os.getpid() == owner:
            _end(child, str(argv[0]), mark, before)
            _release(held)
            for pipe in filter(None, (child.stdout, child.stderr)):
                pipe.close()


def run(
    argv: Sequence[str],
    *,
    stdout: Path,
    stderr: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float | None = None,
    most_file_bytes: int | None = None,
) -> Completed:
    """Run a child until it ends, with its output in files. A failing child is not an exception.

    Args:
        argv: program and arguments.
        stdout: the file that receives standard output.
        stderr: the file that receives standard error, or None to mix it into ``stdout``.
        env: as for ``spawn``.
        cwd: as for ``spawn``.
        timeout_s: kill the child after this many seconds.
        most_file_bytes: as for ``spawn``.

    Raises:
        ChildCrashedError: the system cannot start it.
    """
    started = time.perf_counter()
    peak: int | None = None
    timed_out = False
    with ExitStack() as files:
        out = files.enter_context(stdout.open("wb"))
        err = subprocess.STDOUT if stderr is None else files.enter_context(stderr.open("wb"))
        with spawn(argv, stdout=out, stderr=err, env=env, cwd=cwd, most_file_bytes=most_file_bytes) as child:
            while True:
                with suppress(psutil.Error):
                    peak = max(peak or 0, child.memory_info().rss) or None
                returncode = _wait(child, _POLL_S)
                if returncode is not None:
                    break
                if timeout_s is not None and time.perf_counter() - started > timeout_s:
                    timed_out, returncode = True, -signal.SIGKILL
                    break
            wall_s = time.perf_counter() - started
    return _completed(argv, returncode, timed_out=timed_out, wall_s=wall_s, peak_rss_bytes=peak)


def stream(
    argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[str, None, Completed]:
    """Run a child, append its output (stderr included) to ``log``, and yield each line as it is written.

    The generator returns how the child ended: ``completed = yield from stream(...)``. Lines are read from the
    log, so the stream ends with the child even if a descendant still writes. A carriage return ends a line,
    too: progress bars are written so.

    Raises:
        ChildCrashedError: the system cannot start it.
    """
    started = time.perf_counter()
    tail = deque[str](maxlen=_TAIL_LINES)
    with log.open("ab") as file, log.open("rb") as written:
        written.seek(0, os.SEEK_END)
        with spawn(argv, stdout=file, stderr=subprocess.STDOUT, env=env, cwd=cwd) as child:
            returncode: int | None = None
            rest = b""
            while returncode is None:
                returncode = _wait(child, _POLL_S)
                *lines, rest = _LINE_END.split(rest + written.read())
                for line in lines:
                    tail.append(line.decode(errors="replace"))
                    yield tail[-1]
        if rest:
            tail.append(rest.decode(errors="replace"))
            yield tail[-1]
    wall_s = time.perf_counter() - started
    return replace(_completed(argv, returncode, wall_s=wall_s), tail=tuple(tail))


def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60.0,
) -> tuple[Completed, str, str]:
    """Run a short child and return how it ended, its standard output and its standard error.

    One that prints more than ``MOST_CAPTURED_BYTES`` is killed, as if by SIGXFSZ.

    Raises:
        ChildCrashedError: the system cannot start it.
    """
    started = time.perf_counter()
    timed_out = too_long = False
    with spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd) as child:
        while True:
            has_ended = child.poll() is not None  # a descendant may keep the pipes open: do not wait for it
            try:
                out, err = child.communicate(timeout=_POLL_S)
                break
            except subprocess.TimeoutExpired as so_far:
                out, err = so_far.output or b"", so_far.stderr or b""
                timed_out = not has_ended and time.perf_counter() - started > timeout_s
                too_long = len(out) + len(err) > MOST_CAPTURED_BYTES
                if has_ended or timed_out or too_long:
                    break
        returncode = child.returncode
        if timed_out or too_long:
            returncode = -(signal.SIGXFSZ if too_long else signal.SIGKILL)
    wall_s = time.perf_counter() - started
    completed = _completed(argv, returncode, timed_out=timed_out, wall_s=wall_s)
    return completed, out.decode(errors="replace"), err.decode(errors="replace")


def replace_process(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Become another program, which keeps this process's id, streams and working folder.

    Args:
        argv: the path of the program, and its arguments.
        env: its complete environment.

    Raises:
        ChildCrashedError: the system cannot start it.
    """
    _LOG.info("start: %s", shlex.join(argv))
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    # Python ignores these signals, and a program that takes its place would inherit that
    ignored = {getattr(signal, name) for name in ("SIGPIPE", "SIGXFSZ") if hasattr(signal, name)}
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ignored}
    try:
        os.execve(argv[0], list(argv), dict(env))  # noqa: S606  # an argv list, never a shell
    except (OSError, ValueError) as error:
        for number, handler in before.items():
            signal.signal(number, handler)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ChildCrashedError(f"cannot start {argv[0]}: {reason}") from error


def signal_name(number: int) -> str:
    """Return the name of a signal; a number where Python has none, as for most real-time signals."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _wait(child: psutil.Popen, timeout_s: float) -> int | None:
    """Return a child's exit code; None if it still runs after ``timeout_s`` seconds."""
    try:
        return int(child.wait(timeout_s))
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return None


def _end(child: psutil.Popen, name: str, mark: str, before: Collection[int]) -> None:
    """End a child and all its descendants; log a warning for those that cannot be killed."""
    descendants: set[psutil.Process] = set()
    if child.poll() is None:
        with suppress(psutil.Error):  # also those that have cleared their environment
            family = child.children(recursive=True)
            descendants.update(process for process in family if not _is_watcher(process, mark))
    try:
        _signal_group(child, signal.SIGTERM)
        _wait(child, _GRACE_S)
    finally:  # a second Ctrl-C does not stop this
        _signal_group(child, signal.SIGKILL)
        deadline = time.monotonic() + _KILL_WAIT_S
        while remaining := _kill(child, descendants.union(_marked(mark, before))):
            if time.monotonic() > deadline:
                _LOG.warning(
                    "%s did not end within %g s of SIGKILL and may still hold memory and devices: process %s",
                    name,
                    _KILL_WAIT_S,
                    ", ".join(map(str, sorted(remaining))),
                )
                break
            time.sleep(_KILL_POLL_S)


def _kill(child: psutil.Popen, descendants: Iterable[psutil.Process]) -> set[int]:
    """Kill processes and return the ids of those that still run."""
    running = {child.pid} if child.poll() is None else set()
    for process in descendants:
        with suppress(psutil.Error):
            process.kill()
            if process.pid != child.pid and process.status() != psutil.STATUS_ZOMBIE:
                running.add(process.pid)
    return running


def _signal_group(child: psutil.Popen, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS denies it when only zombies are left
        os.killpg(child.pid, number)


def _marked(mark: str, before: Collection[int]) -> Iterator[psutil.Process]:
    """Yield the processes started since ``before`` that inherited a child's variable, except its watcher."""
    for pid in set(psutil.pids()).difference(before):
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            if mark in process.environ() and not _is_watcher(process, mark):
                yield process


def _is_watcher(process: psutil.Process, mark: str) -> bool:
    """Whether a process is the watcher: a fork of the shell that became the child."""
    with suppress(psutil.Error):
        return process.cmdline()[_MARK_AT : _MARK_AT + 1] == [mark]
    return False


def _release(held: int) -> None:
    _held.discard(held)
    os.close(held)


def _release_in_fork() -> None:
    """Close the pipes in a fork of this process: they must close when this process ends, not its forks."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


os.register_at_fork(after_in_child=_release_in_fork)


def _completed(
    argv: Sequence[str],
    returncode: int,
    *,
    wall_s: float,
    timed_out: bool = False,
    peak_rss_bytes: int | None = None,
) -> Completed:
    return Completed(
        argv=tuple(argv),
        returncode=int(returncode),
        signal=signal_name(-returncode) if returncode < 0 else None,
        timed_out=timed_out,
        wall_s=wall_s,
        peak_rss_bytes=peak_rss_bytes,
    )
