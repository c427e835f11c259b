"""Names on the Hub: which texts can be repositories, and which are files inside of one."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_REPO = re.compile(r"(?!.*(?:\.\.|--))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}(?<![.-])")


def is_repo(text: str) -> bool:
    """Return whether a text has the form of a repository's name, ``user/repo``."""
    return _REPO.fullmatch(text) is not None


def is_inside(filename: str) -> bool:
    """Return whether a name from the Hub stays inside the folder that it is joined to."""
    parts = PurePosixPath(filename).parts
    return bool(parts) and not (
        filename.startswith("/")
        or any(part in {"..", "."} for part in filename.split("/"))
        or re.search(r"[\\:\x00-\x1f]", filename)
    )
