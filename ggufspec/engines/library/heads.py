"""Heads in the library, fed with the target's hidden states as llama.cpp's programs do it.

Follows common/speculative.cpp. The functions that return hidden states belong to a staging header
(src/llama-ext.h) and have C++ names, so a library is asked first whether they work, see ``selftest.py``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Failure, Method, Status
from ggufspec.engines.library import model as models
from ggufspec.engines.library.llama_h import Embeddings, Llama
from ggufspec.engines.library.messages import ModelLoad
from ggufspec.engines.library.model import Logits, Model, Threadpools

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


class LoadedHead:
    """A head with a context of its own beside its target's.

    Attributes:
        busy_s: seconds spent in llama.cpp so far, as in ``Model``.
        most: tokens of which it takes the states at once, as programs evaluate a prompt.
    """

    def __init__(
        self, lib: Llama, threadpools: Threadpools, target: Model, load: ModelLoad, *, threads: int
    ) -> None:
        """Load the head, or make a context for the layers inside the target.

        Raises:
            Failure: the library cannot load it, or lacks a function that feeds it.
        """
        self.busy_s = 0.0
        self._lib, self._target, self._threadpools, self._threads = lib, target, threadpools, 0
        self._call = _functions(lib)
        self._is_mtp = load.head == Method.DRAFT_MTP
        is_inside = load.path == target.path
        self._model = target.handle if is_inside else models.open_model(lib, load)
        self._context = models.make_context(
            lib, self._model, load, ctx_other=target.context, ctx_type=_MTP_CONTEXT if self._is_mtp else 0
        )
        self.most = int(lib.llama_n_ubatch(self._context))
        self._memory = lib.llama_get_memory(self._context)
        self._batch = lib.llama_batch_ext_init(self._context)
        self._takes_states = hasattr(lib, "llama_batch_ext_set_embd_state")
        self._sampler = models.make_sampler(lib, None)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self._n_vocab = int(lib.llama_vocab_n_tokens(self._vocab))
        self._trunk = int(lib.llama_model_n_layer(target.handle))
        self._target_width = int(lib.llama_model_n_embd(target.handle))
        own_width = lib.llama_model_n_embd_out if self._is_mtp else lib.llama_model_n_embd
        self._width = int(own_width(self._model))
        count = 0 if self._is_mtp else self._call["n_layers"](self._model)
        self._layers = [self._call["layers"](self._model)[position] for position in range(count)]
        self._call["send_last"](self._context, True, True)
        self.use_threads(threads)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Let the target return the states that the head reads; else it would compute them in vain."""
        self._send_states(on=True)
        try:
            yield
        finally:
            self._send_states(on=False)

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for evaluations."""
        if threads != self._threads:
            self._lib.llama_set_n_threads(self._context, threads, threads)
            self._threadpools.attach(self._context, threads)
            self._threads = threads

    def clear(self) -> None:
        """Empty the cache."""
        self._lib.llama_memory_clear(self._memory, True)

    def wait(self) -> None:
        """Return when all evaluations are done."""
        self._lib.llama_synchronize(self._context)

    def choose(self, position: int = 0) -> None:
        """Let the head's sampler take a token at an output, as programs do after each evaluation."""
        begun = perf_counter()
        self._lib.llama_sampler_sample(self._sampler, self._context, position)
        self.busy_s += perf_counter() - begun

    def features(self, count: int) -> States:
        """Return the inputs of the target's layers that the head reads, of its last ``count`` tokens.

        The layers lie side by side: shape (count, layers × the target's width).
        """
        return np.hstack([self._layer(layer, count) for layer in self._layers])

    def _send_states(self, *, on: bool) -> None:
        context = self._target.context
        if self._is_mtp:
            self._call["send_last"](context, on, False)
        for layer in self._layers:
            if self._is_last(layer):
                self._call["send_last"](context, on, False)
            else:
                self._call["send_layer"](context, layer, on)

    def _layer(self, layer: int, count: int) -> States:
        context = self._target.context
        is_last = self._is_last(layer)
        address = self._call["last"](context) if is_last else self._call["layer"](context, layer)
        return _rows(address, count, self._target_width)

    def _is_last(self, layer: int) -> bool:
        """Whether a layer's input is the target's last output, for which there is another function."""
        return layer >= self._trunk

    def _remove(self, at: int) -> None:
        """Remove the entries from a place of the cache on."""
        begun = perf_counter()
        self._lib.llama_memory_seq_rm(self._memory, 0, max(0, at), -1)
        self.busy_s += perf_counter() - begun

    def _logits(self, count: int) -> Logits:
        """Return the logits of the last evaluation's outputs, of which there are ``count``."""
        return _rows(self._lib.llama_get_logits_ith(self._context, 0), count, self._n_vocab)

    def _finish(self, index: int, at: int, *, is_output: bool) -> None:
        self._lib.llama_batch_ext_set_pos(self._batch, index, (ctypes.c_int32 * 1)(at))
        self._lib.llama_batch_ext_set_output_logits(self._batch, index, is_output)

    def _embedding(self, row: States) -> Any:
        return Embeddings(row.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), 1, row.size)

    def _process(self, operation: int, count: int) -> None:
        code = self._lib.llama_process(self._context, operation, self._batch)
        if code:
            raise Failure(Status.FAILED, f"llama_process returned {code} for {count} tokens of a head")


class ChainedHead(LoadedHead):
    """An EAGLE-3 head, or a layer for MTP, which drafts token by token.

    A token enters its cache together with the state of the token before it.
    """

    @property
    def first_kept(self) -> bool:
        """Whether a draft's first entry stays valid when the target's states of verified tokens arrive."""
        return not self._is_mtp

    def first_state(self) -> States:
        """Return the state that stands before a text's first token, shape (width,)."""
        return np.zeros(self._width, dtype=np.float32)

    def states(self, count: int) -> States:
        """Return what the head reads of the target's last evaluation, which had ``count`` tokens."""
        if self._is_mtp:
            return _rows(self._call["last"](self._target.context), count, self._width)
        features = self.features(count)
        begun = perf_counter()
        self._lib.llama_batch_ext_clear(self._batch)
        at = int(self._lib.llama_memory_seq_pos_max(self._memory, 0)) + 1  # the encoder does not use it
        for position, row in enumerate(features):
            index = self._lib.llama_batch_ext_add_embd(self._batch, 0, self._embedding(row))
            self._finish(index, at + position, is_output=True)
        self._process(_ENCODE, count)
        states = _rows(self._call["last"](self._context), count, self._width)
        self.busy_s += perf_counter() - begun
        return states

    def step(self, token: int, at: int, state: States) -> tuple[Logits, States]:
        """Evaluate a token at a position of the text; return its logits and the head's own state.

        Args:
            token: the token.
            at: its position.
            state: of the token before it: the target's, or in a draft the head's own.
        """
        begun = perf_counter()
        self._enter([token], at, [state], is_output=True)
        row = self._call["last_at"](self._context, 0)
        logits = self._logits(1)[0]
        hidden = _rows(row, 1, self._width)[0]
        self.busy_s += perf_counter() - begun
        return logits, hidden

    def absorb(self, tokens: Sequence[int], at: int, states: Sequence[States]) -> None:
        """Enter tokens of the text from a position on; ``states`` are those of the token before each."""
        start = 0 if self._is_mtp or at else 1  # EAGLE-3 has no entry for a text's first token
        if len(tokens) > start:
            begun = perf_counter()
            self._enter(tokens[start:], at + start, states[start:], is_output=False)
            self.wait()
            self.busy_s += perf_counter() - begun

    def _set_state(self, index: int, state: Embeddings) -> None:
        """Give a token of the batch the target's state; builds until b11434 take it as an embedding."""
        if self._takes_states:  # unless the first answer says otherwise; MTP of v0.7.0 takes nothing else
            self._takes_states = self._lib.llama_batch_ext_set_embd_state(self._batch, index, state)
        if not self._takes_states:
            self._lib.llama_batch_ext_set_embd_token(self._batch, index, state)

    def forget(self, at: int) -> None:
        """Remove the entries of the tokens from a position on."""
        self._remove(self._place(at))

    def _place(self, at: int) -> int:
        """Return where the token of a position is in the cache: EAGLE-3's stands at the state before it."""
        return at if self._is_mtp else at - 1

    def _enter(self, tokens: Sequence[int], at: int, states: Sequence[States], *, is_output: bool) -> None:
        self._lib.llama_batch_ext_clear(self._batch)
        for position, (token, state) in enumerate(zip(tokens, states, strict=True)):
            index = self._lib.llama_batch_ext_add_token(self._batch, 0, token)
            self._set_state(index, self._embedding(state))
            self._finish(index, self._place(at + position), is_output=is_output)
        self._process(_DECODE, len(tokens))


class BlockHead(LoadedHead):
    """A DFlash or DSpark head, which drafts a block in one evaluation.

    The block is the text's last token, with a mask for every further token. Its first tokens depend on its
    length, because attention within it goes both ways in most heads. The cache holds the target's states
    alone: the block is removed after each draft.

    Attributes:
        estimates: whether the head estimates how likely its tokens are accepted; p_min is compared with that.
        longest: the draft size for which the head was trained; llama.cpp drafts no more.
    """

    def __init__(
        self, lib: Llama, threadpools: Threadpools, target: Model, load: ModelLoad, *, threads: int
    ) -> None:
        """Load the head; see ``LoadedHead``."""
        super().__init__(lib, threadpools, target, load, threads=threads)
        self.estimates = load.head is Method.DRAFT_DSPARK
        drafts_at_first = self.estimates and self._setting("sample_from_anchor", "true") == "true"
        self._first = 0 if drafts_at_first else 1  # token of the block at which a token is drafted
        self.longest = int(self._setting("block_size", _BLOCK)) - self._first
        self._mask = int(lib.llama_vocab_mask(self._vocab))
        lib.llama_set_causal_attn(self._context, self._setting("attention.causal", "false") == "true")

    def draft(self, token: int, at: int, size: int) -> None:
        """Draft ``size`` tokens after the token at a position."""
        begun = perf_counter()
        count = size + self._first
        self._lib.llama_batch_ext_clear(self._batch)
        for position in range(count):
            index = self._lib.llama_batch_ext_add_token(self._batch, 0, self._mask if position else token)
            self._finish(index, at + position, is_output=True)
        self._process(_DECODE, count)
        self.busy_s += perf_counter() - begun

    def drafted(self, size: int) -> Logits:
        """Return the logits of the last draft's tokens, shape (size, vocabulary)."""
        return self._logits(size + self._first)[self._first :]

    def chances(self, size: int) -> States:
        """Return DSpark's estimate that each token of the last draft is accepted, shape (size,)."""
        rows = _rows(self._call["last"](self._context), size + self._first, self._width)
        return rows[self._first :, 0]

    def choose_all(self, size: int) -> None:
        """Let the head's sampler take the tokens of the last draft, as programs do."""
        for position in range(self._first, self._first + size):
            self.choose(position)

    def absorb(self, features: States, at: int) -> None:
        """Enter the target's states of tokens from a position on, which ``features`` returned."""
        begun = perf_counter()
        self._lib.llama_batch_ext_clear(self._batch)
        for position, row in enumerate(features):
            index = self._lib.llama_batch_ext_add_embd(self._batch, 0, self._embedding(row))
            self._finish(index, at + position, is_output=False)
        self._process(_DECODE, len(features))
        self.wait()
        self.busy_s += perf_counter() - begun

    def forget(self, at: int) -> None:
        """Remove what the cache holds from a position on."""
        self._remove(at)

    def _is_last(self, layer: int) -> bool:
        """Return False: targets for which such heads are made return the last output as any layer's input."""
        return False

    def _setting(self, name: str, default: str) -> str:
        """Return a value of the head's header as text."""
        size = 32
        text = ctypes.create_string_buffer(size)
        key = f"dflash.{name}".encode()
        size_bytes = self._lib.llama_model_meta_val_str(self._model, key, text, size)
        return default if size_bytes < 0 else text.value.decode()


Drafter = Model | ChainedHead | BlockHead


def make_head(
    lib: Llama, threadpools: Threadpools, target: Model, load: ModelLoad, *, threads: int
) -> ChainedHead | BlockHead:
    """Load a head by its method; see ``LoadedHead``.

    Raises:
        Failure: the library cannot load it, or lacks a function that feeds it.
    """
    assert load.head is not None
    made = BlockHead if load.head.drafts_block else ChainedHead
    return made(lib, threadpools, target, load, threads=threads)


def read(target: Model, head: ChainedHead, tokens: Sequence[int], at: int, before: States) -> States:
    """Let target and head read tokens of a text; return the state of the last one.

    Args:
        target: whose states the head reads.
        head: attached to it.
        tokens: from the position ``at`` on.
        at: where they begin.
        before: the state of the token before them.
    """
    for start in range(0, len(tokens), head.most):
        piece = tokens[start : start + head.most]
        target.evaluate(piece, at + start)
        states = head.states(len(piece))
        head.absorb(piece, at + start, [before, *states[:-1]])
        before = states[-1]
    return before


def read_block(target: Model, head: BlockHead, tokens: Sequence[int], at: int) -> None:
    """Let target and head read tokens of a text from a position on; the head is attached to the target."""
    for start in range(0, len(tokens), head.most):
        piece = tokens[start : start + head.most]
        target.evaluate(piece, at + start)
        head.absorb(head.features(len(piece)), at + start)


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
