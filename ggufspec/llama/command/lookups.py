"""What llama.cpp's n-gram methods look for in the text so far: their settings, pinned for every build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ggufspec.domain import Method


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The settings of one method beside γ. Builds may have other defaults; these are passed to all of them.

    Attributes:
        size: tokens that must recur, the last one included, before anything is drafted.
        n_max: γ where nobody asks for another, llama.cpp's own default.
        least: the smallest γ at which anything can be drafted.
        most: the largest γ that the programs take.
        min_hits: how often they must have recurred; only one method asks.
        n_min: shorter drafts are dropped.
    """

    size: int
    n_max: int
    least: int = 1
    most: int = 1024
    min_hits: int = 1
    n_min: int = 0


LOOKUPS: Mapping[Method, Lookup] = MappingProxyType(
    {
        # drops what is shorter than what it looks up (common_ngram_simple_draft): γ < 12 drafts nothing
        Method.NGRAM_SIMPLE: Lookup(size=12, n_max=48, least=12),
        Method.NGRAM_MAP_K: Lookup(size=12, n_max=48),
        Method.NGRAM_MAP_K4V: Lookup(size=12, n_max=48),
        Method.NGRAM_MOD: Lookup(size=24, n_max=64, n_min=48),
        # looks up 1 to 4 tokens; its γ is a constant of the source (create_state_ngram_cache)
        Method.NGRAM_CACHE: Lookup(size=4, n_max=8, least=8, most=8),
    }
)
"""llama.cpp's defaults of the summer of 2026 (common_params_speculative_ngram_map and its neighbours)."""

_MODEL_SIZE = 3  # γ of a drafting model where nobody asks for another; today's llama.cpp takes the same


def draft_sizes(method: Method, asked: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the draft sizes at which a method can draft: of those asked for, or else its own default."""
    asked, lookup = tuple(asked), LOOKUPS.get(method)
    if lookup is None:
        return asked or (_MODEL_SIZE,)
    return tuple(size for size in asked or (lookup.n_max,) if lookup.least <= size <= lookup.most)
