"""The JSON Schemas in the package, to validate what was stored and printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import ggufspec
from ggufspec.report import schemas

PACKAGE = Path(ggufspec.__file__).parent


def validator(room: str, name: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a schema, such as ``summary-1`` of the room ``report``."""
    content = json.loads((PACKAGE / room / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def validate(output: str, content: Any) -> None:
    """Raise an error where an output is not valid by its current schema."""
    validator("report", schemas.schema_name(output)).validate(content)
