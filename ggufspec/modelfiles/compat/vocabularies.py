"""How llama.cpp reads a file's vocabulary: defaults for absent keys, and the texts that it compares.

Source: llama_vocab::impl::load in src/llama-vocab.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.modelfiles.gguf import StringArray, Vocabulary

FIRST_COMPARED = 5
"""llama.cpp's SPEC_VOCAB_CHECK_START_TOKEN_ID: special tokens come first and may differ."""

_SHOWN = 5
_BPE = ("BPE", 11, 11)
# tokenizer.ggml.model -> type, default ids of BOS and EOS
_TYPES: dict[str, tuple[str, int | None, int | None]] = {
    "llama": ("SPM", 1, 2),
    "gpt2": _BPE,
    "hybriddna": _BPE,
    "whitespace": _BPE,
    "gemma4": ("BPE", None, None),
    "bert": ("WPM", 101, None),
    "t5": ("UGM", None, 1),
    "rwkv": ("RWKV", None, None),
    "plamo2": ("PLAMO2", 1, 2),
    "none": ("none", None, None),
    "no_vocab": ("none", None, None),
}
_ADDS_BOS = frozenset({"SPM", "WPM"})
_ADDS_EOS = frozenset({"UGM"})
_PRE_ADDS_BOS = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"}
    | {"jina-v5-nano", "tekken", "chameleon"}
)
_PRE_WITHOUT_BOS = frozenset({"chatglm-bpe", "glm4", "glm5"})
_PRE_FORCES_BOS = frozenset({"gemma4", "granite-embed-multi-311m"})


@dataclass(frozen=True, kw_only=True)
class Effective:
    """A vocabulary's special values as llama.cpp uses them."""

    type: str
    add_bos: bool
    add_eos: bool
    bos_id: int | None
    eos_id: int | None


@dataclass(frozen=True, kw_only=True)
class TokenDifference:
    """A token with different texts in target and drafter."""

    id: int
    target: str
    draft: str


def effective(vocabulary: Vocabulary) -> Effective:
    """Return what llama.cpp (b3181 and later) uses for the keys of a file, absent ones included."""
    model = vocabulary.model or "none"
    vocabulary_type, bos, eos = _TYPES.get(model, (model, None, None))
    pre = "gemma4" if model == "gemma4" else vocabulary.pre if vocabulary_type == "BPE" else None
    add_bos = vocabulary_type in _ADDS_BOS or pre in _PRE_ADDS_BOS
    add_eos = vocabulary_type in _ADDS_EOS
    if vocabulary.add_bos is not None:
        add_bos = vocabulary.add_bos
    if vocabulary.add_eos is not None:
        add_eos = vocabulary.add_eos
    return Effective(
        type=vocabulary_type,
        add_bos=add_bos or pre in _PRE_FORCES_BOS,
        add_eos=add_eos,
        bos_id=_id(vocabulary, vocabulary.bos_id, None if pre in _PRE_WITHOUT_BOS else bos),
        eos_id=_id(vocabulary, vocabulary.eos_id, eos),
    )


def differences(target: Vocabulary, draft: Vocabulary) -> tuple[int, tuple[TokenDifference, ...]]:
    """Return the number of common tokens with different texts, and the first few of them."""
    if target.tokens is None or draft.tokens is None:
        return 0, ()
    last = min(len(target.tokens), len(draft.tokens))
    if target.tokens.encoded(FIRST_COMPARED, last) == draft.tokens.encoded(FIRST_COMPARED, last):
        return 0, ()
    ids = [
        token
        for token in range(FIRST_COMPARED, last)
        if target.tokens[token] != draft.tokens[token]
        and _text(target.tokens, token) != _text(draft.tokens, token)
    ]
    shown = tuple(
        TokenDifference(
            id=token,
            target=_text(target.tokens, token).decode(errors="replace"),
            draft=_text(draft.tokens, token).decode(errors="replace"),
        )
        for token in ids[:_SHOWN]
    )
    return len(ids), shown


def describe_difference(count: int, first: TokenDifference, whose: str) -> str:
    """Return in how many tokens two vocabularies differ, and the first of them; ``whose`` is the second."""
    differ = "1 token differs" if count == 1 else f"{count} tokens differ"
    return f"{differ}, first token {first.id}: {first.target!r} in the target, {first.draft!r} in the {whose}"


def _id(vocabulary: Vocabulary, stated: int | None, default: int | None) -> int | None:
    """Return the stated or default id, unless it is outside the vocabulary."""
    if stated is not None and stated < vocabulary.n_tokens:
        return stated
    return default if default is not None and default < vocabulary.n_tokens else None


def _text(tokens: StringArray, token: int) -> bytes:
    """Return what strcmp sees: llama.cpp names empty tokens, and a C string ends at its first zero."""
    return (tokens[token] or b"[EMPTY_%d]" % token).split(b"\0", 1)[0]
