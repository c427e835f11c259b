from __future__ import annotations

from pathlib import Path

import pytest

from ggufspec import prompts
from ggufspec.domain import Prompt
from ggufspec.errors import GgufspecError


@pytest.mark.parametrize("name", ["demo", "general"])
def test_built_in_suites_load(name: str) -> None:
    suite = prompts.suite(name)
    assert len(suite) >= 4
    assert all(prompt.text.strip() and prompt.category for prompt in suite)


def test_a_text_file_is_one_prompt_without_its_last_line_break(tmp_path: Path) -> None:
    file = tmp_path / "poem.txt"
    file.write_text("Roses are\nred\n")
    assert prompts.load(file) == (Prompt(id="poem", text="Roses are\nred"),)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "not toml [", "is no prompt suite"),
        ("a.toml", "", "holds no"),
        ("a.toml", '[[prompt]]\nid = "x"', "is no prompt suite: 'text'"),
        ("a.toml", '[[prompt]]\nid="x"\ntext="a"\n[[prompt]]\nid="x"\ntext="b"', "uses a prompt id twice"),
        ("a.txt", " \n", "is empty"),
        ("a.txt", b"\xff\xfe\xfa", "not UTF-8 text"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(GgufspecError, match=message) as caught:
        prompts.load(file)
    assert caught.value.hint


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GgufspecError, match=r"cannot read the prompt file .*nope"):
        prompts.load(tmp_path / "nope")
