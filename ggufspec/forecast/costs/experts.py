"""How many experts a batch of neighbouring tokens needs: counted in a trace, or by a prior.

Tokens of one text do not choose their experts independently. The prior takes each expert's use along a text
to be a chain of two states: of the experts that one token uses, the next one keeps the share ρ, and chooses
the others as if independently. So n tokens need the share

    1 − (1 − s) · (1 − s(1 − ρ))ⁿ⁻¹

of a layer's experts, s being the share that one token uses. With ρ = 0 the choices are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PERSISTENCE = 0.2
"""ρ where nothing was traced. Published measurements of routers give ρ = (overlap − s) / (1 − s):

- GLM-4.7-Flash, 4 of 64 experts: neighbours share 25.7 %, ρ = 0.21 (ml-explore/mlx-lm#1485, July 2026);
- Cohere's models: 38 %, and four tokens need 2.5 times the experts of one, ρ = 0.3 to 0.4 ("Why MoE models
  get more from speculative decoding", April 2026, as others report it; the sparsity is not given);
- GLM-5.2, 8 of 256: next to none, by the time of two tokens alone (jundot/omlx#2077, July 2026).
"""

LONGEST = 17
"""Tokens of the longest batch that is counted: what verifies drafts of 16."""


def needed_share(used_share: float, tokens: int, persistence: float = PERSISTENCE) -> float:
    """Return the share of a layer's experts that neighbouring tokens need, by the prior.

    Args:
        used_share: that of one token.
        tokens: in the batch, 1 or more.
        persistence: ρ.
    """
    return 1 - (1 - used_share) * (1 - used_share * (1 - persistence)) ** (tokens - 1)


@dataclass(frozen=True, kw_only=True)
class ExpertUse:
    """The share of a layer's experts that 1, 2, … neighbouring tokens need, on average over texts.

    Attributes:
        layers: the shares, by the number of each layer that has experts.
        tokens: how many were traced.
    """

    layers: Mapping[int, tuple[float, ...]]
    tokens: int

    def shares(self, layers: Mapping[int, float]) -> tuple[float, ...]:
        """Return the mean over some layers, weighted; () where one of them was not traced."""
        if not layers or not self.layers.keys() >= layers.keys():
            return ()
        total = sum(layers.values())
        rows = [[share * weight for share in self.layers[layer]] for layer, weight in layers.items()]
        return tuple(sum(column) / total for column in zip(*rows, strict=True))


def describe_experts(use: ExpertUse | None) -> str:
    """Return where the number of experts that a batch needs comes from, as a sentence."""
    if use is not None:
        return (
            f"experts: batches need as many as were counted in {use.tokens:,} tokens of the model's own text"
        )
    return (
        "experts: how many a batch needs is taken from published measurements of routers "
        f"(ρ = {PERSISTENCE}); `ggufspec tune` counts those of your texts, once for a model"
    )


def count_experts(texts: Sequence[Mapping[int, Sequence[Sequence[int]]]], n_experts: int) -> ExpertUse | None:
    """Count the experts of all batches that could begin at some token of the texts.

    Args:
        texts: for each text the experts of each token, by layer; texts of fewer than ``LONGEST`` tokens are
            left out.
        n_experts: of a layer.

    Returns:
        None where no text is long enough.
    """
    long_enough = [text for text in texts if text and len(next(iter(text.values()))) >= LONGEST]
    if not long_enough:
        return None
    counts: dict[int, list[int]] = {}
    batches = [0] * LONGEST
    for text in long_enough:
        for layer, tokens in text.items():
            of_layer = counts.setdefault(layer, [0] * LONGEST)
            for start in range(len(tokens)):
                needed: set[int] = set()
                for size, chosen in enumerate(tokens[start : start + LONGEST]):
                    needed.update(chosen)
                    of_layer[size] += len(needed)
        n_tokens = len(next(iter(text.values())))
        batches = [count + n_tokens - size for size, count in enumerate(batches)]
    return ExpertUse(
        layers={
            layer: tuple(count / (n * n_experts) for count, n in zip(of_layer, batches, strict=True))
            for layer, of_layer in counts.items()
        },
        tokens=batches[0],
    )
