"""The forecasts behind a tuning, kept beside what was measured, so that a report can draw both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggufspec.forecast import Forecast
from ggufspec.results import disk, read_object, write_object

_NAME = "forecasts.json"


class _Kept(msgspec.Struct):
    """What the file holds, beside its checksum; older files are a list."""

    forecasts: tuple[Forecast, ...]


def keep(forecasts: Sequence[Forecast], folder: Path) -> None:
    """Write forecasts into a bench's folder.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    with disk(folder):
        write_object(folder / _NAME, _Kept(forecasts=tuple(forecasts)))


def kept(folder: Path) -> tuple[Forecast, ...]:
    """Return the forecasts of a bench; none where it was not tuned, or by another version.

    Raises:
        ResultsError: they are damaged.
    """
    try:
        content = read_object(folder / _NAME)
    except OSError:
        return ()
    try:
        if content.startswith(b"["):
            return tuple(msgspec.json.decode(content, type=list[Forecast]))
        return msgspec.json.decode(content, type=_Kept).forecasts
    except ValueError:  # msgspec's errors are ValueErrors
        return ()
