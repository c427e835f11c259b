"""Where a header's bytes come from: a file here, or one far away that is read by ranges."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Protocol

from ggufspec import paths
from ggufspec.errors import ModelFileError


class HeaderSource(Protocol):
    """Random access to the bytes of one GGUF."""

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""


class FileSource:
    """A file on this machine.

    Raises:
        ModelFileError: there is no such file, it is a folder, or it may not be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        check_path(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            close = paths.beside(path)
            hint = f"did you mean {close}?" if close else "check the path of the model"
            raise ModelFileError(f"there is no file {path}", hint) from None
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"{path} is a folder", "name the .gguf file within it")
        self._size = status.st_size

    @property
    def size(self) -> int:
        """The file's size when it was opened."""
        return self._size

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                return file.read(n)
        except OSError as error:
            raise ModelFileError(f"{self._path} cannot be read: {error.strerror}") from error


def check_path(path: Path) -> None:
    """Refuse a path that no result could name: the name of a file is bytes, and JSON knows only Unicode.

    Raises:
        ModelFileError: the path is not UTF-8.
    """
    if not paths.is_unicode(path):
        raise ModelFileError(
            f"the path {paths.shown(path)} is not valid UTF-8",
            "rename the file or the folder, or use a symbolic link",
        )
