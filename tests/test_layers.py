"""The structure of the package: rooms from the bottom up, their interfaces, owners of outside libraries.

Every import counts: at the top of a file, in a function, under ``TYPE_CHECKING``, and by ``import_module``.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "ggufspec"
PATHS = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

MODULES = {
    *{"choices", "digests", "errors", "harmless", "hosts", "lazy", "notebooks", "paths", "proc", "redaction"},
    *{"steps", "temporary", "units", "userfiles"},
}
"""At the bottom, beside ``__init__`` and ``__main__``, which are at the top."""

ROOMS = (
    *("domain", "options", "pasting", "stats", "machine", "llama", "modelfiles", "prompts", "engines"),
    "serving",
    *(
        *("results", "forecast", "analysis", "measure", "tuning", "report", "console", "doctor"),
        *("publishing", "fleet"),
    ),
    "api",
    "cli",
)
"""From the bottom up: a room may import from rooms to its left. ``api`` is a module, for all of them."""

OWNERS = {
    "subprocess": {"proc"},
    "huggingface_hub": {"modelfiles/hub"},
    "psutil": {"machine", "proc"},
    "pandas": {"report"},
    "scipy": {"stats"},
    "jsonschema": {"analysis"},
    "click": {"cli"},
    "rich": {"cli", "console", "report/text"},
    "unearth": {"llama/source"},
    "backports": {"llama/source"},
    "packaging": {"llama"},
    "msgspec": {
        *("engines", "fleet", "forecast/profiles", "llama", "modelfiles", "publishing", "report"),
        *("results", "serving"),
    },
    "httpx2": {"llama/build", "llama/server", "modelfiles/hub"},
    "llama_cpp": {"engines/library"},
    "jinja2": {"prompts", "report/html"},
    "tomlkit": {"options/settings"},
    "yaml": {"report/text", "pasting"},
    "altair": {"report/plot"},
    "pyarrow": {"prompts"},
    "vl_convert": {"report/plot"},
    "prompt_toolkit": {"console"},
    "ray": {"fleet"},
}


class Import(NamedTuple):
    """A module that is imported from, and the name that is taken; None for the module itself."""

    module: str
    name: str | None = None


@functools.cache  # not at once: each worker of pytest-xdist imports this file
def imports_of(path: Path) -> tuple[Import, ...]:
    """Return every import of a file of the package."""
    return tuple(find_imports(path, SOURCES[path]))


def find_imports(path: Path, source: str) -> Iterator[Import]:
    """Yield every import of a file, with relative ones resolved."""
    package = ["ggufspec", *path.parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (Import(alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package[: len(package) - level + 1] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield from (Import(base, alias.name) for alias in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                called = getattr(function, "attr", None) or getattr(function, "id", None)
                if called in {"import_module", "__import__"}:
                    yield Import(name)


def dotted(path: Path) -> str:
    """Return the name by which a file is imported."""
    parts = ("ggufspec", *path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {dotted(path): path for path in PATHS}
SOURCES = {path: (PACKAGE / path).read_text(encoding="utf-8") for path in PATHS}


def imported_file(imported: Import) -> str | None:
    """Return the file of this package that an import reads; None for other packages."""
    inner = f"{imported.module}.{imported.name}"
    return inner if inner in FILES else imported.module if imported.module in FILES else None


def room(name: str) -> str:
    """Return the room of a module of this package, by its dotted name."""
    return [*name.split("."), ""][1]


def floor(name: str) -> int:
    """Return how high a module stands."""
    place = room(name)
    if place in {"", "__main__"}:
        return len(ROOMS)
    return -1 if place in MODULES else ROOMS.index(place)


def upward(path: Path, imports: Iterable[Import]) -> list[str]:
    """Return what a file imports from above."""
    own = dotted(path)
    files = {file for imported in imports if (file := imported_file(imported))}
    return sorted(file for file in files if room(file) != room(own) and floor(file) > floor(own))


@functools.cache
def exports(name: str) -> set[str]:
    """Return what a package says others may use: what it lists, or else what it imports."""
    for node in ast.parse(SOURCES[FILES[name]]).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return {imported.name for imported in imports_of(FILES[name]) if imported.name}


def test_rooms_have_places_and_imports_point_down() -> None:
    assert {path.parts[0] for path in PATHS if len(path.parts) > 1} == {*ROOMS} - {"api"}
    assert {path.stem for path in PATHS if len(path.parts) == 1} == MODULES | {"__init__", "__main__", "api"}
    assert not {str(path): above for path in PATHS if (above := upward(path, imports_of(path)))}


@pytest.mark.parametrize(
    "source",
    [
        "from ggufspec.cli import cli",
        "import ggufspec.report.html",
        "def late():\n    from ggufspec.measure import api",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ggufspec.tuning import Tuned",
        "import importlib\nimportlib.import_module('ggufspec.console.talk')",
        "from importlib import import_module\ndef late():\n    import_module('ggufspec.analysis')",
        "from ..results import ResultSet",
        "from .. import forecast",
    ],
)
def test_an_import_that_points_up_is_found(source: str) -> None:
    planted = Path("stats/planted.py")
    assert len(upward(planted, find_imports(planted, source))) == 1


def test_no_files_import_each_other_in_a_circle() -> None:
    graph = {
        dotted(path): {file for imported in imports_of(path) if (file := imported_file(imported))}
        - {dotted(path)}
        for path in PATHS
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(PATHS)


def enters_by_the_door(path: Path, imported: Import) -> bool:
    """Whether a name of another room is one that a package exports, or a module."""
    file = imported_file(imported)
    if file is None or room(file) in {room(dotted(path)), "", "api", *MODULES}:
        return True
    if FILES[imported.module].name != "__init__.py":
        return False
    is_module = imported.name is None or f"{imported.module}.{imported.name}" in FILES
    return is_module or imported.name in exports(imported.module)


def test_rooms_are_entered_by_the_door() -> None:
    assert not [
        (str(path), imported)
        for path in PATHS
        for imported in imports_of(path)
        if not enters_by_the_door(path, imported)
    ]


def test_every_package_says_in_a_sentence_what_it_is_for() -> None:
    packages = [path for path in PATHS if path.name == "__init__.py"]
    texts = {str(path): ast.get_docstring(ast.parse(SOURCES[path])) or "" for path in packages}
    assert not [path for path, text in texts.items() if not text.split("\n")[0].endswith(".")]


def test_outside_libraries_have_one_owner() -> None:
    strangers = []
    for path in PATHS:
        place = path.with_suffix("").as_posix()
        used = {imported.module.split(".")[0] for imported in imports_of(path)}
        strangers += [
            (place, library)
            for library in used & OWNERS.keys()
            if not any(place == owner or place.startswith(f"{owner}/") for owner in OWNERS[library])
        ]
    assert not strangers


COMMANDS = "from ggufspec import cli; [cli.cli.get_command(None, name) for name in cli.COMMANDS]"
"""Imports the file of every command."""


HEAVY = {
    *("ggufspec.domain", "pandas", "numpy", "rich", "huggingface_hub", "httpx2", "jinja2", "llama_cpp"),
    "unearth",
}


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        *((words, HEAVY) for words in ("import ggufspec", "import ggufspec.cli", COMMANDS)),
        ("import ggufspec.options", {"numpy", "pandas", "ggufspec.domain"}),
        (
            "import ggufspec.cli.reading, ggufspec.results",
            {"altair", "vl_convert", "jinja2", "pandas", "ggufspec.report"},
        ),
    ],
)
def test_start_up_is_light(words: str, heavy: set[str]) -> None:
    code = f"{words}; import sys; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not heavy & set(loaded)


def test_tests_mirror_the_rooms() -> None:
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/test_*.py")}
    assert folders == {*ROOMS, "browser", "faults", "real"} - {"api"}


def test_helpers_of_tests_lie_in_support() -> None:
    folder = Path(__file__).parent
    for file in (path.relative_to(folder) for path in folder.rglob("*.py")):
        if file.parts[0] != "support":
            assert file.name.startswith("test_") or file.stem in {"conftest", "__init__"}, file
        for module in re.findall(r"^ *from (tests\b\S*) import", (folder / file).read_text(), re.MULTILINE):
            assert f"{module}.".startswith("tests.support."), f"{file} imports from {module}"


def test_the_command_line_takes_the_functions_of_commands_from_the_api() -> None:
    functions = exports("ggufspec.api")
    strangers = [
        (str(path), imported)
        for path in PATHS
        if path.parts[0] == "cli"
        for imported in imports_of(path)
        if imported.name in functions
        and imported_file(imported) not in {"ggufspec.api", None}
        and f"{imported.module}.{imported.name}" not in FILES
    ]
    assert not strangers
