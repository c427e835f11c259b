"""The files of a bundle: their hashes, one zip with a fixed order and date, and reading what others made.

A bundle may come from anybody. Nothing of it is executed, no link is followed, and no path leads out of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ggufspec import temporary
from ggufspec.errors import ResultsError
from ggufspec.harmless import one_line
from ggufspec.units import format_bytes

HASHES = "verify.txt"
FACTS = "bundle.json"
MOST_FILES = 200_000
MOST_BYTES = 4 << 30
MOST_RATIO = 400
"""Unpacked bytes for each byte of a zip; raw logs of llama.cpp take 5 to 40."""

_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,199}", re.ASCII)
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip can have: equal bundles are equal files
_MODE = stat.S_IFREG | 0o644
_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}


@dataclass(frozen=True, kw_only=True)
class OpenedBundle:
    """A bundle's folder, and its files by their paths in it."""

    folder: Path
    files: Mapping[str, Path]


@contextmanager
def opened(bundle: Path) -> Iterator[OpenedBundle]:
    """Yield a bundle, folder or zip; a zip is unpacked for as long.

    Raises:
        ResultsError: it is not a bundle, or has what no bundle has, such as paths that lead out of it.
        OSError: it cannot be read.
    """
    with ExitStack() as resources:
        if bundle.is_dir():
            folder = bundle
        elif bundle.is_file():
            scratch = resources.enter_context(temporary.folder())
            folder = unpack(bundle, scratch)
        else:
            raise ResultsError(f"there is no bundle {bundle}", "name the folder or the zip of a bundle")
        files = list_files(folder)
        if HASHES not in files or FACTS not in files:
            raise ResultsError(
                f"{bundle} is not a bundle: it has no {HASHES} or no {FACTS}", "`ggufspec publish` makes one"
            )
        yield OpenedBundle(folder=folder, files=files)


def list_files(folder: Path) -> dict[str, Path]:
    """Return the files of a bundle's folder by their paths in it, in order.

    Raises:
        ResultsError: it is no folder, or has links, special files, names that a bundle does not have, or more
            than a bundle may have.
    """
    files: dict[str, Path] = {}
    size = 0
    for parent, folders, names in os.walk(folder, onerror=_raise):
        for child in (Path(parent, name) for name in (*folders, *names)):
            status, name = child.lstat(), child.relative_to(folder).as_posix()
            check_name(name)
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode):
                raise ResultsError(
                    f"{name} is a link or a special file, which no bundle has", "do not use this bundle"
                )
            files[name] = child
            size += status.st_size
            _check_size(len(files), size)
    return dict(sorted(files.items()))


def _raise(error: OSError) -> None:
    raise ResultsError(f"cannot read {error.filename}: {error.strerror}", "name a bundle's folder or zip")


def check_name(name: str) -> None:
    """Make sure that a path stays in its bundle, and means the same on every system.

    Raises:
        ResultsError: it does not.
    """
    parts = PurePosixPath(name).parts
    if not parts or name != "/".join(parts) or not all(_NAME.fullmatch(part) for part in parts):
        raise ResultsError(f"the bundle has a file named {one_line(name)[:200]!r}", "do not use this bundle")


def _check_size(n_files: int, size_bytes: int) -> None:
    if n_files > MOST_FILES or size_bytes > MOST_BYTES:
        raise ResultsError(
            f"the bundle has more than {MOST_FILES:,} files or {format_bytes(MOST_BYTES)}",
            "publish fewer benches in one bundle",
        )


def write_hashes(folder: Path) -> str:
    """Write ``verify.txt``, the SHA-256 of each other file, and return its own.

    It names a bundle: whoever knows it knows all files, in the folder and in the zip.
    """
    files = list_files(folder)
    lines = (f"{hash_file(file)}  {name}\n" for name, file in files.items() if name != HASHES)
    content = "".join(lines).encode()
    (folder / HASHES).write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file; it is read anew, whatever is remembered of it."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_hashes(text: str) -> dict[str, str]:
    """Return the hashes of ``verify.txt`` by file.

    Raises:
        ResultsError: it has other lines, or names a file twice.
    """
    hashes: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or match[2] in hashes:
            raise ResultsError(f"{HASHES} has an invalid line: {one_line(line)[:100]!r}", "it was changed")
        hashes[match[2]] = match[1]
    return hashes


def write_zip(folder: Path, file: Path) -> None:
    """Write all files of a bundle's folder into one zip, below the folder's name."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in list_files(folder).items():
            entry = zipfile.ZipInfo(f"{folder.name}/{name}", _DATE)
            entry.external_attr = _MODE << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)


def unpack(file: Path, folder: Path) -> Path:
    """Unpack a zip into an empty folder, and return the bundle's folder in it.

    Raises:
        ResultsError: it is not a zip, it is damaged, or it has what no bundle has: paths that lead out of it,
            links, encrypted files, a name twice, too many files, or more bytes than its size allows.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            entries = _checked(archive.infolist(), file.stat().st_size)
            for entry in entries.values():  # up to the size that the zip says
                archive.extract(entry, folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ResultsError(
            f"{file} cannot be unpacked: {one_line(str(error))}", "download it again"
        ) from error
    tops = {name.partition("/")[0] for name in entries}
    top = folder / next(iter(tops)) if len(tops) == 1 else folder
    return top if top.is_dir() else folder


def _checked(entries: list[zipfile.ZipInfo], zip_bytes: int) -> Mapping[str, zipfile.ZipInfo]:
    """Return the files of a zip by name, after looking at what the zip says of them."""
    files: dict[str, zipfile.ZipInfo] = {}
    folded: set[str] = set()
    for entry in entries:
        if entry.is_dir():
            check_name(entry.filename.rstrip("/"))
            continue
        check_name(entry.filename)
        file_type = stat.S_IFMT(entry.external_attr >> 16)
        if file_type not in {0, stat.S_IFREG} or entry.flag_bits & 1 or entry.compress_type not in _METHODS:
            raise ResultsError(
                f"{entry.filename} in the zip is a link, encrypted, or packed in an unusual way",
                "do not use this bundle",
            )
        if entry.filename.casefold() in folded:
            raise ResultsError(f"the zip has {entry.filename} twice", "do not use this bundle")
        folded.add(entry.filename.casefold())
        files[entry.filename] = entry
    size = sum(entry.file_size for entry in files.values())
    _check_size(len(files), size)
    if size > MOST_RATIO * zip_bytes:
        raise ResultsError(
            f"the zip of {format_bytes(zip_bytes)} would unpack to {format_bytes(size)}",
            "do not use this bundle",
        )
    return files
