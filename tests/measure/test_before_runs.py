"""What is known before the first run is said before it: some is refused, some is warned of."""

from __future__ import annotations

import importlib.util
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from ggufspec import machine, paths, results
from ggufspec.analysis.warnings import ADVICE, MeasurementWarning
from tests.support import fakes, shell

DEMO = paths.models_dir() / "demo"
TARGET, DRAFTER = str(DEMO / "target.gguf"), str(DEMO / "drafter.gguf")
SHORT = ("-p", "Once upon a time", "-n", "32", "-r", "2", "-t", "1")
QUICK = ("bench", "--pair", "demo", *SHORT)


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs that note each start in a file ``starts``."""
    folder = tmp_path / "llama"
    note = f"echo >>{folder}/starts\n"
    fakes.install(folder, **{name: note + body for name, body in fakes.AT_ONCE.items()})
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    return folder


def _refused(llama: Path, *words: str, code: int = 1) -> str:
    """Return what is said where nothing was run and nothing stored."""
    done = shell.here(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert not (llama / "starts").exists()
    assert not results.ids()
    error, hint = done.stderr.splitlines()[-2:]
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return f"{error}\n{hint}"


@pytest.mark.parametrize("command", ["bench", "sweep", "tune"])
def test_a_missing_folder_is_refused_with_its_command(llama: Path, tmp_path: Path, command: str) -> None:
    said = _refused(llama, command, "--pair", "demo", "--out", str(tmp_path / "no where" / "table.csv"))
    assert f"there is no folder {tmp_path / 'no where'}" in said
    assert f"mkdir -p '{tmp_path / 'no where'}'" in said


def test_a_file_that_cannot_be_written_is_refused(llama: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "there is no folder" in _refused(llama, *QUICK, "--out", str(tmp_path / "file" / "table.md"))
    assert "File name too long" in _refused(llama, *QUICK, "--out", str(tmp_path / ("a" * 300)))
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "Permission denied" in _refused(llama, *QUICK, "--out", str(tmp_path / "locked" / "table.md"))


def test_a_check_of_a_file_changes_nothing(llama: Path, tmp_path: Path) -> None:
    kept = tmp_path / "table.md"
    kept.write_text("before\n")
    _refused(llama, *QUICK, "--device", "CUDA0", "--out", str(kept))
    assert kept.read_text() == "before\n"
    _refused(llama, *QUICK, "--device", "CUDA0", "--out", str(tmp_path / "new.md"))
    assert not (tmp_path / "new.md").exists()
    assert shell.here(*QUICK, "--out", str(kept)).returncode == 0
    assert kept.read_text().count("target.gguf") >= 2


@pytest.mark.parametrize("words", [QUICK, ("sweep", "--pair", "demo", *SHORT), ("tune", "--pair", "demo")])
def test_parquet_without_its_library_is_refused_first(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    missing = {"pyarrow", "fastparquet"}
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in missing else found(name, *rest)
    )
    said = _refused(llama, *words, "-o", "parquet", "--out", str(tmp_path / "table.parquet"))
    assert said == "error: -o parquet needs pyarrow, which is not installed\nhint: pip install pyarrow"


def test_parquet_on_a_terminal_is_refused_first(llama: Path) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "ggufspec", *QUICK, "-o", "parquet"]
    done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 1
    assert done.stderr == "error: this format cannot be printed on a terminal\nhint: name a file with --out\n"
    assert not (llama / "starts").exists()


@pytest.mark.parametrize("option", ["--device", "--device-draft"])
def test_a_device_that_is_not_there_is_refused(llama: Path, option: str) -> None:
    said = _refused(llama, *QUICK, option, "CUDA0")
    assert f"there is no device CUDA0: the llama.cpp in {llama} lists no device" in said
    assert "ggufspec build --backend cuda" in said
    assert shell.here(*QUICK, option, "none", "--dry-run").returncode == 0


def test_devices_are_told_from_those_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llama = fakes.install(tmp_path / "llama", devices=fakes.TWO_GPUS)
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama))
    said = _refused(llama, *QUICK, "--device", "CUDA0,CUDA2")
    assert "there is no device CUDA2: " in said
    assert "lists CUDA0: NVIDIA A, CUDA1: NVIDIA B" in said
    assert "hint: name one of these" in said
    said = _refused(llama, *QUICK, "--device", "CUDA1", "--main-gpu", "1")
    assert "there is no GPU 1 for --main-gpu" in said
    for words in (("--device", "CUDA1"), ("--device", "CUDA0,CUDA1", "--main-gpu", "1"), ("--main-gpu", "1")):
        assert shell.here(*QUICK, *words, "--ngl", "1", "--dry-run").returncode == 0


def _warned(*words: str) -> dict[str, str]:
    """Return the warnings before the table."""
    done = shell.done(*words)
    lines = [
        line.removeprefix("warning ") for line in done.stderr.splitlines() if line.startswith("warning ")
    ]
    return dict(line.split(": ", 1) for line in lines)


@pytest.mark.parametrize("layers", [("--ngl", "45"), ("--ngl", "all"), ("--ngld", "all"), ("--ngld", "1")])
def test_layers_without_a_gpu_are_warned_of_first(llama: Path, layers: tuple[str, ...]) -> None:
    name = MeasurementWarning.GPU_LESS_BUILD.value
    assert _warned(*QUICK, *layers, "--dry-run")[name] == ADVICE[MeasurementWarning.GPU_LESS_BUILD]
    done = shell.here(*QUICK, *layers)
    assert done.stderr.index(f"warning {name}: ") >= 0
    assert f"warning {name}: " in done.stdout  # and with the table
    assert name in results.load().meta.doubts
    for none in (("--ngl", "0"), ("--ngl", "auto"), ()):
        assert name not in _warned(*QUICK, *none, "--dry-run")


def test_layers_on_a_build_for_gpus_need_no_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(fakes.install(tmp_path / "llama", devices=fakes.TWO_GPUS)))
    assert not _warned(*QUICK, "--ngl", "45", "--dry-run")


def test_what_other_programs_do_before_the_first_run_is_said_and_not_stored(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "busy_cores", lambda watch: 1.0)
    done = shell.here(*QUICK)
    assert "processor: " in done.stderr
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "busy_cores", lambda watch: 3.0)
    advice = ADVICE[MeasurementWarning.THREADS_ABOVE_FREE_CORES]
    said = " ".join(shell.here(*QUICK, "-t", "2").stderr.split())
    assert "processor: other programs leave fewer cores free than --threads takes" in said
    assert advice not in said.partition("warning ")[0]  # the warning of a run says it
    assert MeasurementWarning.BUSY_MACHINE.value not in results.load().meta.doubts


def test_models_that_may_be_swapped_are_asked_about(llama: Path) -> None:
    swapped = _warned("bench", "-m", DRAFTER, "-md", TARGET, *SHORT)
    assert (
        "were -m (the target) and -md (the drafter) swapped?"
        in swapped[MeasurementWarning.MODELS_SWAPPED.value]
    )
    assert MeasurementWarning.MODELS_SWAPPED.value in results.load().meta.doubts
    assert MeasurementWarning.MODELS_SWAPPED.value not in _warned(
        "bench", "-m", TARGET, "-md", DRAFTER, *SHORT, "--dry-run"
    )
    assert MeasurementWarning.MODELS_SWAPPED.value not in _warned(
        "bench", "-m", TARGET, "-md", TARGET, *SHORT, "--dry-run"
    )


def test_a_target_without_a_drafter_is_named_as_that(llama: Path) -> None:
    done = shell.here("bench", "-m", TARGET, *SHORT, "--dry-run")
    (note,) = [line for line in done.stderr.splitlines() if line.startswith("drafter: ")]
    assert note == (
        "drafter: none, so only the target is measured; name one with -md FILE, or find one with "
        "`ggufspec suggest`"
    )
    both = shell.here("bench", "-m", TARGET, "-md", DRAFTER, *SHORT, "--dry-run")
    assert "drafter: none" not in both.stderr
    lookup = ("--engine", "binary-simple", "--method", "ngram-mod")
    assert "drafter: none" not in shell.here("bench", "-m", TARGET, *SHORT, *lookup, "--dry-run").stderr
    mixed = ("--engine", "binary-simple", "--method", "draft-model,ngram-mod")
    assert "the target alone and drafting by ngram-mod are measured" in (
        shell.here("bench", "-m", TARGET, *SHORT, *mixed, "--dry-run").stderr
    )


def test_quiet_says_none_of_it(llama: Path) -> None:
    done = shell.here("-q", *QUICK, "--ngl", "45")
    assert (done.returncode, done.stderr) == (0, "")
