"""Archives of sources and programs, which write no file outside the folder that they are unpacked into."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

from ggufspec.errors import SourceError

if sys.version_info >= (3, 11, 4):
    import tarfile
else:  # Debian 12's Python cannot keep an archive within a folder
    from backports import tarfile  # type: ignore[no-redef]


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
