"""Write the JSON Schemas of what is stored and of the outputs for programs, for the current versions.

python scripts/write_schemas.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ggufspec import results
from ggufspec.report.schemas import outputs

_WIDTH = 150  # characters of a line
PACKAGE = Path(__file__).resolve().parent.parent / "ggufspec"


def main() -> None:
    for folder, made in (("results", results.stored_schemas()), ("report", outputs.output_schemas())):
        for name, schema in made.items():
            file = PACKAGE / folder / "schemas" / name
            file.write_text(_laid_out(schema) + "\n", encoding="utf-8")
            print(file)


def _laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which a value that fits stays on one line: a field of a schema, most often."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= _WIDTH or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        items = [inner + _laid_out(item, inner) for item in value]
        return "[\n" + ",\n".join(items) + f"\n{indent}]"
    fields = [f"{inner}{json.dumps(name)}: {_laid_out(item, inner)}" for name, item in value.items()]
    return "{\n" + ",\n".join(fields) + f"\n{indent}}}"


if __name__ == "__main__":
    main()
