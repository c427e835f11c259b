"""Write the JSON Schemas of what is stored and of the outputs for programs, for the current versions.

python scripts/write_schemas.py
"""

from __future__ import annotations

import json
from pathlib import Path

from ggufspec import results
from ggufspec.report import schemas

PACKAGE = Path(__file__).resolve().parent.parent / "ggufspec"


def main() -> None:
    for folder, made in (("results", results.stored_schemas()), ("report", schemas.output_schemas())):
        for name, schema in made.items():
            file = PACKAGE / folder / "schemas" / name
            file.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            print(file)


if __name__ == "__main__":
    main()
