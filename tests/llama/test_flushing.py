"""Programs whose logger is slower than they are write their logs to the end, where a compiler is at hand."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.llama.install import Install, flush_variables
from tests.support import fakes

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="LD_PRELOAD is Linux's")

LOGGER = """
#include <chrono>
#include <cstdio>
#include <thread>

struct common_log {
    std::thread writer{[] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::fputs("the figures\\n", stderr);
    }};
};

common_log * common_log_main() {
    static common_log * leaked = new common_log;
    return leaked;
}

void common_log_flush(common_log * log) {
    log->writer.join();
}
"""
PROGRAM = """
struct common_log;
common_log * common_log_main();
int main() { common_log_main(); }
"""


@pytest.fixture
def shared(tmp_path: Path) -> Install:
    """An install whose programs share the logger."""
    (tmp_path / "libllama-common.so").touch()
    return replace(fakes.recorded_install("0.3.36"), library=tmp_path)


def compile_program(folder: Path) -> Path:
    """Compile a program that does not wait for its logger, which is in a library beside it."""
    (folder / "log.cpp").write_text(LOGGER)
    (folder / "main.cpp").write_text(PROGRAM)
    program, library = folder / "program", folder / "libllama-common.so"
    compiler = ["c++", "-std=c++11", "-pthread"]
    subprocess.check_call([*compiler, "-shared", "-fPIC", "-o", library, folder / "log.cpp"])
    subprocess.check_call([*compiler, "-o", program, folder / "main.cpp", library, f"-Wl,-rpath,{folder}"])
    return program


def test_a_program_that_does_not_wait_writes_its_log_to_the_end(shared: Install, tmp_path: Path) -> None:
    program = compile_program(tmp_path)
    assert not subprocess.run([program], stderr=subprocess.PIPE, check=True).stderr
    variables = flush_variables(shared.library)
    completed = subprocess.run([program], stderr=subprocess.PIPE, check=True, env=variables)
    assert completed.stderr == b"the figures\n"


def test_programs_without_a_shared_logger_need_nothing(shared: Install, tmp_path: Path) -> None:
    (tmp_path / "libllama-common.so").unlink()
    assert flush_variables(shared.library) == {}
    assert flush_variables(None) == {}


def test_the_library_is_compiled_once(shared: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    library = flush_variables(shared.library)["LD_PRELOAD"]
    made = Path(library).stat().st_mtime_ns
    monkeypatch.setenv("LD_PRELOAD", "libmine.so")
    assert flush_variables(shared.library) == {"LD_PRELOAD": f"libmine.so:{library}"}
    (found,) = paths.cache_dir().iterdir()
    assert (str(found), found.stat().st_mtime_ns) == (library, made)


@pytest.mark.parametrize(
    ("compiler", "said"), [(None, "no C compiler"), ("cc", "cannot compile flush_log.c: no room")]
)
def test_without_a_compiler_runs_are_repeated_instead(
    shared: Install,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    compiler: str | None,
    said: str,
) -> None:
    caplog.set_level("INFO", logger="ggufspec")
    fakes.script(tmp_path / "cc", "echo no room >&2\nexit 1\n")
    monkeypatch.setattr(shutil, "which", lambda _: compiler and str(tmp_path / compiler))
    assert flush_variables(shared.library) == {}
    assert said in caplog.text
    assert not list(paths.cache_dir().glob("*"))


def test_odd_folders_are_not_used(shared: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_CACHE", str(tmp_path / "two words"))
    assert flush_variables(shared.library) == {}
