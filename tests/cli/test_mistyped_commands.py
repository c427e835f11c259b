"""Commands as strangers type them: each mistake gets one line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import shell

TARGET = Path(__file__).parents[2] / "models" / "demo" / "target.gguf"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("bench", "-hf", "me/T-GGUF:Q4_K_M"), "-hf is llama.cpp's spelling: say -m user/repo:QUANT"),
        (("bench", "--hf-repo", "me/T-GGUF"), "--hf-repo is llama.cpp's spelling: say -m user/repo:QUANT"),
        (("tune", "-hfd", "me/D-GGUF"), "-hfd is llama.cpp's spelling: say -md user/repo:QUANT"),
        (("check", "-mu", "x"), "-mu is llama.cpp's spelling: say -m https://…/FILE.gguf"),
    ],
)
def test_llama_cpps_spellings_of_models_are_known(words: tuple[str, ...], advice: str) -> None:
    done = shell.ggufspec(*words)
    assert done.returncode == 2
    assert advice in done.stderr


def test_a_folder_is_not_a_model_and_its_models_are_named(tmp_path: Path) -> None:
    done = shell.ggufspec("suggest", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        6,
        f"error: {tmp_path} is a folder with 0 models\nhint: name a .gguf file\n",
    )
    for name in ("one-00001-of-00002.gguf", "one-00002-of-00002.gguf", "two.gguf", "mmproj-two.gguf"):
        (tmp_path / name).touch()
    done = shell.ggufspec("suggest", str(tmp_path))
    assert done.stderr.endswith(
        "is a folder with 2 models\nhint: name one of them: one-00001-of-00002.gguf, two.gguf\n"
    )


def test_a_target_without_anything_that_drafts_is_told_what_to_name() -> None:
    done = shell.ggufspec("check", str(TARGET))
    assert done.returncode == 2
    assert "target.gguf has no layers that draft: name a draft model or a head behind it" in done.stderr
