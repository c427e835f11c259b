"""A model without ``-m`` in front of it: in every command that measures or plans with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec.cli import cli
from ggufspec.options import SweepOptions
from tests.support import command_lines

COMMANDS = command_lines.commands()
WITH_OTHER_ARGUMENTS = {"auto", "bisect", "check", "convert", "fetch", "suggest"}
"""Commands whose arguments are models or versions already."""


def _named() -> list[str]:
    return [path for path, command in COMMANDS.items() if "target" in command.options.options]


def test_every_command_with_a_target_takes_it_without_its_name() -> None:
    unnamed = {path for path in _named() if path not in WITH_OTHER_ARGUMENTS}
    assert {"bench", "sweep", "tune", "plan", "whatif", "chat", "crossover", "fleet bench"} <= unnamed
    for path in unnamed:
        asked = command_lines.read(path, "big.gguf", "--offline")
        assert asked.target == ("big.gguf",), path
        assert asked == command_lines.read(path, "--offline", "-m", "big.gguf"), path


def test_a_sweep_takes_several_and_a_bench_one() -> None:
    asked = command_lines.read("sweep", "a.gguf", "-m", "b.gguf", "c.gguf")
    assert asked == SweepOptions(target=("b.gguf", "a.gguf", "c.gguf"))
    done = CliRunner().invoke(cli, ["bench", "a.gguf", "-m", "b.gguf"])
    assert done.exit_code == 2
    assert "two models are named, b.gguf and a.gguf" in " ".join(done.output.split())


def test_a_model_without_its_name_wins_over_the_pair_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GGUFSPEC_PAIR", "llama-3-70b")
    missing = tmp_path / "missing.gguf"
    done = CliRunner().invoke(cli, ["plan", str(missing)])
    assert done.exit_code != 0
    assert "missing.gguf" in str(done.exception)
