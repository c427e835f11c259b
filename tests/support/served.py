"""A server of llama.cpp that a test has started as users do: wait until it answers, ask it, and end it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.request import Request, urlopen

from tests.support import shell


def start(words: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a program whose output nobody reads."""
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=nowhere, stderr=nowhere, text=True, env=env)


def wait(process: subprocess.Popen[str], port: int) -> None:
    """Wait until a server answers.

    Raises:
        AssertionError: it ended, or did not answer in time.
    """

    def is_healthy() -> bool:
        assert process.poll() is None, process.communicate()
        with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
            return True
        return False

    shell.wait_until(is_healthy, 150)


@contextmanager
def ready(process: subprocess.Popen[str], port: int) -> Iterator[None]:
    """Wait until a server answers, and end it."""
    try:
        wait(process, port)
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=30)


def ask(port: int, body: Mapping[str, Any], *, key: str = "") -> dict[str, Any]:
    """Return the answer to a completion request.

    Raises:
        HTTPError: the server refuses it.
    """
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), headers=headers)
    with urlopen(request, timeout=120) as answer:
        decoded: dict[str, Any] = json.load(answer)
        return decoded
