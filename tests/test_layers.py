"""The house's rules: imports point down, outside libraries have one owner, start-up is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "ggufspec"
MODULES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

FLOORS = (
    {"digests", "environ", "errors", "harmless", "notebooks", "paths", "proc", "redaction", "settings"},
    {"units"},
    {"domain"},
    {"stats", "sampling"},
    {"machine"},
    {"llama"},
    {"modelfiles", "gguf", "hub", "catalog", "compat", "memory"},
    {"prompts", "chat"},
    {"engines"},
    {"results"},
    {"forecast", "trace", "costs", "profiles", "whatif"},
    {"analysis", "acceptance", "arms", "comparing", "doubts", "review", "precision", "listing"},
    {
        *{"measure", "api", "audit", "duration", "fitting", "identity", "measuring", "recorder", "request"},
        *{"sweep", "texts"},
    },
    {"tuning"},
    {"report", "frames", "plot"},
    {"console"},
    {"doctor", "checkup"},
    {"cli", "__init__", "__main__"},
)

OWNERS = {
    "subprocess": {"proc"},
    "huggingface_hub": {"modelfiles"},
    "gguf": {"modelfiles"},
    "psutil": {"machine", "proc"},
    "pandas": {"report", "frames"},
    "click": {"cli"},
    "rich": {"cli", "console"},
    "unearth": {"llama"},
    "backports": {"llama"},
    "packaging": {"llama"},
    "msgspec": {"engines", "forecast", "profiles", "results"},
    "httpx2": {"engines"},
    "llama_cpp": {"engines"},
    "jinja2": {"prompts", "chat", "report"},
    "tomlkit": {"settings"},
    "altair": {"report", "plot"},
    "vl_convert": {"report", "plot"},
    "prompt_toolkit": {"console"},
}


def _imports(path: Path) -> set[str]:
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    typing_only = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for child in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _room(path: Path) -> str:
    return path.parts[0].removesuffix(".py")


def _floor(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_down(path: Path) -> None:
    rooms = {name.split(".")[1] for name in _imports(path) if name.startswith("ggufspec.")}
    above = {room for room in rooms - {_room(path)} if _floor(room) > _floor(_room(path))}
    assert not above


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_outside_libraries_have_one_owner(path: Path) -> None:
    used = {name.split(".")[0] for name in _imports(path)}
    assert not {library for library in used & OWNERS.keys() if _room(path) not in OWNERS[library]}


@pytest.mark.parametrize("words", ["import ggufspec", "import ggufspec.cli", "import ggufspec.cli.bench"])
def test_start_up_is_light(words: str) -> None:
    heavy = ("pandas", "numpy", "rich", "huggingface_hub", "gguf", "httpx2", "jinja2", "llama_cpp", "unearth")
    code = f"{words}; import sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not set(heavy) & set(loaded)
