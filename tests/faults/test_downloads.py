"""Everything that can go wrong with ``ggufspec fetch``, with its exact words and exit code."""

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

from ggufspec.modelfiles.hub import client, transfer
from tests.support import hub_client, shell
from tests.support.hub_client import PAIR, TARGET
from tests.support.hub_server import Fault, Hub, HubFile
from tests.support.shell import run

Case = tuple[Callable[[Hub], object], list[str], int, str, str]


def on(*faults: Fault) -> Callable[[Hub], object]:
    return lambda hub: hub.faults.extend(faults)


def gate(hub: Hub) -> None:
    hub.repos["me/T-GGUF"].gated = True


def spoil(hub: Hub, body: bytes) -> None:
    """Send other bytes of the same number than the Hub lists."""
    file = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"]
    hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"] = HubFile(
        content=hub.folder / "spoiled", size=file.size, digest=file.digest
    )
    (hub.folder / "spoiled").write_bytes(body)


FAULTS: dict[str, Case] = {
    "no such repository": (
        on(), ["me/none"], 20,
        "HOST has no repository me/none, or it is private",
        "check the spelling; for a private one: hf auth login, or --token",
    ),
    "private repository": (
        lambda hub: setattr(hub.repos["me/T-GGUF"], "private", True), ["me/T-GGUF"], 20,
        "HOST has no repository me/T-GGUF, or it is private",
        "check the spelling; for a private one: hf auth login, or --token",
    ),
    "no such revision": (
        on(), ["me/T-GGUF", "--revision", "v9"], 21,
        "me/T-GGUF has no revision v9", "its branches and tags: http://HOST/me/T-GGUF/tree/main",
    ),
    "no such file": (
        on(), ["me/T-GGUF/x.gguf"], 22, "me/T-GGUF has no file x.gguf",
        "it has t-Q4_K_M.gguf (2.74 MiB), t-Q8_0.gguf (3.74 MiB)",
    ),
    "no such quant": (
        on(), ["me/T-GGUF:Q2_K"], 22, "me/T-GGUF has no quant Q2_K",
        "it has t-Q4_K_M.gguf (2.74 MiB), t-Q8_0.gguf (3.74 MiB)",
    ),
    "gated, not logged in": (
        gate, [TARGET], 23, "me/T-GGUF is gated: its files need permission",
        "accept its terms at http://HOST/me/T-GGUF, then log in with hf auth login, or pass --token",
    ),
    "gated, not permitted": (
        gate, [TARGET, "--token", "hf_no_access"], 23, "me/T-GGUF is gated: its files need permission",
        "accept its terms at http://HOST/me/T-GGUF, then log in with hf auth login, or pass --token",
    ),
    "bad token": (
        on(), [TARGET, "--token", "hf_bad"], 24, "HOST does not accept the access token",
        "log in again with hf auth login, or check --token and HF_TOKEN",
    ),
    "rate limit for too long": (
        on(Fault(where="/api/models/me", times=9, status=429, headers={"Retry-After": "3600"})), [TARGET], 26,
        "HOST limits the number of requests: try again in 1 h 00 min",
        "logged-in users may send more requests: hf auth login",
    ),
    "broken server": (
        on(Fault(where="/api/models/me", times=9, status=503, headers={"Retry-After": "0"})), [TARGET], 27,
        "HOST answers 503 after 5 attempts",
        "try again later (https://status.huggingface.co); downloads resume",
    ),
    "broken content server": (
        on(Fault(where="file=t", times=9, status=500, headers={"Retry-After": "0"})), [TARGET], 27,
        "HOST answers 500 after 5 attempts",
        "try again later (https://status.huggingface.co); downloads resume",
    ),
    "web page": (
        on(Fault(where="file=t", body=b"<!doctype html><p>Log in")), [TARGET], 28,
        "HOST sends a web page instead of t-Q4_K_M.gguf",
        "is a proxy or a login page between here and the Hub? open the file's page in a browser",
    ),
    "no GGUF": (
        lambda hub: spoil(hub, b"\n<html>" + bytes(len(hub_client.gguf(1 << 20)) - 7)), [TARGET], 28,
        (
            "HOST does not send a GGUF for t-Q4_K_M.gguf: "
            r"it starts with b'\n<html>\x00\x00\x00\x00\x00\x00\x00\x00\x00'"
        ),
        "is a proxy or a login page between here and the Hub? open the file's page in a browser",
    ),
    "other bytes": (
        lambda hub: spoil(hub, hub_client.gguf(1 << 20, seed=1)), [TARGET], 28,
        "t-Q4_K_M.gguf does not have the hash that HOST lists",
        "try again; if it happens again, a proxy or the repository is broken",
    ),
    "truncated on the way": (
        lambda hub: spoil(hub, hub_client.gguf(1 << 10)), [TARGET], 28,
        "HOST sends 1.74 MiB for t-Q4_K_M.gguf, but lists 2.74 MiB",
        "try again; if it happens again, a proxy or the repository is broken",
    ),
    "truncated on the Hub": (
        lambda hub: hub.add("me/T-GGUF", {"t-Q4_K_M.gguf": hub_client.gguf()[:-1024]}), [TARGET], 28,
        "t-Q4_K_M.gguf is truncated on the Hub: 1 KiB are missing",
        "choose another file, and report it to the owner of the repository",
    ),
    "a name that leaves the folder": (
        lambda hub: hub.add("me/Evil-GGUF", {"../../../evil.gguf": hub_client.gguf()}), ["me/Evil-GGUF"], 28,
        "me/Evil-GGUF lists a file whose name points outside the target folder: '../../../evil.gguf'",
        "do not use this repository",
    ),
    "offline": (
        on(), [TARGET, "--offline"], 29, "me/T-GGUF is not in the cache",
        "run the same command once without --offline",
    ),
    "no reference": (
        on(), ["nonsense"], 30, "not a model reference: 'nonsense'",
        ("write user/repo:QUANT, user/repo/file.gguf, hf://…, a Hub URL, PAIR:target, PAIR:drafter, "
        "a local path or FOLDER:QUANT"),
    ),
    "two revisions": (
        on(), ["me/T-GGUF@main", "--revision", "v2"], 30,
        "--revision contradicts the revision in a reference", "use only one of them",
    ),
    "no local file": (
        on(), ["./none.gguf"], 6, "there is no file CWD/none.gguf", "check the path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, hub: Hub, home: Path) -> None:
    prepare, argv, code, message, hint = FAULTS[name]
    prepare(hub)
    ended, out, err = run("fetch", "--quiet", "--target", *argv)
    host = hub.url.removeprefix("http://")
    said = f"error: {message}\nhint: {hint}\n".replace("HOST", host).replace("CWD", str(Path.cwd()))
    assert (ended, out, err) == (code, "", said)
    assert not list(home.rglob("*.gguf")), "nothing may carry a model's name"
    assert not [path for path in home.rglob("*.incomplete") if path.stat().st_size]


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run("fetch", "--target", TARGET) == (
        25,
        "",
        (
            "error: 127.0.0.1:9 cannot be reached: [Errno 111] Connection refused\n"
            f"hint: check the connection and HF_ENDPOINT; downloads resume. {client.WITHOUT_HUB}\n"
        ),
    )


def test_permission_opens_the_gate_and_the_token_stays_here(hub: Hub, home: Path) -> None:
    gate(hub)
    code, out, err = run("fetch", "--token", "hf_good", *PAIR)
    assert code == 0
    assert "hf_good" not in out + err
    assert {seen.headers.get("authorization") for seen in hub.requests("me/T-GGUF")} == {"Bearer hf_good"}
    assert hub.content_requests()
    assert all("authorization" not in seen.headers for seen in hub.content_requests())
    for path in home.rglob("*"):
        assert not path.is_file() or b"hf_good" not in path.read_bytes()


def test_a_bad_token_is_not_repeated_even_in_a_traceback(hub: Hub, home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ggufspec", "--debug", "fetch", "--target", TARGET],
        env={**hub_client.environment(hub, home), "HF_TOKEN": "hf_secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "BadTokenError" in done.stderr
    assert "hf_secret" not in done.stdout + done.stderr
    assert {seen.headers["authorization"] for seen in hub.requests("/api/models")} == {"Bearer hf_secret"}


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "1"}, {"RateLimit": '"api";r=0;t=1'}], ids=["Retry-After", "RateLimit"]
)
def test_a_rate_limit_is_waited_for_as_told(hub: Hub, headers: dict[str, str]) -> None:
    hub.faults = [Fault(where="file=t", times=1, status=429, headers=headers)]
    started = time.monotonic()
    err = shell.done("fetch", "--target", TARGET).stderr
    assert time.monotonic() - started >= 1.0
    assert "t-Q4_K_M.gguf: again in 1.00 s: " in err


def test_the_drafter_is_refused_before_it_travels(hub: Hub) -> None:
    hub.add("me/D-GGUF", {"d-Q8_0.gguf": hub_client.gguf(4 << 20).replace(b"<0xC5>", b"<0xc5>")})
    code, out, err = run("fetch", "-q", *PAIR)
    assert (code, out) == (7, "")
    assert err.startswith("error: llama.cpp refuses this drafter for this target: 1 token differs")
    assert hub.bytes_served <= 2 << 20
    shell.done("fetch", "-q", "--no-check", *PAIR)


def test_a_corrupt_file_in_the_cache_is_found(hub: Hub, home: Path) -> None:
    run("fetch", "-q", "--target", TARGET)
    place = hub_client.blob(home, hub)
    place.write_bytes(place.read_bytes()[:-1] + b"!")
    assert run("fetch", "-q", "--target", TARGET) == (
        28,
        "",
        (
            f"error: {place} is not the file that {hub.url[7:]} lists\n"
            "hint: delete it, then run the same command again\n"
        ),
    )


# Downloads that are interrupted, cut, shared or slow


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_download_resumes(hub: Hub, home: Path, how: signal.Signals) -> None:
    body = hub_client.gguf(28 << 20)  # larger ones may come on several connections, which lose some pieces
    hub.add("me/Big-GGUF", {"big-Q4_0.gguf": body})
    args = ("--no-check", "--target", "me/Big-GGUF/big-Q4_0.gguf", "--draft-model", "me/D-GGUF")
    hub.faults = [Fault(where="file=big", hold_after=len(body) // 2)]
    place = hub_client.blob(home, hub, "me/Big-GGUF/big-Q4_0.gguf")
    partial = Path(f"{place}.incomplete")
    running = shell.start("fetch", "-q", *args, env=hub_client.environment(hub, home))
    shell.wait_until(lambda: partial.exists() and partial.stat().st_size >= len(body) // 2 - (1 << 20))
    running.send_signal(how)
    out, err = running.communicate(timeout=30)
    assert running.returncode == (130 if how is signal.SIGINT else -how)
    assert (out, err.strip()) == ("", "")
    assert not place.exists()
    assert not list(home.rglob("big-*"))
    out = shell.done("fetch", "-q", *args).stdout
    assert Path(out.splitlines()[0]).read_bytes() == body
    assert hub.bytes_served <= 1.05 * (len(body) + len(hub_client.gguf()))


def test_a_stream_that_breaks_is_taken_up_again(hub: Hub) -> None:
    size = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size
    hub.faults = [Fault(where="file=t", times=1, cut_after=size // 2)]
    err = shell.done("fetch", "--target", TARGET).stderr
    assert "t-Q4_K_M.gguf: again in 1.00 s: peer closed connection" in err
    assert hub.bytes_served <= 1.05 * size
    assert [seen.headers.get("range") for seen in hub.content_requests()] == [None, f"bytes={size // 2}-"]


def test_a_server_without_ranges_starts_over(hub: Hub) -> None:
    size = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size
    hub.faults = [
        Fault(where="file=t", times=1, cut_after=size // 2),
        Fault(where="file=t", times=1, no_ranges=True),
    ]
    shell.done("fetch", "--target", TARGET)
    assert hub.bytes_served == size // 2 + size


def test_a_web_page_does_not_cost_what_is_here(hub: Hub, home: Path) -> None:
    body = hub_client.gguf(1 << 20)
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    Path(f"{place}.incomplete").write_bytes(body[: 1 << 20])
    hub.faults = [Fault(where="file=t", body=b"<html>")]
    assert run("fetch", "--target", TARGET)[0] == 28
    err = shell.done("fetch", "--target", TARGET).stderr
    assert "36% cached" in err
    assert hub.bytes_served == len(body) - (1 << 20)


@pytest.mark.parametrize("left", [b"GGUF but not the beginning of this file", bytes(64 << 20)])
def test_a_foreign_beginning_is_thrown_away(hub: Hub, home: Path, left: bytes) -> None:
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    Path(f"{place}.incomplete").write_bytes(left)
    out = shell.done("fetch", "-q", "--target", TARGET).stdout
    assert Path(out.strip()).read_bytes() == hub_client.gguf(1 << 20)


def test_two_processes_fetch_the_same_pair_once(hub: Hub, home: Path) -> None:
    hub.rate = 3e6
    words = ("fetch", "-q", "--no-check", *PAIR)
    first, second = (shell.start(*words, env=hub_client.environment(hub, home)) for _ in range(2))
    results = [process.communicate(timeout=60) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert results[0] == results[1]
    size = sum(len(hub_client.gguf(n)) for n in (1 << 20, 0))
    assert hub.bytes_served <= 1.05 * size


def test_what_only_the_client_can_download(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LARGEST_BY_HTTP_BYTES", 1000)
    out = shell.done("fetch", "-q", "--target", TARGET).stdout
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
