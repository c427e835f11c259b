"""Count what the house is made of: files, lines of code, and what is said more than once.

    python scripts/house.py [--against REVISION] [--walk]

A line of code is neither blank, nor a comment, nor part of a docstring. Lines said twice are in runs of six
lines or more of the package that stand in two places, alike but for names, numbers and strings; a run counts
once for each place but the first. A class name counts where several files define it. ``--against`` prints the
counts of another revision beside those of the files here.

``--walk`` runs ``ggufspec bench --ngl 5`` on the embedded pair, for which llama.cpp has to be built, and
follows the value: a stop is a function or a class that names it and is reached, and a climb is where the next
one, in the order in which they are reached first, is in a higher room.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import keyword
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = 6  # lines; shorter ones are alike by chance
_LAYOUT = {
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.COMMENT,
}
_SHAPES = {tokenize.NUMBER: "0", tokenize.STRING: "''"}
_KEPT = frozenset({*keyword.kwlist, "self"})
_VALUE = re.compile(r"-{0,2}ngl|requested_ngl|(target_)?layers|n_gpu_layers|gpu_layers")
"""What the value of --ngl is called on its way; that of --ngld and layers that were counted are others."""
_BENCH = "bench --pair demo --ngl 5 --draft 3 -n 16 -p Once -r 1 --warmup 0 -t 1 -o json"
_FOLLOW = """
import json, runpy, sys, threading
reached = {}
def note(frame, event, _):
    if event == "call":
        reached.setdefault(frame.f_code)
threading.setprofile(note)
sys.setprofile(note)
file, sys.argv = sys.argv[1], ["ggufspec", *sys.argv[2:]]
try:
    runpy.run_module("ggufspec", run_name="__main__")
finally:
    sys.setprofile(None)
    with open(file, "w") as out:
        json.dump([(code.co_filename, code.co_firstlineno) for code in [*reached]], out)
"""
"""Runs a command, and writes the first line of all code that it reached, in this order."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REVISION", help="a revision of git to count, too")
    parser.add_argument("--walk", action="store_true", help="run a bench, and follow the value of --ngl")
    asked = parser.parse_args()
    columns = {"here": count(ROOT, walks=asked.walk)}
    if asked.against:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "-C", ROOT, "archive", asked.against], capture_output=True, check=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            columns = {asked.against: count(Path(folder), walks=asked.walk), **columns}
    print("| |", " | ".join(columns), "|")
    print("|---|" + "---:|" * len(columns))
    for name in columns["here"]:
        print(f"| {name} |", " | ".join(f"{counts[name]:,}" for counts in columns.values()), "|")
    for name, files in sorted(repeated_classes(ROOT).items()):
        print(f"class {name}: {', '.join(files)}", file=sys.stderr)


def count(root: Path, *, walks: bool) -> dict[str, int]:
    """Return each count by its name."""
    package = {path: path.read_text(encoding="utf-8") for path in sorted((root / "ggufspec").rglob("*.py"))}
    tests = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    schemas = (root / "ggufspec").rglob("schemas/*.json")
    code = {path: list(code_lines(text)) for path, text in package.items()}
    return {
        "files of the package": len(package),
        "lines of them": sum(text.count("\n") for text in package.values()),
        "lines of code": sum(map(len, code.values())),
        "lines said twice": said_twice(code),
        "class names of several classes": len(repeated_classes(root)),
        "lines of tests": sum(text.count("\n") for text in tests),
        "lines of schemas": sum(path.read_text(encoding="utf-8").count("\n") for path in schemas),
        **(count_walk(root) if walks else {}),
    }


def code_lines(text: str) -> Iterator[str]:
    """Yield the shape of each line of code: names, numbers and strings are alike, keywords are kept."""
    docstrings = set(_docstring_lines(ast.parse(text)))
    shapes: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in _LAYOUT:
            continue
        word = token.string if token.string in _KEPT else "n"
        shape = _SHAPES.get(token.type, word if token.type == tokenize.NAME else token.string)
        for line in range(token.start[0], token.end[0] + 1):
            shapes[line].append(shape)
    for line in sorted(shapes.keys() - docstrings):
        yield " ".join(shapes[line])


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Yield the numbers of all lines that hold a string on its own: docstrings, and those of constants."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            yield from range(node.lineno, node.end_lineno + 1)


def said_twice(code: Mapping[Path, list[str]]) -> int:
    """Return how many lines stand in a run that stood before, imports and lone brackets left out."""
    seen: dict[tuple[str, ...], tuple[Path, int]] = {}
    total = 0
    for path, listed in code.items():
        lines = [line for line in listed if len(line) > 3 and "import" not in line.split()]
        repeated: set[int] = set()
        for start in range(len(lines) - RUN + 1):
            run = tuple(lines[start : start + RUN])
            if len(set(run)) < RUN - 1:  # fields of a table or of a class
                continue
            first = seen.setdefault(run, (path, start))
            if first != (path, start):
                repeated.update(range(start, start + RUN))
        total += len(repeated)
    return total


def repeated_classes(root: Path) -> dict[str, list[str]]:
    """Return the class names that several files define, without the leading underscore, and these files."""
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted((root / "ggufspec").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_")].append(str(path.relative_to(root)))
    return {name: found for name, found in files.items() if len(found) > 1}


def count_walk(root: Path) -> dict[str, int]:
    """Run a bench, and return how many stops the value of --ngl makes, in how many files, and its climbs."""
    package = root.resolve() / "ggufspec"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "reached.json")
        environment = os.environ | {"PYTHONPATH": str(root), "GGUFSPEC_DATA": folder}
        command = [sys.executable, "-c", _FOLLOW, str(file), *_BENCH.split()]
        subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        reached = [(Path(name), line) for name, line in json.loads(file.read_text(encoding="utf-8"))]
    naming = {path: _naming(path) for path in sorted(package.rglob("*.py"))}
    stops = dict.fromkeys((path, line) for path, line in reached if line in naming.get(path, ()))
    floors = _floors(root)
    for path, line in stops:
        print(f"stop: {path.relative_to(root.resolve())}:{line}", file=sys.stderr)
    way = [floors.get(path.relative_to(package).parts[0], -1) for path, _ in stops]
    return {
        "stops of --ngl": len(stops),
        "files of these": len({path for path, _ in stops}),
        "climbs of --ngl": sum(after > before for before, after in pairwise(way)),
    }


def _naming(path: Path) -> set[int]:
    """Return the first lines of the functions and classes of a file that name the value of --ngl."""
    lines: set[int] = set()

    def look(node: ast.AST, line: int) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            line = min((each.lineno for each in node.decorator_list), default=node.lineno)
        names = [getattr(node, field, None) for field in ("id", "attr", "arg", "value")]
        if line and any(isinstance(name, str) and _VALUE.fullmatch(name) for name in names):
            lines.add(line)
        for child in ast.iter_child_nodes(node):
            look(child, line)

    look(ast.parse(path.read_text(encoding="utf-8")), 0)
    return lines


def _floors(root: Path) -> dict[str, int]:
    """Return how high each room stands."""
    for node in ast.parse((root / "tests" / "test_layers.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ROOMS":
            rooms = re.findall(r"'(\w+)'", ast.unparse(node.value))
            return {room: floor for floor, room in enumerate(rooms)}
    return {}


if __name__ == "__main__":
    main()
