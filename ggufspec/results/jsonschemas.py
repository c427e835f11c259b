"""JSON Schemas of the stored files, made from the stored classes. Copies are in schemas/."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ggufspec.results.configuration import (
    CONFIGURATION_VERSION,
    CROSSOVER_VERSION,
    Configuration,
    CrossoverAxes,
)
from ggufspec.results.records import Record
from ggufspec.results.resultset import SCHEMA_VERSION, Meta

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
