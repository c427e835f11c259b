"""Completion, asked as shells ask for it, and by the shells themselves where they are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ggufspec import paths
from tests.support import shell
from tests.support.builds import make_build

SHELLS = ("bash", "zsh", "fish")


def complete(line: str, folder: Path | None = None) -> list[str]:
    """Return the values that bash would offer for the last word of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "ggufspec"],
        env=os.environ
        | {"_GGUFSPEC_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def benches(home: Path) -> tuple[str, ...]:
    names = ("20260101-120000-aaaa", "nightly")
    for name in names:
        (paths.runs_dir() / name).mkdir(parents=True)
        (paths.runs_dir() / name / "meta.json").write_text("{}")
    return names


@pytest.fixture
def cached(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = home / "hub"
    snapshot = folder / "models--me--Small-GGUF" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "small-q8_0.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    return snapshot / "small-q8_0.gguf"


def test_commands_and_options() -> None:
    assert complete("ggufspec sh") == ["plain,show"]
    assert "plain,--runs" in complete("ggufspec show --r")
    assert "plain,server" in complete("ggufspec check demo --program s")


@pytest.mark.parametrize("line", ["plan --pair ll", "check ll", "fetch ll"])
def test_pairs_of_the_catalogue(line: str) -> None:
    assert "plain,llama-3-70b" in complete(f"ggufspec {line}")


@pytest.mark.parametrize("line", ["show ", "compare ", "compare nightly "])
def test_stored_benches(benches: tuple[str, ...], line: str) -> None:
    assert set(complete(f"ggufspec {line}")) == {f"plain,{name}" for name in benches}
    assert complete(f"ggufspec {line}nig") == ["plain,nightly"]


def test_local_models(cached: Path, tmp_path: Path) -> None:
    (tmp_path / "smaller.gguf").write_bytes(b"GGUF")
    (tmp_path / "small.txt").write_text("no model")
    assert complete("ggufspec plan -m sma", tmp_path) == [
        "plain,smaller.gguf",
        "plain,me/Small-GGUF/small-q8_0.gguf",
    ]
    assert complete("ggufspec plan -m ./sma", tmp_path) == ["file,./sma"]
    assert complete("ggufspec suggest nothing-like-it", tmp_path) == ["file,nothing-like-it"]


def test_built_installs(home: Path) -> None:
    folder = make_build("0.3.36").path
    assert complete("ggufspec check demo --llama 0.3") == [f"plain,{folder}"]
    assert complete("ggufspec check demo --llama /opt") == ["dir,/opt"]


def test_keys_of_the_settings() -> None:
    assert complete("ggufspec config set th") == ["plain,threads"]


def test_what_is_broken_is_left_out_without_a_word(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(home / "config"))
    (home / "config").mkdir()
    (home / "config" / "pairs.toml").write_text("[pairs")
    (home / "config" / "config.toml").write_text("no toml")
    assert complete("ggufspec pairs demo-m") == ["plain,demo-mtp"]


@pytest.mark.parametrize("name", SHELLS)
def test_scripts_are_what_the_shell_reads(name: str) -> None:
    done = shell.done("completion", name)
    assert f"_GGUFSPEC_COMPLETE={name}_complete" in done.stdout
    if program := shutil.which(name):
        checked = subprocess.run([program, "-n"], input=done.stdout, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


ASKED = {
    "bash": "COMP_WORDS=(ggufspec show nig); COMP_CWORD=2",
    "fish": "complete -C 'ggufspec show nig'",
    "zsh": "words=(ggufspec show nig); CURRENT=3",
}


@pytest.mark.parametrize("name", SHELLS)
def test_shells_complete(benches: tuple[str, ...], tmp_path: Path, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (on Debian: apt install {name})")
    assert _in_shell(name, tmp_path, ASKED[name]) == ["nightly"]


def _in_shell(name: str, tmp_path: Path, ask: str) -> list[str]:
    """Load the script in a real shell, let its function complete, and return what it offers."""
    script = tmp_path / f"completion.{name}"
    script.write_text(shell.here("completion", name).stdout)
    lines = {
        "bash": f'source {script}\n{ask}\n_ggufspec_completion ggufspec\nprintf "%s\\n" "${{COMPREPLY[@]}}"',
        # outside of its line editor zsh has neither compdef nor compadd: what the script hands them counts
        "zsh": 'compdef() { :; }\ncompadd() { print -l -- "${(@)completions}"; }\n'
        f"source {script}\n{ask}\n_ggufspec_completion",
        "fish": f"source {script}\n{ask}",
    }[name]
    done = subprocess.run(
        [name, "-c", lines],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.split()
