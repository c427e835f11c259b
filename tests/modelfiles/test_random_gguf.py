"""scripts/make_random_gguf.py: what it writes has the sizes of real models, and weights that are sane."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ggufspec.domain import Program
from ggufspec.modelfiles.compat import judging
from ggufspec.modelfiles.gguf import validate_file
from tests.support import shell

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_random_gguf.py"
SMALL = (
    *("--layers", "3", "--embd", "256", "--ff", "512", "--heads", "4", "--kv-heads", "2"),
    *("--vocab", "1000"),
)
# one file type for every tensor type that the script knows
QUANTS = [
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
    *("Q2_K", "Q3_K_S", "Q4_K_S", "Q5_K_S", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_M"),
    *("IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0"),
]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return shell.script("make_random_gguf", *arguments)


def write(path: Path, *arguments: str) -> Path:
    done = run(*SMALL, *arguments, "-o", path)
    assert done.returncode == 0, done.stderr
    assert [left.name for left in path.parent.glob(path.name + "*")] == [path.name]
    return path


@pytest.mark.parametrize(
    ("preset", "quant", "published_gb", "n_tensors"),
    [
        ("llama-3-8b", "Q4_K_M", 4.92, 291),
        ("llama-3-8b", "Q3_K_L", 4.32, 291),
        ("llama-3-8b", "Q8_0", 8.54, 291),
        ("llama-3-70b", "Q3_K_S", 30.91, 723),
        ("llama-3-70b", "Q4_K_M", 42.52, 723),
        ("llama-1b", "Q4_K_M", 0.81, 146),
        ("llama-2-7b", "Q4_K_M", 4.08, 291),
        ("llama-2-13b", "Q4_K_M", 7.87, 363),
        ("tinyllama-1.1b", "Q4_K_M", 0.67, 201),
        ("mixtral-8x7b", "Q4_K_M", 28.45, 323),
    ],
)
def test_presets_have_published_sizes(preset: str, quant: str, published_gb: float, n_tensors: int) -> None:
    done = run("--preset", preset, "--quant", quant, "--dry-run")
    weights = re.search(r"([\d.]+) GB of weights", done.stderr)
    # a vocabulary of 128,256 tokens is 8 MB; published sizes have two decimals
    assert published_gb - 0.015 <= float(weights[1]) <= published_gb + 0.006
    assert len(done.stdout.splitlines()) == n_tensors


def test_the_header_says_what_was_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "--quant", "q4_k_m", "--context", "777", "--rope-base", "500000")
    card = validate_file(path)
    assert (card.architecture, card.quant, card.n_layers, card.context_length) == ("llama", "Q4_K_M", 3, 777)
    assert (card.n_embd, card.n_ff, card.n_heads, card.n_heads_kv) == (256, (512,) * 3, (4,) * 3, (2,) * 3)
    assert card.metadata["llama.rope.freq_base"] == 500000
    assert (card.vocabulary.n_tokens, card.vocabulary.add_bos, card.vocabulary.add_eos) == (1000, True, False)
    tokens = card.vocabulary.tokens
    assert len({tokens[i] for i in range(1000)}) == 1000
    last = max(card.tensors, key=lambda tensor: tensor.offset)
    end = last.offset + last.size_bytes
    assert end <= path.stat().st_size == -(-end // 32) * 32
    types = {tensor.name: tensor.type.name for tensor in card.tensors}
    listed = run(*SMALL, "--quant", "Q4_K_M", "--dry-run").stdout
    assert types == dict(line.split() for line in listed.splitlines())
    assert types["output.weight"] == "Q6_K"
    assert types["blk.0.ffn_norm.weight"] == "F32"
    assert types["blk.0.attn_q.weight"] == "Q4_K"


def test_a_tied_model_has_no_output_matrix(tmp_path: Path) -> None:
    card = validate_file(write(tmp_path / "m.gguf", "--quant", "Q4_0", "--tied"))
    types = {tensor.name: tensor.type.name for tensor in card.tensors}
    assert "output.weight" not in types
    assert types["token_embd.weight"] == "Q6_K"


def test_a_mixture_has_a_router_and_stacked_experts(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", "--quant", "Q4_K_M", "--experts", "6", "--experts-used", "2")
    card = validate_file(path)
    assert (card.n_experts, card.n_experts_used) == (6, 2)
    shapes = {tensor.name: (tensor.shape, tensor.type.name) for tensor in card.tensors}
    assert shapes["blk.1.ffn_up_exps.weight"] == ((256, 512, 6), "Q4_K")
    assert shapes["blk.1.ffn_gate_inp.weight"] == ((256, 6), "F32")
    experts = _weights(path)["blk.1.ffn_up_exps.weight"]
    assert len({expert.tobytes() for expert in experts}) == 6


@pytest.mark.parametrize("quant", QUANTS)
def test_weights_are_small_finite_and_without_a_mean(tmp_path: Path, quant: str) -> None:
    found = _weights(write(tmp_path / "m.gguf", "--quant", quant))
    assert all(np.isfinite(weights).all() for weights in found.values())
    for name in ("blk.0.attn_q", "blk.2.ffn_up", "token_embd"):
        weights = found[f"{name}.weight"]
        assert weights.std() == pytest.approx(256**-0.5, rel=0.05)
        assert abs(weights.mean()) < 0.02 * weights.std()
    assert found["blk.2.ffn_down.weight"].std() == pytest.approx(512**-0.5 / 4, rel=0.05)
    silent, words = found["output.weight"][:259], found["output.weight"][259:]
    assert silent.std() == pytest.approx(words.std() / 16, rel=0.1)
    assert len(np.unique(found["output.weight"], axis=0)) == 1000


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    first, again = write(tmp_path / "1.gguf", "--seed", "5"), tmp_path / "2.gguf"
    subprocess.run(
        [sys.executable, SCRIPT, *SMALL, "--seed", "5", "-o", again], capture_output=True, check=True
    )
    other = _weights(write(tmp_path / "3.gguf", "--seed", "6"))
    assert first.read_bytes() == again.read_bytes()
    for name, weights in _weights(first).items():
        assert name.endswith("_norm.weight") or np.mean(weights == other[name]) < 0.2


def test_a_drafter_of_fewer_layers_has_the_targets_weights(tmp_path: Path) -> None:
    target = _weights(write(tmp_path / "t.gguf", "--quant", "Q8_0"))
    draft = _weights(write(tmp_path / "d.gguf", "--quant", "Q8_0", "--layers", "1"))
    assert len(draft) == 12
    assert all(np.array_equal(weights, target[name]) for name, weights in draft.items())


def test_files_of_one_vocabulary_may_draft_for_each_other(tmp_path: Path) -> None:
    target = validate_file(write(tmp_path / "t.gguf", "--quant", "Q4_K_M"))
    draft = validate_file(write(tmp_path / "d.gguf", "--quant", "Q8_0", "--layers", "1", "--seed", "9"))
    other = validate_file(write(tmp_path / "o.gguf", "--quant", "Q8_0", "--vocab", "1200"))
    for rule in (judging.rule_for(Program.TREE, 2697), judging.rule_for(Program.SIMPLE)):
        assert judging.check_pair(target, draft, rule).outcome is judging.CompatOutcome.ACCEPTED
        assert judging.check_pair(target, other, rule).outcome is not judging.CompatOutcome.ACCEPTED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layers", "2"), "give --preset, or also --embd --ff --heads"),
        ((*SMALL, "--heads", "3"), "--embd must be an even multiple of --heads"),
        ((*SMALL, "--kv-heads", "3"), "--heads a multiple of --kv-heads"),
        ((*SMALL, "--vocab", "200"), "--vocab must be at least 354"),
        ((*SMALL, "--layers", "0"), "every size must be at least 1"),
        ((*SMALL, "--experts", "8"), "--experts and --experts-used go together"),
        ((*SMALL, "--experts", "4", "--experts-used", "5"), "--experts-used is more than --experts"),
        ((*SMALL, "--embd", str(1 << 20), "--ff", str(1 << 20)), "GB are free"),
    ],
)
def test_a_failed_write_leaves_nothing(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments, "-o", tmp_path / "m.gguf")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "m.gguf").exists()
    assert not (tmp_path / "m.gguf.partial").exists()


def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    done = run(*SMALL, "-o", tmp_path / "missing" / "m.gguf")
    assert (done.returncode, "there is no folder" in done.stderr) == (2, True)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    sizes = ("--embd", "1024", "--ff", "4096", "--heads", "8", "--vocab", "1000", "--quant", "Q8_0")
    small, large = (_peak_mib(tmp_path, *sizes, "--layers", layers) for layers in ("1", "8"))
    assert large < small + 20


def _weights(path: Path) -> dict[str, Any]:
    """Return every tensor [rows, columns], decoded by the gguf package."""
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }


def _peak_mib(folder: Path, *arguments: str) -> float:
    argv = [sys.executable, str(SCRIPT), *arguments, "-o", str(folder / "m.gguf")]
    child = os.posix_spawn(sys.executable, argv, os.environ)
    _, status, usage = os.wait4(child, 0)
    assert status == 0
    return usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
