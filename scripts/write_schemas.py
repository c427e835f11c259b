"""Write the JSON Schemas of what is stored into the package, for the current schema version.

python scripts/write_schemas.py
"""

from __future__ import annotations

import json
from pathlib import Path

from ggufspec import results

FOLDER = Path(__file__).resolve().parent.parent / "ggufspec" / "results" / "schemas"


def main() -> None:
    for name, schema in results.schema().items():
        (FOLDER / name).write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
