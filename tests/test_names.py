"""One name for one thing: options in all commands, former names, columns and fields of stored results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ggufspec.cli import COMMANDS, cli
from ggufspec.cli.entry import renaming
from tests.support import fakes, shell

SHORTHANDS = {"cpu_moe", "draft_cpu_moe", "per"}
"""Options with a second form: llama.cpp's --cpu-moe for --n-cpu-moe all, and --runs for --per run."""


def _commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    todo = [(name, cli.get_command(context, name)) for name in COMMANDS]
    while todo:
        path, command = todo.pop()
        assert command is not None
        yield path, command
        if isinstance(command, click.Group):
            todo += [(f"{path} {name}", inner) for name, inner in command.commands.items()]


def _options() -> Iterator[tuple[str, click.Option]]:
    for path, command in _commands():
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                yield path, param


def test_an_option_has_one_name_in_all_commands() -> None:
    names: dict[str, set[tuple[str, ...]]] = {}
    for _, option in _options():
        names.setdefault(option.name or "", set()).add((*option.opts, *option.secondary_opts))
    assert {name for name, forms in names.items() if len(forms) > 1} <= SHORTHANDS


def test_a_name_is_one_option_in_all_commands() -> None:
    meanings: dict[str, set[str | None]] = {}
    for _, option in _options():
        for name in (*option.opts, *option.secondary_opts):
            meanings.setdefault(name, set()).add(option.name)
    assert not {name: sorted(map(str, found)) for name, found in meanings.items() if len(found) > 1}


def test_options_that_commands_share_are_declared_once() -> None:
    helps: dict[str, set[str | None]] = {}
    shared = {"pair", "target", "draft_model", "offline", "token", "ngl", "ngld", "tensor_split", "machine"}
    for _, option in _options():
        if option.name in shared:
            helps.setdefault(str(option.name), set()).add(option.help)
    assert helps.keys() == shared
    assert all(len(texts) == 1 for texts in helps.values())


@pytest.mark.parametrize("command", ["bench", "sweep", "tune", "plan", "whatif", "check", "chat", "bisect"])
def test_models_are_named_alike(command: str) -> None:
    found = {option.name for path, option in _options() if path == command}
    assert {"pair", "target", "draft_model", "offline", "token"} <= found


def test_o_is_the_format_and_out_the_file() -> None:
    for path, option in _options():
        assert ("-o" in option.opts) == (option.name == "output"), path
        assert ("--out" in option.opts) == (option.name == "out"), path


def test_former_names_are_no_present_ones() -> None:
    for path, command in _commands():
        present = {name for param in command.params for name in param.opts}
        names = renaming.old_names(path, present)
        assert not names.keys() & present
    assert renaming.old_names("sweep", {"--dry-run", "--kv-type"}) == {
        "--plan": "--dry-run",
        "--type": "--kv-type",
    }
    assert renaming.old_names("fetch", {"--largest"}) == {"--fit": "--largest"}
    assert not renaming.old_names("bench", {"--fit", "--dry-run"})


def test_a_former_name_works_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    words = ("sweep", "--pair", "demo", "-p", "Once", "-n", "32", "-t", "1", "--draft", "3")
    done = shell.here(*words, "--ubatch", "64", "--type=f16", "--plan", "-o", "csv")
    assert done.returncode == 0, done.stderr
    for old, new in (("--ubatch", "--ubatch-size"), ("--type", "--kv-type"), ("--plan", "--dry-run")):
        assert f"note: {old} is now {new}; the old name works in this version only\n" in done.stderr
    now = shell.here(*words, "-ub", "64", "--kv-type", "f16", "--dry-run", "-o", "csv")
    assert _without_times(done.stdout) == _without_times(now.stdout)


def _without_times(table: str) -> list[str]:
    return [line.rpartition(",")[0] for line in table.splitlines()]


def test_a_value_that_looks_like_a_former_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama")))
    words = (
        "bench",
        "--pair",
        "demo",
        "-n",
        "32",
        "-t",
        "1",
        "--dry-run",
        "-p",
        "--type",
        "--",
        "--type",
        "x",
    )
    done = shell.here(*words)
    assert done.returncode == 0, done.stderr
    assert "note: " not in done.stderr
    assert "--type x" in done.stdout
