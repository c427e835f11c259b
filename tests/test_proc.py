from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ggufspec import proc


def test_run_reports_exit_code_and_keeps_streams_apart(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    completed = proc.run(["sh", "-c", "echo text; echo log >&2; exit 3"], stdout=out, stderr=err)
    assert (completed.returncode, completed.signal, completed.timed_out) == (3, None, False)
    assert (out.read_text(), err.read_text()) == ("text\n", "log\n")


def test_run_names_the_signal(tmp_path: Path) -> None:
    completed = proc.run(["sh", "-c", "kill -SEGV $$"], stdout=tmp_path / "out")
    assert (completed.returncode, completed.signal) == (-signal.SIGSEGV, "SIGSEGV")


def test_run_measures_peak_memory(tmp_path: Path) -> None:
    code = "import time; block = bytearray(200 << 20); time.sleep(0.3)"
    completed = proc.run([sys.executable, "-c", code], stdout=tmp_path / "out")
    assert completed.peak_rss_bytes is not None
    assert 200 << 20 < completed.peak_rss_bytes < 400 << 20


def test_timeout_kills_the_whole_group(tmp_path: Path) -> None:
    completed = proc.run(["sh", "-c", "sleep 61 & sleep 62"], stdout=tmp_path / "out", timeout_s=0.2)
    assert completed.timed_out
    assert completed.wall_s < 2
    _wait_until(lambda: not _running("sleep", "61") and not _running("sleep", "62"))


def test_background_processes_do_not_survive_a_normal_end(tmp_path: Path) -> None:
    proc.run(["sh", "-c", "sleep 63 & exit 0"], stdout=tmp_path / "out")
    _wait_until(lambda: not _running("sleep", "63"))


def test_stdin_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert proc.run(["cat"], stdout=out, timeout_s=5).returncode == 0
    assert out.read_bytes() == b""


def test_stream_yields_lines_and_logs_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    streaming = proc.stream(["sh", "-c", "echo one; echo two >&2; exit 4"], log=log)
    lines = []
    try:
        while True:
            lines.append(next(streaming))
    except StopIteration as stop:
        completed = stop.value
    assert lines == ["one", "two"]
    assert log.read_text() == "one\ntwo\n"
    assert completed.returncode == 4


def test_capture_gives_up_after_its_time(tmp_path: Path) -> None:
    completed, out, _ = proc.capture(["sleep", "64"], timeout_s=0.2)
    assert completed.timed_out
    assert out == ""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_die_with_us(tmp_path: Path, ending: signal.Signals) -> None:
    marker = str(7000 + ending)
    code = (
        "from pathlib import Path; from ggufspec import proc; "
        f"proc.run(['sh', '-c', 'sleep {marker} & sleep {marker}'], stdout=Path({str(tmp_path / 'out')!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    _wait_until(lambda: len(_running("sleep", marker)) == 2)
    os.kill(parent.pid, ending)
    parent.wait(5)
    _wait_until(lambda: not _running("sleep", marker))


def _running(*argv: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline() == list(argv) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def _wait_until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true"
        time.sleep(0.02)
