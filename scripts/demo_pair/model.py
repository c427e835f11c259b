"""A small llama-architecture language model in PyTorch, its optimizer, and its export to GGUF.

Only what the demo pair needs: RMSNorm, interleaved rotary positions (the order llama.cpp's `llama`
architecture expects, so no permutation at export), causal attention, SwiGLU, separate input and output
embeddings. The optimizer is Muon for the matrices inside the layers and Adam for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import sentencepiece
import torch
from torch import Tensor, nn
from torch.nn import functional

ROPE_BASE = 10000.0
NORM_EPS = 1e-5
WARMUP_STEPS = 10


@dataclass(frozen=True)
class Shape:
    """The dimensions of one model."""

    vocab: int
    dim: int
    layers: int
    heads: int
    ffn: int
    context: int = 1024

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


def rotary_table(length: int, head_dim: int) -> Tensor:
    """Return the complex rotations [length, head_dim / 2] of the rotary position embedding."""
    freqs = ROPE_BASE ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), freqs)
    return torch.stack((angles.cos(), angles.sin()), dim=0)


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotate neighbouring pairs of the last dimension of x [batch, heads, time, head_dim]."""
    cos, sin = table[0, : x.shape[2]], table[1, : x.shape[2]]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Block(nn.Module):
    """One transformer layer: attention and SwiGLU, each after an RMSNorm and with a residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.attn_norm = nn.RMSNorm(shape.dim, eps=NORM_EPS)
        self.wq = nn.Linear(shape.dim, shape.dim, bias=False)
        self.wk = nn.Linear(shape.dim, shape.dim, bias=False)
        self.wv = nn.Linear(shape.dim, shape.dim, bias=False)
        self.wo = nn.Linear(shape.dim, shape.dim, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.dim, eps=NORM_EPS)
        self.gate = nn.Linear(shape.dim, shape.ffn, bias=False)
        self.up = nn.Linear(shape.dim, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.dim, bias=False)
        nn.init.zeros_(self.wo.weight)
        nn.init.zeros_(self.down.weight)

    def forward(self, x: Tensor, table: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        batch, time, dim = x.shape
        h = self.attn_norm(x)
        q, k, v = (
            w(h).view(batch, time, self.heads, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv)
        )
        q, k = rotate(q, table), rotate(k, table)
        if cache is not None:
            if cache:
                k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
            cache[:] = [k, v]
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=time > 1)
        x = x + self.wo(out.transpose(1, 2).reshape(batch, time, dim))
        return x + self.feed_forward(self.ffn_norm(x))

    def feed_forward(self, h: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """The whole model: token ids [batch, time] to logits [batch, time, vocab]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.dim)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.dim, eps=NORM_EPS)
        self.head = nn.Linear(shape.dim, shape.vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.5)
        nn.init.normal_(self.head.weight, std=0.01)
        self.register_buffer("table", rotary_table(shape.context, shape.head_dim), persistent=False)

    def forward(self, ids: Tensor, caches: list[list[Tensor]] | None = None) -> Tensor:
        start = caches[0][0].shape[2] if caches and caches[0] else 0
        table = self.table[:, start : start + ids.shape[1]]
        x = self.embed(ids)
        for index, block in enumerate(self.blocks):
            x = block(x, table, None if caches is None else caches[index])
        return self.head(self.norm(x))

    @torch.no_grad()
    def generate(self, ids: Tensor, tokens: int, temperature: float, rng: torch.Generator) -> Tensor:
        """Continue every row of ids by the given number of tokens (temperature 0: greedily)."""
        caches: list[list[Tensor]] = [[] for _ in self.blocks]
        step = ids
        for _ in range(tokens):
            logits = self(step, caches)[:, -1]
            if temperature > 0:
                step = torch.multinomial(functional.softmax(logits / temperature, dim=-1), 1, generator=rng)
            else:
                step = logits.argmax(dim=-1, keepdim=True)
            ids = torch.cat((ids, step), dim=1)
        return ids


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def orthogonalize(grad: Tensor, iterations: int = 5) -> Tensor:
    """Return (nearly) the orthogonal matrix nearest to grad, or to each of several: Newton-Schulz."""
    x = grad.mT if grad.shape[-2] > grad.shape[-1] else grad
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x.mT if grad.shape[-2] > grad.shape[-1] else x


class Schedule(NamedTuple):
    """Learning rates: a short warm-up, then constant up to `hold`, then falling to nothing at `end`.

    Training takes `steps` steps; it may stop before `end` when another run goes on with the model.
    """

    steps: int
    hold: int
    end: int
    matrix_rate: float
    other_rate: float

    def scale(self, step: int) -> float:
        return min((step + 1) / WARMUP_STEPS, (self.end - step) / (self.end - self.hold), 1.0)


class Optimizer:
    """Muon and Adam together."""

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        blocks = list(model.blocks.parameters())
        self.matrices = [p for p in blocks if p.dim() > 1]  # of a mixture several in one
        known = {id(p) for p in self.matrices}
        self.others = [p for p in model.parameters() if id(p) not in known]
        self.momentum = [torch.zeros_like(p) for p in self.matrices]
        self.adam = torch.optim.Adam(self.others, lr=schedule.other_rate, betas=(0.9, 0.95), eps=1e-10)
        self.schedule = schedule

    @torch.no_grad()
    def step(self, step: int) -> None:
        """Apply the gradients and clear them."""
        scale = self.schedule.scale(step)
        rate = scale * self.schedule.matrix_rate
        for group in self.adam.param_groups:
            group["lr"] = scale * self.schedule.other_rate
        self.adam.step()
        for p, momentum in zip(self.matrices, self.momentum, strict=True):
            momentum.lerp_(p.grad, 0.05)
            update = orthogonalize(p.grad.lerp(momentum, 0.95))
            size = max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5
            p.mul_(1 - 0.1 * rate).add_(update, alpha=-rate * size)
        for p in (*self.matrices, *self.others):
            p.grad = None

    def state_dict(self) -> dict[str, object]:
        return {"momentum": self.momentum, "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.momentum = state["momentum"]
        self.adam.load_state_dict(state["adam"])


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: sentencepiece.SentencePieceProcessor) -> None:
    """Write a sentencepiece BPE vocabulary the way llama.cpp's `llama` tokenizer reads it."""
    tokens, scores, types = [], [], []
    for i in range(tokenizer.vocab_size()):
        tokens.append(tokenizer.id_to_piece(i).encode())
        scores.append(tokenizer.get_score(i))
        if tokenizer.is_unknown(i):
            types.append(gguf.TokenType.UNKNOWN)
        elif tokenizer.is_control(i):
            types.append(gguf.TokenType.CONTROL)
        elif tokenizer.is_byte(i):
            types.append(gguf.TokenType.BYTE)
        else:
            types.append(gguf.TokenType.NORMAL)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_unk_token_id(tokenizer.unk_id())
    writer.add_bos_token_id(tokenizer.bos_id())
    writer.add_eos_token_id(tokenizer.eos_id())
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)


def add_shape(
    writer: gguf.GGUFWriter,
    name: str,
    shape: Shape,
    *,
    layers: int,
    ffn: int,
    heads: int | None = None,
    head_dim: int | None = None,
) -> None:
    """Write what llama.cpp must know of a model before its tokenizer and tensors.

    Without ``heads`` and ``head_dim``, they are those of ``shape``.
    """
    writer.add_name(name)
    writer.add_license("MIT")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.dim)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads or shape.heads)
    writer.add_head_count_kv(heads or shape.heads)
    writer.add_rope_dimension_count(head_dim or shape.head_dim)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(NORM_EPS)
    writer.add_vocab_size(shape.vocab)


def layer_parts(block: nn.Module) -> dict[str, nn.Module]:
    """Return the parts of one layer under llama.cpp's names."""
    return {
        "attn_norm": block.attn_norm,
        "attn_q": block.wq,
        "attn_k": block.wk,
        "attn_v": block.wv,
        "attn_output": block.wo,
        "ffn_norm": block.ffn_norm,
        "ffn_gate": block.gate,
        "ffn_up": block.up,
        "ffn_down": block.down,
    }


def export(model: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path, name: str) -> None:
    """Write the model as an F32 GGUF file of the `llama` architecture."""
    shape = model.shape
    writer = gguf.GGUFWriter(path, "llama")
    add_shape(writer, name, shape, layers=shape.layers, ffn=shape.ffn)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, tokenizer)
    names = {"token_embd": model.embed, "output_norm": model.norm, "output": model.head}
    for i, block in enumerate(model.blocks):
        names |= {f"blk.{i}.{part}": module for part, module in layer_parts(block).items()}
    for tensor, module in names.items():
        writer.add_tensor(f"{tensor}.weight", module.weight.detach().float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
