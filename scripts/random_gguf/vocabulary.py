"""A made-up vocabulary of any size that llama.cpp reads as SentencePiece and that holds any text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice, product
from string import ascii_lowercase

import gguf

BOS, EOS = 1, 2
SILENT = 259  # the tokens that no text is made of: three special ones and the bytes
_SPACE = "▁"
_CHARACTERS = [_SPACE, *(chr(code) for code in range(ord("!"), ord("~") + 1))]
SMALLEST = SILENT + len(_CHARACTERS)


def add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Write a tokenizer of ``size`` tokens: special ones, bytes, ASCII, then words from short to long.

    Every word's beginnings are words too, so that a text takes about a third as many tokens as letters.
    """
    kinds = gguf.TokenType
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    types = [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256]
    words = list(islice(chain(_CHARACTERS, _words()), size - SILENT))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens + words)
    writer.add_token_scores([0.0] * SILENT + [-float(rank) for rank in range(len(words))])
    writer.add_token_types(types + [kinds.NORMAL] * len(words))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)


def _words() -> Iterator[str]:
    for length in count(1):
        for letters in product(ascii_lowercase, repeat=length):
            word = "".join(letters)
            if length > 1:
                yield word
            yield _SPACE + word
