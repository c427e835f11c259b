"""Heads in the library, fed with the target's hidden states as llama.cpp's programs do it.

Follows common/speculative.cpp. The functions that return hidden states belong to a staging header
(src/llama-ext.h) and have C++ names, so a library is asked first whether they work, see ``selftest.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Failure, Method, Status
from ggufspec.engines.library.llama_h import Embeddings, Llama
from ggufspec.engines.library.messages import ModelLoad
from ggufspec.engines.library.model import LoadedContext, Logits, Model, timed

States = NDArray[np.float32]
"""What a head reads: one row for each token of the target, of shape (tokens, width)."""

_MTP_CONTEXT = 1  # LLAMA_CONTEXT_TYPE_MTP
_ENCODE, _DECODE = 0, 1  # llama_process_type
_BLOCK = "16"  # llama.cpp's default of dflash.block_size
_POINTER, _FLAG = ctypes.c_void_p, ctypes.c_bool
_SYMBOLS: dict[str, tuple[str, Any, tuple[Any, ...]]] = {
    "layers": (
        "_Z28llama_model_target_layer_idsPK11llama_model",
        ctypes.POINTER(ctypes.c_int32),
        (_POINTER,),
    ),
    "n_layers": ("_Z30llama_model_target_layer_ids_nPK11llama_model", ctypes.c_uint32, (_POINTER,)),
    "send_last": ("_Z26llama_set_embeddings_nextnP13llama_contextbb", None, (_POINTER, _FLAG, _FLAG)),
    "last": ("_Z26llama_get_embeddings_nextnP13llama_context", _POINTER, (_POINTER,)),
    "last_at": ("_Z30llama_get_embeddings_nextn_ithP13llama_contexti", _POINTER, (_POINTER, ctypes.c_int32)),
    "send_layer": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        None,
        (_POINTER, ctypes.c_uint32, _FLAG),
    ),
    "layer": ("_Z30llama_get_embeddings_layer_inpP13llama_contextj", _POINTER, (_POINTER, ctypes.c_uint32)),
}


class LoadedHead(LoadedContext):
    """A head with a context of its own beside its target's, which it lets read the text with it."""

    def __init__(self, target: Model, load: ModelLoad, *, threads: int) -> None:
        """Load the head, or make a context for the layers inside the target.

        Raises:
            Failure: the library cannot load it, or lacks a function that feeds it.
        """
        lib = target.lib
        self._call = _functions(lib)
        self._is_mtp = load.head == Method.DRAFT_MTP
        super().__init__(
            lib,
            load,
            threads=threads,
            handle=target.handle if load.path == target.path else None,
            ctx_other=target.context,
            ctx_type=_MTP_CONTEXT if self._is_mtp else 0,
        )
        self.target = target
        self._batch = lib.llama_batch_ext_init(self.context)
        self._takes_states = hasattr(lib, "llama_batch_ext_set_embd_state")
        self._n_vocab = int(lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.handle)))
        self._trunk = int(lib.llama_model_n_layer(target.handle))
        self._target_width = int(lib.llama_model_n_embd(target.handle))
        own_width = lib.llama_model_n_embd_out if self._is_mtp else lib.llama_model_n_embd
        self._width = int(own_width(self.handle))
        count = 0 if self._is_mtp else self._call["n_layers"](self.handle)
        self._layers = [self._call["layers"](self.handle)[position] for position in range(count)]
        self._call["send_last"](self.context, True, True)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Let the target return the states that the head reads; else it would compute them in vain."""
        self._send_states(on=True)
        try:
            yield
        finally:
            self._send_states(on=False)

    def read(self, tokens: Sequence[int], at: int) -> None:
        """Let target and head read tokens of a text from a position on; the head must be attached."""
        self.target.forget(at)
        for start in range(0, len(tokens), self.n_ubatch):
            batch = tokens[start : start + self.n_ubatch]
            self.target.evaluate(batch, at + start)
            self.follow(batch, at + start)

    def follow(self, tokens: Sequence[int], at: int) -> None:
        """Read the tokens of the target's last evaluation, which began at a position."""
        raise NotImplementedError

    def features(self, count: int) -> States:
        """Return the inputs of the target's layers that the head reads, of its last ``count`` tokens.

        The layers lie side by side: shape (count, layers × the target's width).
        """
        return np.hstack([self._layer(layer, count) for layer in self._layers])

    def _send_states(self, *, on: bool) -> None:
        context = self.target.context
        if self._is_mtp:
            self._call["send_last"](context, on, False)
        for layer in self._layers:
            if self._is_last(layer):
                self._call["send_last"](context, on, False)
            else:
                self._call["send_layer"](context, layer, on)

    def _layer(self, layer: int, count: int) -> States:
        context = self.target.context
        is_last = self._is_last(layer)
        address = self._call["last"](context) if is_last else self._call["layer"](context, layer)
        return _rows(address, count, self._target_width)

    def _is_last(self, layer: int) -> bool:
        """Whether a layer's input is the target's last output, for which there is another function."""
        return layer >= self._trunk

    def _logits(self, count: int) -> Logits:
        """Return the logits of the last evaluation's outputs, of which there are ``count``."""
        return _rows(self.lib.llama_get_logits_ith(self.context, 0), count, self._n_vocab)

    def _process(
        self,
        operation: int,
        at: int,
        *,
        tokens: Sequence[int] = (),
        states: Sequence[States] | States = (),
        is_output: bool,
    ) -> None:
        """Evaluate tokens, states, or tokens each with a state, as entries of the cache from a place on."""
        lib, batch = self.lib, self._batch
        lib.llama_batch_ext_clear(batch)
        for place, (token, row) in enumerate(zip_longest(tokens, states), at):
            state = None
            if row is not None:
                state = Embeddings(row.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), 1, row.size)
            if token is None:
                index = lib.llama_batch_ext_add_embd(batch, 0, state)
            else:
                index = lib.llama_batch_ext_add_token(batch, 0, token)
                if state is not None:
                    self._set_state(index, state)
            lib.llama_batch_ext_set_pos(batch, index, (ctypes.c_int32 * 1)(place))
            lib.llama_batch_ext_set_output_logits(batch, index, is_output)
        code = lib.llama_process(self.context, operation, batch)
        if code:
            count = max(len(tokens), len(states))
            raise Failure(Status.FAILED, f"llama_process returned {code} for {count} tokens of a head")

    def _set_state(self, index: int, state: Embeddings) -> None:
        """Give a token of the batch the target's state; builds until b11434 take it as an embedding."""
        # MTP of v0.7.0 takes nothing else; a first answer may say that the context takes none
        if self._takes_states:
            self._takes_states = self.lib.llama_batch_ext_set_embd_state(self._batch, index, state)
        if not self._takes_states:
            self.lib.llama_batch_ext_set_embd_token(self._batch, index, state)


class ChainedHead(LoadedHead):
    """An EAGLE-3 head, or a layer for MTP, which drafts token by token.

    A token enters its cache together with the state of the token before it.

    Attributes:
        state: the target's, of the last token that was read; zeros before a text's first token.
        kept: how many entries of a draft stay valid when the target's states of verified tokens arrive.
    """

    def __init__(self, target: Model, load: ModelLoad, *, threads: int) -> None:
        """Load the head; see ``LoadedHead``."""
        super().__init__(target, load, threads=threads)
        self.kept = 0 if self._is_mtp else 1
        self.clear()

    def clear(self) -> None:
        """Empty the cache, and begin another text."""
        super().clear()
        self.state: States = np.zeros(self._width, dtype=np.float32)

    def states(self, count: int) -> States:
        """Return what the head reads of the target's last evaluation, which had ``count`` tokens."""
        if self._is_mtp:
            return _rows(self._call["last"](self.target.context), count, self._width)
        return self._encode(self.features(count))

    @timed
    def _encode(self, features: States) -> States:
        at = int(self.lib.llama_memory_seq_pos_max(self._memory, 0)) + 1  # the encoder does not use it
        self._process(_ENCODE, at, states=features, is_output=True)
        return _rows(self._call["last"](self.context), len(features), self._width)

    @timed
    def step(self, token: int, at: int, state: States) -> tuple[Logits, States]:
        """Evaluate a token at a position of the text; return its logits and the head's own state.

        Args:
            token: the token.
            at: its position.
            state: of the token before it: the target's, or in a draft the head's own.
        """
        self._process(_DECODE, self._place(at), tokens=[token], states=[state], is_output=True)
        address = self._call["last_at"](self.context, 0)
        return self._logits(1)[0], _rows(address, 1, self._width)[0]

    def follow(self, tokens: Sequence[int], at: int) -> None:
        """Read the tokens of the target's last evaluation, which began at a position."""
        states = self.states(len(tokens))
        self.absorb(tokens, at, [self.state, *states[:-1]])
        self.state = states[-1]

    @timed
    def absorb(self, tokens: Sequence[int], at: int, states: Sequence[States]) -> None:
        """Enter tokens of the text from a position on; ``states`` are those of the token before each."""
        start = 0 if self._is_mtp or at else 1  # EAGLE-3 has no entry for a text's first token
        if len(tokens) > start:
            place = self._place(at + start)
            self._process(_DECODE, place, tokens=tokens[start:], states=states[start:], is_output=False)
            self.wait()

    def forget(self, at: int) -> None:
        """Remove the entries of the tokens from a position on."""
        super().forget(self._place(at))

    def _place(self, at: int) -> int:
        """Return where the token of a position is in the cache: EAGLE-3's stands at the state before it."""
        return at if self._is_mtp else at - 1


class BlockHead(LoadedHead):
    """A DFlash or DSpark head, which drafts a block in one evaluation.

    The block is the text's last token, with a mask for every further token. Its first tokens depend on its
    length, because attention within it goes both ways in most heads. The cache holds the target's states
    alone: the block is removed after each draft.

    Attributes:
        estimates: whether the head estimates how likely its tokens are accepted; p_min is compared with that.
        longest: the draft size for which the head was trained; llama.cpp drafts no more.
    """

    def __init__(self, target: Model, load: ModelLoad, *, threads: int) -> None:
        """Load the head; see ``LoadedHead``."""
        super().__init__(target, load, threads=threads)
        self.estimates = load.head is Method.DRAFT_DSPARK
        drafts_at_first = self.estimates and self._setting("sample_from_anchor", "true") == "true"
        self._first = 0 if drafts_at_first else 1  # token of the block at which a token is drafted
        self.longest = int(self._setting("block_size", _BLOCK)) - self._first
        self._mask = int(self.lib.llama_vocab_mask(self.lib.llama_model_get_vocab(self.handle)))
        self.lib.llama_set_causal_attn(self.context, self._setting("attention.causal", "false") == "true")

    @timed
    def draft(self, token: int, at: int, size: int) -> None:
        """Draft ``size`` tokens after the token at a position."""
        block = [token, *[self._mask] * (size + self._first - 1)]
        self._process(_DECODE, at, tokens=block, is_output=True)

    def drafted(self, size: int) -> Logits:
        """Return the logits of the last draft's tokens, shape (size, vocabulary)."""
        return self._logits(size + self._first)[self._first :]

    def chances(self, size: int) -> States:
        """Return DSpark's estimate that each token of the last draft is accepted, shape (size,)."""
        rows = _rows(self._call["last"](self.context), size + self._first, self._width)
        return rows[self._first :, 0]

    def choose_all(self, size: int) -> None:
        """Let the head's sampler take the tokens of the last draft, as programs do."""
        for position in range(self._first, self._first + size):
            self.choose(position)

    def follow(self, tokens: Sequence[int], at: int) -> None:
        """Read the tokens of the target's last evaluation, which began at a position."""
        self.absorb(self.features(len(tokens)), at)

    @timed
    def absorb(self, features: States, at: int) -> None:
        """Enter the target's states of tokens from a position on, which ``features`` returned."""
        self._process(_DECODE, at, states=features, is_output=False)
        self.wait()

    def _is_last(self, layer: int) -> bool:
        """Return False: targets for which such heads are made return the last output as any layer's input."""
        return False

    def _setting(self, name: str, default: str) -> str:
        """Return a value of the head's header as text."""
        size = 32
        text = ctypes.create_string_buffer(size)
        key = f"dflash.{name}".encode()
        size_bytes = self.lib.llama_model_meta_val_str(self.handle, key, text, size)
        return default if size_bytes < 0 else text.value.decode()


Drafter = Model | ChainedHead | BlockHead


def load_head(target: Model, load: ModelLoad, *, threads: int) -> ChainedHead | BlockHead:
    """Load a head by its method; see ``LoadedHead``."""
    if load.head is not None and load.head.drafts_block:
        return BlockHead(target, load, threads=threads)
    return ChainedHead(target, load, threads=threads)


def _functions(lib: Llama) -> dict[str, Any]:
    """Return the functions of the staging header, by our names for them.

    Raises:
        Failure: the library lacks one.
    """
    try:
        lib.llama_process  # noqa: B018  # which takes the states that the others return
        return {name: lib.symbol(*declared) for name, declared in _SYMBOLS.items()}
    except AttributeError as error:
        raise Failure(Status.FAILED, "the library returns no hidden states, which heads read") from error


def _rows(address: int | None, count: int, width: int) -> States:
    """Return a copy of what the library wrote, shape (count, width).

    Raises:
        Failure: it wrote nothing.
    """
    if not address:
        raise Failure(Status.FAILED, "the library returned no hidden states")
    flat = np.ctypeslib.as_array((ctypes.c_float * (count * width)).from_address(address))
    return flat.reshape(count, width).copy()
