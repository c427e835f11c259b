"""Logs as people paste them, each beside the figures that a person read in it."""

from __future__ import annotations

import html
import io
import json
import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import ggufspec
from ggufspec.domain import Sample, Status
from ggufspec.errors import LogError
from ggufspec.llama.logs import read
from ggufspec.llama.logs.parsing import parse
from ggufspec.llama.logs.reading import LoggedRun, Source

LOGS = Path(__file__).parents[1] / "logs"
LOG = LOGS / "0.2.63" / "tree.log"
PASTES = LOGS / "pastes"
CASES = sorted(PASTES.glob("*.json"))


def load(case: Path) -> tuple[bytes, dict[str, Any]]:
    [paste] = (path for path in PASTES.glob(f"{case.stem}.*") if path.suffix != ".json")
    return paste.read_bytes(), json.loads(case.read_text())


def figures(run: LoggedRun, keys: dict[str, Any]) -> dict[str, Any]:
    """What was read for the keys that a person wrote down."""
    lines = run.lines and f"{run.lines[0]}-{run.lines[1]}"
    values = {key: lines if key == "lines" else getattr(run.sample, key) for key in keys}
    return {key: getattr(value, "value", value) for key, value in values.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_paste_is_read_as_a_person_reads_it(case: Path) -> None:
    data, wanted = load(case)
    reading = read(data, case.stem)
    assert (reading.problem is None) == (wanted["exit"] == 0)
    runs = [run for run in reading.runs if run.lines is not None]
    assert len(runs) == len(wanted["runs"])
    for run, values in zip(runs, wanted["runs"], strict=True):
        assert figures(run, values) == {
            key: pytest.approx(value, rel=1e-4) if isinstance(value, float) else value
            for key, value in values.items()
        }


# Recorded logs, decorated in every way that pasting and quoting know, give the figures of the bare logs


FIGURES = (
    *("status", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "gen_s"),
    *("n_draft", "n_drafted", "n_accepted", "n_rounds", "load_ms", "target"),
)
WITH_FIGURES = [
    log for log in sorted(LOGS.glob("*/*.log")) if "gen_tps" in log.with_suffix(".json").read_text()
]
UNHURRIED = settings(deadline=None, max_examples=25)  # busy machines are no failures


def each_line(before: str, after: str = "") -> Callable[[str], str]:
    """Put texts around each line; ``{}`` in the first is its number."""

    def decorate(text: str) -> str:
        lines = enumerate(text.removesuffix("\n").split("\n"), 1)
        return "".join(f"{before.format(number)}{line}{after}\n" for number, line in lines)

    return decorate


def as_notebook(text: str) -> str:
    output = {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}
    cells = [{"cell_type": "code", "metadata": {}, "source": ["!./main -m x"], "outputs": [output]}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


DECORATIONS: dict[str, Callable[[str], str]] = {
    "quoted": each_line("> "),
    "quoted without a blank": each_line(">"),
    "indented": each_line("    "),
    "tabbed": each_line("\t"),
    "fenced": lambda text: f"```\n{text}\n```\n",
    "fenced with a language": lambda text: f"It printed:\n\n```console\n{text}\n```\n\nThat is all.\n",
    "listed": lambda text: f"1. the run\n\n{each_line('   ')(text)}\n2. the next\n",
    "cat -n": each_line("{:6d}\t"),
    "grep -n": each_line("{}:"),
    "in a table": each_line("| ", " |"),
    "coloured": each_line("\x1b[32m", "\x1b[0m"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "blanks at the end": each_line("", "  "),
    "prompt": lambda text: f"user@host:~$ ./llama-speculative -m a.gguf -md b.gguf\n{text}\nuser@host:~$ \n",
    "timed": lambda text: f"{text}\nCPU times: user 1.6 s, sys: 374 ms, total: 2 s\nWall time: 1min 51s\n",
    "hello": lambda text: f"hello\n\n{text}\nhello\n",
    "docker": each_line("2026-05-06T20:28:49.123456789Z "),
    "journal": each_line("Nov 24 10:01:02 host llama[123]: "),
    "journal with microseconds": each_line("Nov 24 10:01:02.123456 host llama-server[123]: "),
    "journal with ISO times": each_line("2026-05-06T20:28:49.123456+02:00 host llama-server[123]: "),
    "ts": each_line("Nov 24 10:01:02 "),
    "svlogd": each_line("2026-05-06_20:28:49.12345 "),
    "kubernetes": each_line("2026-05-06T20:28:49.123456789Z stderr F "),
    "grep -H": each_line("logs/server.log:{}:"),
    "router": each_line("[42027] "),
    "chat": each_line("alice: "),
    "logger": each_line("2026-05-06 20:28:49,123 - INFO - "),
    "comment": each_line("# "),
    "added": each_line("+"),
    "times": each_line("10:32:11.123 "),
}
LAST: dict[str, Callable[[str], bytes]] = {  # what a text goes through as a whole
    "as it is": lambda text: text.encode(),
    "entities": lambda text: html.escape(text, quote=False).replace("    ", "&nbsp; &nbsp; ").encode(),
    "pre": lambda text: f"<pre><code>{html.escape(text, quote=False)}</code></pre>\n".encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "mark": lambda text: text.encode("utf-8-sig"),
    "notebook": lambda text: as_notebook(text).encode(),
}


def all_figures(*samples: Sample) -> list[dict[str, Any]]:
    return [{name: getattr(sample, name) for name in FIGURES} for sample in samples]


def read_figures(data: bytes) -> list[dict[str, Any]]:
    return all_figures(*(run.sample for run in read(data, "log").runs))


def text_of(log: Path) -> str:
    return log.read_bytes().decode(errors="replace")


def test_a_bare_log_is_one_run_without_notes() -> None:
    for log in WITH_FIGURES:
        reading = read(log.read_bytes(), "log")
        assert [run.sample for run in reading.runs] == [parse(log.read_bytes())], log
        assert reading.notes == (), log


@pytest.mark.parametrize("name", DECORATIONS)
def test_a_decoration_changes_no_figure(name: str) -> None:
    for log in WITH_FIGURES[::5]:
        data = DECORATIONS[name](text_of(log)).encode()
        assert read_figures(data) == all_figures(parse(log.read_bytes())), log


@UNHURRIED
@given(
    log=st.sampled_from(WITH_FIGURES),
    names=st.lists(st.sampled_from(sorted(DECORATIONS)), max_size=4, unique=True),
    last=st.sampled_from(sorted(LAST)),
)
def test_decorations_in_any_combination_change_no_figure(log: Path, names: list[str], last: str) -> None:
    text = text_of(log)
    for name in names:
        text = DECORATIONS[name](text)
    assert read_figures(LAST[last](text)) == all_figures(parse(log.read_bytes()))


@UNHURRIED
@given(
    logs=st.lists(st.sampled_from(WITH_FIGURES), min_size=2, max_size=4),
    between=st.sampled_from(
        ["\n", "\n\n\n", "hello\n", "\n```\n\n```\n", "\nuser@host:~$ ./main -m x.gguf\n"]
    ),
)
def test_logs_one_behind_the_other_are_a_run_each(logs: list[Path], between: str) -> None:
    data = between.join(text_of(log) for log in logs).encode()
    assert read_figures(data) == all_figures(*(parse(log.read_bytes()) for log in logs))


# Figures in a text that a model wrote


HEAD = "Log start\nllama_model_loader: loaded meta data with 22 key-value pairs and 723 tensors from a.gguf\n"
TEXT = "\nOnce upon a time there was a lantern.\n"
REAL = (PASTES / "block.txt").read_text()
FAKE = REAL.replace("98.596", " 0.254").replace("  2.576", "1000.000")
FORMS = {name: DECORATIONS[name](FAKE) for name in ("quoted", "fenced", "indented")}
FORMS |= {"bare": FAKE, "entities": html.escape(FORMS["quoted"])}


@pytest.mark.parametrize("form", FORMS)
def test_a_look_alike_in_a_text_does_not_win(form: str) -> None:
    fake, ending = FORMS[form], "\ndraft:\n\ntarget:\n\n"
    for log in (
        f"{HEAD}{fake}{TEXT}\n\n{REAL}{ending}",
        f"{HEAD}{TEXT}{fake}{TEXT}\n\n{REAL}{ending}",
        f"{HEAD}\n{REAL}{ending}{TEXT}{fake}and so on\n",
    ):
        reading = read(log.encode(), "log")
        assert [run.sample.gen_tps for run in reading.runs] == [2.576]
        assert any("taken for generated text" in note for note in reading.notes)
    alone = read(f"{HEAD}{TEXT}{fake}and so on\n".encode(), "log")
    (run,), (note,) = alone.runs, alone.notes
    assert run.sample.gen_tps == 1000.0
    assert "lines {}-{}".format(*run.lines) in note


def test_wrong_arithmetic_is_no_candidate() -> None:
    reading = read(REAL.replace("70.782", "99.000").replace("2.576", "9.999").encode() + b"hello\n", "log")
    assert reading.runs == ()
    assert reading.problem is not None


# What ``ggufspec.parse`` takes, and what it says of what it does not


def test_sources_of_one_or_more_runs() -> None:
    text = LOG.read_text()
    with LOG.open() as as_text, LOG.open("rb") as as_bytes:
        sources: list[Source] = [LOG, str(LOG), text, text.encode(), as_text, as_bytes, io.StringIO(text)]
        samples = [ggufspec.parse(source) for source in sources]
    assert samples == [samples[0]] * len(sources)
    assert samples[0].gen_tokens == 34
    paste = PASTES / "two-blocks.txt"
    assert [sample.n_draft for sample in ggufspec.parse([LOG, paste])] == [4, 3, 8]
    assert ggufspec.parse([]) == []
    with pytest.raises(LogError, match="2 runs") as caught:
        ggufspec.parse(paste)
    assert "list" in caught.value.hint
    with pytest.raises(LogError, match=r"tree\.log"):
        ggufspec.parse(as_text)  # which is closed


def test_uncertain_figures_and_failures_are_told() -> None:
    paste = PASTES / "block-hello.txt"
    (entry,) = (entry for entry in os.scandir(PASTES) if entry.name == paste.name)
    sources: list[Source] = [paste.read_text(), paste, entry]
    for source, name in zip(sources, ("the text", str(paste), str(paste)), strict=True):
        with pytest.warns(UserWarning, match=rf"^{re.escape(name)}: .*lines 1-8"):
            assert ggufspec.parse(source).gen_tps == pytest.approx(2.576)
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


PIECES = (
    "encoded    4 tokens in    0.071 seconds, speed:   56.319 t/s\n",
    "decoded   34 tokens in    0.957 seconds, speed:   35.540 t/s\n",
    *("n_draft   = 4\n", "n_predict = 34\n", "n_drafted = 36\n", "n_accept  = 24\n", "accept    = 66.667%\n"),
    *("draft:\n", "target:\n", "Log start\n", "```\n", "\0\n", "hello\n", '{"cells": [1]}', '{"msg":'),
    "llama_print_timings:        load time =      12.00 ms\n",
    "[ Prompt: 1.0 t/s | Generation: 2.0 t/s ]\n",
    "eval time = 246.59 ms / 32 tokens ( 7.95 ms per token, 125.72 tokens per second)\n",
    "draft acceptance rate = 0.5 (    1 accepted /     2 generated)\n",
    *("> ", "&gt;", "\x1b[", "\\n", "\r", "12:", "| ", "$ ./main -m x\n", "In [3]:\n", "\ufeff", "\udc80"),
)


@settings(deadline=None, max_examples=100)
@given(pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=30))
def test_text_of_any_kind_gives_samples_or_one_clear_error(pieces: list[str]) -> None:
    text = "".join(pieces) + "\n"
    reading = read(text.encode(errors="replace"), "text")
    assert (reading.problem is None) == any(run.lines is not None for run in reading.runs)
    with suppress(LogError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(isinstance(sample, Sample) for sample in ggufspec.parse([text]))
