"""The folders of builds, sources, logs and results. Environment variables can move them.

GGUFSPEC_CACHE   builds and sources of llama.cpp    (default: the user's cache folder)
GGUFSPEC_DATA    results and their raw logs         (default: the user's data folder)
GGUFSPEC_CONFIG  settings and the user's own pairs  (default: the user's configuration folder)
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path

import platformdirs

from ggufspec.errors import GgufspecError

PLACES = ("cache", "data", "config")
"""Folders that a variable GGUFSPEC_… can move."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a full disk, or of a user's share of it."""

FILE_LIMIT_HINT = "`ulimit -f` shows the limit, and `ulimit -f unlimited` lifts it"
"""What helps where the system refuses to let a file grow (EFBIG)."""

_PACKAGE = Path(__file__).resolve().parent


def cache_dir() -> Path:
    """Return the folder for sources and builds, which can be recreated."""
    return _override("GGUFSPEC_CACHE") or platformdirs.user_cache_path("ggufspec")


def data_dir() -> Path:
    """Return the folder for results, which must not be lost."""
    return _override("GGUFSPEC_DATA") or platformdirs.user_data_path("ggufspec")


def config_dir() -> Path:
    """Return the folder for the user's files: settings, and a catalogue of their own pairs."""
    return _override("GGUFSPEC_CONFIG") or platformdirs.user_config_path("ggufspec")


def config_file() -> Path:
    """Return the path of the user's settings; the file need not exist."""
    return config_dir() / "config.toml"


def builds_dir() -> Path:
    """Return the folder of builds of llama.cpp, one folder each."""
    return cache_dir() / "builds"


def sources_dir() -> Path:
    """Return the folder of downloaded sources of llama.cpp."""
    return cache_dir() / "sources"


def quantized_dir() -> Path:
    """Return the folder of drafters that were quantized here."""
    return cache_dir() / "quantized"


def converters_dir() -> Path:
    """Return the folder of llama.cpp's converters, each with its Python environment."""
    return cache_dir() / "converters"


def runs_dir() -> Path:
    """Return the folder of stored runs, one folder each."""
    return data_dir() / "runs"


def fleets_dir() -> Path:
    """Return the folder of fleets, one folder each; the runs of their machines are in ``runs_dir``."""
    return data_dir() / "fleets"


def models_dir() -> Path:
    """Return the folder with the catalogue and the embedded pair, in a checkout or in a wheel."""
    in_wheel = _PACKAGE / "models"
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "models"


def size_bytes(path: Path) -> int:
    """Return the size of a file, or of all files below a folder. Symbolic links are not followed."""
    if path.is_symlink() or not path.exists():
        return 0
    if path.is_file():
        return path.stat().st_size
    files = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


def beside(path: Path) -> Path | None:
    """Return the file with the most similar name in the folder of a missing file, or None."""
    from difflib import get_close_matches

    try:
        names = {file.name for file in path.parent.iterdir() if file.is_file()}
    except OSError:
        return None
    lower = {name.lower(): name for name in sorted(names)}
    close = get_close_matches(path.name.lower(), lower, n=1, cutoff=0.7)
    return path.with_name(lower[close[0]]) if close else None


def is_unicode(path: Path) -> bool:
    """Return whether a path can be stored as text. File names may hold arbitrary bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(path: Path) -> str:
    r"""Return a path as text, in which ``\xff`` stands for a byte that is not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def expanded(text: str, where: str) -> Path:
    """Return a path that a user wrote as an absolute path, with ``~`` expanded.

    Raises:
        GgufspecError: it starts with ``~USER`` and the user does not exist; ``where`` starts the message.
    """
    try:
        return with_home(text).absolute()
    except ValueError as error:
        user = text.partition("/")[0]
        raise GgufspecError(
            f"{where}: {error}", f"name another folder, or write ./{user} for a folder of that name"
        ) from error


def with_home(text: str) -> Path:
    """Return a path with ``~`` expanded.

    Raises:
        ValueError: it starts with ``~USER`` and the user does not exist.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{text} is in the home folder of a user who does not exist here") from error


def at_home(text: str) -> Path | None:
    """Return such a path; None if there is no home."""
    try:
        return with_home(text)
    except ValueError:
        return None


def explain(error: OSError, folder: Path, variable: str) -> tuple[str, str]:
    """Return why a folder, or a file in it, cannot be used, and what helps.

    Args:
        error: of the system.
        folder: which was read or written.
        variable: that names another folder in its place.
    """
    elsewhere = f"set {variable} to another folder"
    if error.errno in NO_ROOM:
        return "no space is left there", f"free some space, or set {variable} to a folder on another disk"
    if error.errno == errno.EFBIG:
        return "this shell limits the size of files", FILE_LIMIT_HINT
    if (link := broken_link(folder)) is not None:
        target = link.parent / link.readlink()
        return (
            f"the symbolic link {link} leads to no folder: {target}",
            f"make {target}, correct the link, or {elsewhere}",
        )
    if error.errno == errno.ENOENT:
        return "it does not exist", elsewhere
    return error.strerror or str(error), f"set {variable} to a folder that can be read and written"


def broken_link(path: Path) -> Path | None:
    """Return the symbolic link in a path that leads nowhere, or back to itself; None if there is none."""
    for link in (path, *path.parents):
        if link.is_symlink():
            try:
                link.stat()
            except OSError:
                return link
    return None


def text_of(file: Path) -> str:
    """Return the text of a small file, without white space around it; empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def free_bytes(folder: Path) -> int:
    """Return the free disk space at a folder that need not exist yet."""
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return shutil.disk_usage(existing).free


def write_atomically(file: Path, text: str) -> None:
    """Replace a file's content in one step: a reader sees the old text or the new one.

    Raises:
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    new.write_text(text, encoding="utf-8")
    publish(new, file)


def publish(complete: Path, path: Path) -> None:
    """Give a file its final name; after a power cut it is there with all of its bytes, or not at all."""
    sync(complete)
    complete.replace(path)
    with suppress(OSError):  # some network file systems cannot sync a folder
        sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk.

    Raises:
        OSError: it cannot be opened, or its file system does not support this.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _override(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return expanded(value, variable) if value else None
