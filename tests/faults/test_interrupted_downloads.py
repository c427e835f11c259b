"""Downloads that are interrupted, cut, shared or slow."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ggufspec.modelfiles.hub import transfer
from tests.support import hub_client
from tests.support.hub_client import PAIR, TARGET, Run
from tests.support.hub_server import Fault, Hub


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_resumes(hub: Hub, home: Path, run: Run, how: signal.Signals) -> None:
    body = hub_client.gguf(28 << 20)  # larger ones may come on several connections, which lose some pieces
    hub.add("me/Big-GGUF", {"big-Q4_0.gguf": body})
    args = ("--no-check", "--target", "me/Big-GGUF/big-Q4_0.gguf", "--draft-model", "me/D-GGUF")
    hub.faults = [Fault(where="file=big", hold_after=len(body) // 2)]
    place = hub_client.blob(home, hub, "me/Big-GGUF/big-Q4_0.gguf")
    partial = Path(f"{place}.incomplete")
    running = hub_client.start(hub, home, *args)
    wait_for(lambda: partial.exists() and partial.stat().st_size >= len(body) // 2 - (1 << 20))
    running.send_signal(how)
    out, err = running.communicate(timeout=30)
    assert running.returncode == (130 if how is signal.SIGINT else -how)
    assert (out, err.strip()) == ("", "")
    assert not place.exists()
    assert not list(home.rglob("big-*"))
    code, out, _ = run("fetch", "-q", *args)
    assert code == 0
    assert Path(out.splitlines()[0]).read_bytes() == body
    assert hub.bytes_served <= 1.05 * (len(body) + len(hub_client.gguf()))


def test_a_stream_that_breaks_is_taken_up_again(hub: Hub, run: Run) -> None:
    size = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size
    hub.faults = [Fault(where="file=t", times=1, cut_after=size // 2)]
    code, _, err = run("fetch", "--target", TARGET)
    assert code == 0
    assert "t-Q4_K_M.gguf: again in 1.00 s: peer closed connection" in err
    assert hub.bytes_served <= 1.05 * size
    assert [seen.headers.get("range") for seen in hub.content_requests()] == [None, f"bytes={size // 2}-"]


def test_a_server_without_ranges_starts_over(hub: Hub, run: Run) -> None:
    size = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size
    hub.faults = [
        Fault(where="file=t", times=1, cut_after=size // 2),
        Fault(where="file=t", times=1, no_ranges=True),
    ]
    assert run("fetch", "--target", TARGET)[0] == 0
    assert hub.bytes_served == size // 2 + size


def test_a_web_page_does_not_cost_what_is_here(hub: Hub, home: Path, run: Run) -> None:
    body = hub_client.gguf(1 << 20)
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    Path(f"{place}.incomplete").write_bytes(body[: 1 << 20])
    hub.faults = [Fault(where="file=t", body=b"<html>")]
    assert run("fetch", "--target", TARGET)[0] == 28
    code, _, err = run("fetch", "--target", TARGET)
    assert code == 0
    assert "36% cached" in err
    assert hub.bytes_served == len(body) - (1 << 20)


@pytest.mark.parametrize("left", [b"GGUF but not the beginning of this file", bytes(64 << 20)])
def test_a_foreign_beginning_is_thrown_away(hub: Hub, home: Path, run: Run, left: bytes) -> None:
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    Path(f"{place}.incomplete").write_bytes(left)
    code, out, _ = run("fetch", "-q", "--target", TARGET)
    assert code == 0
    assert Path(out.strip()).read_bytes() == hub_client.gguf(1 << 20)


def test_two_processes_fetch_the_same_pair_once(hub: Hub, home: Path) -> None:
    hub.rate = 3e6
    first, second = (hub_client.start(hub, home, "--no-check", *PAIR) for _ in range(2))
    results = [process.communicate(timeout=60) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert results[0] == results[1]
    size = sum(len(hub_client.gguf(n)) for n in (1 << 20, 0))
    assert hub.bytes_served <= 1.05 * size


def test_what_only_the_client_can_download(hub: Hub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LARGEST_BY_HTTP_BYTES", 1000)
    code, out, _ = run("fetch", "-q", "--target", TARGET)
    assert code == 0
    assert Path(out.strip()).read_bytes() == hub_client.gguf(1 << 20)
    assert hub.requests("me/T-GGUF/resolve", "HEAD")


def _read_terminal(ours: int) -> str:
    """Return what a program wrote to its terminal until it ended; a terminal holds only 4 KiB of it."""
    chunks: list[bytes] = []
    with suppress(OSError), open(ours, "rb", buffering=0) as terminal:  # EIO: the last writer has gone
        while chunk := terminal.read(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks).decode()


def test_bars_are_for_terminals(hub: Hub, home: Path) -> None:
    hub.rate = 2e6
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "ggufspec", "fetch", "--target", TARGET],
        env={**hub_client.environment(hub, home), "TERM": "xterm", "COLUMNS": "140"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = _read_terminal(ours)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert "MB/s" in shown
    assert "0:00:0" in shown
    assert out.decode().startswith("target   /")
