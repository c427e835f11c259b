"""Commands as strangers type them: each mistake gets one line that says what to do."""

from __future__ import annotations

from pathlib import Path

from tests.support import shell

TARGET = Path(__file__).parents[2] / "models" / "demo" / "target.gguf"


def test_a_folder_is_not_a_model_and_its_models_are_named(tmp_path: Path) -> None:
    done = shell.here("suggest", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        6,
        f"error: {tmp_path} is a folder with 0 models\nhint: name a .gguf file\n",
    )
    for name in ("one-00001-of-00002.gguf", "one-00002-of-00002.gguf", "two.gguf", "mmproj-two.gguf"):
        (tmp_path / name).touch()
    done = shell.here("suggest", str(tmp_path))
    assert done.stderr.endswith(
        "is a folder with 2 models\nhint: name one of them: one-00001-of-00002.gguf, two.gguf\n"
    )


def test_a_target_without_anything_that_drafts_is_told_what_to_name() -> None:
    done = shell.here("check", str(TARGET))
    assert done.returncode == 2
    assert "target.gguf has no layers that draft: name a draft model or a head behind it" in done.stderr
