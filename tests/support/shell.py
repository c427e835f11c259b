"""The command line as users start it: in a process of its own, to its end or to be interrupted; or here."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from ggufspec import cli

PRINTING = (
    *(("pairs",), ("config",), ("doctor", "--offline"), ("--help",), ("bench", "--help")),
    ("completion", "bash"),
)
"""Commands that only print, each in its own way."""
_CLOCK_S = 2.0  # the system counts starts from its boot, whose time it knows to a second


def start(
    *words: str, llama: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``ggufspec`` with these words; ``llama`` is the llama.cpp that it finds."""
    return subprocess.Popen(
        [sys.executable, "-m", "ggufspec", *words],
        env=os.environ | dict(env or {}) | ({"GGUFSPEC_LLAMA": str(llama)} if llama else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ggufspec(
    *words: str, llama: Path | None = None, env: Mapping[str, str] | None = None, timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(*words, llama=llama, env=env)
    try:
        out, err = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def redirected(
    *words: str, stdout: Path | int | None = None, stderr: Path | int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it with its streams elsewhere, and with the buffers that users have; None keeps what is written."""
    with contextlib.ExitStack() as files:
        places = [
            files.enter_context(place.open("wb")) if isinstance(place, Path) else place or subprocess.PIPE
            for place in (stdout, stderr)
        ]
        return subprocess.run(
            [sys.executable, "-m", "ggufspec", *words],
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
            stdout=places[0],
            stderr=places[1],
            text=True,
            timeout=120,
            check=False,
        )


def here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it in this process, which spares the start of one: the same main, exit code and streams."""
    return _call(cli.main, "ggufspec", *words)


def done(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it like ``here``; it must end without an error."""
    ended = here(*words)
    assert ended.returncode == 0, (words, ended.returncode, ended.stderr)
    return ended


def run(*words: str) -> tuple[int, str, str]:
    """Run it like ``here``; return its exit code and what it printed."""
    ended = here(*words)
    return ended.returncode, ended.stdout, ended.stderr


def runs(bench: str) -> list[dict[str, Any]]:
    """Return the rows of a stored bench's runs, as ``show`` prints them."""
    return list(json.loads(here("show", bench, "--runs", "-o", "json").stdout))


def script(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a script of ``scripts/`` in this process, which spares the imports of each start."""
    return _call(importlib.import_module(name).main, f"scripts/{name}.py", *map(str, words))


def make(name: str, *words: str | Path) -> None:
    """Run a script like ``script``; it must end without an error."""
    ended = script(name, *words)
    assert ended.returncode == 0, ended.stderr


def _call(main: Callable[[], object], *argv: str) -> subprocess.CompletedProcess[str]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", [*argv]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; return what it printed."""
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    return subprocess.check_output(["git", *identity, "-C", str(folder), *words], text=True).strip()


def note(file: Path) -> str:
    """Return shell commands that add the shell's own process id to a file; ``exec`` keeps the id."""
    return f"echo $$ >>{shlex.quote(str(file))}\n"


def alive(file: Path) -> list[int]:
    """Return which of the processes that wrote their ids into a file still run."""
    if not file.exists():
        return []
    written_at = file.stat().st_mtime
    return [pid for pid in map(int, file.read_text().split()) if still_runs(pid, written_at)]


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs; one that has ended and waits for its parent does not."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def still_runs(pid: int, seen_at: float) -> bool:
    """Whether the process runs that had this id then; meanwhile another one may have been given the id."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return is_alive(process) and process.create_time() < seen_at + _CLOCK_S
    return False


def children() -> set[psutil.Process]:
    """Return the processes that this one has started, and theirs, as far as they still run."""
    return {process for process in psutil.Process().children(recursive=True) if is_alive(process)}


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Return once a condition holds.

    Raises:
        AssertionError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.005)
