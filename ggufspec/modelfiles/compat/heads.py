"""Heads: drafters that read hidden states of their target. What a header says of one, and whether it fits.

Read in the source of b11312: common/speculative.cpp, src/models/eagle3.cpp and dflash.cpp, and the models
whose graph can return the input of a layer or has layers for MTP.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from ggufspec.domain import Method
from ggufspec.modelfiles.compat.vocabularies import describe_difference, differences
from ggufspec.modelfiles.gguf import ModelCard

_MASK = "tokenizer.ggml.mask_token_id"
_BLOCK = 16  # tokens; llama.cpp's default of dflash.block_size
_EAGLE3_LAYERS = 3  # of the target, whose inputs such a head reads
_SHARED = "gemma4-assistant"  # layers for MTP in a file, which read the target's cache

_GIVES_LAYER_INPUTS = frozenset(
    {
        *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan_vl", "lfm2", "lfm2moe", "llama"),
        *("mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe"),
        *("qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp"),
    }
)
"""Architectures of targets whose graph returns the inputs of layers, which all heads but MTP read."""

_GIVES_LAST_OUTPUT = frozenset({"deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"})
"""Those whose graph also returns the output of the last layer. EAGLE-3 heads get it from every target."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a header says of a head.

    Attributes:
        method: how it drafts.
        most: the largest draft size γ; llama.cpp lowers larger ones to it. None where there is no limit.
        n_states: how many hidden states of the target it reads for each token.
        in_target: whether its layers are part of a model that also writes text alone.
        reads_cache: whether it reads the target's cache, and has none of its own.
        knows_p_min: whether llama.cpp drafts with a p_min above 0. It refuses that for DSpark heads without a
            confidence head.
    """

    method: Method
    most: int | None = None
    n_states: int = 1
    in_target: bool = False
    reads_cache: bool = False
    knows_p_min: bool = True


_SELECTOR = "dflash.selector_top_k"  # of DFlash 2
_LAST_STALE_SPLIT = 9831
"""The last build of which it was reported that heads, and layers for MTP that nothing uses, abort in a split
by tensors. In the source of 0.3.36, a model keeps its proportions, and such layers have no cache."""


def why_not_split_by_tensor(target: ModelCard, drafter: ModelCard | None, build: int | None) -> str | None:
    """Return why llama.cpp aborts where a target and its head are split by tensors; None where none is known.

    Args:
        target: the target.
        drafter: what drafts, if that is another file.
        build: the number of the build; None for a recent one.
    """
    head = None if drafter is None else read_head(drafter)
    if drafter is not None and head is not None:
        chooses = head.method is Method.DRAFT_DSPARK or _SELECTOR in drafter.metadata
        if chooses:  # as in the source of b11434
            return "it chooses among logits, and these are split (llama.cpp#27819, #27833)"
    if build is None or build > _LAST_STALE_SPLIT:
        return None
    if head is not None:
        return "it reads proportions that are gone when its graph is made (llama.cpp#24814)"
    if target.architecture == "glm4moe" and mtp_layers(target):
        return "the cache of its layers for MTP has no weights beside it (llama.cpp#24309)"
    return None


def read_head(card: ModelCard) -> Head | None:
    """Return what a header says of the head in this file; None for a model without one."""
    match card.architecture:
        case "eagle3":
            return Head(method=Method.DRAFT_EAGLE3, n_states=len(_layers_read(card)))
        case "dflash":
            is_dspark = any(tensor.name == "markov_w1.weight" for tensor in card.tensors)
            block = card.number("block_size") or _BLOCK
            drafts_anchor = is_dspark and card.metadata.get("dflash.sample_from_anchor") is not False
            return Head(
                method=Method.DRAFT_DSPARK if is_dspark else Method.DRAFT_DFLASH,
                most=block if drafts_anchor else block - 1,
                n_states=len(_layers_read(card)),
                knows_p_min=not is_dspark or card.metadata.get("dflash.has_confidence_head") is not False,
            )
    n_mtp = mtp_layers(card)
    if not n_mtp:
        return None
    is_shared = card.architecture == _SHARED
    has_trunk = not is_shared and any(tensor.name.startswith("blk.0.") for tensor in card.tensors)
    return Head(
        method=Method.DRAFT_MTP,
        most=n_mtp if n_mtp > 1 and not is_shared else None,
        in_target=has_trunk and n_mtp < card.n_layers,
        reads_cache=is_shared,
    )


def usable_methods(head: Head | None) -> tuple[Method, ...]:
    """Return the methods that a file drafts by, the usual one first; None is a model without a head."""
    if head is None:
        return (Method.DRAFT_MODEL,)
    return (Method.DRAFT_MODEL, head.method) if head.in_target else (head.method,)


def mtp_layers(card: ModelCard) -> int:
    """Return how many layers at the end of a model are for MTP; 0 where the file leaves their weights out."""
    stated = card.number("nextn_predict_layers") or 0
    if not stated or card.architecture == _SHARED or card.split is not None:
        return stated  # of a model in several files, the header lists the tensors of the first
    prefix = f"blk.{card.n_layers - 1}.nextn."
    return stated if any(tensor.name.startswith(prefix) for tensor in card.tensors) else 0


def mtp_bytes(card: ModelCard) -> int:
    """Return the bytes of a model's weights that are for MTP; 0 where it has no such layers."""
    count = mtp_layers(card)
    prefixes = tuple(f"blk.{layer}." for layer in range(card.n_layers - count, card.n_layers))
    return sum(tensor.size_bytes for tensor in card.tensors if tensor.name.startswith(prefixes))


def find_faults(target: ModelCard, card: ModelCard) -> tuple[str, ...]:
    """Return why a head does not belong to a target; nothing where it does.

    Where llama.cpp compares nothing itself, such as vocabularies, a head of another target would draft
    nonsense, or read beyond its arrays.

    Args:
        target: the model whose text is wanted.
        card: a file with a head; the target itself for layers for MTP in it.
    """
    head = read_head(card)
    if head is None:
        return ("the file has no head",)
    if card is target:
        return ()
    faults = [*_states(target, card, head), *_vocabulary(target, card)]
    return tuple(faults or _own(card, head))


def _states(target: ModelCard, card: ModelCard, head: Head) -> Iterator[str]:
    """Yield what is wrong with the hidden states that the head reads: where, how many, how wide."""
    if head.method is Method.DRAFT_MTP:
        out = card.number("embedding_length_out") or card.n_embd
        if out != target.n_embd:
            yield f"the head reads states of width {out}, and the target's are {target.n_embd} wide"
        return
    if target.architecture not in _GIVES_LAYER_INPUTS:
        yield f"llama.cpp cannot read the states of layers of the architecture {target.architecture}"
    layers = _layers_read(card)
    trunk = target.n_layers - mtp_layers(target)
    is_eagle = head.method is Method.DRAFT_EAGLE3
    if is_eagle and len(layers) != _EAGLE3_LAYERS:
        yield f"the head reads {len(layers)} layers of the target; llama.cpp expects {_EAGLE3_LAYERS}"
    if not layers:
        yield "the head does not say which layers of the target it reads"
    elif max(layers) > trunk:
        yield f"the head reads layer {max(layers)}, and the target has {trunk}"
    elif max(layers) == trunk and not is_eagle and target.architecture not in _GIVES_LAST_OUTPUT:
        yield f"llama.cpp cannot read the output of the last layer of the architecture {target.architecture}"
    width = card.number("target_hidden_size") if is_eagle else card.n_embd
    if width != target.n_embd:
        yield f"the head reads states of width {width}, and the target's are {target.n_embd} wide"


def _own(card: ModelCard, head: Head) -> Iterator[str]:
    """Yield what is wrong with a head itself, whatever its target is."""
    if head.method is Method.DRAFT_MTP:
        return
    if head.method is Method.DRAFT_EAGLE3 and card.n_layers != 1:
        yield f"the head has {card.n_layers} layers; llama.cpp expects 1"
    if head.method is Method.DRAFT_DSPARK and card.number("block_size") is None:
        yield "the head does not say how long its trained block is"
    elif head.method is not Method.DRAFT_EAGLE3 and _MASK not in card.metadata:
        yield "the head names no mask token, which stands for what it drafts"
    if head.most == 0:
        yield "the head was trained for a block of 1 token, which leaves nothing to draft"
    states = head.n_states * (card.number("target_hidden_size") or card.n_embd)
    joined = next((tensor.shape[0] for tensor in card.tensors if tensor.name == "fc.weight"), 0)
    if joined != states:
        yield f"the head joins {joined} values of the target's states, and reads {states}"


def _vocabulary(target: ModelCard, card: ModelCard) -> Iterator[str]:
    """Yield how the vocabularies differ. A head may draft from part of it: d2t maps to the target's ids."""
    ours, theirs = target.vocabulary.n_tokens, card.vocabulary.n_tokens
    if ours != theirs:
        yield f"the target has {ours} tokens, and the head {theirs}"
        return
    count, first = differences(target.vocabulary, card.vocabulary)
    if first:
        yield describe_difference(count, first[0], "head")


def _layers_read(card: ModelCard) -> tuple[int, ...]:
    """Return the target's layers whose states a head reads."""
    value = card.metadata.get(f"{card.architecture}.target_layers")
    return tuple(value) if isinstance(value, array) and value.typecode not in "fd" else ()
