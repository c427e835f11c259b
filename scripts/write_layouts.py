"""Write the layouts of llama.h's parameters, by build, from source trees of llama.cpp.

    python scripts/write_layouts.py BUILD=TREE...

A tree has include/llama.h and src/. What the data has of other builds is kept. A layout is the fields of
``llama_model_params`` and ``llama_context_params``, in order, with their types and the values that the
library sets by default. The data has each layout once, with the first build that was seen to have it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ggufspec.engines.library.llama_h import LAYOUTS, declared, read_header

SOURCES = {"model": "src/llama-model.cpp", "context": "src/llama-context.cpp"}
NUMBERS = {
    "true": True,
    "false": False,
    "nullptr": None,
    "NULL": None,
    "GGML_DEFAULT_N_THREADS": 4,
    "GGML_TYPE_F16": 1,  # ggml.h
}
_ENUM = re.compile(r"enum\s+\w+\s*\{(.*?)\}", re.DOTALL)
_DEFAULT = re.compile(r"/\*\s*\.(\w+)\s*=?\s*\*/\s*([^\n]*?),?\s*(?://[^\n]*)?\n")


def main() -> None:
    known = json.loads(LAYOUTS.read_text(encoding="utf-8")) if LAYOUTS.exists() else []
    seen = {entry["since"]: entry for entry in known}
    for argument in sys.argv[1:]:
        build, _, tree = argument.partition("=")
        seen[int(build)] = {"since": int(build), **read_layout(Path(tree))}
    kept: list[Mapping[str, Any]] = []
    for build in sorted(seen):
        if not kept or {**kept[-1], "since": build} != seen[build]:
            kept.append(seen[build])
    LAYOUTS.write_text(_format(kept), encoding="utf-8")


def read_layout(tree: Path) -> dict[str, list[list[Any]]]:
    """Return the fields of both structs of a source tree: name, type, default."""
    header = read_header(tree / "include/llama.h")
    numbers = {**NUMBERS, **dict(_enumerators(header))}
    layout = {}
    for name, file in SOURCES.items():
        source = (tree / file).read_text(encoding="utf-8")
        body = source[source.index(f"llama_{name}_default_params()") :]
        defaults = _DEFAULT.findall(body[: body.index("return result")])  # in order; some names are misspelt
        fields = declared(header, f"llama_{name}_params")
        layout[name] = [
            [field, kind, _number(default, numbers)]
            for (field, kind), (_, default) in zip(fields, defaults, strict=True)
        ]
    return layout


def _enumerators(header: str) -> Iterator[tuple[str, int]]:
    for body in _ENUM.findall(header):
        value = -1
        for item in filter(None, (part.strip() for part in body.split(","))):
            name, _, given = (part.strip() for part in item.partition("="))
            try:
                value = int(given, 0) if given else value + 1
            except ValueError:
                continue  # a shift or another enumerator: no default of these structs
            yield name, value


def _number(text: str, numbers: Mapping[str, Any]) -> Any:
    text = text.strip()
    if text in numbers:
        return numbers[text]
    return float(text.rstrip("f")) if "." in text else int(text)


def _format(layouts: list[Mapping[str, Any]]) -> str:
    """Return JSON with a field in each line."""
    text = json.dumps(layouts, indent=1)
    return re.sub(r"\[\s+(\"\w+\"),\s+(\"\w+\"),\s+([^\s]+)\s+\]", r"[\1, \2, \3]", text) + "\n"


if __name__ == "__main__":
    main()
