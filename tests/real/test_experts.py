"""Which experts a target uses for each token, against routers that numpy computes from the file's weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from ggufspec.domain import ModelFile, Pair
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import costs
from ggufspec.llama.install.installs import Install
from tests.support import embedded

MIXTURE = Path(__file__).parent.parent / "models" / "mixture.gguf"
LAYERS, HEADS, EXPERTS, USED = 4, 3, 16, 2
Array = NDArray[np.float32]


@pytest.mark.takes(4)
def test_experts_are_those_that_the_routers_choose(llama: Install) -> None:
    mixture = Pair(name="mixture", target=ModelFile(filename=MIXTURE.name, path=MIXTURE))
    spec = embedded.spec(pair=mixture, n_predict=120)
    with InprocessEngine(install=llama, timeout_s=60) as engine:
        trace = engine.trace(spec, ())
        chosen = engine.experts(spec, trace.written.tokens).layers
        again = engine.trace(spec, ())
    assert again.written.tokens == trace.written.tokens  # the other context leaves no mark
    ids = (*trace.prompt, *trace.written.tokens)[:-1]
    by_hand = [layer[len(trace.prompt) - 1 :] for layer in _choose_by_hand(MIXTURE, ids)]
    assert [*chosen] == [*range(LAYERS)]
    for layer, rows in chosen.items():
        assert len(rows) == len(by_hand[layer]) == len(trace.written.tokens)
        # llama.cpp rounds activations to 8 bits, so that a near-tie of two experts may fall otherwise
        assert sum(set(a) == set(b) for a, b in zip(rows, by_hand[layer], strict=True)) >= 0.95 * len(rows)
    use, hand = (costs.count_experts([text], EXPERTS) for text in (chosen, dict(enumerate(by_hand))))
    assert use is not None
    assert hand is not None
    for layer in range(LAYERS):
        assert use.layers[layer] == pytest.approx(hand.layers[layer], rel=0.02)
    everywhere = use.shares(dict.fromkeys(range(LAYERS), 1.0))
    assert everywhere[0] == USED / EXPERTS
    assert everywhere[7] < costs.needed_share(USED / EXPERTS, 8, persistence=0)  # neighbours overlap


def _choose_by_hand(path: Path, ids: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the experts of each token in each layer, by the model's formulas (src/models/llama.cpp)."""
    weights = {
        tensor.name.removesuffix(".weight"): quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }
    x: Array = weights["token_embd"][list(ids)]
    chosen = []
    for layer in range(LAYERS):
        part = {
            name.removeprefix(f"blk.{layer}."): w for name, w in weights.items() if f"blk.{layer}." in name
        }
        x = x + _attend(_normalize(x) * part["attn_norm"], part)
        h = _normalize(x) * part["ffn_norm"]
        logits = h @ part["ffn_gate_inp"].T
        best = np.argsort(-logits, axis=-1)[:, :USED]
        chosen.append([tuple(map(int, row)) for row in best])
        for token, experts in enumerate(best):
            shares = np.exp(logits[token, experts] - logits[token].max())
            for expert, share in zip(experts, shares / shares.sum(), strict=True):
                gate, up = (part[f"ffn_{name}_exps"][expert] @ h[token] for name in ("gate", "up"))
                x[token] += share * (part["ffn_down_exps"][expert] @ (gate / (1 + np.exp(-gate)) * up))
    return chosen


def _normalize(x: Array) -> Array:
    normalized: Array = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return normalized


def _attend(h: Array, part: dict[str, Array]) -> Array:
    q, k, v = (np.stack(np.split(h @ part[f"attn_{name}"].T, HEADS, axis=-1)) for name in "qkv")
    width = q.shape[-1]
    angles = np.outer(np.arange(len(h)), 10000.0 ** (-np.arange(0, width, 2) / width))

    def rotate(a: Array) -> Array:
        even, odd = a[..., 0::2], a[..., 1::2]
        turned = (even * np.cos(angles) - odd * np.sin(angles), even * np.sin(angles) + odd * np.cos(angles))
        return np.stack(turned, axis=-1).reshape(a.shape)

    scores = rotate(q) @ rotate(k).swapaxes(-1, -2) / np.sqrt(width)
    scores += np.triu(np.full(scores.shape[-2:], -np.inf), 1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    out = shares / shares.sum(-1, keepdims=True) @ v
    attended: Array = np.concatenate(out, axis=-1) @ part["attn_output"].T
    return attended
