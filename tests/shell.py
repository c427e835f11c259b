"""The command line as users start it: in a process of its own, to its end or to be interrupted; or here."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest import mock

import psutil

from ggufspec import cli


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
    *words: str, llama: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(*words, llama=llama, env=env)
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def here(*words: str) -> subprocess.CompletedProcess[str]:
    """Run it in this process, which spares the start of one: the same main, exit code and streams."""
    out, err, handler = io.StringIO(), io.StringIO(), signal.getsignal(signal.SIGTERM)
    argv = ["ggufspec", *words]
    with (
        mock.patch.object(sys, "argv", argv),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            signal.signal(signal.SIGTERM, handler)
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def alive(word: str) -> list[list[str]]:
    """Return the command lines of live processes that name a word, our own left out."""
    return [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline", "status"])
        if process.pid != os.getpid()
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and any(word in part for part in process.info["cmdline"] or ())
    ]


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return once a condition holds.

    Raises:
        AssertionError: it did not in time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.005)
