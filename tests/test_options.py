"""The edge of the command line: options become frozen values with the same names, and then requests."""

from __future__ import annotations

from dataclasses import fields, replace

import click
import pytest
from click.testing import CliRunner

from ggufspec.cli import COMMANDS, GROUPS, cli
from ggufspec.cli.options.shared import build_options, pass_options
from ggufspec.cli.options.values import (
    BenchOptions,
    PlanOptions,
    RunOptions,
    TuneOptions,
    WhatIfOptions,
)
from ggufspec.domain import ModelRun, Offload, SplitMode
from ggufspec.measure import Request
from ggufspec.tuning import default
from tests.support import shell


def _command(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def _bench_options(*words: str, command: str = "bench") -> BenchOptions:
    return build_options(BenchOptions, _command(command).make_context(command, [*words]).params)


@pytest.mark.parametrize(
    ("name", "options_class"),
    [
        ("bench", BenchOptions),
        ("sweep", BenchOptions),
        ("tune", TuneOptions),
        ("chat", RunOptions),
        ("whatif", WhatIfOptions),
        ("plan", PlanOptions),
    ],
)
def test_every_field_is_an_option_of_its_command(name: str, options_class: type) -> None:
    assert {field.name for field in fields(options_class)} <= {param.name for param in _command(name).params}


def test_a_bench_without_options_is_the_default_request() -> None:
    request = _bench_options().to_request()
    assert replace(request, ngl="auto", ngld="auto") == Request()
    assert (request.ngl, request.ngld) == (("auto",), ("auto",))
    assert _bench_options(command="sweep").to_request() == request


def test_a_tuning_without_options_is_the_default_of_tunings() -> None:
    params = _command("tune").make_context("tune", []).params
    request = build_options(TuneOptions, params).to_request()
    assert replace(request, ngl="auto", ngld="auto") == default()


def test_options_become_a_request() -> None:
    words = "-m t.gguf --draft 1-3 --draft 8 --temp 0.5 --raw --precision 2% --max-time 10m"
    placement = "-dev A,B -sm row -ncmoe 2 --fit off"
    request = _bench_options(*words.split(), *placement.split()).to_request()
    assert request.target == "t.gguf"
    assert request.draft == (1, 2, 3, 8)
    assert (request.temp, request.chat, request.precision, request.max_time) == (0.5, False, 0.02, 600)
    assert request.offload == Offload(
        target=ModelRun(devices=("A", "B"), cpu_moe=2),
        split_mode=SplitMode.ROW,
        drafter=ModelRun(cpu_moe=None),
        fit=False,
    )


def test_options_are_passed_before_the_others() -> None:
    calls = []

    @pass_options
    def run(options: BenchOptions, *, name: str) -> None:
        calls.append((options, name))

    options = _bench_options("-n", "7")
    run(**{field.name: getattr(options, field.name) for field in fields(options)}, name="a")
    assert calls == [(options, "a")]


def test_commands_are_listed_by_group() -> None:
    text = CliRunner().invoke(cli, ["--help"]).output
    assert list(GROUPS) == ["Models", "Measure", "Serve", "Results", "Setup"]
    positions = [text.index(f"\n{title}:\n") for title in GROUPS]
    assert positions == sorted(positions)
    lines = [line.strip() for line in text.splitlines()]
    assert all(f"{name:<10}  {line}" in lines for name, line in COMMANDS.items())


@pytest.mark.parametrize(("columns", "longest"), [(80, 80), (100, 100), (110, 110), (200, 110)])
def test_help_uses_the_terminal_up_to_110_columns(
    monkeypatch: pytest.MonkeyPatch, columns: int, longest: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shell.ggufspec("bench", "--help").stdout.splitlines()
    assert longest - 12 < max(map(len, lines)) <= longest


def test_the_help_names_every_backend() -> None:
    from ggufspec.llama.install import Backend

    text = CliRunner().invoke(cli, ["build", "--help"]).output
    assert all(backend.value in text for backend in Backend)
