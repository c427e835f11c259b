"""Heads that draft from a target's own hidden states, in PyTorch: EAGLE-3, multi-token prediction, DFlash.

The first two are one transformer layer that reads, at each place, the embedding of the text's next token and
what the target computed one place before. Drafting on, such a head reads its own draft and its own last state
instead. They differ in how the two are joined and in which state is handed on, as in llama.cpp's
src/models/eagle3.cpp and src/models/glm4-moe.cpp. A DFlash head drafts all its tokens in one evaluation
(src/models/dflash.cpp).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo_pair.model import NORM_EPS, Llama, rotary_table, rotate


def _layer(read: int, width: int, dim: int, ffn: int) -> dict[str, nn.Module]:
    """Return the parts of a layer that adds nothing yet: its attention reads ``read`` values per place."""
    parts = {
        "wq": nn.Linear(read, width, bias=False),
        "wk": nn.Linear(read, width, bias=False),
        "wv": nn.Linear(read, width, bias=False),
        "wo": nn.Linear(width, dim, bias=False),
        "ffn_norm": nn.RMSNorm(dim, eps=NORM_EPS),
        "gate": nn.Linear(dim, ffn, bias=False),
        "up": nn.Linear(dim, ffn, bias=False),
        "down": nn.Linear(ffn, dim, bias=False),
    }
    for name in ("wo", "down"):
        nn.init.zeros_(parts[name].weight)
    return parts


class Head(nn.Module, ABC):
    """One layer over (token, state) pairs; embeddings and output belong to the target and stay as they are.

    Attributes:
        blocks: every part that is trained, under the name that the optimizer looks for.
        norm: before the target's output.
    """

    def __init__(self, dim: int, heads: int, ffn: int, attention_in: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(dim, eps=NORM_EPS)
        self.blocks = nn.ModuleDict(_layer(attention_in, dim, dim, ffn))
        self.register_buffer("table", rotary_table(context, dim // heads), persistent=False)

    @abstractmethod
    def start(self, states: Tensor) -> Tensor:
        """Return the first state of a draft, [batch, time, dim], from the target's states."""

    @abstractmethod
    def join(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the residual and the input of the attention for embedded tokens and states."""

    @abstractmethod
    def hand_on(self, out: Tensor) -> Tensor:
        """Return the state for the next token of the same draft."""

    def draft(self, target: Llama, ids: Tensor, states: Tensor, steps: int) -> list[Tensor]:
        """Return the logits of drafts of several tokens, begun at every place at once.

        A draft that begins at place b reads token b + 1 with the target's state at b, and predicts token
        b + 2; each further step reads the text's next token with the head's own state, as if its drafts had
        all been right. It attends to the target's states before it, and to the steps of its own draft.

        Args:
            target: whose embeddings and output are used.
            ids: (batch, time), the text.
            states: (batch, time, features), of the target at each place.
            steps: tokens of each draft.

        Returns:
            For each step s (batch, time - 1 - steps, vocab): at place b the logits of token b + 2 + s.
        """
        places = ids.shape[1] - 1 - steps
        causal = torch.full((places, places), float("-inf")).triu(1)
        embedded = target.embed(ids)
        state = self.start(states[:, :places])
        first: tuple[Tensor, Tensor] | None = None  # keys and values at the places where drafts begin
        chain: list[tuple[Tensor, Tensor]] = []  # those of each draft's own steps
        logits = []
        for step in range(steps):
            residual, read = self.join(embedded[:, 1 + step : 1 + step + places], state)
            q, k, v = (self._split(self.blocks[name](read)) for name in ("wq", "wk", "wv"))
            table = self.table[:, step : step + places]
            q, k = rotate(q, table), rotate(k, table)
            if first is None:
                first = (k, v)
            else:
                chain.append((k, v))
            scores = q @ first[0].transpose(-1, -2) + causal
            own = [(q * key).sum(-1, keepdim=True) for key, _ in chain]
            weights = torch.cat((scores, *own), dim=-1).mul(q.shape[-1] ** -0.5).softmax(-1)
            out = weights[..., :places] @ first[1]
            for index, (_, value) in enumerate(chain):
                out = out + weights[..., places + index : places + index + 1] * value
            x = residual + self.blocks["wo"](out.transpose(1, 2).flatten(2))
            h = self.blocks["ffn_norm"](x)
            x = x + self.blocks["down"](functional.silu(self.blocks["gate"](h)) * self.blocks["up"](h))
            logits.append(target.head(self.norm(x)))
            state = self.hand_on(x)
        return logits

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Eagle3(Head):
    """An EAGLE-3 head (arXiv 2503.01840): the states are the inputs of three layers, joined by one matrix."""

    def __init__(self, dim: int, heads: int, ffn: int, context: int) -> None:
        super().__init__(dim, heads, ffn, 2 * dim, context)
        self.blocks["fc"] = nn.Linear(3 * dim, dim, bias=False)
        self.blocks["token_norm"] = nn.RMSNorm(dim, eps=NORM_EPS)
        self.blocks["state_norm"] = nn.RMSNorm(dim, eps=NORM_EPS)

    def start(self, states: Tensor) -> Tensor:
        """Join the three layers' inputs."""
        return self.blocks["fc"](states)

    def join(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Both are normalized and laid side by side; the state itself is the residual."""
        read = torch.cat((self.blocks["token_norm"](tokens), self.blocks["state_norm"](state)), dim=-1)
        return state, read

    def hand_on(self, out: Tensor) -> Tensor:
        """The layer's output as it is."""
        return out


class Mtp(Head):
    """An MTP layer as in DeepSeek-V3 (arXiv 2412.19437) and GLM-4.5: the state is the target's last one."""

    def __init__(self, dim: int, heads: int, ffn: int, context: int) -> None:
        super().__init__(dim, heads, ffn, dim, context)
        self.blocks["eh_proj"] = nn.Linear(2 * dim, dim, bias=False)
        self.blocks["token_norm"] = nn.RMSNorm(dim, eps=NORM_EPS)
        self.blocks["state_norm"] = nn.RMSNorm(dim, eps=NORM_EPS)
        self.blocks["attn_norm"] = nn.RMSNorm(dim, eps=NORM_EPS)

    def start(self, states: Tensor) -> Tensor:
        """The target's normalized output is the first state."""
        return states

    def join(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Both are normalized and projected together."""
        pair = torch.cat((self.blocks["token_norm"](tokens), self.blocks["state_norm"](state)), dim=-1)
        residual = self.blocks["eh_proj"](pair)
        return residual, self.blocks["attn_norm"](residual)

    def hand_on(self, out: Tensor) -> Tensor:
        """The normalized output, as the target hands it on."""
        return self.norm(out)


class DFlash(nn.Module):
    """A DFlash head of one layer, which drafts a block of tokens in one evaluation.

    The block is the text's last token and one mask for each token of the draft. All of it attends to itself,
    in both directions, and to the target's states before it, which enter as keys and values.

    Attributes:
        blocks: every part that is trained, under the name that the optimizer looks for.
        norm: before the target's output.
    """

    def __init__(self, dim: int, heads: int, head_dim: int, ffn: int, layers: int, context: int) -> None:
        super().__init__()
        self.heads, width = heads, heads * head_dim
        self.norm = nn.RMSNorm(dim, eps=NORM_EPS)
        self.blocks = nn.ModuleDict(
            {
                "fc": nn.Linear(layers * dim, dim, bias=False),
                "state_norm": nn.RMSNorm(dim, eps=NORM_EPS),
                "attn_norm": nn.RMSNorm(dim, eps=NORM_EPS),
                "q_norm": nn.RMSNorm(head_dim, eps=NORM_EPS),
                "k_norm": nn.RMSNorm(head_dim, eps=NORM_EPS),
                **_layer(dim, width, dim, ffn),
            }
        )
        self.register_buffer("table", rotary_table(context, head_dim), persistent=False)

    def draft(
        self, target: Llama, ids: Tensor, states: Tensor, places: Tensor, steps: int, mask: int
    ) -> Tensor:
        """Return the logits of a draft of ``steps`` tokens after each of some places.

        Args:
            target: whose embeddings and output are used.
            ids: (batch, time), the text.
            states: (batch, time, features), of the target at each place.
            places: (drafts,), the place of each block's first token.
            steps: tokens of each draft.
            mask: the token that stands for a drafted one.

        Returns:
            (batch, drafts, steps, vocab)
        """
        blocks, size = self.blocks, steps + 1
        block = torch.full((len(ids), len(places), size), mask)
        block[:, :, 0] = ids[:, places]
        at = (places[:, None] + torch.arange(size)).flatten()
        x = target.embed(block.flatten(1))
        read, seen = blocks["attn_norm"](x), blocks["state_norm"](blocks["fc"](states))
        both = torch.cat((seen, read), dim=1)
        positions = torch.cat((torch.arange(ids.shape[1]), at))
        q = rotate(blocks["q_norm"](self._split(blocks["wq"](read))), self.table[:, at])
        k = rotate(blocks["k_norm"](self._split(blocks["wk"](both))), self.table[:, positions])
        v = self._split(blocks["wv"](both))
        draft = torch.arange(len(places)).repeat_interleave(size)
        before = torch.arange(ids.shape[1]) < places.repeat_interleave(size)[:, None]
        allowed = torch.cat((before, draft[:, None] == draft), dim=1)
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + blocks["wo"](out.transpose(1, 2).flatten(2))
        h = blocks["ffn_norm"](x)
        x = x + blocks["down"](functional.silu(blocks["gate"](h)) * blocks["up"](h))
        drafted = x.unflatten(1, (len(places), size))[:, :, 1:]
        logits: Tensor = target.head(self.norm(drafted))
        return logits

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


@torch.no_grad()
def layer_inputs(model: Llama, ids: Tensor, layers: tuple[int, ...]) -> Tensor:
    """Return the inputs of some layers side by side, [batch, time, layers * dim]."""
    x, inputs = model.embed(ids), []
    table = model.table[:, : ids.shape[1]]
    for index, block in enumerate(model.blocks):
        if index in layers:
            inputs.append(x)
        x = block(x, table)
    return torch.cat(inputs, dim=-1)


@torch.no_grad()
def last_state(model: Llama, ids: Tensor) -> Tensor:
    """Return the normalized output of the last layer, [batch, time, dim]."""
    x = model.embed(ids)
    table = model.table[:, : ids.shape[1]]
    for block in model.blocks:
        x = block(x, table)
    return model.norm(x)
