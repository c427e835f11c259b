"""JSON Schemas of the stored files, made from the stored classes; copies are in schemas/."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

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


def schema() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name: one for a line of runs.jsonl, one for meta.json."""
    return {
        f"run-{SCHEMA_VERSION}.json": _schema(Record, "One line of runs.jsonl", _JOINED | _SEAL),
        f"meta-{SCHEMA_VERSION}.json": _schema(Meta, "meta.json", _SEAL),
    }


def _schema(stored: Any, title: str, ending: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema; ``ending`` has the fields at the end of each object, see seals.py."""
    table = {
        "$schema": _DIALECT,
        "title": f"{title} of a bench stored by ggufspec, schema version {SCHEMA_VERSION}",
        **msgspec.json.schema(stored, schema_hook=_hook),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(table))  # tuples become lists
    for definition in plain["$defs"].values():
        if "description" in definition:  # a docstring; newer Pythons remove its indentation
            definition["description"] = inspect.cleandoc(definition["description"])
    outermost = (reference["$ref"].rpartition("/")[2] for reference in plain.get("anyOf", [plain]))
    for name in outermost:
        plain["$defs"][name]["properties"] |= ending
        plain["$defs"][name]["required"] = [*plain["$defs"][name].get("required", ()), "crc32"]
    return plain


def _hook(unknown: type) -> dict[str, Any]:
    if unknown is Path:
        return {"type": "string"}
    raise NotImplementedError(unknown.__name__)
