"""What decides, besides the models, how much memory llama.cpp takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ggufspec.domain import CacheTypes, Method, RunSpec
from ggufspec.llama.command import longest_draft

DEFAULT_UBATCH = 512
"""Tokens that llama.cpp evaluates at once by default (``-ub``)."""

DEFAULT_BATCH = 2048
"""Tokens of a batch by default (``-b``), for which the hidden states that a head reads are kept."""

_CELLS = 256  # contexts are rounded up to this many cells


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a range of builds lays models out, from the source of b2697, b5904, b8643 and the summer of 2026.

    A change between two of these counts from the first build in which it was seen: a plan asks for too much
    memory rather than too little.
    """

    output_first: bool  # the first layer to be offloaded is the output; before, it was the last
    window_cache: bool  # layers with a sliding window keep only that much context
    flash_attention: bool  # without being asked
    few_logits: bool  # servers and programs that draft keep logits of the tokens to verify, not of a batch
    lean_graph: bool  # keys and values are written to the cache at once, not kept beside the scores
    skips_mtp: bool  # layers for MTP are loaded only where they draft


TODAY = Layout(
    output_first=True,
    window_cache=True,
    flash_attention=True,
    few_logits=True,
    lean_graph=False,
    skips_mtp=True,
)


def layout_for(build: int | None) -> Layout:
    """Return how a build lays models out; as the newest builds do where the number is not known."""
    if build is None:
        return TODAY
    return Layout(
        output_first=build >= 8643,
        window_cache=build >= 5904,
        flash_attention=build >= 6325,
        few_logits=build > 10475,
        lean_graph=build <= 3141,
        skips_mtp=build > 10475,
    )


F16 = CacheTypes("f16", "f16")
"""The types of caches of every build, unless others are requested."""


@dataclass(frozen=True, kw_only=True)
class MemorySettings:
    """How the models are to be run.

    Attributes:
        context: tokens that prompt and answer may take together (``-c``).
        caches: the types of the caches of a model whose ``ModelRun`` names none.
        n_ubatch: tokens that are evaluated at once (``-ub``).
        n_draft: the most tokens that are drafted per round (γ).
        mtp: whether the target's own layers for MTP draft.
        layout: how the build in use lays models out.
        plain: whether llama.cpp's plain program runs it, which neither serves nor drafts.
        n_slots: how many requests are answered at once, each with a context of its own.
    """

    context: int
    caches: CacheTypes = F16
    n_ubatch: int = DEFAULT_UBATCH
    n_draft: int = 16
    mtp: bool = False
    layout: Layout = TODAY
    plain: bool = False
    n_slots: int = 1

    def with_caches(self, caches: CacheTypes | None) -> MemorySettings:
        """Return the settings of a model with these types of caches; None keeps them."""
        return self if caches is None else replace(self, caches=caches)

    @property
    def n_tokens(self) -> int:
        """How many tokens are evaluated at once."""
        return min(self.n_ubatch, self.context)

    def outputs(self, per_slot: int) -> int:
        """Return of how many tokens of a batch the graph has logits, which is reserved before anything runs.

        llama_context reserves a batch of min(n_tokens, n_outputs_max) outputs (``n_outputs_pp`` in
        src/llama-context.cpp of b11312). llama-server and the programs that draft lower n_outputs_max to the
        tokens that they sample or verify (common_speculative_get_output_limits in common/speculative.cpp). It
        is a whole batch in the plain program, and in every program before that was written.

        Args:
            per_slot: tokens of a slot that are sampled or verified at once.
        """
        if self.plain or not self.layout.few_logits:
            return self.n_tokens
        return min(self.n_tokens, self.n_slots * per_slot)

    @property
    def cells(self) -> int:
        """How many tokens a complete cache of one slot holds."""
        return -(-self.context // _CELLS) * _CELLS

    def window_cells(self, window: int) -> int:
        """How many tokens a slot's cache of a layer with a sliding window holds."""
        if not self.layout.window_cache:
            return self.cells
        return -(-min(self.cells, window + self.n_ubatch) // _CELLS) * _CELLS


def settings_for(spec: RunSpec, layout: Layout, *, plain: bool = False) -> MemorySettings:
    """Return the memory settings of a run; the types of its caches are in its offload.

    Args:
        spec: the run. What it leaves open is llama.cpp's default.
        layout: how the build in use lays models out.
        plain: whether llama.cpp's plain program runs it.
    """
    ubatch = spec.ubatch or DEFAULT_UBATCH
    return MemorySettings(
        context=spec.context,
        n_ubatch=min(ubatch, spec.runtime.batch or ubatch),
        n_draft=longest_draft(spec.drafting) if spec.drafting else 0,
        mtp=spec.drafting is not None and spec.drafting.method is Method.DRAFT_MTP and spec.drafter is None,
        layout=layout,
        plain=plain,
        n_slots=spec.n_slots,
    )
