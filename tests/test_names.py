"""One name for one thing: options in all commands, columns and fields of stored results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ggufspec.options import BenchOptions
from ggufspec.report.columns import Row
from ggufspec.report.rows import benches, plans, runs
from ggufspec.results import SCHEMA_VERSION
from tests.support import command_lines

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = {row for room in (benches, plans, runs) for row in vars(room).values() if isinstance(row, type)}
COLUMNS = {name for row in ROWS if issubclass(row, Row) for name in row.names()}
SHORTHANDS = {"cpu_moe", "draft_cpu_moe", "per"}
"""Options with a second form: llama.cpp's --cpu-moe for --n-cpu-moe all, and --runs for --per run."""


def test_an_option_has_one_name_and_a_name_one_option() -> None:
    names: dict[str, set[tuple[str, ...]]] = {}
    for _, option in command_lines.options():
        names.setdefault(option.name or "", set()).add((*option.opts, *option.secondary_opts))
    assert {name for name, forms in names.items() if len(forms) > 1} <= SHORTHANDS
    meanings: dict[str, set[str | None]] = {}
    for _, option in command_lines.options():
        for name in (*option.opts, *option.secondary_opts):
            meanings.setdefault(name, set()).add(option.name)
    assert not {name: sorted(map(str, found)) for name, found in meanings.items() if len(found) > 1}


def test_options_that_commands_share_are_declared_once() -> None:
    helps: dict[str, set[str]] = {}
    shared = {"pair", "target", "draft_model", "offline", "token", "ngl", "ngld", "tensor_split", "machine"}
    for path, option in command_lines.options():
        if option.name in shared and (path, option.name) != ("convert", "target"):  # which is not a GGUF
            text = str(option.help).replace(
                "; auto is the head beside the target", ""
            )  # not in whatif and auto
            helps.setdefault(str(option.name), set()).add(text)
    assert helps.keys() == shared
    assert all(len(texts) == 1 for texts in helps.values())


@pytest.mark.parametrize("command", ["bench", "sweep", "tune", "plan", "whatif", "check", "chat", "bisect"])
def test_models_are_named_alike(command: str) -> None:
    found = {option.name for path, option in command_lines.options() if path == command}
    assert {"pair", "target", "draft_model", "offline", "token"} <= found


def test_o_is_the_format_and_out_the_file() -> None:
    for path, option in command_lines.options():
        assert ("-o" in option.opts) == (option.name == "output"), path
        assert ("--out" in option.opts) == (option.name == "out"), path


def _glossary(title: str) -> list[list[list[str]]]:
    """Return the rows of a table of the glossary; in each cell the names in it."""
    section = GLOSSARY.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in row[1:]] for row in rows]


def _stored_fields() -> set[str]:
    names: set[str] = set()
    for record in ("meta", "run"):
        file = ROOT / "ggufspec" / "results" / "schemas" / f"{record}-{SCHEMA_VERSION}.json"
        schema = json.loads(file.read_text(encoding="utf-8"))
        for definition in schema["$defs"].values():
            names |= definition.get("properties", {}).keys()
    return names


def test_the_glossary_names_what_there_is() -> None:
    present = {name for _, option in command_lines.options() for name in option.opts}
    python = {*BenchOptions.options}
    stored = _stored_fields()
    listed = _glossary("Names")
    assert len(listed) > 15
    for options, attributes, shown, kept in listed:
        assert {*options} <= present
        assert {*attributes} <= python
        assert {*shown} <= COLUMNS
        assert {part for name in kept for part in name.split(".")} <= stored  # a path of fields
        assert max(map(len, (options, attributes, shown, kept))) == 1


def test_no_two_things_of_the_glossary_share_a_name() -> None:
    for names in zip(*_glossary("Names"), strict=True):
        listed = [name for cell in names for name in cell]
        assert len(listed) == len({*listed})


def test_a_setting_has_its_option_s_name_in_python_and_in_tables() -> None:
    options = {option.name for path, option in command_lines.options() if path in {"bench", "sweep"}}
    assert {*BenchOptions.options} <= options
    own = {"role", "settings", "llama_build"}  # of an arm, of all other settings together, of several builds
    own.add(
        "users"
    )  # of llama.cpp's --parallel, which is the number of slots where requests arrive at a rate
    for column in benches.SettingsRow.names():
        assert column in own or column.removeprefix("requested_") in options
