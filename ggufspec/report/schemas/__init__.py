"""JSON Schemas of the outputs for programs, each with a version that every change raises.

An output names its schema in the field ``schema``, such as ``summary-1``; the file of that name is in this
folder. ``scripts/write_schemas.py`` writes those of the current versions.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["VERSIONS", "schema_name"]

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


def schema_name(output: str) -> str:
    """Return the name of the current schema of an output."""
    return f"{output}-{VERSIONS[output]}"
