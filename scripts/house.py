"""Count what the house is made of: files, lines of code, and what is said more than once.

    python scripts/house.py [--against REVISION]

A line of code is neither blank, nor a comment, nor part of a docstring. Lines said twice are in runs of six
lines or more of the package that stand in two places, alike but for names, numbers and strings; a run counts
once for each place but the first. A class name counts where several files define it. ``--against`` prints the
counts of another revision beside those of the files here.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REVISION", help="a revision of git to count, too")
    asked = parser.parse_args()
    columns = {"here": count(ROOT)}
    if asked.against:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(
                ["git", "-C", ROOT, "archive", asked.against], capture_output=True, check=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
            columns = {asked.against: count(Path(folder)), **columns}
    print("| |", " | ".join(columns), "|")
    print("|---|" + "---:|" * len(columns))
    for name in columns["here"]:
        print(f"| {name} |", " | ".join(f"{counts[name]:,}" for counts in columns.values()), "|")
    for name, files in sorted(repeated_classes(ROOT).items()):
        print(f"class {name}: {', '.join(files)}", file=sys.stderr)


def count(root: Path) -> dict[str, int]:
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


if __name__ == "__main__":
    main()
