"""A Hugging Face Hub on loopback: a real HTTP server that the real huggingface_hub client talks to.

Two servers on two ports, as there are two hosts in life: the Hub itself (API, metadata, redirects) and a
content host that large files are redirected to, which must never see an access token. Faults are put in a
queue: each names the requests it spoils and how often.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.hub_handler import Handler
from tests.hub_state import Fault, HubFile, Repo, Seen


class Hub:
    """The two servers, and everything a test wants to set or know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repos: dict[str, Repo] = {}
        self.tokens = {"hf_good": True, "hf_no_access": False}  # token -> may it read gated repositories?
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.bytes_served = 0
        self.page_size = 3
        self.rate: float | None = None
        self.lock = threading.Lock()
        self._servers = [self._server("hub"), self._server("content")]
        self.url, self.content_url = (f"http://127.0.0.1:{s.server_address[1]}" for s in self._servers)

    def add(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        *,
        lfs: bool = True,
        **settings: Any,
    ) -> Repo:
        """Put files into a repository, which is made if it is not there."""
        repo = self.repos.setdefault(
            name, Repo(name=name, files={}, commit=hashlib.sha1(name.encode()).hexdigest(), **settings)
        )
        for path, content in files.items():
            if isinstance(content, bytes):
                place = self.folder / hashlib.sha1(f"{name}/{path}".encode()).hexdigest()
                place.write_bytes(content)
            else:
                place = content
            hasher = hashlib.sha256() if lfs else hashlib.sha1(b"blob %d\0" % place.stat().st_size)
            with place.open("rb") as file:
                while chunk := file.read(1 << 20):
                    hasher.update(chunk)
            repo.files[path] = HubFile(
                content=place, size=place.stat().st_size, digest=hasher.hexdigest(), lfs=lfs
            )
        return repo

    def requests(self, part: str = "", method: str = "") -> list[Seen]:
        """Return the requests whose path contains ``part``."""
        return [seen for seen in self.seen if part in seen.path and method in ("", seen.method)]

    def content_requests(self) -> list[Seen]:
        """Return the requests to the content host."""
        return [seen for seen in self.seen if seen.host == "content"]

    def fault_for(self, path: str, method: str) -> Fault | None:
        """Take the next fault that is meant for this request."""
        with self.lock:
            for fault in self.faults:
                if fault.where in path and fault.method in ("", method) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def _server(self, host: str) -> ThreadingHTTPServer:
        handler = type("Handler", (Handler,), {"hub": self, "host": host})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        return server

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fault in self.faults:
            fault.release.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
