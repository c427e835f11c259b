"""The file of a crossover: crossover.json in the folder of its bench has the axes of its map.

Everything else about the map follows from the runs of the bench.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from ggufspec.errors import ResultsError
from ggufspec.results.writer import disk, read_object, refuse_newer, write_object

CROSSOVER_VERSION = 1
_FILE = "crossover.json"


@dataclass(frozen=True, kw_only=True)
class CrossoverAxes:
    """What a map of users and depths spans, each in ascending order; ``depths`` are in tokens."""

    users: tuple[int, ...]
    depths: tuple[int, ...]
    schema_version: int = CROSSOVER_VERSION


def write_crossover_axes(axes: CrossoverAxes, folder: Path) -> None:
    """Write the axes into the folder of a bench, in one step.

    Raises:
        ResultsError: they cannot be written; DiskFullError where the disk is full.
    """
    with disk(folder):
        write_object(folder / _FILE, axes)


def read_crossover_axes(folder: Path) -> CrossoverAxes | None:
    """Return the axes of a bench; None where it is not a crossover.

    Raises:
        ResultsError: they are damaged, or cannot be read.
    """
    file = folder / _FILE
    if not file.is_file():
        return None
    try:
        axes = msgspec.json.decode(read_object(file), type=CrossoverAxes)
    except OSError as error:
        raise ResultsError(f"cannot read {file}: {error.strerror}", "check its permissions") from error
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise ResultsError(f"{file} is damaged: {error}", "measure the crossover again") from error
    refuse_newer(file, axes.schema_version, CROSSOVER_VERSION)
    return axes
