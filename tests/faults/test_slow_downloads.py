"""A Hub that answers without end: too slowly, or too much. Each command ends, and says why."""

from __future__ import annotations

import contextlib
import gzip
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ggufspec import hosts
from ggufspec.errors import GgufspecError, HubServerError, NetworkError
from ggufspec.modelfiles import hub as hub_package
from ggufspec.modelfiles.hub import answers, client
from ggufspec.modelfiles.hub.resolve import RemoteFile
from tests.support import hub_client
from tests.support.hub_client import TARGET
from tests.support.hub_server import Fault, Hub
from tests.support.shell import run

pytestmark = pytest.mark.timeout(60)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
REFUSAL = HEAD.replace(b"200 OK", b"404 Not Found")
MUCH = b"0," * (1 << 16)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(hosts, "ANSWER_S", 1.0)
    monkeypatch.setattr(answers, "SLOW_S", 0.5)


@contextmanager
def _dribbling(head: bytes, drop: bytes, pause_s: float) -> Iterator[str]:
    """Yield the address of a server that sends ``head`` at once, and then ``drop`` again and again."""
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(head)
                while not ended.wait(pause_s):
                    self.request.sendall(drop)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            ended.set()
            server.shutdown()


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X"),  # a header that does not end
        (HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
)
def test_an_answer_byte_by_byte_ends(monkeypatch: pytest.MonkeyPatch, head: bytes, drop: bytes) -> None:
    monkeypatch.setattr(hosts, "ANSWER_S", 0.4)
    with _dribbling(head, drop, 0.05) as url:
        access = hub_package.Access(endpoint=url)
        with pytest.raises(NetworkError, match=r"too slowly: no complete answer within 0\.40 s, twice"):
            client.listing("me/T-GGUF", None, access)
        assert not client.is_public("me/T-GGUF", access)


def test_headers_of_a_file_that_do_not_end_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "ANSWER_S", 0.4)
    with (
        _dribbling(b"HTTP/1.1 200 OK\r\n", b"X", 0.05) as url,
        pytest.raises(NetworkError, match=r"too slowly: no complete answer within 0\.40 s, twice"),
    ):
        client.file_size("me/T-GGUF", "t.gguf", "main", hub_package.Access(endpoint=url))


def test_a_hub_that_says_nothing_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "SILENT_S", 0.2)
    with (
        _dribbling(b"", b"", 0.05) as url,
        pytest.raises(NetworkError, match=r"too slowly: nothing for 0\.20 s, twice in a row"),
    ):
        client.listing("me/T-GGUF", None, hub_package.Access(endpoint=url))


@pytest.mark.parametrize(
    ("head", "drop", "message"),
    [
        (HEAD + b"Content-Length: 3000000000\r\n\r\n[", MUCH, "answers with more than 1 MiB"),
        (HEAD + b"Connection: close\r\n\r\n[", MUCH, "answers with more than 1 MiB"),
        (
            HEAD + b"Content-Encoding: gzip\r\n\r\n",
            gzip.compress(bytes(2 << 20)),
            "answers with more than 1 MiB",
        ),
        (REFUSAL + b"Content-Length: 3000000000\r\n\r\n[", MUCH, "answers 404"),
    ],
)
def test_an_endless_answer_does_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch, head: bytes, drop: bytes, message: str
) -> None:
    monkeypatch.setattr(hosts, "ANSWER_S", 30.0)
    monkeypatch.setattr(answers, "MOST_ANSWER_BYTES", 1 << 20)
    with _dribbling(head, drop, 0.0) as url, pytest.raises(HubServerError, match=message):
        client.listing("me/T-GGUF", None, hub_package.Access(endpoint=url))


def test_a_body_that_comes_too_slowly_ends_and_is_kept(hub: Hub, home: Path) -> None:
    hub.faults = [Fault(where="file=t", times=9, chunked=True, stride=1, pause_s=0.02)]
    began = time.monotonic()
    code, _, err = run("fetch", "-q", "--target", TARGET)
    assert code == 25
    assert "answers too slowly" in err
    assert time.monotonic() - began < 30
    assert Path(f"{hub_client.blob(home, hub)}.incomplete").stat().st_size > 0
    hub.faults.clear()
    assert run("fetch", "-q", "--target", TARGET)[0] == 0


def test_a_header_that_comes_too_slowly_ends(hub: Hub) -> None:
    hub.faults = [Fault(where="file=t", times=9, chunked=True, stride=1, pause_s=0.02)]
    repo, name = TARGET.rsplit("/", 1)
    with pytest.raises(GgufspecError, match="answers too slowly"):
        RemoteFile(repo, name, "main", hub_package.Access(endpoint=hub.url))
