"""What ``ggufspec.parse`` takes, and what it says of what it does not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import ggufspec
from ggufspec.domain import Status
from ggufspec.errors import LogError
from ggufspec.llama.logs.reading import Source

LOGS = Path(__file__).parents[1] / "logs"
LOG = LOGS / "0.2.63" / "tree.log"
PASTES = LOGS / "pastes"
TOKENS = 34


def test_a_path_a_text_bytes_and_open_files_are_the_same_log() -> None:
    text = LOG.read_text()
    with LOG.open() as as_text, LOG.open("rb") as as_bytes:
        sources: list[Source] = [LOG, str(LOG), text, text.encode(), as_text, as_bytes, io.StringIO(text)]
        samples = [ggufspec.parse(source) for source in sources]
    assert samples == [samples[0]] * len(sources)
    assert samples[0].gen_tokens == TOKENS


def test_a_list_gives_a_sample_of_each_run() -> None:
    paste = PASTES / "two-blocks.txt"
    assert [sample.n_draft for sample in ggufspec.parse([LOG, paste])] == [4, 3, 8]
    assert ggufspec.parse([]) == []
    with pytest.raises(LogError, match="2 runs") as caught:
        ggufspec.parse(paste)
    assert "list" in caught.value.hint


def test_a_warning_says_where_uncertain_figures_are_from() -> None:
    with pytest.warns(UserWarning, match="lines 1-8"):
        assert ggufspec.parse((PASTES / "block-hello.txt").read_text()).gen_tps == pytest.approx(2.576)


def test_a_failed_run_has_its_status() -> None:
    log = LOGS / "0.3.36" / "plain-missing-model.log"
    assert ggufspec.parse(log).status is Status.LOAD_FAILED


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (3, "int"),
        (None, "NoneType"),
        ({"a": 1}, "dict"),
        ("absent.log", "absent.log"),
        (Path("absent"), "absent"),
        (Path(__file__).parents[1], "cannot read"),
        ("a\0b.log", "cannot read"),
        ("hello", "no output"),
        ("", "no output"),
    ],
)
def test_what_is_no_log_is_refused_in_one_line(source: object, words: str) -> None:
    with pytest.raises(LogError, match=words) as caught:
        ggufspec.parse(source)  # type: ignore[call-overload]
    assert caught.value.hint
    assert "\n" not in caught.value.message
    with pytest.raises(LogError, match=words):
        ggufspec.parse([LOG, source])  # type: ignore[list-item]


def test_a_closed_file_is_refused() -> None:
    file = LOG.open()
    file.close()
    with pytest.raises(LogError, match=r"tree\.log"):
        ggufspec.parse(file)
