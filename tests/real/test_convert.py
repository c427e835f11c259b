"""Checkpoints of heads, written by a script, converted by llama.cpp's own converter, and drafting."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from ggufspec import engines, paths
from ggufspec.domain import Drafting, Method, Role, Sample, Status
from ggufspec.llama.install.installs import Install
from ggufspec.llama.source import index
from ggufspec.modelfiles.compat import heads
from ggufspec.modelfiles.gguf import validate_file
from tests.support import embedded, shell

DEMO = paths.models_dir() / "demo"
TARGET = DEMO / "target.gguf"
METHODS = {
    "eagle3": Method.DRAFT_EAGLE3,
    "dspark": Method.DRAFT_DSPARK,
}  # a DSpark head is a DFlash with more


@pytest.fixture
def torch_wheel() -> Path:
    """A wheel of PyTorch for the CPU: GGUFSPEC_TEST_TORCH, or one in a folder that pip looks into."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    named = os.environ.get("GGUFSPEC_TEST_TORCH")
    folders = [Path(place) for place in index.settings().find_links if Path(place).is_dir()]
    wheels = (
        [Path(named)] if named else [wheel for place in folders for wheel in place.glob("torch-*+cpu-*.whl")]
    )
    usable = [wheel for wheel in wheels if f"-{python}-" in wheel.name]
    if not usable:
        pytest.skip(f"no wheel of PyTorch for the CPU and {python}: name one with GGUFSPEC_TEST_TORCH")
    return usable[0]


def _original(folder: Path, kind: str) -> Path:
    if kind == "eagle3":
        return DEMO / "eagle3.gguf"
    shell.make("make_random_head", TARGET, "--kind", kind, "-o", folder / "original.gguf")
    return folder / "original.gguf"


def _tensors(path: Path) -> dict[str, np.ndarray]:
    tensors = gguf.GGUFReader(path).tensors
    return {tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}


def _draft(llama: Install, head: Path, kind: str, folder: Path) -> Sample:
    drafting = Drafting(n_max=3, method=METHODS[kind])
    spec = embedded.spec(Role.DRAFTING, prompt=embedded.PACKING, n_predict=40, drafting=drafting)
    spec = embedded.with_models(spec, draft=head)
    with engines.make("binary-simple", llama, timeout_s=200) as engine:
        return embedded.complete(engine, spec, folder / "run").sample


@pytest.mark.takes(35)
@pytest.mark.timeout(1200)  # the first time, PyTorch is installed
def test_checkpoints_become_the_heads_that_they_were_made_from(
    llama: Install, torch_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kinds in one test: side by side they would wait for the same installation."""
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    for kind in METHODS:
        folder = tmp_path / kind
        folder.mkdir()
        _convert_back(llama, torch_wheel, folder, kind)


def _convert_back(llama: Install, torch_wheel: Path, folder: Path, kind: str) -> None:
    original, made = _original(folder, kind), folder / f"{kind}-made.gguf"
    shell.make("make_checkpoint", original, TARGET, "-o", folder / "checkpoint")
    folders = (str(folder / "checkpoint" / name) for name in ("head", "target"))
    words = ("convert", next(folders), "--target", next(folders), "--out", str(made))
    outtype = "f32" if kind == "eagle3" else "f16"
    done = shell.ggufspec(*words, "--torch", str(torch_wheel), "--outtype", outtype, timeout_s=1000)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{made}\n"
    before, after = _tensors(original), _tensors(made)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(values, after[name], err_msg=f"{kind}: {name}")
    assert heads.find_faults(validate_file(TARGET), validate_file(made)) == ()
    ours = _draft(llama, made, kind, folder)
    assert ours.status is Status.OK
    assert ours.n_drafted, kind
    if kind == "eagle3":
        assert ours.n_accepted  # quantized weights round otherwise, so the counts may differ
    else:
        theirs = _draft(llama, original, kind, folder)
        assert (ours.n_drafted, ours.n_accepted) == (theirs.n_drafted, theirs.n_accepted), kind
