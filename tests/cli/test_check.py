"""``ggufspec check`` as users meet it; only headers are read, and no llama.cpp is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ggufspec.cli import cli
from ggufspec.errors import DrafterRefusedError, ModelFileError, NoInstallError
from tests.support import models

ACCEPTED = """\
accepted (speculative of builds 8982 and newer)
target   llama Q8_0, 2048 tokens (llama)
drafter  llama Q8_0, 2048 tokens (llama)
"""
REFUSED = """\
refused (speculative of builds 0 to 3180)
target   llama F16, 300 tokens (llama)
drafter  llama F16, 300 tokens (llama)
because  tokenizer.ggml.eos_token_id is 2 in the target and 9 in the drafter
help     if both are of one family, correct the wrong header: \
gguf-set-metadata FILE tokenizer.ggml.eos_token_id 2
"""


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = []
    for name, keys in (("target", {}), ("drafter", {"eos_token_id": 9})):
        shape = models.llama(vocabulary=models.tokens(300, **keys))
        paths.append(str(models.write_model(tmp_path / f"{name}.gguf", *shape)))
    return paths[0], paths[1]


def _check(*words: str) -> Result:
    return CliRunner().invoke(cli, ["check", *words])


def test_a_pair_is_named_in_any_way() -> None:
    result = _check("demo")
    assert (result.stdout, result.exit_code) == (ACCEPTED, 0)
    for words in (("--pair", "demo"), ("-m", "demo:target", "-md", "demo:drafter"), ()):
        result = _check(*words)
        assert (result.stdout, result.exit_code) == (ACCEPTED, 0)
    assert _check("demo:target", "demo:drafter").stdout == ACCEPTED
    assert "2048 tokens" in _check("demo:drafter", "demo:target").stdout


def test_a_refusal_says_why_and_what_would_help(files: tuple[str, str]) -> None:
    result = _check(*files, "--build", "2697")
    assert result.stdout == REFUSED
    assert isinstance(result.exception, DrafterRefusedError)
    assert _check(*files).exit_code == 0  # today's builds do not compare ids of tokens that are not added


def test_json_holds_the_same(files: tuple[str, str]) -> None:
    result = _check(*files, "--build", "2697", "-o", "json")
    facts = json.loads(result.stdout)
    assert facts["outcome"] == "refused"
    assert facts["decided_as"] == "speculative of builds 0 to 3180"
    assert facts["target"] == {"architecture": "llama", "quant": "F16", "tokenizer": "llama", "tokens": 300}
    assert len(facts["reasons"]) == len(facts["helps"]) == 1
    assert facts["differences"] == []


def test_different_tokens_are_shown(tmp_path: Path, files: tuple[str, str]) -> None:
    vocabulary = models.tokens(300)
    vocabulary["tokenizer.ggml.tokens"] = [f"{number}" for number in range(300)]
    other = models.write_model(tmp_path / "other.gguf", *models.llama(vocabulary=vocabulary))
    result = _check(files[0], str(other))
    assert "because  295 tokens differ" in result.stdout
    assert "         token 5: '<0x02>' and '5'\n" in result.stdout
    assert "help     use a smaller model of the target's family as drafter\n" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("demo", "--program", "server", "--build", "2697"), "server of build 2697 does not draft"),
        (("demo", "--pair", "demo"), "name the models as arguments or with options, not both"),
        (("-md", "demo:drafter"), "a drafter needs a target"),
    ],
)
def test_questions_without_sense_are_refused(words: tuple[str, ...], message: str) -> None:
    result = _check(*words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_models_and_programs_that_are_not_there_are_named(tmp_path: Path, files: tuple[str, str]) -> None:
    assert isinstance(_check(files[0], "./nothing.gguf").exception, ModelFileError)
    assert isinstance(_check(*files, "--llama", str(tmp_path)).exception, NoInstallError)
