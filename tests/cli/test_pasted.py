"""Commands of llama.cpp that are pasted into ggufspec, from their text to the verdict on their drafting."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import paths, results
from ggufspec.cli import cli
from ggufspec.options import SweepOptions, TuneOptions
from tests.support import command_lines, fake_server, shell
from tests.support.hub_client import DEMO

SECRETS = ("hf_SEEDEDSEEDEDSEEDED123", "seeded key of the unit", "sk-seededseededseeded00")
TEXT = ("-p", "Once upon a time", "-n", "32", "-r", "1", "-t", "1")
UNIT = f"""\
[Service]
Environment=HF_TOKEN={SECRETS[0]} GGML_CUDA_FORCE_MMQ=1
Environment="LLAMA_API_KEY={SECRETS[1]}"
WorkingDirectory={{folder}}
ExecStart=/opt/llama/bin/llama-server -m target.gguf -md drafter.gguf --draft-max 3 \\
    --api-key {SECRETS[2]} --hf-token {SECRETS[0]} --port 8080 --new-flag
"""


@pytest.fixture
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server")
    return llama


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name in ("target.gguf", "drafter.gguf"):
        shutil.copy(DEMO / name, tmp_path / name)
    return tmp_path


def test_a_command_after_the_dashes_is_measured_as_it_is_and_judged(llama: Path, models: Path) -> None:
    words = ("-m", str(models / "target.gguf"), "-md", str(models / "drafter.gguf"), "--draft-max", "3")
    done = shell.done("bench", *TEXT, "--name", "mine", "--", str(llama / "llama-speculative"), *words)
    (spec,) = {run.spec.drafting for run in results.load("mine").runs if run.spec.drafting is not None}
    assert spec.n_max == 3
    said = " ".join(done.stderr.split())
    assert "translated: --draft-max 3 is --spec-draft-n-max 3 since llama.cpp b8955" in said
    assert "To change: --draft-max 3 is --spec-draft-n-max 3 since llama.cpp b8955." in said
    assert "The drafting of this command" in said or "Whether the drafting of this command pays" in said
    assert f"-md {models / 'drafter.gguf'} --spec-draft-n-max 3`." in said or "without drafting: `" in said
    assert f"`ggufspec tune --target {models / 'target.gguf'}" in said


def test_the_bench_stores_what_the_command_was_read_as(llama: Path, models: Path) -> None:
    command = f"llama-speculative -m {models}/target.gguf -md {models}/drafter.gguf --draft 3 -p Hello -n 32"
    script = models / "run.sh"
    script.write_text(f"#!/bin/sh\n{command} \\\n  -t 1\n")
    shell.done("bench", "-r", "1", "--name", "mine", "--from", str(script))
    stored = results.load("mine").meta.command
    assert stored[:2] == ("ggufspec", "bench")
    assert "--from" not in stored
    assert f"{models}/drafter.gguf" in stored
    again = shell.here(*stored[1:-2], "--dry-run") if stored[-2] == "--name" else None
    assert again is None or again.returncode == 0


@pytest.mark.parametrize("is_in_a_file", [True, False])
def test_secrets_are_neither_stored_nor_printed(llama: Path, models: Path, is_in_a_file: bool) -> None:
    unit = models / "llama.service"
    unit.write_text(UNIT.format(folder=models))
    pasted: tuple[str, ...] = ("--from", str(unit))
    if not is_in_a_file:
        words = ("-m", str(models / "target.gguf"), "-md", str(models / "drafter.gguf"), "--draft", "3")
        keys = ("--hf-token", SECRETS[0], "--api-key", SECRETS[1])
        pasted = ("--", f"HF_TOKEN={SECRETS[0]}", "llama-speculative", *words, *keys)
    done = shell.done("bench", *TEXT, "--name", "mine", "--engine", "binary", *pasted)
    written = [path for path in paths.runs_dir().rglob("*") if path.is_file()]
    assert written
    everything = done.stdout + done.stderr + "".join(path.read_text(errors="replace") for path in written)
    assert not [secret for secret in SECRETS if secret in everything]
    assert "--api-key" in done.stderr
    if is_in_a_file:
        assert "not read, so measured without: --new-flag" in done.stderr
        assert "the command runs that in /opt/llama/bin; --llama /opt/llama/bin measures it" in done.stderr


def test_own_options_win_and_dashes_pass_options_on(llama: Path, models: Path) -> None:
    words = ("-m", str(models / "target.gguf"), "--threads", "7")
    done = shell.done("bench", *TEXT, "--dry-run", "--", "llama-completion", *words)
    assert "--threads 1" in done.stdout
    assert "--threads 7" not in done.stdout
    passed = shell.done("bench", "--pair", "demo", *TEXT, "--dry-run", "--", "--no-repack")
    assert "--no-repack" in passed.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello world\n", "has no command of llama.cpp"),
        ("llama-server --port 8080\n", "names no model"),
        (
            "models:\n  a:\n    cmd: llama-server -m a.gguf\n  b:\n    cmd: llama-server -m b.gguf\n",
            "has 2 commands of llama.cpp: a, b",
        ),
    ],
)
def test_a_text_that_cannot_be_measured_says_why(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text(text)
    done = shell.here("bench", "--from", str(file))
    assert done.returncode == 1
    assert message in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("shell_words", "message"),
    [
        ("why --from - <&-", "standard input has no command of llama.cpp"),
        ("parse - <&-", "the text contains no output of llama.cpp"),
        ("chat <&-", "a chat needs a terminal"),
        ("chat --once - <&-", "error: "),
        ("bench --dry-run -f /dev/stdin <&-", "the text is empty"),
        ("why --from - <latin-1", "cannot read standard input: not UTF-8 text"),
        ("why --from - <two", "hint: choose one: --from '-#1'"),
        ("why --from two", "hint: choose one: --from 'two#1'"),
        ("why --from two#3", "two has no command of llama.cpp named 3"),
        ("why --from -#2 <two", "missing-2.gguf"),
    ],
)
def test_a_standard_input_that_is_closed_or_no_command_is_said(
    shell_words: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "latin-1").write_bytes("llama-server -m caf\xe9.gguf\n".encode("latin-1"))
    (tmp_path / "two").write_text("llama-server -m missing-1.gguf\nllama-server -m missing-2.gguf\n")
    program = shlex.join([sys.executable, "-m", "ggufspec"])
    done = subprocess.run(
        ["sh", "-c", f"{program} {shell_words}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode not in {0, 120}
    assert "Traceback" not in done.stderr
    assert message in done.stderr


def test_words_after_the_dashes_that_are_no_program_are_refused() -> None:
    done = shell.here("tune", "--", "lama-server", "-m", "a.gguf")
    assert done.returncode == 1
    assert "the words after -- name no program of llama.cpp" in done.stderr


def test_why_measures_a_command_first(
    llama: Path, models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("-m", str(models / "target.gguf"), "-md", str(models / "drafter.gguf"), "--draft", "3")
    command = ("llama-speculative", *words, "-p", "Once upon a time", "-n", "32", "-t", "1")
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(tmp_path))  # which has none
    done = shell.done("why", "--llama", str(llama), "--", *command)
    assert "drafting, target.gguf + drafter.gguf, γ = 3" in done.stdout
    refused = shell.here("why", "--llama", str(llama))
    assert "measure first: `ggufspec bench --llama FOLDER`" in refused.stderr


def test_a_tuning_chooses_the_sizes_itself_and_serves_the_context(llama: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.gguf"
    words = ("-m", str(missing), "--draft-max", "5", "--spec-draft-p-min", "0.5", "-c", "8192", "-ngl", "7")
    done = shell.here("tune", "--", "llama-server", *words)
    assert done.returncode != 0
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("read as: ggufspec tune "))
    asked = command_lines.read("tune", *shlex.split(line)[4:])
    assert asked == TuneOptions(target=str(missing), ngl=7, engine="server", serve_ctx=8192)


# A model without ``-m`` in front of it: in every command that measures or plans with one


COMMANDS = command_lines.commands()
WITH_OTHER_ARGUMENTS = {"auto", "bisect", "check", "convert", "fetch", "suggest"}
"""Commands whose arguments are models or versions already."""


def test_a_target_needs_no_name() -> None:
    named = {path for path, command in COMMANDS.items() if "target" in command.options.options}
    unnamed = named - WITH_OTHER_ARGUMENTS
    assert {"bench", "sweep", "tune", "plan", "whatif", "chat", "crossover", "fleet bench"} <= unnamed
    for path in unnamed:
        asked = command_lines.read(path, "big.gguf", "--offline")
        assert asked.target == ("big.gguf",), path
        assert asked == command_lines.read(path, "--offline", "-m", "big.gguf"), path
    asked = command_lines.read("sweep", "a.gguf", "-m", "b.gguf", "c.gguf")
    assert asked == SweepOptions(target=("b.gguf", "a.gguf", "c.gguf"))
    done = CliRunner().invoke(cli, ["bench", "a.gguf", "-m", "b.gguf"])
    assert done.exit_code == 2
    assert "two models are named, b.gguf and a.gguf" in " ".join(done.output.split())


def test_a_pasted_model_wins_over_the_set_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GGUFSPEC_PAIR", "llama-3-70b")
    missing = tmp_path / "missing.gguf"
    done = CliRunner().invoke(cli, ["plan", str(missing)])
    assert done.exit_code != 0
    assert "missing.gguf" in str(done.exception)
