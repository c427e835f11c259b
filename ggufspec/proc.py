"""The only module that starts processes: own group, time-out, peak memory, never an orphan.

Every child runs in a session of its own beside a tiny watcher, which waits on a pipe whose other end only
this process holds. Whatever ends this process, SIGKILL included, closes that pipe, and the watcher then
kills the child's whole group. Ctrl-C and SIGTERM arrive as exceptions and kill the group directly.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from ggufspec.environ import without_secrets

_LOG = logging.getLogger("ggufspec")  # `-v` shows it
_POLL_S = 0.05
_GRACE_S = 1.0
_WATCHED = (  # SIGTERM first: Ninja runs compilers in groups of their own, and it alone can end them
    "exec 3<&0 </dev/null; "
    f"(read -r _ <&3; trap '' TERM; kill -TERM 0; sleep {_GRACE_S:g}; kill -KILL 0) >/dev/null 2>&1 & "
    'exec "$@" 3<&-'
)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a child ended.

    ``returncode`` follows the subprocess convention: negative for the signal that ended the child, whose
    name is in ``signal``. ``peak_rss_bytes`` is sampled every 50 ms and misses shorter peaks.
    """

    argv: tuple[str, ...]
    returncode: int
    signal: str | None
    timed_out: bool
    wall_s: float
    peak_rss_bytes: int | None


@contextmanager
def spawn(
    argv: Sequence[str],
    *,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Iterator[psutil.Popen]:
    """Start a child in a group of its own; whatever is left of the group is killed on exit.

    Args:
        argv: program and arguments; never passed through shell expansion.
        stdout: an open file or a subprocess constant.
        stderr: likewise.
        env: the whole environment of the child, or None for ours without its secrets.
        cwd: the child's working folder, or None for ours.
    """
    _LOG.info("start: %s", shlex.join(map(str, argv)))
    lifeline, held = os.pipe()
    try:
        child = psutil.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *argv],
            stdin=lifeline,
            stdout=stdout,
            stderr=stderr,
            env=without_secrets(os.environ) if env is None else dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(lifeline)
    try:
        yield child
    finally:
        try:
            _end(child, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
                child.wait(_GRACE_S)
        finally:
            _end(child, signal.SIGKILL)
            os.close(held)
            child.wait()
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
) -> Completed:
    """Run a child to its end, its output going straight to files; report, never judge.

    Args:
        argv: program and arguments.
        stdout: the file that receives standard output.
        stderr: the file that receives standard error, or None to mix it into ``stdout``.
        env: the whole environment of the child, or None for ours.
        cwd: the child's working folder, or None for ours.
        timeout_s: kill the child after that many seconds.
    """
    started = time.perf_counter()
    peak: int | None = None
    timed_out = False
    with ExitStack() as files:
        out = files.enter_context(stdout.open("wb"))
        err = subprocess.STDOUT if stderr is None else files.enter_context(stderr.open("wb"))
        with spawn(argv, stdout=out, stderr=err, env=env, cwd=cwd) as child:
            while True:
                with suppress(psutil.Error):
                    peak = max(peak or 0, child.memory_info().rss) or None
                try:
                    returncode = child.wait(_POLL_S)
                    break
                except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
                    if timeout_s is not None and time.perf_counter() - started > timeout_s:
                        timed_out, returncode = True, -signal.SIGKILL
                        break
            wall_s = time.perf_counter() - started
    return _completed(argv, returncode, timed_out=timed_out, wall_s=wall_s, peak_rss_bytes=peak)


def stream(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Generator[str, None, Completed]:
    """Run a child and yield its lines as they come, stderr mixed in; ``log`` receives them all.

    The generator's return value says how the child ended: ``completed = yield from stream(...)``.
    """
    started = time.perf_counter()
    with (
        log.open("ab") as file,
        spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, cwd=cwd) as child,
    ):
        for line in child.stdout:
            file.write(line)
            file.flush()
            yield line.decode(errors="replace").rstrip("\n")
        returncode = child.wait()
    return _completed(
        argv, returncode, timed_out=False, wall_s=time.perf_counter() - started, peak_rss_bytes=None
    )


def capture(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 60.0,
) -> tuple[Completed, str, str]:
    """Run a short child and return how it ended, its standard output and its standard error."""
    started = time.perf_counter()
    with spawn(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd) as child:
        try:
            out, err = child.communicate(timeout=timeout_s)
            returncode, timed_out = child.returncode, False
        except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
            out, err, returncode, timed_out = b"", b"", -signal.SIGKILL, True
    completed = _completed(
        argv, returncode, timed_out=timed_out, wall_s=time.perf_counter() - started, peak_rss_bytes=None
    )
    return completed, out.decode(errors="replace"), err.decode(errors="replace")


def _end(child: psutil.Popen, with_signal: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, with_signal)


def _completed(
    argv: Sequence[str], returncode: int, *, timed_out: bool, wall_s: float, peak_rss_bytes: int | None
) -> Completed:
    name = signal.Signals(-returncode).name if returncode < 0 else None
    return Completed(
        argv=tuple(argv),
        returncode=int(returncode),
        signal=name,
        timed_out=timed_out,
        wall_s=wall_s,
        peak_rss_bytes=peak_rss_bytes,
    )
