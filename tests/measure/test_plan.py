"""``ggufspec plan`` as users meet it."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ggufspec.cli import cli
from ggufspec.report.rows.plans import PlanRow
from tests.support import fake_nvml, fakes, models
from tests.support.fake_nvml import FakeGpu

MIB = 1 << 20
H200 = "CUDA0: NVIDIA H200 (143771 MiB, 143117 MiB free)"


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, so that neither GPUs nor a llama.cpp of this machine are found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to(shutil.which("cat") or "/bin/cat")  # for the fakes
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    """A target of some 100 MiB per layer and a drafter of some 100 KiB."""
    vocabulary = models.tokens(1000)
    big = models.llama(n_layers=20, n_embd=2048, n_ff=5632, n_heads=16, vocabulary=vocabulary)
    small = models.llama(vocabulary=vocabulary)
    target = models.write_model(tmp_path / "target.gguf", *big)
    draft = models.write_model(tmp_path / "drafter.gguf", *small)
    return ("-m", str(target), "-md", str(draft), "-c", "512")


def _plan(*words: str) -> Result:
    return CliRunner().invoke(cli, ["plan", *words])


def test_the_embedded_pair_is_planned_without_a_question() -> None:
    result = _plan()
    assert result.exit_code == 0
    assert result.stdout.startswith("9 of 9 layers beside the drafter take ")
    for words in ("target on the GPU", "drafter on the host", "weights", "cache", "compute"):
        assert words in result.stdout
    assert "fits" not in result.stdout


def _cache_bytes(*words: str) -> tuple[int, int]:
    """Return the bytes of the target's and the drafter's caches, when everything is on the GPU."""
    rows = list(csv.DictReader(io.StringIO(_plan(*words, "-o", "csv").stdout)))
    return int(rows[-1]["target_gpu_cache_bytes"]), int(rows[-1]["drafter_gpu_cache_bytes"])


def test_the_drafters_cache_has_types_of_its_own(pair: tuple[str, ...]) -> None:
    target, drafter = _cache_bytes(*pair)
    assert _cache_bytes(*pair, "-ctkd", "f32", "-ctvd", "f32") == (target, 2 * drafter)
    assert _cache_bytes(*pair, "--kv-type-draft", "f32") == (target, 2 * drafter)
    assert _cache_bytes(*pair, "--kv-type-draft", "f32", "-ctkd", "f16", "-ctvd", "f16") == (target, drafter)
    assert _cache_bytes(*pair, "-ctkd", "f16") == (target, drafter)
    assert _cache_bytes(*pair, "--kv-type", "f32") == (2 * target, 2 * drafter)
    assert _cache_bytes(*pair, "--kv-type", "f32", "-ctkd", "f16", "-ctvd", "f16") == (2 * target, drafter)


def test_the_most_layers_that_fit_are_found(pair: tuple[str, ...]) -> None:
    result = _plan(*pair, "--vram", "2G", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert tuple(rows[0]) == PlanRow.names()
    assert [int(row["requested_ngl"]) for row in rows] == list(range(22))
    fitting = [row for row in rows if row["fits"] == "True"]
    assert all(int(row["gpu_bytes"]) <= 1024 * MIB for row in fitting)
    assert int(rows[len(fitting)]["gpu_bytes"]) > 1024 * MIB
    answer = _plan(*pair, "--vram", "2G").stdout.splitlines()[0]
    assert answer.startswith(
        f"{len(fitting) - 1} of 21 layers fit beside the drafter into 2 GiB with 1 GiB left free: "
    )
    assert answer.endswith("GiB.")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--vram", "24G"), "21 of 21 layers fit beside the drafter into 24 GiB"),
        (("--vram", "2G", "--ngl", "3"), "3 of 21 layers fit beside the drafter into 2 GiB"),
        (("--vram", "2G", "--ngl", "all"), "21 of 21 layers do not fit beside the drafter into 2 GiB"),
        (("--vram", "1G"), "0 of 21 layers do not fit beside the drafter into 1 GiB"),
        (("--ngl", "5"), "5 of 21 layers beside the drafter take"),
    ],
)
def test_the_answer_is_the_first_line(pair: tuple[str, ...], words: tuple[str, ...], answer: str) -> None:
    result = _plan(*pair, *words)
    assert result.stdout.startswith(answer)


def _llama(folder: Path, device: str) -> None:
    program = fakes.program(folder / "llama-completion", fakes.PLAIN)
    program.write_text(program.read_text().replace("  (none)", f"  {device}"))


RTX = FakeGpu(name="RTX 4090", total_bytes=24 << 30, used_bytes=22 << 30)
SMALL = FakeGpu(uuid="GPU-b", name="T400", total_bytes=2 << 30, used_bytes=0)
AMD = "Vulkan0: AMD Radeon RX 7600 (8176 MiB, 2048 MiB free)"
FOUND = "detected: RTX 4090, 2 GiB of 24 GiB free\n"


@pytest.mark.parametrize(
    ("gpus", "device", "said", "same"),
    [
        ((RTX, SMALL), None, f"{FOUND}detected: T400, 2 GiB of 2 GiB free\n", ("--vram", "4G")),
        ((RTX,), AMD, "detected: AMD Radeon RX 7600, 2 GiB of 7.98 GiB free\n", ("--vram", "2G")),
        ((RTX,), "(none)", FOUND, ("--vram", "2G")),  # a llama.cpp without a GPU hides none
        ((), "(none)", "", ()),
    ],
)
def test_gpus_are_detected_by_llama_cpp_first_and_then_by_nvidias_driver(
    pair: tuple[str, ...],
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[FakeGpu, ...],
    device: str | None,
    said: str,
    same: tuple[str, ...],
) -> None:
    if gpus:
        fake_nvml.install(monkeypatch, *gpus)
    if device is not None:
        _llama(programs, device)
    result = _plan(*pair, "-o", "csv")
    assert (result.stderr, result.stdout) == (said, _plan(*pair, *same, "-o", "csv").stdout)


def test_what_the_user_says_of_the_gpu_counts(pair: tuple[str, ...], programs: Path) -> None:
    _llama(programs, H200)
    result = _plan(*pair, "--vram", "24G")
    assert result.stderr == ""
    assert "into 24 GiB with" in result.stdout


def test_what_takes_less_fits_more(pair: tuple[str, ...]) -> None:
    def gpu_bytes(*words: str) -> int:
        return int(json.loads(_plan(*pair, *words, "-o", "json").stdout)[-1]["gpu_bytes"])

    plain = gpu_bytes()
    assert gpu_bytes("--kv-type", "q8_0") < plain
    assert gpu_bytes("--kv-type", "q8_0") < gpu_bytes("-ctv", "q8_0") < plain
    assert gpu_bytes("-ub", "64") < plain
    assert gpu_bytes("--ngld", "0") < plain
    assert gpu_bytes("-c", "8192") > plain
    assert gpu_bytes("--build", "2697") != plain


def test_doubtful_models_come_with_a_note(tmp_path: Path) -> None:
    hybrid = models.write_model(tmp_path / "m.gguf", *models.llama(ssm__state_size=16))
    result = _plan("-m", str(hybrid))
    assert "note: the memory for the target is uncertain: it has recurrent layers" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--vram", "much"), "not a size: 'much'"),
        (("--pair", "demo", "-m", "x.gguf"), "name a pair or a target, not both"),
        (("-md", "x.gguf"), "a drafter needs a target"),
    ],
)
def test_questions_without_sense_are_refused(words: tuple[str, ...], message: str) -> None:
    result = _plan(*words)
    assert result.exit_code == 2
    assert message in result.stderr
