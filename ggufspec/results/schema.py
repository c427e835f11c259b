"""JSON Schemas of what is stored, made of the classes that are stored; copies lie in ggufspec/schemas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ggufspec.results.records import Record
from ggufspec.results.resultset import SCHEMA_VERSION, Meta

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, dict[str, Any]]:
    """Return the schemas by their files' names: a line of runs.jsonl, and meta.json."""
    stored = {
        f"run-{SCHEMA_VERSION}.json": (Record, "One line of runs.jsonl"),
        f"meta-{SCHEMA_VERSION}.json": (Meta, "meta.json"),
    }
    return {name: _schema(kind, title) for name, (kind, title) in stored.items()}


def _schema(kind: Any, title: str) -> dict[str, Any]:
    found = {
        "$schema": _DIALECT,
        "title": f"{title} of a bench stored by ggufspec, schema version {SCHEMA_VERSION}",
        **msgspec.json.schema(kind, schema_hook=_hook),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))  # tuples become lists
    return plain


def _hook(kind: type) -> dict[str, Any]:
    if kind is Path:
        return {"type": "string"}
    raise NotImplementedError(kind.__name__)
