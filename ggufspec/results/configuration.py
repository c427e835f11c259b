"""What is stored beside the runs of a bench: a tuned configuration, or the axes of a crossover.

And the JSON Schemas of all stored files, made from the stored classes. Copies are in schemas/.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ggufspec import paths
from ggufspec.domain import Build, Estimate, FileIdentity, Launch, Machine, RunSpec, Serving, SpeedJudgement
from ggufspec.errors import ResultsError
from ggufspec.results import store
from ggufspec.results.records import Record
from ggufspec.results.resultset import SCHEMA_VERSION, Meta
from ggufspec.results.writer import read_stored, write_object

CONFIGURATION_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What is safe to run for some prompts, without a prompt and a length, and the finding behind it.

    Attributes:
        spec: the models, how they draft, their placement, and llama.cpp's settings. It drafts only where that
            was found to be faster; otherwise it is the target alone.
        tokens_per_s: its speed; an interval of 95 %.
        candidate: the configuration that drafts which the judgement is about; None where none was measured
            with the target's own text.
        judgement: of the candidate over the target alone at its best.
        prompts: number of prompts.
    """

    spec: RunSpec
    tokens_per_s: Estimate
    candidate: RunSpec | None
    judgement: SpeedJudgement | None
    prompts: int

    @property
    def drafts(self) -> bool:
        """Whether to draft."""
        return self.spec.drafting is not None

    @property
    def is_decided(self) -> bool:
        """Whether there is a finding; otherwise the target alone is only what is safe meanwhile."""
        return self.judgement is not None and self.judgement.is_decided


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """A configuration that was faster and cannot be served, and why."""

    spec: RunSpec
    reason: str


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a tuning recommends, what it rests on, and how to run it.

    Attributes:
        id: the bench that confirmed it; its folder has this configuration.
        made_at: ISO 8601, UTC.
        ggufspec_version: the version that tuned.
        overall: the recommendation over all prompts.
        by_category: recommendations for each category of prompts that have two or more.
        engine: the engine that measured.
        serving: what it is meant to serve. It was measured with memory for all slots: with as many users as
            ``spec.traffic`` names, or without it with one request at a time.
        measured_argv: the command of the recommended runs; values that change with each start are words in
            capitals.
        serving_argv: the command that serves it; empty where this llama.cpp has no server.
        launch: how llama-server answered by exactly that command; None where it was not started.
        passed_over: faster configurations that could not be served.
        warnings: the names of warnings about the measurement, and their advice.
        build: the llama.cpp that measured.
        files: the models, programs and libraries that were measured.
        machine: the machine that measured.
        environment: the variables that may change the speed.
    """

    id: str
    made_at: str
    ggufspec_version: str
    overall: Recommendation
    engine: str
    serving: Serving
    build: Build
    machine: Machine
    by_category: Mapping[str, Recommendation] = field(default_factory=dict)
    measured_argv: tuple[str, ...] = ()
    serving_argv: tuple[str, ...] = ()
    launch: Launch | None = None
    passed_over: tuple[PassedOver, ...] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FileIdentity, ...] | None = None
    environment: Mapping[str, str] | None = None
    schema_name: str = "ggufspec configuration"
    schema_version: int = CONFIGURATION_VERSION

    @property
    def spec(self) -> RunSpec:
        """The run that is safe over all prompts."""
        return self.overall.spec

    @property
    def compared(self) -> RunSpec:
        """What to measure again: the same, or the candidate while nothing is decided."""
        overall = self.overall
        return overall.spec if overall.is_decided or overall.candidate is None else overall.candidate


_CONFIGURATION = "configuration.json"


def write_configuration(configuration: Configuration, folder: Path) -> Path:
    """Write a configuration into the folder of its bench, in one step, and return its file.

    Raises:
        ResultsError: it cannot be written.
        DiskFullError: the disk is full.
    """
    file = folder / _CONFIGURATION
    write_object(file, configuration)
    return file


def find_configuration(name: str = store.LATEST) -> Path:
    """Return the file of a tuned configuration.

    Args:
        name: a tuning's id or the unique beginning of one, its folder, a configuration file, or ``last``.

    Raises:
        ResultsError: there is none.
    """
    if Path(name).is_file():
        return Path(name)
    if name == store.LATEST:
        files = (paths.runs_dir() / bench / _CONFIGURATION for bench in reversed(store.ids()))
        newest = next((file for file in files if file.is_file()), None)
        if newest is None:
            raise ResultsError("nothing is tuned yet", "run `ggufspec tune` first")
        return newest
    folder = store.find_bench(name)
    if not has_configuration(folder):
        raise ResultsError(
            f"the bench {folder.name} has no tuned configuration", "name a bench that `ggufspec tune` made"
        )
    return folder / _CONFIGURATION


def has_configuration(folder: Path) -> bool:
    """Whether the folder of a bench has a tuned configuration."""
    return (folder / _CONFIGURATION).is_file()


def read_configuration(name: str = store.LATEST) -> Configuration:
    """Return a stored configuration.

    Args:
        name: as for ``find_configuration``.

    Raises:
        ResultsError: there is none, it was edited or damaged, or a newer ggufspec wrote it.
    """
    return read_stored(
        find_configuration(name),
        Configuration,
        "a tuned configuration",
        newest=CONFIGURATION_VERSION,
        remedy="restore it, or tune again",
    )


CROSSOVER_VERSION = 1
_CROSSOVER = "crossover.json"


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
    write_object(folder / _CROSSOVER, axes)


def read_crossover_axes(folder: Path) -> CrossoverAxes | None:
    """Return the axes of a bench; None where it is not a crossover.

    Raises:
        ResultsError: they are damaged, or cannot be read.
    """
    file = folder / _CROSSOVER
    if not file.is_file():
        return None
    return read_stored(
        file, CrossoverAxes, "a map's axes", newest=CROSSOVER_VERSION, remedy="measure the crossover again"
    )


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_CHECKSUM = {"type": "string", "pattern": "^[0-9a-f]{8}$"}
_SEAL = {
    "crc32": {
        "type": "array",
        "description": "CRC-32 of the file up to this object, and up to this second checksum itself",
        "items": _CHECKSUM,
        "minItems": 2,
        "maxItems": 2,
    }
}
_JOINED = {"joined": {"const": True, "description": "written together with the line before it"}}


def stored_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name: a line of runs.jsonl, and each other file."""
    return {
        f"run-{SCHEMA_VERSION}.json": _sealed(Record, "One line of runs.jsonl", SCHEMA_VERSION, _JOINED),
        f"meta-{SCHEMA_VERSION}.json": _sealed(Meta, "meta.json", SCHEMA_VERSION),
        f"configuration-{CONFIGURATION_VERSION}.json": _sealed(
            Configuration, "configuration.json", CONFIGURATION_VERSION
        ),
        f"crossover-{CROSSOVER_VERSION}.json": _sealed(CrossoverAxes, "crossover.json", CROSSOVER_VERSION),
    }


def json_schema(content: Any, title: str) -> dict[str, Any]:
    """Return the JSON Schema of a type. It is the same on every version of Python."""
    table = {"$schema": _DIALECT, "title": title, **msgspec.json.schema(content, schema_hook=_describe)}
    schema: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(table))  # tuples become lists
    for definition in schema["$defs"].values():
        if "description" in definition:  # a docstring; newer Pythons remove its indentation
            definition["description"] = inspect.cleandoc(definition["description"])
    return schema


def _sealed(
    stored: Any, title: str, version: int, other_fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a schema whose objects end with other fields and the checksums of seals.py."""
    schema = json_schema(stored, f"{title} of a bench stored by ggufspec, schema version {version}")
    for reference in schema.get("anyOf", [schema]):  # what an object may be
        definition = schema["$defs"][reference["$ref"].rpartition("/")[2]]
        definition["properties"] |= {**(other_fields or {}), **_SEAL}
        definition["required"] = [*definition.get("required", ()), "crc32"]
    return schema


def _describe(unknown: type) -> dict[str, Any]:
    if unknown is Path:
        return {"type": "string"}
    raise NotImplementedError(unknown.__name__)
