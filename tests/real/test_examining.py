"""``ggufspec check --run`` on the embedded pairs: sound ones, damaged files, an altered kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import ggufspec
from ggufspec import paths, prompts
from ggufspec.doctor.drafters import DrafterVerdict, ExaminedDrafter
from ggufspec.errors import BrokenDrafterError
from ggufspec.llama.install.installs import Install
from ggufspec.llama.rpc import lending
from ggufspec.llama.rpc.lending import WorkerSettings
from tests.support import altered, rpc_workers, shell

DEMO = paths.models_dir() / "demo"
TEXTS = tuple(
    prompt.text for prompt in prompts.suite("demo").prompts if prompt.id in {"story-lantern", "qa-teacher"}
)

pytestmark = pytest.mark.takes(10)


def _examine(folder: Path, drafter: Path, **options: object) -> ExaminedDrafter:
    asked: dict[str, object] = {"llama": folder, "prompt": TEXTS, "n_predict": 48, "draft": 6, "threads": 1}
    asked |= options
    return ggufspec.examine(model=str(DEMO / "target.gguf"), drafter=str(drafter), run=True, **asked)


def test_a_sound_head_works(llama: Install) -> None:
    found = _examine(llama.root, DEMO / "eagle3.gguf")
    assert found.verdict is DrafterVerdict.WORKS
    assert sum(run.compared for run in found.agreements) > 10
    found.raise_if_broken()


@pytest.mark.parametrize(("name", "fault"), [("drafter", "token-map"), ("dflash", "flipped")])
def test_a_damaged_file_is_broken(llama: Install, tmp_path: Path, name: str, fault: str) -> None:
    shell.make("damage_drafter", DEMO / f"{name}.gguf", "--fault", fault, "-o", tmp_path / "broken.gguf")
    assert _examine(llama.root, tmp_path / "broken.gguf").verdict is DrafterVerdict.BROKEN_FILE


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (altered.IN_BATCHES, "from γ 4 on"),
        (altered.IN_DRAFTER, "at every draft size"),
        (altered.IN_PROMPTS, "with -ub 32, and not with -ub 16"),
    ],
)
def test_an_altered_kernel_is_found_by_place(llama: Install, tmp_path: Path, where: str, said: str) -> None:
    programs = altered.alter_rope(llama, where, tmp_path)
    found = _examine(programs, DEMO / "drafter.gguf")
    assert found.verdict is DrafterVerdict.BROKEN_BUILD
    assert said in " ".join(found.reasons)
    with pytest.raises(BrokenDrafterError):
        found.raise_if_broken()


def test_a_device_with_an_altered_kernel_is_found_by_its_layers(llama: Install, tmp_path: Path) -> None:
    assert llama.worker is not None
    programs = altered.alter_rope(llama, altered.EVERYWHERE, tmp_path, llama.worker.name)
    settings = WorkerSettings(port=rpc_workers.free_port(), threads=1, devices=("CPU",))
    with lending.start_worker(replace(llama, worker=programs / llama.worker.name), settings):
        asked: dict[str, object] = {"rpc": settings.own_address, "prompt": TEXTS[0], "n_predict": 16}
        found = _examine(llama.root, DEMO / "drafter.gguf", **asked)
    assert found.verdict is DrafterVerdict.BROKEN_BUILD
    # the first layer that moves is the output, which has no positions
    assert "from 2 layers of the target on a device on" in " ".join(found.reasons)
