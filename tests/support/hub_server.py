"""A Hugging Face Hub on loopback: a real HTTP server that the real huggingface_hub client talks to.

Two servers on two ports, as there are two hosts in life: the Hub itself (API, metadata, redirects) and a
content host that large files are redirected to, which must never see an access token. Faults are put in a
queue: each names the requests it spoils and how often.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.support.loopback import serving

SIGNATURE = "X-Amz-Credential=KEYOFTHECLOUD&X-Amz-Signature=0123456789abcdef&Policy=cGxlYXNl"
"""What makes an address of the content host valid for whoever has it, and for a while."""

_COMMIT_KEYS = ("header", "file", "lfsFile")


@dataclass
class HubFile:
    """A file as the Hub lists it; what is sent may differ from it on purpose."""

    content: Path
    size: int
    digest: str
    lfs: bool = True


@dataclass
class Repo:
    """A repository with one commit, which every branch points to."""

    name: str
    files: dict[str, HubFile]
    commit: str
    branches: tuple[str, ...] = ("main",)
    gated: bool = False
    private: bool = False
    info: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests whose path contains ``where``."""

    where: str
    times: int = 1
    method: str = ""  # spoil only requests of this method
    status: int | None = None  # answer this instead
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # send this instead, as if all were well
    cut_after: int | None = None  # close the connection after that many bytes of a body
    hold_after: int | None = None  # stop sending there until ``release`` is set
    no_ranges: bool = False
    chunked: bool = False  # send no length, but chunks; ``cut_after`` then ends them as if they were all
    stride: int = 256 << 10  # bytes in a chunk
    pause_s: float = 0.0  # before each chunk
    extra: bytes = b""  # send this after the body, with ``chunked``
    content_range: str | None = None  # state this of a part; ``{}`` is "bytes 0-99", "" states nothing
    rate: float | None = None  # bytes per second
    release: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    host: str  # "hub" or "content"
    method: str
    path: str
    headers: Mapping[str, str]  # names in lower case


@dataclass(frozen=True)
class Commit:
    """One commit that was made through the API."""

    repo: str
    message: str
    lfs: frozenset[str]  # paths of the files that the content host received before
    regular: frozenset[str]


class Hub:
    """The two servers, and everything a test wants to set or know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repos: dict[str, Repo] = {}
        self.tokens = {"hf_good": True, "hf_no_access": False}  # token -> may it read gated repositories?
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.commits: list[Commit] = []
        self.uploaded: dict[str, bytes] = {}  # what the content host received, by its SHA-256
        self.bytes_served = 0
        self.rate: float | None = None
        self.lock = threading.Lock()
        self._servers = contextlib.ExitStack()

    def add(self, name: str, files: Mapping[str, bytes | Path], *, lfs: bool = True, **settings: Any) -> Repo:
        """Put files into a repository, which is made if it is not there."""
        repo = self.repos.setdefault(
            name, Repo(name=name, files={}, commit=hashlib.sha1(name.encode()).hexdigest(), **settings)
        )
        for path, content in files.items():
            data = content if isinstance(content, bytes) else content.read_bytes()
            place = self.folder / hashlib.sha1(f"{name}/{path}".encode()).hexdigest()
            place.write_bytes(data)
            hashed = hashlib.sha256(data) if lfs else hashlib.sha1(b"blob %d\0" % len(data) + data)
            repo.files[path] = HubFile(content=place, size=len(data), digest=hashed.hexdigest(), lfs=lfs)
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

    def __enter__(self) -> Self:
        self.url, self.content_url = (
            self._servers.enter_context(serving(Handler, hub=self, host=host)) for host in ("hub", "content")
        )
        return self

    def __exit__(self, *_: object) -> None:
        for fault in self.faults:
            fault.release.set()
        self._servers.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub
    host: str

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # clients may hang up whenever they like
            super().handle()

    def _answer(self) -> None:
        posted = self._read_body()
        seen = Seen(
            self.host, self.command, self.path, {key.lower(): text for key, text in self.headers.items()}
        )
        with self.hub.lock:
            self.hub.seen.append(seen)
        fault = self.hub.fault_for(self.path, self.command)
        if fault is not None and fault.status is not None:
            self._send(fault.status, b"", fault.headers)
            return
        if fault is not None and fault.body is not None:
            self._send(200, fault.body, {"Content-Type": "text/html", **fault.headers})
            return
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self._route(parts, query, posted, fault)

    do_HEAD = do_GET = do_POST = do_PUT = _answer  # noqa: N815  # as http.server wants them

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _route(self, parts: list[str], query: dict[str, str], posted: bytes, fault: Fault | None) -> None:
        if self.host == "content" and self.command == "PUT":
            self.hub.uploaded[parts[0]] = posted
            self._send(200, b"", {})
            return
        if self.host == "content":
            file = next(
                f for repo in self.hub.repos.values() for f in repo.files.values() if f.digest == parts[0]
            )
            self._send_file(file, {"ETag": f'"{file.digest}"'}, fault)
            return
        if self._token() is not None and self._token() not in self.hub.tokens:
            self._error(401, None, "Invalid credentials in Authorization header")
            return
        match parts:
            case ["api", "whoami-v2"]:
                self._json({"name": "ada", "type": "user"})
            case ["api", "models"]:
                self._search(query)
            case ["api", "repos", "create"]:
                self._create(json.loads(posted))
            case ["api", "validate-yaml"]:
                self._json({"errors": [], "warnings": []})
            case ["api", kind, owner, name, *asked]:
                self._ask(_full_name(kind, owner, name), asked, query, posted)
            case ["datasets", owner, name, "info", "lfs", "objects", "batch"]:
                objects = json.loads(posted)["objects"]
                repo = _full_name("datasets", owner, name.removesuffix(".git"))
                self._with(repo, "main", lambda _: self._batch(objects))
            case ["datasets", owner, name, "resolve", revision, *path]:
                repo = _full_name("datasets", owner, name)
                self._with(repo, revision, lambda repo: self._resolve(repo, "/".join(path), fault))
            case [owner, name, "resolve", revision, *path]:
                repo = _full_name("models", owner, name)
                self._with(repo, revision, lambda repo: self._resolve(repo, "/".join(path), fault))
            case _:
                self._error(404, None, "no such page")

    # -- the API

    def _ask(self, name: str, asked: list[str], query: dict[str, str], posted: bytes) -> None:
        """Answer what the API is asked about a repository; the revision comes last."""
        revision = asked[-1] if asked else "main"
        match asked[:1]:
            case [] | ["revision"]:
                self._with(name, revision, lambda repo: self._info(repo, query))
            case ["paths-info"]:
                wanted = parse_qs(posted.decode()).get("paths", [])
                self._with(name, revision, lambda repo: self._paths_info(repo, wanted))
            case ["preupload"]:
                files = json.loads(posted)["files"]
                self._with(name, revision, lambda _: self._preupload(files))
            case ["commit"]:
                lines = [json.loads(line) for line in posted.splitlines()]
                self._with(name, revision, lambda repo: self._commit(repo, lines))
            case _:
                self._error(404, None, "no such page")

    def _with(self, name: str, revision: str, then: Callable[[Repo], None]) -> None:
        repo = self.hub.repos.get(name)
        token = self._token()
        if repo is None or (repo.private and token is None):
            self._error(401 if token is None else 404, "RepoNotFound", "Repository not found")
        elif revision not in (*repo.branches, repo.commit):
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            then(repo)

    def _info(self, repo: Repo, query: Mapping[str, str]) -> None:
        """Describe a repository; as the Hub, with the sizes of files if they are asked for."""
        siblings = [
            {"rfilename": path, **(_sized(file) if "blobs" in query else {})}
            for path, file in repo.files.items()
        ]
        gated = "manual" if repo.gated else False
        known = {"id": repo.name, "modelId": repo.name, "sha": repo.commit, "gated": gated}
        self._json({**known, "private": repo.private, "siblings": siblings, **repo.info})

    def _paths_info(self, repo: Repo, wanted: list[str]) -> None:
        self._json([_listed(path, repo.files[path]) for path in wanted if path in repo.files])

    def _search(self, query: dict[str, str]) -> None:
        words = query.get("search", "").lower()
        found = [repo for repo in self.hub.repos.values() if words in repo.name.lower() and not repo.private]
        if "filter" in query:
            found = [repo for repo in found if query["filter"] in repo.info.get("tags", ["gguf"])]
        found.sort(key=lambda repo: -int(repo.info.get("downloads", 0)))
        self._json([{"id": repo.name, **repo.info} for repo in found[: int(query.get("limit", 1000))]])

    # -- writing

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['type']}s/{wanted['organization']}/{wanted['name']}"
        if not self.hub.tokens.get(self._token() or "", False):
            self._error(403, None, "You don't have the rights to create a dataset under this namespace")
            return
        exists = name in self.hub.repos
        if not exists:
            self.hub.add(name, {".gitattributes": b"*.parquet filter=lfs"}, lfs=False)
            self.hub.repos[name].private = wanted["visibility"] == "private"
        url = json.dumps({"url": f"{self.hub.url}/{name}"}).encode()
        self._send(409 if exists else 200, url, {"Content-Type": "application/json"})

    def _preupload(self, files: list[dict[str, Any]]) -> None:
        modes = {file["path"]: "lfs" if file["path"].endswith(".parquet") else "regular" for file in files}
        answers = [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]
        self._json({"files": answers})

    def _batch(self, objects: list[dict[str, Any]]) -> None:
        actions = [
            {**wanted, "actions": {"upload": {"href": f"{self.hub.content_url}/{wanted['oid']}?{SIGNATURE}"}}}
            for wanted in objects
        ]
        self._json({"transfer": "basic", "objects": actions})

    def _commit(self, repo: Repo, lines: list[dict[str, Any]]) -> None:
        values = {key: [line["value"] for line in lines if line["key"] == key] for key in _COMMIT_KEYS}
        regular = {value["path"]: base64.b64decode(value["content"]) for value in values["file"]}
        large = {value["path"]: self.hub.uploaded[value["oid"]] for value in values["lfsFile"]}
        self.hub.add(repo.name, regular, lfs=False)
        self.hub.add(repo.name, large)
        assert all(repo.files[value["path"]].digest == value["oid"] for value in values["lfsFile"])
        (header,) = values["header"]
        self.hub.commits.append(
            Commit(repo.name, header["summary"], lfs=frozenset(large), regular=frozenset(regular))
        )
        self._json({"commitUrl": f"{self.hub.url}/{repo.name}/commit/{'c' * 40}", "commitOid": "c" * 40})

    # -- files

    def _resolve(self, repo: Repo, path: str, fault: Fault | None) -> None:
        commit = {"X-Repo-Commit": repo.commit}
        if repo.gated and not self.hub.tokens.get(self._token() or "", False):
            self._error(403 if self._token() else 401, "GatedRepo", "Access to this model is restricted")
        elif path not in repo.files:
            self._error(404, "EntryNotFound", "Entry not found", commit)
        elif (file := repo.files[path]).lfs:
            linked = {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.digest}"'}
            location = f"{self.hub.content_url}/{file.digest}?file={quote(path)}&{SIGNATURE}"
            self._send(302, b"", {**commit, **linked, "ETag": f'"{file.digest}"', "Location": location})
        else:
            self._send_file(file, {**commit, "ETag": f'"{file.digest}"'}, fault)

    def _send_file(self, file: HubFile, headers: Mapping[str, str], fault: Fault | None) -> None:
        size = file.content.stat().st_size
        start, end = 0, size
        wanted = self.headers.get("Range")
        ranged = wanted is not None and not (fault and fault.no_ranges)
        if wanted is not None and ranged:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last) + 1, size) if last else size
        self.send_response(206 if ranged else 200)
        for key, value in {**headers, "Accept-Ranges": "bytes"}.items():
            self.send_header(key, value)
        stated = f"bytes {start}-{end - 1}/{size}"
        if fault is not None and fault.content_range is not None:
            stated = fault.content_range.format(f"bytes {start}-{end - 1}")
        if ranged and stated:
            self.send_header("Content-Range", stated)
        if fault is not None and fault.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(end - start))
        self.end_headers()
        if self.command != "HEAD":
            self._pour(file.content, start, end, fault or Fault(where=""))

    def _pour(self, content: Path, start: int, end: int, fault: Fault) -> None:
        """Send bytes as the fault wants it: cut short, or with bytes too many; count what has left."""
        limits = (start + limit for limit in (fault.cut_after, fault.hold_after) if limit is not None)
        stop, rate, began = min(end, *limits, end), fault.rate or self.hub.rate, time.monotonic()
        with content.open("rb") as file:
            file.seek(start)
            body = file.read(stop - start) + fault.extra
        for at in range(0, len(body), fault.stride):
            part = body[at : at + fault.stride]
            time.sleep(fault.pause_s)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if fault.chunked else part)
            with self.hub.lock:
                self.hub.bytes_served += len(part)
            if rate is not None:
                time.sleep(max(0.0, (at + len(part)) / rate - (time.monotonic() - began)))
        if fault.chunked:
            self.wfile.write(b"0\r\n\r\n")
        elif stop < end:
            if fault.hold_after is not None:
                fault.release.wait()
            self.close_connection = True

    # -- plumbing

    def _token(self) -> str | None:
        given = self.headers.get("Authorization")
        return None if given is None else given.removeprefix("Bearer ")

    def _json(self, value: object, headers: Mapping[str, str] | None = None) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _error(
        self, status: int, code: str | None, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        named = {"X-Error-Code": code} if code else {}
        self._send(status, b"", {**named, "X-Error-Message": message, **(headers or {})})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _full_name(kind: str, owner: str, name: str) -> str:
    """Return the name of a repository, as ``Hub.repos`` has it."""
    return f"{owner}/{name}" if kind == "models" else f"{kind}/{owner}/{name}"


def _sized(file: HubFile) -> dict[str, Any]:
    """Return what the Hub says of a file if its sizes are asked for."""
    lfs = {"sha256": file.digest, "size": file.size, "pointerSize": 134}
    return {"size": file.size, "blobId": file.digest[:40], **({"lfs": lfs} if file.lfs else {})}


def _listed(path: str, file: HubFile) -> dict[str, Any]:
    if not file.lfs:
        return {"type": "file", "oid": file.digest, "size": file.size, "path": path}
    lfs = {"oid": file.digest, "size": file.size, "pointerSize": 134}
    return {"type": "file", "oid": "1" * 40, "size": file.size, "path": path, "lfs": lfs}
