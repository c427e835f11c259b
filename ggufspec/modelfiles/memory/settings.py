"""What decides, besides the models, how much memory llama.cpp takes.

Each layer keeps something of the context: keys and values, or the state of a recurrent layer.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, replace

from ggufspec.domain import CacheTypes, Method, RunSpec
from ggufspec.llama.command import longest_draft
from ggufspec.modelfiles.gguf import TYPES_BY_NAME, ModelCard, projector_bytes

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


def layout_for(build: int | None) -> Layout:
    """Return how a build lays models out; as the newest builds do where the number is not known."""
    number = sys.maxsize if build is None else build
    return Layout(
        output_first=number >= 8643,
        window_cache=number >= 5904,
        flash_attention=number >= 6325,
        few_logits=number > 10475,
        lean_graph=number <= 3141,
        skips_mtp=number > 10475,
    )


TODAY = layout_for(None)

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
        projector_bytes: weights of what reads images. What it takes to evaluate them is not counted.
        samples_on_device: whether drafts of a head are sampled where it is evaluated.
    """

    context: int
    caches: CacheTypes = F16
    n_ubatch: int = DEFAULT_UBATCH
    n_draft: int = 16
    mtp: bool = False
    layout: Layout = TODAY
    plain: bool = False
    n_slots: int = 1
    projector_bytes: int = 0
    samples_on_device: bool = True

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
    def encoder_outputs(self) -> int:
        """Return of how many tokens the graph of a head with an encoder, EAGLE-3 and DFlash, has logits.

        llama_context takes no limit from a model with an encoder, so these are all of a batch. Sampling on
        the device copies them behind a row for samplers that are idle (build_sampling in llama-graph.cpp).
        """
        return 2 * self.n_tokens + 1 if self.samples_on_device else self.n_tokens

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
        spec: the run. What it leaves open is llama.cpp's default. The header of its projector is read.
        layout: how the build in use lays models out.
        plain: whether llama.cpp's plain program runs it.

    Raises:
        ModelFileError: what is to read images is no projector.
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
        projector_bytes=projector_bytes(spec.runtime.mmproj),
        samples_on_device=spec.runtime.draft_backend_sampling != "off",
    )


_STATE_PARTS = (".ssm_", ".shortconv", ".time_mix_")
_FLOAT = 4  # recurrent states are kept in F32


def cache_bytes(card: ModelCard, settings: MemorySettings) -> tuple[int, ...]:
    """Return the bytes that each layer caches for all slots (llama_kv_cache, llama_memory_recurrent)."""
    keeps = _keeps_keys(card)
    shared = _first_shared(card)
    state = _state_bytes(card)
    sizes = []
    for layer, window in enumerate(windows(card)):
        size = _layer_bytes(card, layer, window, settings) if keeps[layer] and layer < shared else 0
        sizes.append(settings.n_slots * (size + (state if _has_state(card, layer) else 0)))
    return tuple(sizes)


def _layer_bytes(card: ModelCard, layer: int, window: int | None, settings: MemorySettings) -> int:
    key, value = card.key_length, card.value_length
    if window is not None:
        key = card.number("attention.key_length_swa") or key
        value = card.number("attention.value_length_swa") or value
    if card.number("attention.key_length_mla"):
        value = 0  # multi-head latent attention caches one compressed vector, from which both are made
    heads = card.n_heads_kv[layer]
    cells = settings.cells if window is None else settings.window_cells(window)
    k_type, v_type = (
        TYPES_BY_NAME[name.upper()] for name in (settings.caches.type_k, settings.caches.type_v)
    )
    return cells * (k_type.row_bytes(key * heads) + v_type.row_bytes(value * heads))


def _keeps_keys(card: ModelCard) -> tuple[bool, ...]:
    """In a hybrid, only the layers with a key projection of their own have a cache."""
    if not card.is_recurrent:
        return (True,) * card.n_layers
    names = {tensor.name for tensor in card.tensors}
    return tuple(f"blk.{layer}.attn_k.weight" in names for layer in range(card.n_layers))


def _first_shared(card: ModelCard) -> int:
    """The first of the layers that read the cache of an earlier one."""
    if card.architecture == "gemma3n":
        return 20
    return card.n_layers - (card.number("attention.shared_kv_layers") or 0)


def _has_state(card: ModelCard, layer: int) -> bool:
    prefix = f"blk.{layer}."
    return card.is_recurrent and any(
        tensor.name.startswith(prefix) and part in tensor.name
        for tensor in card.tensors
        for part in _STATE_PARTS
    )


def _state_bytes(card: ModelCard) -> int:
    """The state of one recurrent layer: what the convolution remembers, and the state proper."""
    head = card.number("wkv.head_size")
    if head:
        return _FLOAT * card.n_embd * ((card.number("token_shift_count") or 2) + head)
    reach = card.number("shortconv.l_cache")
    if reach:
        return _FLOAT * card.n_embd * (reach - 1)
    inner, size = card.number("ssm.inner_size") or 0, card.number("ssm.state_size") or 0
    groups, kernel = card.number("ssm.group_count") or 0, card.number("ssm.conv_kernel") or 1
    return _FLOAT * ((kernel - 1) * (inner + 2 * groups * size) + size * inner)


def doubts(card: ModelCard) -> tuple[str, ...]:
    """Return the parts of this model that the figures may not count."""
    arch = card.architecture
    reasons = []
    if card.is_recurrent:
        reasons.append("it has recurrent layers, whose state is only estimated")
    if any(key.startswith(f"{arch}.attention.indexer.") for key in card.metadata):
        reasons.append("it has sparse attention, whose index is not counted")
    return tuple(reasons)


@dataclass(frozen=True)
class _Pattern:
    """Of every ``period`` layers one sees everything: the last, or the first."""

    period: int
    dense_first: bool = False
    window: int | None = None  # where the header gives none


_PATTERNS = {
    "afmoe": _Pattern(4),
    "cohere2": _Pattern(4),
    "cohere2moe": _Pattern(4, dense_first=True),
    "exaone-moe": _Pattern(4),
    "exaone4": _Pattern(4),
    "gemma2": _Pattern(2, window=4096),
    "gemma3": _Pattern(6),
    "gemma3n": _Pattern(5),
    "gpt-oss": _Pattern(2),
    "laguna": _Pattern(4, dense_first=True),
    "llama4": _Pattern(4, window=8192),
    "mellum": _Pattern(4),
    "muse-glimmer": _Pattern(4),
    "olmo2": _Pattern(4),
    "plamo3": _Pattern(8),
    "smallthinker": _Pattern(4, dense_first=True),
}


def windows(card: ModelCard) -> tuple[int | None, ...]:
    """Return for each layer how many tokens it looks back; None where it sees everything.

    A header may say so layer by layer; otherwise llama.cpp knows the pattern of each architecture
    (src/models/*.cpp). An architecture without a pattern attends to everything, whatever its header says.
    """
    stated = card.metadata.get(f"{card.architecture}.attention.sliding_window_pattern")
    pattern = _PATTERNS.get(card.architecture)
    window = card.sliding_window
    is_stated = any(key.endswith(".sliding_window") for key in card.metadata)
    if window is None and pattern is not None and not is_stated:
        window = pattern.window
    if window is None:
        return (None,) * card.n_layers
    if isinstance(stated, array) and len(stated) >= card.n_layers:
        return tuple(window if flag else None for flag in stated[: card.n_layers])
    if pattern is None:
        return (None,) * card.n_layers
    period = stated if isinstance(stated, int) and stated > 0 else pattern.period
    dense = 0 if pattern.dense_first else period - 1
    return tuple(None if layer % period == dense else window for layer in range(card.n_layers))
