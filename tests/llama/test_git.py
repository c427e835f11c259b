"""Nothing that a user types as an address becomes an option of git, a command, or a leaked password."""

from __future__ import annotations

import base64
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ggufspec.errors import SourceError
from ggufspec.llama.source import git
from ggufspec.llama.source.sources import Git, Source, Tree, choose_source, prepare_tree
from ggufspec.steps import BuildProgress, finish
from tests.support import fakes, loopback, shell

TOKEN = "hf_" + "a1B2c3D4" * 4


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach this machine directly, whatever proxy is set."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@dataclass
class Served:
    """A folder served to those who know the password."""

    url: str = ""
    logins: list[str | None] = field(default_factory=list)


@pytest.fixture
def served(repository: Path) -> Iterator[Served]:
    """The repository behind a password, over HTTP on loopback."""
    made = Served()

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *words: Any) -> None:
            super().__init__(*words, directory=str(repository.parent))

        def do_GET(self) -> None:
            login = self.headers.get("Authorization")
            made.logins.append(login)
            if login is None:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="test"')
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                super().do_GET()

    with loopback.serving(Handler) as url:
        made.url = f"{url.removeprefix('http://')}/{quote(repository.name)}/.git"
        yield made


@pytest.fixture
def fake_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git on PATH that only records how it was called; returns the file with one call a line."""
    calls, folder = tmp_path / "calls", tmp_path / "tools"
    code = (
        "import json, os, sys\n"
        f"with open({str(calls)!r}, 'a') as file:\n"
        "    print(json.dumps([sys.argv[1:], dict(os.environ)]), file=file)\n"
        "print('0123456789abcdef0123456789abcdef01234567')\n"
    )
    fakes.script(folder / "git", f'exec {shlex.join((sys.executable, "-c", code))} "$@"\n')
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return calls


def _calls(file: Path) -> list[tuple[list[str], dict[str, str]]]:
    return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def _prepare(source: Source, into: Path, log: Path) -> tuple[Tree, list[BuildProgress]]:
    seen: list[BuildProgress] = []
    return finish(prepare_tree(source, into, log), seen.append), seen


@pytest.mark.parametrize(
    "address",
    [
        *("--upload-pack=touch hit; git-upload-pack", "--upload-pack=touch${IFS}hit", "-u"),
        *("ext::sh -c 'touch hit'", "ext::sh% -c% touch% hit", "fd::0", "ext://host/path"),
        *("git-remote-ext::touch hit", "ssh://-oProxyCommand=touch hit/x", "ssh://-oProxyCommand=hit/x"),
        *("ssh://me@-oProxyCommand=hit/x", "-oProxyCommand=hit:x", "me@-oProxyCommand=hit:x"),
        *("https://host.example/a b", "https://host.example/a\nhost=other.example", "https:///path"),
        *("javascript://host.example/x", "ftp://host.example/x", "nowhere", ""),
    ],
)
def test_addresses_that_are_none_never_reach_git(
    fake_git: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError) as caught:
        choose_source(f"git+{address}", "master")
    assert "not the address of a git repository" in caught.value.message
    assert "git+https://" in str(caught.value.hint)
    with pytest.raises(SourceError):
        Git("master", address)
    assert not _calls(fake_git)
    assert not (tmp_path / "hit").exists()


@pytest.mark.parametrize(
    "ref",
    [
        *("--upload-pack=touch hit", "-b", "", "a b", "a\nb", "a..b", "HEAD~1", "a^{commit}", "a:b", "0.*"),
        *("a@{1}", "/a", "a/"),
    ],
)
def test_refs_that_are_none_never_reach_git(fake_git: Path, ref: str) -> None:
    with pytest.raises(SourceError, match="not the name of a branch, tag or commit"):
        choose_source("git+https://host.example/x", ref)
    assert not _calls(fake_git)


@pytest.mark.parametrize(
    "address",
    [
        *("https://host.example/x.git", "http://host.example:8080/x", "https://[::1]:8443/x"),
        *("ssh://git@host.example:2222/x.git", "ssh://host.example/x.git", "git://host.example/x.git"),
        *("file:///srv/llama.cpp", "/srv/llama.cpp", "git@host.example:group/x.git", "host.example:x.git"),
    ],
)
def test_addresses_of_repositories_reach_git_after_all_options(fake_git: Path, address: str) -> None:
    source = choose_source(f"git+{address}", "feature/x-1.0+y")
    assert source.identity() == f"git {address} 0123456789abcdef0123456789abcdef01234567"
    ((words, _),) = _calls(fake_git)
    assert words == ["ls-remote", "--", address, "feature/x-1.0+y"]


def test_a_folder_is_named_as_written(repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository.parent)
    assert choose_source(f"git+{repository.name}", "side") == Git("side", str(repository))
    shutil.move(repository, home / "-dash")
    assert choose_source("git+~/-dash", "side").identity().startswith(f"git {home / '-dash'} ")


def test_other_transports_are_refused(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hit = tmp_path / "hit"
    (home / ".gitconfig").write_text(
        f'[url "ext::touch {hit} #"]\n\tinsteadOf = https://host.example/\n[protocol]\n\tallow = always\n'
    )
    with pytest.raises(SourceError, match="git failed"):
        choose_source("git+https://host.example/x", "master").identity()
    assert not hit.exists()


@pytest.mark.parametrize(
    ("address", "user", "password"),
    [
        (f"https://{TOKEN}@host.example/x.git", TOKEN, ""),
        (f"https://me:{TOKEN}@host.example/x.git", "me", TOKEN),
        (f"http://oauth2:{TOKEN}@host.example:8080/x.git", "oauth2", TOKEN),
        ("https://me%40work:p%3Aw%2F@host.example/x.git", "me@work", "p:w/"),
        ("https://me:a@b:c@host.example/x.git", "me", "a@b:c"),
    ],
)
def test_credentials_are_in_gits_environment(fake_git: Path, address: str, user: str, password: str) -> None:
    source = choose_source(f"git+{address}", "master")
    identity = source.identity()
    ((words, environment),) = _calls(fake_git)
    assert words[-4:] == [
        "ls-remote",
        "--",
        address.split("://")[0] + "://" + address.rpartition("@")[2],
        "master",
    ]
    for secret in filter(None, (user if len(user) > 6 else "", password)):
        assert secret not in " ".join([identity, repr(source), *words])
    assert {user, password} <= set(environment.values())


@pytest.mark.parametrize(
    "address",
    [
        *(f"ssh://git:{TOKEN}@host.example/x", f"git://{TOKEN}@host.example/x", f"file://{TOKEN}@host/x"),
        f"me:{TOKEN}@host.example:x.git",
    ],
)
def test_credentials_where_git_takes_none_are_refused_and_not_shown(fake_git: Path, address: str) -> None:
    message = r"takes no credentials in \w+://\*\*\*@host" if "//" in address else r"\*\*\*@host"
    with pytest.raises(SourceError, match=message) as caught:
        choose_source(f"git+{address}", "master")
    assert TOKEN not in f"{caught.value.message} {caught.value.hint}"


def test_git_logs_in_with_the_credentials(served: Served, tmp_path: Path) -> None:
    source = choose_source(f"git+http://me:{TOKEN}@{served.url}", "side")
    identity = source.identity()
    log = tmp_path / "log"
    tree, seen = _prepare(source, tmp_path / "into", log)
    login = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()
    assert set(served.logins) == {None, login}
    assert (tree.root / "CMakeLists.txt").read_text() == "project(fake)\n"
    config = (tree.root / ".git" / "config").read_text()
    for text in (identity, log.read_text(), config, *(at.line for at in seen)):
        assert TOKEN not in text


def test_credentials_go_to_their_host_alone(served: Served, home: Path, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    (home / ".gitconfig").write_text(f"[credential]\n\thelper = store --file={stored}\n")
    other = Git("side", f"http://{served.url}", git.Login(user="me", password=TOKEN))
    assert other.identity()
    assert not stored.exists()
    elsewhere = git.Login(user="me", password=TOKEN)
    with pytest.raises(SourceError, match="git failed"):
        git.ask("ls-remote", "--", f"http://{served.url}", url="https://host.example/x", login=elsewhere)


def test_wrong_credentials_are_an_error_that_does_not_show_them(tmp_path: Path) -> None:
    source, log = choose_source(f"git+http://me:{TOKEN}@127.0.0.1:9/x", "side"), tmp_path / "log"
    log.touch()
    for ask in (source.identity, lambda: _prepare(source, tmp_path / "into", log)):
        with pytest.raises(SourceError, match="git failed") as caught:
            ask()
        assert TOKEN not in f"{caught.value.message} {caught.value.hint} {log.read_text()}"


def test_the_command_shows_no_token(served: Served) -> None:
    source = ("--source", f"git+http://{TOKEN}@{served.url}x", "--version", "side")
    code, out, err = shell.run("build", "--backend", "cpu", *source)
    assert code == SourceError.exit_code
    assert TOKEN not in out + err


def test_git_gets_what_was_set_for_it_and_no_other_secret() -> None:
    given = {
        "PATH": "/bin",
        "HF_TOKEN": TOKEN,
        "https_proxy": "http://me:pw@proxy.example:3128",
        "GIT_SSH_COMMAND": "ssh -i key",
        "GIT_CONFIG_VALUE_0": "Authorization: Bearer abcdefghijk",
        "SSH_AUTH_SOCK": "/run/agent",
        "GIT_DIR": "/somewhere/else/.git",
    }
    seen = git.environment(environ=given)
    assert {name: seen.get(name) for name in given} == given | {"HF_TOKEN": None, "GIT_DIR": None}


def test_git_dir_is_ignored(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    tree, _ = _prepare(Git("side", repository.as_uri()), tmp_path / "into", tmp_path / "log")
    assert (tree.number, tree.history) == (1, True)
