"""JSON Schemas of the outputs for programs, each with a version that every change raises.

An output names its schema in the field ``schema``, such as ``summary-1``; the file of that name is in this
folder. Files of earlier versions stay. ``scripts/write_schemas.py`` writes those of the current versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

__all__ = ["VERSIONS", "output_schemas", "schema_name"]

VERSIONS: Mapping[str, int] = {
    "summary": 1,
    "comparison": 1,
    "tune": 1,
    "finalists": 1,
    "crossover": 1,
    "plan": 1,
    "doctor": 1,
}
"""Output -> current version of its schema; the types are in outputs.py."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_name(output: str) -> str:
    """Return the name of the current schema of an output."""
    return f"{output}-{VERSIONS[output]}"


def output_schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of the current versions by file name, made from the types of the outputs."""
    import msgspec

    from ggufspec.report.schemas import outputs

    schemas = {}
    for output, content in outputs.TYPES.items():
        name = schema_name(output)
        table = {
            "$schema": _DIALECT,
            "title": f"{outputs.TITLES[output]}, schema {name}",
            **msgspec.json.schema(content),
        }
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(table))  # tuples become lists
        for definition in plain["$defs"].values():
            if "description" in definition:  # a docstring; newer Pythons remove its indentation
                definition["description"] = inspect.cleandoc(definition["description"])
            if "schema" in definition.get("properties", {}):
                definition["properties"]["schema"] = {"const": name}
        schemas[f"{name}.json"] = plain
    return schemas
