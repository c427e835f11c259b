"""The protocol of all engines."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ggufspec.domain import ENGINES, Program, RunSpec, Sample


class Engine(Protocol):
    """Measures one RunSpec once. A failing run is a Measurement with a status, not an exception.

    Engines are context managers, because some keep models loaded between runs.
    """

    timeout_s: float | None
    """Time limit in seconds for a run, and for a load; None for no limit. It may be changed between runs."""

    @property
    def name(self) -> str:
        """The row of ENGINES that made this engine."""
        raise NotImplementedError

    @property
    def capacity(self) -> int | None:
        """How many processes with loaded models are kept at once.

        None if there is no limit, or if every run loads its models.
        """
        return None

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command that ``measure`` runs, ready to paste into a shell."""
        raise NotImplementedError

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once. Raw output is written to ``log`` with the suffixes ``.out`` and ``.err``, then parsed."""
        raise NotImplementedError

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return a key for what must be loaded for a run; runs with equal keys share it.

        None if every run loads its models.
        """
        return None

    def close(self) -> None:
        """End all processes kept between runs. The engine can be used again afterwards."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one run; ``error`` is one line that says why it failed, or None.

    ``load`` is the number of the engine's load, from 0. None for a run with a load of its own.
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
