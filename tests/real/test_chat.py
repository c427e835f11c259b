"""``ggufspec chat`` in a real pseudo-terminal, with the embedded pair on a real llama-server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pytest

from ggufspec import paths
from ggufspec.llama.install.installs import Install
from tests.support import shell

_CHAT = ("chat", "-t", "1")
_STORY = "Story: Mira and the brass lantern"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
_READY, _SENT = r"\x1b\[\?2004h", r"\x1b\[\?2004l"  # pasting is bracketed while a line can be typed
_GREEN, _UNDERLINED = "\x1b[32m", "\x1b[4m"


class Person:
    """Types into a console and reads what it shows."""

    def __init__(self, child: Any) -> None:  # pexpect's own types lack the pseudo-terminal
        self.child = child
        self.raw = ""  # all that was shown so far

    def sees(self, pattern: str | type[pexpect.EOF]) -> str:
        """Wait for a pattern, and return what was shown since the last one, without colours."""
        self.child.expect(pattern)
        shown = f"{self.child.before}{self.child.after}"
        self.raw += shown
        return _ESCAPES.sub("", shown)

    def types(self, line: str) -> None:
        self.child.send(f"{line}\r")

    def asks(self, line: str) -> str:
        """Type a line, and return what is shown until the next one can be typed."""
        self.types(line)
        self.sees(_SENT)
        return self.sees(_READY)

    @property
    def shown(self) -> str:
        """All that was shown so far, without colours."""
        return _ESCAPES.sub("", self.raw)

    @property
    def servers(self) -> list[psutil.Process]:
        """The processes that the console has started."""
        return psutil.Process(self.child.pid).children(recursive=True)


def _pair(words: Sequence[str]) -> tuple[str, ...]:
    return () if "-m" in words else ("--pair", "demo")


@contextmanager
def _console(llama: Install, *words: str, **env: str) -> Iterator[Person]:
    child = pexpect.spawn(
        sys.executable,
        ["-m", "ggufspec", *_CHAT, *_pair(words), "--llama", str(llama.root), *words],
        env=_without_size(os.environ) | {"TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"} | env,
        dimensions=(50, 110),
        encoding="utf-8",
        timeout=60,
    )
    try:
        person = Person(child)
        person.sees(_READY)
        yield person
    finally:
        if not child.closed and child.isalive():  # by itself, so that it takes its files along
            servers = person.servers
            child.kill(signal.SIGTERM)
            shell.wait_until(lambda: not child.isalive())
            assert child.exitstatus == 143
            assert all(map(_is_gone, servers))
        child.close(force=True)


def _without_size(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out the size of a terminal that is not the console's; pytest-xdist sets it."""
    return {name: value for name, value in environ.items() if name not in {"COLUMNS", "LINES"}}


def _is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_an_answer_streams_and_settings_change(llama: Install) -> None:
    with _console(llama, "-n", "40") as person:
        answer = person.asks(_STORY)
        assert "Chapter 1. The morning" in answer
        assert re.search(r"40 tokens · [\d.]+ tokens/s · \d+% of \d+ drafted accepted", answer)
        assert _GREEN in person.raw
        assert "drafting γ=5" in person.asks("/gamma 5")
        assert "loaded again" in person.asks("/gamma 4")
        assert "accepted" in person.asks("")
        assert "target alone" in person.asks("/draft off")
        alone = person.asks("Then")
        assert "40 tokens" in alone
        assert "accepted" not in alone
        assert "temp 0.5 top_k 40 seed 2" in person.asks("/sampler temp=0.5 seed=2")
        assert "up to 7 tokens" in person.asks("/length 7")
        assert "7 tokens · " in person.asks("")
        assert "did you mean /draft?" in person.asks("/drat on")
        assert "a system prompt needs a chat template" in person.asks("/system Be brief.")
        stats = person.asks("/stats")
        assert all(kind in stats for kind in ("drafting γ=3", "drafting γ=4", "target alone"))


def test_ctrl_c_stops_the_answer_and_not_the_program(llama: Install) -> None:
    with _console(llama, "-n", "900") as person:
        person.types(_STORY)
        person.sees(r"\d\d tokens · .*Ctrl-C stops")
        person.child.sendintr()
        assert "stopped" in person.sees(r"first in.*\n")
        person.sees(_READY)
        person.asks("/length 10")
        assert "10 tokens" in person.asks("")
        person.child.sendintr()
        person.sees("Ctrl-C again")
        servers = person.servers
        assert servers
        person.child.sendintr()
        person.sees(pexpect.EOF)
        person.child.close()
        assert person.child.exitstatus == 0
        assert all(map(_is_gone, servers))


def test_compare_shows_three_columns_and_save_writes_them(llama: Install, tmp_path: Path) -> None:
    with _console(llama, "-n", "30") as person:
        person.asks("The weather")
        shown = person.asks("/compare Q: Who is the best friend of Tom?\\\rA:")
        assert re.search(r"target alone .* drafter alone .* drafting γ=3", shown)
        assert re.search(r"speed-up .*\d\.\d\d×", shown)
        assert "same as the target's" in shown
        person.asks(f"/save {tmp_path}/said.md")
        person.asks(f"/save {tmp_path}/said.json")
        person.asks("/clear")
        (tmp_path / "theirs.md").write_text("precious")
        assert "already" in person.asks(f"/save {tmp_path}/theirs.md")
        history = (Path(os.environ["GGUFSPEC_DATA"]) / "chat-history").read_text()
    assert "+The weather" in history
    assert (tmp_path / "theirs.md").read_text() == "precious"
    read = json.loads((tmp_path / "said.json").read_text())
    turn, comparison = read["entries"]
    assert turn["said"] == "The weather"
    assert comparison["said"] == "Q: Who is the best friend of Tom?\nA:"
    target, drafter, drafting = comparison["answers"]
    assert target["text"] == drafting["text"] != ""
    assert [one["gen_tokens"] for one in (target, drafter, drafting)] == [30, 30, 30]
    marked = "".join(span["text"] for span in drafting["spans"] if span["drafted"])
    assert drafting["n_accepted"]
    assert marked
    markdown = (tmp_path / "said.md").read_text()
    assert f"```text\n{drafting['text']}\n```" in markdown
    assert markdown.count("\n| ") == 6  # a head, a rule and four answers


def test_a_full_context_is_said_so(llama: Install) -> None:
    with _console(llama, "-n", "300", "-c", "256") as person:
        assert (
            "the context of 256 tokens is full; /clear starts a new conversation, or start with a larger -c"
            in person.asks(_STORY)
        )
        assert "the context of 256 tokens is full" in person.asks("And then they all went home.")
        person.asks("/length 5")
        person.asks("/clear")
        assert "5 tokens" in person.asks(_STORY)


@pytest.fixture
def templated(tmp_path: Path) -> Path:
    """The embedded target with a chat template."""
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    made = tmp_path / "templated.gguf"
    copy = [sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", template]
    target = paths.models_dir() / "demo" / "target.gguf"
    subprocess.run([*copy, str(target), str(made)], check=True, capture_output=True)
    return made


def test_a_template_gets_the_whole_conversation(llama: Install, templated: Path, tmp_path: Path) -> None:
    drafter = paths.models_dir() / "demo" / "drafter.gguf"
    with _console(llama, "-m", str(templated), "-md", str(drafter), "-n", "12") as person:
        assert "no chat template" not in person.shown
        person.asks("Who are you?")
        person.asks("And who am I?")
        assert "system prompt: Be brief." in person.asks("/system Be brief.")
        person.asks("And they?")
        assert "the prompt is empty" in person.asks("")
        person.asks(f"/save {tmp_path}/said.json")
    first, second, third = (
        entry["answer"] for entry in json.loads((tmp_path / "said.json").read_text())["entries"]
    )
    assert second["cached_tokens"] >= first["prompt_tokens"] + first["cached_tokens"]
    read = [answer["cached_tokens"] + answer["prompt_tokens"] for answer in (first, second, third)]
    assert read[0] + 12 < read[1] < read[1] + 12 < read[2]
    assert third["cached_tokens"] < second["cached_tokens"]  # the system prompt comes first
    raw = _once(llama, "-m", str(templated), "--raw", "-n", "5", "-o", "json", "--once", "Who")
    assert json.loads(raw.stdout)["prompt_tokens"] + json.loads(raw.stdout)["cached_tokens"] < read[0]


def test_no_colours_where_none_are_wanted(llama: Install) -> None:
    with _console(llama, "-n", "20", NO_COLOR="1") as person:
        person.asks(_STORY)
        assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])m", person.raw)
        assert _UNDERLINED in person.raw


@pytest.mark.parametrize(
    ("how", "code"), [("ctrl-d", 0), ("SIGHUP", 129), ("closed", None), ("answering", 143)]
)
def test_no_process_stays_behind(llama: Install, tmp_path: Path, how: str, code: int | None) -> None:
    """Nor after SIGTERM while nothing is answered, with which each console here ends."""
    with _console(llama, "-n", "900", TMPDIR=str(tmp_path)) as person:
        child, servers = person.child, person.servers
        assert any("llama-server" in " ".join(server.cmdline()) for server in servers)
        if how == "ctrl-d":
            child.sendeof()
        elif how == "closed":
            child.ptyproc.fileobj.close()
        elif how == "answering":
            person.types(_STORY)
            person.sees(r"\d\d tokens · .*Ctrl-C stops")
            child.kill(signal.SIGTERM)
        else:
            child.kill(signal.Signals[how])
        shell.wait_until(lambda: not child.isalive())
        assert code in {None, child.exitstatus}
        assert all(map(_is_gone, servers))
    assert not list(tmp_path.glob("ggufspec-*"))


def _once(llama: Install, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ggufspec", *_CHAT, *_pair(words), "--llama", str(llama.root), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_one_answer_goes_through_pipes(llama: Install) -> None:
    text = _once(llama, "-n", "30", "--once", _STORY)
    assert text.returncode == 0
    assert "\x1b" not in text.stdout + text.stderr
    assert re.fullmatch(r"30 tokens · [\d.]+ tokens/s · \d+% of \d+ drafted accepted · .*\n", text.stderr)
    whole = json.loads(_once(llama, "-n", "30", "-o", "json", "--once", "-", stdin=f"{_STORY}\n").stdout)
    assert whole["text"].rstrip("\n") == text.stdout.rstrip("\n")
    assert (whole["said"], whole["gen_tokens"], whole["draft"], whole["ending"]) == (_STORY, 30, 3, "length")
    assert whole["accept_rate"] == whole["n_accepted"] / whole["n_drafted"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "a chat needs a terminal"),
        (("--once", " "), 1, "the prompt is empty"),
        (("--once", "word " * 400, "-c", "256"), 8, "context"),
        (("--once", "x", "--chat"), 1, "no chat template"),
        (("--once", "x", "--system", "y"), 1, "needs a chat template"),
    ],
)
def test_what_has_no_answer_says_so(llama: Install, words: tuple[str, ...], code: int, said: str) -> None:
    ended = shell.here(*_CHAT, *_pair(words), "--llama", str(llama.root), *words)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
