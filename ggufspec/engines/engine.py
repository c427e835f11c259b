"""What every engine can do, so that a bench need not know which one it has."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ggufspec.domain import ENGINES, Program, RunSpec, Sample


class Engine(Protocol):
    """Measures one specification once; a failing run is a Measurement with a status, not an exception.

    Engines are context managers, because some keep models loaded between runs.
    """

    @property
    def name(self) -> str:
        """The row of ENGINES that made this engine."""
        raise NotImplementedError

    @property
    def capacity(self) -> int | None:
        """How many loads are held at once; None for any number, or where every run loads anew."""
        return None

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command behind ``measure``, as it can be pasted into a shell."""
        raise NotImplementedError

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once. Raw output goes to ``log`` with the endings ``.out`` and ``.err`` before it is read."""
        raise NotImplementedError

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return what must be loaded for a run; equal keys share a load. None where every run loads anew."""
        return None

    def close(self) -> None:
        """End whatever is kept between runs; the engine can be used again afterwards."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One run's figures; ``error`` is the line that says why a run failed, None for a good one.

    ``load`` counts the engine's loads, from 0. None for a run that had a load of its own.
    """

    sample: Sample
    argv: tuple[str, ...]
    wall_s: float
    peak_rss_bytes: int | None = None
    error: str | None = None
    load: int | None = None


def keeps_loads(name: str) -> bool:
    """Return whether the engine of that name makes several runs with one load; False for unknown names."""
    return name == "inprocess" or ENGINES.get(name) is Program.SERVER
