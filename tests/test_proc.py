from __future__ import annotations

import logging
import os
import resource
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ggufspec import proc
from ggufspec.errors import ChildCrashedError
from ggufspec.steps import finish
from tests.support import shell

DETACHED = "import os, sys; os.fork() and os._exit(0); os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """A file into which scripts write their process ids; what they leave behind is ended after the test."""
    file = tmp_path / "pids"
    yield file
    for pid in shell.alive(file):
        os.kill(pid, signal.SIGKILL)


def _sleeps(file: Path, *, before: str = "") -> str:
    """Return a shell command that writes its process id and sleeps; ``before`` is put before it."""
    return f"{before} /bin/sh -c {shlex.quote(shell.note(file) + 'exec sleep 600')}"


def _detached(file: Path) -> str:
    """Return a shell command that sleeps in a session of its own, without its parent."""
    return _sleeps(file, before=shlex.join([sys.executable, "-S", "-c", DETACHED]))


def _n_written(file: Path) -> int:
    return file.read_text().count("\n") if file.exists() else 0


def test_run_reports_exit_code_and_keeps_streams_apart(tmp_path: Path) -> None:
    out, err = tmp_path / "out", tmp_path / "err"
    completed = proc.run(["sh", "-c", "echo text; echo log >&2; exit 3"], stdout=out, stderr=err)
    assert (completed.returncode, completed.signal, completed.timed_out) == (3, None, False)
    assert (out.read_text(), err.read_text()) == ("text\n", "log\n")


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGSEGV, "SIGSEGV"), (34, "SIGRTMIN"), (37, "signal 37")]
)
def test_the_signal_is_named(tmp_path: Path, number: int, name: str) -> None:
    if number > 32 and sys.platform != "linux":
        pytest.skip("this system has no real-time signals")
    words = ["sh", "-c", f"kill -{int(number)} $$"]
    for completed in (proc.run(words, stdout=tmp_path / "out"), proc.capture(words)[0]):
        assert (completed.returncode, completed.signal) == (-number, name)


def test_run_measures_peak_memory(tmp_path: Path) -> None:
    code = "import time; block = bytearray(200 << 20); time.sleep(0.3)"
    completed = proc.run([sys.executable, "-c", code], stdout=tmp_path / "out")
    assert 200 << 20 < completed.peak_rss_bytes < 400 << 20


def test_timeout_kills_the_whole_group(tmp_path: Path, pids: Path) -> None:
    code = f"{_sleeps(pids)} & {_sleeps(pids)}"
    completed = proc.run(["sh", "-c", code], stdout=tmp_path / "out", timeout_s=0.5)
    assert completed.timed_out
    assert completed.wall_s < 60
    assert not shell.alive(pids)


def test_the_whole_group_ends_with_the_context(pids: Path) -> None:
    argv = ["sh", "-c", f"{_sleeps(pids)} & {_sleeps(pids)}"]
    with proc.spawn(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        shell.wait_until(lambda: _n_written(pids) == 2)
        assert len(shell.alive(pids)) == 2
    assert not shell.alive(pids)


def test_background_processes_do_not_survive_a_normal_end(tmp_path: Path, pids: Path) -> None:
    code = f"{_sleeps(pids)} & while ! [ -s {pids} ]; do sleep 0.01; done"
    assert proc.run(["sh", "-c", code], stdout=tmp_path / "out").returncode == 0
    assert not shell.alive(pids)


@pytest.mark.parametrize("how", ["run", "stream", "capture"])
def test_a_detached_descendant_neither_blocks_nor_survives(tmp_path: Path, pids: Path, how: str) -> None:
    """It has a session of its own, its parent has ended, and it keeps our standard output open."""
    argv = ["sh", "-c", f"echo first; {_detached(pids)} & while ! [ -s {pids} ]; do sleep 0.01; done"]
    started = time.monotonic()
    if how == "run":
        assert proc.run(argv, stdout=tmp_path / "out").returncode == 0
    elif how == "capture":
        completed, out, _ = proc.capture(argv, timeout_s=30)
        assert (completed.returncode, completed.timed_out, out) == (0, False, "first\n")
    else:
        assert [*proc.stream(argv, log=tmp_path / "log")] == ["first"]
    assert time.monotonic() - started < 20
    assert _n_written(pids) == 1
    assert not shell.alive(pids)


def test_a_descendant_with_an_empty_environment_ends_with_the_child(pids: Path) -> None:
    leave = "import os, sys; os.setsid(); os.execvpe(*eval(sys.argv[1]))"
    detached = shlex.join([sys.executable, "-S", "-c", leave])
    words = ("sh", ["sh", "-c", f"{shell.note(pids)}exec sleep 600"], {"PATH": os.environ["PATH"]})
    argv = ["sh", "-c", f"{detached} {shlex.quote(repr(words))} & wait"]
    with proc.spawn(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        shell.wait_until(lambda: _n_written(pids) == 1)
    assert not shell.alive(pids)


def test_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as older:
        argv = ["sh", "-c", "sleep 0.3"]
        with proc.spawn(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            younger = subprocess.Popen(["sleep", "600"], start_new_session=True)
        assert (older.poll(), younger.poll()) == (None, None)
        older.kill()
        younger.kill()
        younger.wait()


def test_a_child_that_does_not_die_is_named_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proc, "_GRACE_S", 0.1)
    monkeypatch.setattr(proc, "_KILL_WAIT_S", 0.3)
    kill = os.killpg
    for kills in ("os.killpg", "psutil.Process.kill"):  # as for a process that waits for a broken device
        monkeypatch.setattr(kills, lambda *_: None)
    with caplog.at_level(logging.WARNING, "ggufspec"):
        nothing = subprocess.DEVNULL
        with proc.spawn(["sleep", "600"], stdout=nothing, stderr=nothing) as child:
            shell.wait_until(lambda: child.name() == "sleep")
    kill(child.pid, signal.SIGKILL)
    child.wait()
    (record,) = caplog.records
    assert record.getMessage().startswith("sleep did not end within 0.3 s of SIGKILL")
    assert record.getMessage().endswith(f"process {child.pid}")


def test_stdin_is_empty(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert proc.run(["cat"], stdout=out, timeout_s=30).returncode == 0
    assert out.read_bytes() == b""


def test_stream_yields_lines_and_logs_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("older\n")
    streaming = proc.stream(["sh", "-c", "echo one; echo two >&2; printf three; exit 4"], log=log)
    lines: list[str] = []
    completed = finish(streaming, lines.append)
    assert lines == ["one", "two", "three"]
    assert log.read_text() == "older\none\ntwo\nthree"
    assert completed.returncode == 4


def test_stream_yields_the_states_of_a_progress_bar(tmp_path: Path) -> None:
    code = r"printf '10 %%\r20 %%\r'; sleep 0.3; printf '30 %%\r\nend\n\nlast'"
    lines = [*proc.stream(["sh", "-c", code], log=tmp_path / "log")]
    assert lines == ["10 %", "20 %", "30 %", "end", "", "last"]


def test_stream_yields_lines_while_the_child_runs(tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    code = f"echo one; while ! [ -e {go_on} ]; do sleep 0.01; done; echo two"
    streaming = proc.stream(["sh", "-c", code], log=tmp_path / "log")
    assert next(streaming) == "one"
    go_on.touch()
    assert [*streaming] == ["two"]


def test_capture_gives_up_after_its_time() -> None:
    completed, out, _ = proc.capture(["sh", "-c", "echo begun; exec sleep 64"], timeout_s=1.0)
    assert (completed.timed_out, completed.signal) == (True, "SIGKILL")
    assert out == "begun\n"


@pytest.mark.parametrize(
    ("word", "reason"), [("x" * 200_000, "Argument list too long"), ("a\0b", "embedded null byte")]
)
def test_a_child_that_cannot_start_is_an_error_with_a_reason(tmp_path: Path, word: str, reason: str) -> None:
    n_open = len(psutil.Process().open_files())
    with pytest.raises(ChildCrashedError, match=f"cannot start echo: .*{reason}"):
        proc.run(["echo", word], stdout=tmp_path / "out")
    assert len(psutil.Process().open_files()) == n_open


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    proc.run(["true"], stdout=tmp_path / "out")
    before = psutil.Process().num_fds()
    for _ in range(3):
        proc.run(["true"], stdout=tmp_path / "out")
        proc.capture(["true"])
        assert [*proc.stream(["echo", "a"], log=tmp_path / "log")] == ["a"]
    assert psutil.Process().num_fds() == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > before


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("detached", [False, True])
def test_children_die_with_us(tmp_path: Path, pids: Path, ending: signal.Signals, detached: bool) -> None:
    if detached and sys.platform != "linux" and ending is not signal.SIGINT:
        pytest.skip("without /proc the watcher knows the child's group alone")
    other = _detached(pids) if detached else _sleeps(pids)
    argv = ["sh", "-c", f"{other} & {_sleeps(pids)}"]
    code = f"from pathlib import Path; from ggufspec import proc; proc.run({argv!r}, stdout=Path('out'))"
    parent = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=tmp_path)
    shell.wait_until(lambda: _n_written(pids) == 2)
    os.kill(parent.pid, ending)
    parent.wait(20)
    shell.wait_until(lambda: not shell.alive(pids))


def test_children_die_with_us_and_not_with_our_copies(tmp_path: Path, pids: Path) -> None:
    """A fork of ours, such as a worker of multiprocessing, does not keep our child alive, nor ends it."""
    copies = tmp_path / "copies"
    code = f"""
        import multiprocessing, os, threading, time
        from pathlib import Path

        from ggufspec import proc

        def copy():
            with open({str(copies)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(600)

        nothing = open(os.devnull, "wb")
        with proc.spawn({["sh", "-c", _sleeps(pids)]!r}, stdout=nothing, stderr=nothing):
            multiprocessing.get_context("fork").Process(target=copy).start()
            if not os.fork():
                raise SystemExit  # a copy leaves the context
            time.sleep(600)
        """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stderr=subprocess.DEVNULL)
    try:
        shell.wait_until(lambda: _n_written(pids) == 1 and _n_written(copies) == 1)
        time.sleep(0.3)  # for the copy that leaves
        assert shell.alive(pids)
        parent.kill()
        parent.wait()
        shell.wait_until(lambda: not shell.alive(pids))
        assert len(shell.alive(copies)) == 1
    finally:
        parent.kill()
        for pid in shell.alive(copies):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(60)
def test_a_program_that_prints_without_end_is_ended(tmp_path: Path) -> None:
    ended = proc.run(["yes"], stdout=tmp_path / "out", most_file_bytes=1 << 20)
    assert ended.signal == "SIGXFSZ"
    assert (tmp_path / "out").stat().st_size == 1 << 20
    ended = proc.run(["yes"], stdout=tmp_path / "out", timeout_s=0.2)
    assert ended.timed_out


@pytest.mark.timeout(60)
def test_a_short_program_that_prints_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "MOST_CAPTURED_BYTES", 1 << 20)
    ended, out, _ = proc.capture(["yes"])
    assert (ended.signal, ended.timed_out) == ("SIGXFSZ", False)
    assert out.startswith("y\ny\n")
