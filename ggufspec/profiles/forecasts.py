"""The forecasts behind a tuning, kept beside what was measured, so that a report can draw both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ggufspec.forecast import Forecast
from ggufspec.results import disk

_NAME = "forecasts.json"


def keep(forecasts: Sequence[Forecast], folder: Path) -> None:
    """Write forecasts into a bench's folder.

    Raises:
        ResultsError: it cannot be written; DiskFullError where there is no room left.
    """
    with disk(folder):
        (folder / _NAME).write_bytes(msgspec.json.encode(list(forecasts), enc_hook=str))


def kept(folder: Path) -> tuple[Forecast, ...]:
    """Return the forecasts of a bench; none where it was not tuned, or by another version."""
    try:
        return tuple(msgspec.json.decode((folder / _NAME).read_bytes(), type=list[Forecast]))
    except (OSError, msgspec.MsgspecError, ValueError):
        return ()
