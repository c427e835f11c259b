"""``ggufspec fetch`` of a large file: several connections, whose pieces are written in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ggufspec.modelfiles.hub import client, transfer
from tests.support import hub_client
from tests.support.hub_client import TARGET
from tests.support.hub_server import Fault, Hub
from tests.support.shell import run

CONTENT = hub_client.gguf(1 << 20)
PIECE = 1 << 16


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the file of 1 MiB be a large one."""
    monkeypatch.setattr(transfer, "_WORTH_PIECES_BYTES", 2 * PIECE)
    monkeypatch.setattr(transfer, "_FIRST_PIECE_BYTES", PIECE)
    monkeypatch.setattr(transfer, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.0)


def _ranges(hub: Hub) -> list[str]:
    return [seen.headers["range"] for seen in hub.content_requests() if seen.method == "GET"]


def test_pieces_come_on_several_connections_and_the_login_stays_here(hub: Hub) -> None:
    code, out, _ = run("fetch", "-q", "--no-check", "--token", "hf_good", "--target", TARGET)
    assert (code, Path(out.strip()).read_bytes()) == (0, CONTENT)
    asked = sorted(_ranges(hub), key=lambda text: int(text.removeprefix("bytes=").partition("-")[0]))
    assert asked == [
        f"bytes={at}-{min(at + PIECE, len(CONTENT)) - 1}" for at in range(0, len(CONTENT), PIECE)
    ]
    assert not [seen for seen in hub.content_requests() if "authorization" in seen.headers]
    assert len(hub.requests("/resolve/", "GET")) == 1  # all other pieces come from where it led to


@pytest.mark.parametrize(
    "fault",
    [
        Fault(where="", method="GET", cut_after=100),
        Fault(where="", method="GET", status=503),
        Fault(where="", method="GET", content_range="bytes 5-70000/1048576"),
        Fault(where="", method="GET", no_ranges=True),
    ],
)
def test_a_piece_that_goes_wrong_is_asked_for_again(hub: Hub, fault: Fault) -> None:
    digest = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].digest
    first = Fault(where=digest, method="GET", cut_after=None)  # the first piece is not spoiled
    hub.faults += [first, Fault(**{**vars(fault), "where": digest})]
    code, out, err = run("fetch", "-q", "--no-check", "--target", TARGET)
    assert (code, err) == (0, "")
    assert Path(out.strip()).read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_at_once(hub: Hub) -> None:
    hub.faults.append(Fault(where="?file=", method="GET", no_ranges=True))
    code, out, _ = run("fetch", "-q", "--no-check", "--target", TARGET)
    assert (code, Path(out.strip()).read_bytes()) == (0, CONTENT)
    assert len(_ranges(hub)) == 1


def test_what_was_there_before_is_kept(hub: Hub, home: Path) -> None:
    digest = hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].digest
    partial = home / f"hf/hub/models--me--T-GGUF/blobs/{digest}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[: 5 * PIECE])
    code, out, _ = run("fetch", "-q", "--no-check", "--target", TARGET)
    assert (code, Path(out.strip()).read_bytes()) == (0, CONTENT)
    assert hub.bytes_served == len(CONTENT) - 5 * PIECE


def test_pieces_are_in_order_up_to_the_first_that_fails() -> None:
    arrived = threading.Event()

    def read(start: int, end: int, given_up: threading.Event) -> bytes:
        if start == 0:
            arrived.wait(10)  # the second piece comes before the first
        if start == PIECE:
            arrived.set()
        if start == 2 * PIECE:
            raise ConnectionError
        return bytes([start // PIECE]) * (end - start)

    read_pieces = transfer.read_in_order(read, 0, 9 * PIECE + 1, lambda: None)
    assert [next(read_pieces)[:1], next(read_pieces)[:1]] == [b"\0", b"\1"]
    with pytest.raises(ConnectionError):
        next(read_pieces)
