"""ResultSet: the results of a bench as a frozen value. Later runs belong to later ResultSets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ggufspec import notebooks
from ggufspec.domain import Build, FileIdentity, Machine, RpcWorker, RunSpec, StoppingRule
from ggufspec.results.runs import CellKey, Runs
from ggufspec.results.writer import Writer

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Meta:
    """What all runs of one bench share. ``doubts`` maps the names of warnings to their advice.

    ``number`` counts the benches of a store, so that a wrong clock does not change their order.
    ``planned_runs`` is the number of counted runs of a complete bench. ``files`` are the measured models and
    the programs and libraries of llama.cpp, ``environment`` the variables that may change their speed.
    ``software`` has the versions of ggufspec, Python and the packages that it uses, ``suite_sha256``
    identifies the prompts. None is not recorded.

    ``builds`` maps the ``RunSpec.build`` of a bench of several llama.cpps to each of them, in the order in
    which they were given; ``build`` is the first. It is empty for a bench of one. ``stopping`` is when a
    bench that is measured until its verdicts are decided is looked at; None for other benches. ``workers``
    lent their devices to the target.
    """

    id: str
    started_at: str  # ISO 8601, UTC
    engine: str
    command: tuple[str, ...]  # ggufspec's own command line
    build: Build
    machine: Machine
    doubts: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    planned_runs: int | None = None
    files: tuple[FileIdentity, ...] | None = None
    environment: Mapping[str, str] | None = None
    builds: Mapping[str, Build] = field(default_factory=dict)
    software: Mapping[str, str] | None = None
    suite_sha256: str | None = None
    stopping: StoppingRule | None = None
    workers: tuple[RpcWorker, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def build_of(self, spec: RunSpec) -> Build:
        """Return the llama.cpp that ran a specification."""
        return self.build if spec.build is None else self.builds[spec.build]


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """The runs of one bench, in the order of measurement.

    ``damage`` says in sentences what could not be read; it is empty for an undamaged bench.
    """

    meta: Meta
    folder: Path
    runs: Runs
    damage: tuple[str, ...] = field(default=(), compare=False)
    writer: Writer | None = field(default=None, repr=False, compare=False)  # None: opened for reading only
    upcoming: RunSpec | None = field(default=None, repr=False, compare=False)  # about to be measured

    @property
    def measured(self) -> Runs:
        """The runs without warm-ups."""
        return self.runs.select([i for i, warmup in enumerate(self.runs.column("warmup")) if not warmup])

    @cached_property
    def current(self) -> Runs:
        """The runs that count: the newest of each cell, without warm-ups and anchors."""
        return self.runs.newest()

    @property
    def first_measured(self) -> Runs:
        """As ``current``, but without what was measured again because a run had collapsed."""
        remeasured = self.runs.column("remeasured")
        if not any(remeasured):
            return self.current
        return self.runs.select([i for i, again in enumerate(remeasured) if not again]).newest()

    @property
    def is_complete(self) -> bool | None:
        """Whether every planned run exists, failed ones included; None where the plan is not known."""
        planned = self.meta.planned_runs
        return None if planned is None else len(self.current) >= planned

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return notebooks.html(self)


def cell(spec: RunSpec, repeat: int, *, warmup: bool = False, anchor: bool = False) -> CellKey:
    """Return the key of a cell of a bench."""
    return (spec.key, repeat, warmup, anchor)


def finished(results: ResultSet) -> frozenset[CellKey]:
    """Return the cells that have a run, failed or not."""
    return frozenset(results.runs.cells())
