"""Convert text to tokens and back, and check that a drafter's vocabulary fits the target's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.llama_h import Llama

_FIRST_COMPARED = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID in llama.cpp's common/speculative.cpp
_MOST_APART = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE


class ModelVocabulary:
    """A model's vocabulary, read through the library."""

    def __init__(self, lib: Llama, model: Any) -> None:
        self._lib = lib
        self._vocab = lib.llama_model_get_vocab(model)
        self.n_tokens = int(lib.llama_vocab_n_tokens(self._vocab))

    def tokens(self, text: str) -> list[int]:
        """Tokenise as llama.cpp's programs do: BOS where the model wants one, special tokens recognised."""
        return self._tokenize(text.encode(), is_beginning=True)

    def continuation(self, text: bytes) -> list[int] | None:
        """Return tokens that write just this text behind others; None where the vocabulary makes none.

        Some vocabularies put a space before every text. Behind a line break there is none, and the tokens of
        the line break are left out again.
        """
        for before in (b"", b"\n"):
            tokens = self._tokenize(before + text, is_beginning=False)
            pieces = [self.piece(token) for token in tokens]
            while sum(map(len, pieces)) > len(text):
                del tokens[0], pieces[0]
            if b"".join(pieces) == text:
                return tokens
        return None

    def _tokenize(self, data: bytes, *, is_beginning: bool) -> list[int]:
        room = (ctypes.c_int32 * (len(data) + 2))()
        count = self._lib.llama_tokenize(self._vocab, data, len(data), room, len(room), is_beginning, True)
        if count < 0:
            room = (ctypes.c_int32 * -count)()
            count = self._lib.llama_tokenize(
                self._vocab, data, len(data), room, len(room), is_beginning, True
            )
        return list(room[:count])

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens up to an end of generation; invalid UTF-8 is replaced."""
        generated = takewhile(lambda token: not self.ends(token), tokens)
        return b"".join(map(self.piece, generated)).decode(errors="replace")

    def ends(self, token: int) -> bool:
        """Whether a token is an end of generation."""
        return bool(self._lib.llama_vocab_is_eog(self._vocab, token))

    @cached_property
    def end_tokens(self) -> list[int]:
        """All tokens that end a generation."""
        return [token for token in range(self.n_tokens) if self.ends(token)]

    def piece(self, token: int) -> bytes:
        """Return the bytes that a token writes."""
        room = ctypes.create_string_buffer(64)
        size = self._lib.llama_token_to_piece(self._vocab, token, room, len(room), 0, True)
        if size < 0:
            room = ctypes.create_string_buffer(-size)
            size = self._lib.llama_token_to_piece(self._vocab, token, room, len(room), 0, True)
        return room.raw[:size]

    def check(self, drafter: ModelVocabulary) -> None:
        """Check a drafter by llama.cpp's current rule (common_speculative_are_compatible).

        Raises:
            Failure: llama.cpp refuses this drafter.
        """
        lib, target, other = self._lib, self._vocab, drafter._vocab
        if lib.llama_vocab_type(target) != lib.llama_vocab_type(other):
            raise _refused("has a different type")
        for name, added, token in (
            ("BOS", lib.llama_vocab_get_add_bos, lib.llama_vocab_bos),
            ("EOS", lib.llama_vocab_get_add_eos, lib.llama_vocab_eos),
        ):
            if added(target) != added(other) or (added(target) and token(target) != token(other)):
                raise _refused(f"has a different {name}")
        if abs(self.n_tokens - drafter.n_tokens) > _MOST_APART:
            raise _refused(f"has {drafter.n_tokens} tokens, the target's {self.n_tokens}")
        text = lib.llama_vocab_get_text
        for token in range(_FIRST_COMPARED, min(self.n_tokens, drafter.n_tokens)):
            if text(target, token) != text(other, token):
                raise _refused(f"differs from the target's at token {token}")


def _refused(difference: str) -> Failure:
    return Failure(Status.DRAFTER_REFUSED, f"the drafter's vocabulary {difference}")
