"""Several llama.cpps in one bench: each run goes to the engine of its own build."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ggufspec.domain import RunSpec
from ggufspec.engines.engine import Engine, Measurement


@dataclass(kw_only=True)
class BuildsEngine(Engine):
    """Engines of one name, by ``RunSpec.build``; together they hold no more loads than one of them."""

    engines: Mapping[str, Engine]

    @property
    def name(self) -> str:
        """The row of ENGINES that made all of them."""
        return next(iter(self.engines.values())).name

    @property
    def timeout_s(self) -> float | None:
        """The time limit for a run, and for a load."""
        return next(iter(self.engines.values())).timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float | None) -> None:
        for engine in self.engines.values():
            engine.timeout_s = seconds

    @property
    def capacity(self) -> int | None:
        """How many loads are held at once, by all builds together."""
        held = [engine.capacity for engine in self.engines.values() if engine.capacity is not None]
        return min(held, default=None)

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """Return the command of one run, with the programs of its build."""
        return self._of(spec).argv(spec)

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Run once with the programs of its build."""
        if self.capacity is not None:
            for build, engine in self.engines.items():
                if build != spec.build:
                    engine.close()  # its loads would take the memory that this build's may have
        measurement = self._of(spec).measure(spec, log)
        if measurement.load is None:
            return measurement
        number = list(self.engines).index(str(spec.build))  # each engine counts its loads from 0
        return replace(measurement, load=measurement.load * len(self.engines) + number)

    def load_key(self, spec: RunSpec) -> Hashable | None:
        """Return what must be loaded for a run; builds share no load."""
        key = self._of(spec).load_key(spec)
        return None if key is None else (spec.build, key)

    def close(self) -> None:
        """End whatever the engines keep."""
        for engine in self.engines.values():
            engine.close()

    def _of(self, spec: RunSpec) -> Engine:
        assert spec.build is not None
        return self.engines[spec.build]
