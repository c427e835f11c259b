"""Every rule against the programs themselves: their exit code is the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ggufspec import proc
from ggufspec.domain import Program
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles.compat import judging
from ggufspec.modelfiles.gguf import validate_file
from tests.support import models

# drafters for a target of 400 tokens that sets every key: what the drafter has instead
DRAFTERS: dict[str, dict[str, Any]] = {
    "same": {},
    "other text at 0": {"text": {0: "<nothing>"}},
    "other text at 5": {"text": {5: "<0xAA>", 173: "<0x02>"}},
    "100 fewer": {"count": 300},
    "101 more": {"count": 501},
    "128 more": {"count": 528},
    "129 more": {"count": 529},
    "add_bos not set": {"add_bos_token": None},
    "add_bos false": {"add_bos_token": False},
    "add_eos true": {"add_eos_token": True},
    "other bos": {"bos_token_id": 9},
    "other eos": {"eos_token_id": 9},
    "eos outside": {"eos_token_id": 9999},
}


def _write(path: Path, count: int = 400, text: dict[int, str] | None = None, **keys: Any) -> Path:
    stated = {"bos_token_id": 1, "eos_token_id": 2, "add_bos_token": True, "add_eos_token": False} | keys
    vocabulary = models.tokens(count, **{key: value for key, value in stated.items() if value is not None})
    listed = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(listed, list)
    for token, other in (text or {}).items():
        listed[token] = other
    shape = models.llama(n_layers=1, n_embd=32, n_ff=32, n_heads=1, vocabulary=vocabulary)
    return models.write_model(path, *shape)


def _accepts(install: Install, program: Program, target: Path, draft: Path) -> bool:
    executable = install.executable(program)
    argv = [str(executable.path), "-m", str(target), "-md", str(draft)]
    argv += ["-n", "2", "-c", "256", "--temp", "0", "-p", "a", "-t", "1"]
    if program is Program.SIMPLE:
        argv += ["--spec-type", "draft-simple"]
    if "--fit" in executable.options:
        argv += ["--fit", "off"]
    completed, _, _ = proc.capture(argv, env=program_environment(target.parent), cwd=target.parent)
    return completed.returncode == 0


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    ("build", "program"), [("llama", Program.TREE), ("llama", Program.SIMPLE), ("legacy", Program.TREE)]
)
def test_verdicts_are_those_of_the_programs(
    request: pytest.FixtureRequest, tmp_path: Path, build: str, program: Program, drafter: str
) -> None:
    """Of today, and of April 2024."""
    install: Install = request.getfixturevalue(build)
    target, draft = _write(tmp_path / "target.gguf"), _write(tmp_path / "drafter.gguf", **DRAFTERS[drafter])
    verdict = judging.check_pair(
        validate_file(target), validate_file(draft), judging.rule_of(install, program)
    )
    assert (verdict.outcome is judging.CompatOutcome.ACCEPTED) == _accepts(install, program, target, draft)
