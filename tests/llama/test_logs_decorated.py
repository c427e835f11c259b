"""Recorded logs, decorated in every way that pasting and quoting know, give the figures of the bare logs."""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import ggufspec
from ggufspec.domain import Sample
from ggufspec.errors import LogError
from ggufspec.llama.logs import read
from ggufspec.llama.logs.parsing import parse

LOGS = Path(__file__).parents[1] / "logs"
FIGURES = (
    *("status", "program", "build", "prompt_tokens", "prompt_tps", "gen_tokens", "gen_tps", "gen_s"),
    *("n_draft", "n_drafted", "n_accepted", "n_rounds", "load_ms", "target"),
)
WITH_FIGURES = [
    log for log in sorted(LOGS.glob("*/*.log")) if json.loads(log.with_suffix(".json").read_text())["gen_tps"]
]
UNHURRIED = settings(deadline=None, max_examples=25)  # busy machines are no failures


def each_line(before: str, after: str = "") -> Callable[[str], str]:
    def decorate(text: str) -> str:
        return "".join(f"{before}{line}{after}\n" for line in text.removesuffix("\n").split("\n"))

    return decorate


def numbered(form: str) -> Callable[[str], str]:
    def decorate(text: str) -> str:
        lines = text.removesuffix("\n").split("\n")
        return "".join(form.format(number) + line + "\n" for number, line in enumerate(lines, 1))

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
    "cat -n": numbered("{:6d}\t"),
    "grep -n": numbered("{}:"),
    "in a table": each_line("| ", " |"),
    "coloured": each_line("\x1b[32m", "\x1b[0m"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "blanks at the end": each_line("", "  "),
    "prompt": lambda text: f"user@host:~$ ./llama-speculative -m a.gguf -md b.gguf\n{text}\nuser@host:~$ \n",
    "timed": lambda text: f"{text}\nCPU times: user 1.6 s, sys: 374 ms, total: 2 s\nWall time: 1min 51s\n",
    "hello": lambda text: f"hello\n\n{text}\nhello\n",
    "docker": each_line("2026-05-06T20:28:49.123456789Z "),
    "journal": each_line("Nov 24 10:01:02 host llama[123]: "),
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


def figures(sample: Sample) -> dict[str, Any]:
    return {name: getattr(sample, name) for name in FIGURES}


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
        bare = figures(parse(log.read_bytes()))
        assert [figures(run.sample) for run in read(data, name).runs] == [bare], log


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
    runs = read(LAST[last](text), "log").runs
    assert [figures(run.sample) for run in runs] == [figures(parse(log.read_bytes()))]


@UNHURRIED
@given(
    logs=st.lists(st.sampled_from(WITH_FIGURES), min_size=2, max_size=4),
    between=st.sampled_from(
        ["\n", "\n\n\n", "hello\n", "\n```\n\n```\n", "\nuser@host:~$ ./main -m x.gguf\n"]
    ),
)
def test_logs_one_behind_the_other_are_a_run_each(logs: list[Path], between: str) -> None:
    data = between.join(text_of(log) for log in logs).encode()
    assert [figures(run.sample) for run in read(data, "log").runs] == [
        figures(parse(log.read_bytes())) for log in logs
    ]


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
