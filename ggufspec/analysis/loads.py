"""Which load of the models made each run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import RunSpec
from ggufspec.results import Runs

ServerStart = tuple[str, str | None]
"""A start of a server that ran already: its address, and what it says of its start."""


def number_loads(runs: Runs) -> NDArray[np.float64]:
    """Return the number of the load that made each run; NaN where none is recorded.

    A server that ran already is one load until it says that it was started again, however often it is asked.
    """
    recorded = runs.numbers("load")
    if all(spec.servers is None for spec in runs.by_spec()[0]):
        return recorded
    numbers: dict[ServerStart, int] = {}
    for load, start in enumerate(list_starts(runs)):
        if start is not None:
            recorded[load] = numbers.setdefault(start, len(numbers))
    return recorded


def list_starts(runs: Runs) -> Iterator[ServerStart | None]:
    """Yield the start of the server that answered each run; None for a run that loaded its own models."""
    for spec, repeat in zip(runs.specs, runs.column("repeat"), strict=True):
        yield _start(spec, repeat)


def _start(spec: RunSpec, repeat: int) -> ServerStart | None:
    endpoint = None if spec.servers is None else spec.at_repeat(repeat).endpoint
    return None if endpoint is None else (endpoint.url, endpoint.start)
