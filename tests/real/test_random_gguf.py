"""Random models in the real programs: llama-quantize agrees on every type, and every file decodes."""

from __future__ import annotations

import importlib
import re
import string
import subprocess
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest

from ggufspec import proc
from ggufspec.domain import Program
from ggufspec.llama.install.environment import program_environment
from ggufspec.llama.install.installs import Install
from tests.support import models, shell

PRESETS = ("llama-3-70b", "llama-3-8b", "llama-1b", "llama-2-7b", "llama-2-13b", "tinyllama-1.1b")
SIZES = ("layers", "embd", "ff", "heads", "kv_heads", "tied", "experts", "experts_used")
OTHERS = {
    "rows of no whole block": (9, 96, 160, 3, 3),
    "rows of no whole small block": (17, 80, 250, 5, 1),
    "80 layers, no shared heads": (80, 256, 512, 4, 4),
    "80 layers, shared heads": (80, 256, 512, 4, 2, True),
    "eight experts": (17, 256, 512, 8, 4, False, 8, 2),
    "many experts": (9, 256, 256, 8, 4, False, 16, 2),
}
"""The first of these sizes of each model."""
QUANTS: tuple[str, ...] = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
QUANTS += ("Q2_K", "Q2_K_S", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K")
QUANTS += ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M")
QUANTS += ("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0")
_QUANTIZED = re.compile(r"\] +(\S+) +- \[.*?\], type = +(\S+), [^\[]*?MiB(?: -> [^\[]*?\((\S+)\))?\n")
_TRIES = 8  # now and then today's llama.cpp ends before the last of its output is written
_TEXT = string.ascii_letters + string.digits + string.punctuation


@pytest.mark.parametrize("name", [*PRESETS, *OTHERS])
def test_types_are_those_that_llama_quantize_chooses(llama: Install, tmp_path: Path, name: str) -> None:
    program = llama.executable(Program.PLAIN).path.with_name("llama-quantize")
    if not program.exists():
        pytest.skip("this build has no llama-quantize")
    shapes, types = (importlib.import_module(f"random_gguf.{which}") for which in ("shapes", "types"))
    small = {"vocab": 300, "context": 256}  # neither matters
    if name in PRESETS:
        shape = replace(shapes.PRESETS[name], **small)
    else:
        shape = shapes.Shape(**dict(zip(SIZES, OTHERS[name], strict=False)), **small)
    hole = models.write_model(  # zeros that take no space on disk
        tmp_path / "hole.gguf",
        *models.llama(
            n_layers=shape.layers,
            n_embd=shape.embd,
            n_ff=shape.ff,
            n_heads=shape.heads,
            n_heads_kv=shape.kv_heads,
            vocabulary=models.tokens(shape.vocab),
            tied=shape.tied,
            n_experts=shape.experts or 0,
        ),
    )
    assert sorted(types.BASE) == sorted(QUANTS)
    for quant in QUANTS:
        weighted = ["--imatrix", str(_imatrix(tmp_path))] if quant == "IQ3_XXS" else []
        words: list[str | Path] = [program, *weighted, "--dry-run", hole, quant, "1"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-800:]
        said = _QUANTIZED.findall(done.stdout + done.stderr)
        chosen = {found: (new or old).upper() for found, old, new in said}
        assert len(chosen) == (10 if shape.experts else 9) * shape.layers + 3 - shape.tied
        ours = {tensor.name: types.tensor_type(tensor, shape, quant) for tensor in shapes.tensors(shape)}
        assert ours == chosen, quant


@pytest.mark.parametrize("quant", QUANTS)
def test_every_quantization_decodes(llama: Install, tmp_path: Path, quant: str) -> None:
    model = _write(tmp_path / "m.gguf", "--quant", quant)
    prompt = f"Every letter: {_TEXT}"
    text = _complete(llama, model, prompt, 16)
    assert text.startswith(prompt)
    written = text.removeprefix(prompt).rstrip("\n")
    assert len(written) >= 16
    assert all(letter in _TEXT + " " for letter in written)
    assert len(set(written)) > 5  # weights that are no numbers give the same token again and again


def test_a_drafter_of_the_first_layers_often_agrees(llama: Install, tmp_path: Path) -> None:
    target = _write(tmp_path / "target.gguf", "--quant", "Q8_0", "--layers", "6")
    first_layers = _write(tmp_path / "draft.gguf", "--quant", "Q8_0", "--layers", "5")
    other_seed = _write(tmp_path / "other.gguf", "--quant", "Q8_0", "--layers", "5", "--seed", "1")
    assert _accept_rate(llama, target, first_layers) > 0.5
    assert _accept_rate(llama, target, other_seed) < 0.1


def _accept_rate(install: Install, target: Path, draft: Path) -> float:
    argv = ["-md", str(draft), "--spec-type", "draft-simple", "--spec-draft-n-max", "3", "-td", "1"]
    for _ in range(_TRIES):
        said = _generate(install, Program.SIMPLE, target, "Once upon a time", 40, *argv)
        found = re.search(r"n_drafted = (\d+)[\s\S]*?n_accept +=\s+(\d+)\n", said)
        if found is not None:
            assert int(found[1]) > 30
            return int(found[2]) / int(found[1])
    pytest.fail(said[-500:])


def _write(path: Path, *options: str) -> Path:
    sizes = ["--layers", "2", "--embd", "256", "--ff", "512", "--heads", "4", "--kv-heads", "2"]
    shell.make("make_random_gguf", *sizes, "--vocab", "1000", *options, "-o", path)
    return path


def _complete(install: Install, model: Path, prompt: str, tokens: int) -> str:
    text = ""
    for _ in range(_TRIES):
        text = _generate(
            install, Program.PLAIN, model, prompt, tokens, "--check-tensors", "-no-cnv", err=False
        )
        if len(text) >= len(prompt) + tokens:
            break
    return text


def _generate(
    install: Install, program: Program, model: Path, prompt: str, tokens: int, *more: str, err: bool = True
) -> str:
    argv = [str(install.executable(program).path), "-m", str(model), "-p", prompt, "-n", str(tokens)]
    argv += ["-c", "512", "--temp", "0", "-t", "1", "--fit", "off", *more]
    completed, said, logged = proc.capture(argv, env=program_environment(model.parent), cwd=model.parent)
    assert completed.returncode == 0, logged[-800:]
    return said + logged if err else said.removeprefix(" ")


def _imatrix(folder: Path) -> Path:
    """Write an importance matrix of nothing: enough to say that there is one."""
    writer = gguf.GGUFWriter(folder / "imatrix.gguf", "none")
    writer.add_string("general.type", "imatrix")
    writer.add_array("imatrix.datasets", ["none"])
    writer.add_uint32("imatrix.chunk_count", 1)
    writer.add_uint32("imatrix.chunk_size", 512)
    writer.add_tensor("none.weight.in_sum2", np.ones((1, 64), np.float32))
    writer.add_tensor("none.weight.counts", np.ones((1, 1), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "imatrix.gguf"
