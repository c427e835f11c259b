"""One loaded model with its context: its vocabulary, evaluation, logits that are not copied, and rollback.

Parameters that differ from the defaults of llama.h are those that llama.cpp's programs set
(common/common.cpp).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, wraps
from itertools import takewhile
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import Failure, Method, Sampling, Status
from ggufspec.engines.library.llama_h import CACHE_TYPES, FLASH_ATTENTION_ON, SPLIT_MODES, Batch, Llama
from ggufspec.engines.library.messages import ModelLoad

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


OUTPUTS = 64
"""Maximum number of tokens per evaluation whose logits can be read. It sets the size of the buffers."""

LIKELIEST = 10
"""Tokens that llama.cpp's drafter keeps; p_min is compared with the first one's probability among them."""

_BATCH = 2048  # tokens; the default of --batch-size
_NO_SLOT = 1  # llama_decode: the context is full
_FLOAT_TYPES = {"f32", "f16", "bf16"}  # of a cache; all others need flash attention

Logits = NDArray[np.float32]
_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h: LLM_FFN_EXPS_REGEX
_NOTHING = "none"
_registered: set[str] = set()  # addresses of workers; the library keeps them as long as its process


R = TypeVar("R")
P = ParamSpec("P")


def timed(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Add the seconds of a method of a ``LoadedContext`` to its ``busy_s``; what it calls counts once."""

    @wraps(method)
    def measured(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        before_s, begun = self.busy_s, perf_counter()
        result = method(self, *args, **kwargs)
        self.busy_s = before_s + perf_counter() - begun
        return result

    return measured


class LoadedContext:
    """A model and a context of one sequence, whose cache holds the tokens evaluated so far.

    Attributes:
        lib: the library.
        path: the file.
        handle: llama.cpp's model.
        context: llama.cpp's context.
        n_ubatch: most tokens that are evaluated at once.
        busy_s: seconds spent in llama.cpp so far, evaluating, sampling and rolling back.
    """

    def __init__(self, lib: Llama, load: ModelLoad, *, threads: int, handle: Any, **settings: Any) -> None:
        """Load, unless ``handle`` is a loaded model; ``settings`` are those of ``make_context``.

        Raises:
            Failure: the library cannot load the model, or cannot create a context of that size.
        """
        self.busy_s = 0.0
        self.lib = lib
        self.path = load.path
        self.handle = handle or open_model(lib, load)
        self.context = make_context(lib, self.handle, load, **settings)
        self.n_ubatch = int(lib.llama_n_ubatch(self.context))
        self._memory = lib.llama_get_memory(self.context)
        self._sampler = make_sampler(lib, None)
        self._threads = 0
        self.use_threads(threads)

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for evaluations."""
        if threads != self._threads:
            self.lib.use_threads(self.context, threads)
            self._threads = threads

    def clear(self) -> None:
        """Empty the cache."""
        self.lib.llama_memory_clear(self._memory, True)

    @timed
    def wait(self) -> None:
        """Return when all evaluations are done."""
        self.lib.llama_synchronize(self.context)

    @timed
    def forget(self, at: int) -> None:
        """Remove the tokens from a position on from the cache."""
        self.lib.llama_memory_seq_rm(self._memory, 0, max(0, at), -1)

    @timed
    def choose(self, position: int = 0) -> int:
        """Sample a token at an output of the last evaluation, as programs do; see ``use_sampling``."""
        return int(self.lib.llama_sampler_sample(self._sampler, self.context, position))

    def use_sampling(self, sampling: Sampling | None) -> None:
        """Sample as llama.cpp's programs sample the target's tokens; None for the drafter's sampler."""
        self.lib.llama_sampler_free(self._sampler)
        self._sampler = make_sampler(self.lib, sampling)


class Model(LoadedContext):
    """A model that evaluates tokens: a target, or a drafter that needs no other model.

    Attributes:
        vocabulary: converts text to tokens and back.
        n_context: size of the cache in tokens.
        n_window: tokens of the sliding window of some layers; 0 where all layers see the whole context.
        rolls_back: whether the cache can be rolled back token by token, unlike that of recurrent models.
    """

    def __init__(
        self, lib: Llama, load: ModelLoad, *, threads: int, handle: Any = None, **settings: Any
    ) -> None:
        """Load and warm up; see ``LoadedContext``."""
        super().__init__(lib, load, threads=threads, handle=handle, **settings)
        self.vocabulary = ModelVocabulary(lib, self.handle)
        self.n_context = int(lib.llama_n_ctx(self.context))
        self.n_window = int(lib.llama_model_n_swa(self.handle))
        self._n_batch = int(lib.llama_n_batch(self.context))
        self._views: dict[int, Logits] = {}
        self._fill_batch()
        self._warm_up()

    def attached(self) -> AbstractContextManager[None]:
        """Return a context in which the model can draft; a head has a use for one."""
        return nullcontext()

    def read(self, tokens: Sequence[int], at: int) -> None:
        """Evaluate tokens of a text from position ``at`` on, which the target has evaluated."""
        self.evaluate(tokens, at)

    def step(self, token: int, at: int) -> Logits:
        """Evaluate one token at a position; return its logits, shape (vocabulary,)."""
        self._token[0] = token
        self._position[0] = at
        self._wanted[0] = 1
        self._decode(1)
        row: Logits = self.rows(1)[0]
        return row

    def evaluate(self, tokens: Sequence[int], at: int, *, outputs: int = 0) -> None:
        """Evaluate tokens from position ``at`` on; logits can be read for the last ``outputs`` of them.

        On a GPU this returns before the work is done; reading logits waits for it.
        """
        count = len(tokens)
        if outputs > OUTPUTS:
            raise Failure(Status.FAILED, f"drafts of more than {OUTPUTS - 1} tokens are not supported")
        n_without_logits = count - outputs
        start = 0
        while count - start > self._n_batch:
            size = min(self._n_batch, n_without_logits - start)
            self._put(tokens[start : start + size], at + start, wanted_from=size)
            start += size
        if count:
            self._put(tokens[start:], at + start, wanted_from=n_without_logits - start)

    def rows(self, count: int) -> Logits:
        """Return the logits of the last evaluation, shape (count, vocabulary), valid until the next one."""
        address = self.lib.llama_get_logits(self.context)
        view = self._views.get(address)
        if view is None:
            size = OUTPUTS * self.vocabulary.n_tokens
            flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
            view = self._views[address] = flat.reshape(OUTPUTS, -1)
        return view[:count]

    def check_rollback(self) -> None:
        """Raise a Failure if the cache cannot be rolled back token by token, as with recurrent models."""
        if not self.rolls_back:
            reason = (
                "the model's memory cannot be rolled back: only llama.cpp's own programs can draft for it"
            )
            raise Failure(Status.FAILED, reason)

    def _fill_batch(self) -> None:
        """Allocate the one batch that all evaluations use."""
        size = self._n_batch
        self._token, self._position = (ctypes.c_int32 * size)(), (ctypes.c_int32 * size)()
        self._wanted = (ctypes.c_int8 * size)()
        self._sequence = (ctypes.c_int32 * 1)(0)
        pointer = ctypes.cast(self._sequence, ctypes.POINTER(ctypes.c_int32))
        batch = self._batch = Batch()
        batch.token, batch.pos, batch.logits = self._token, self._position, self._wanted
        batch.embd = None
        batch.n_seq_id = (ctypes.c_int32 * size)(*[1] * size)
        batch.seq_id = (ctypes.POINTER(ctypes.c_int32) * size)(*[pointer] * size)
        self._tokens = np.ctypeslib.as_array(self._token)
        self._positions = np.ctypeslib.as_array(self._position)
        self._counted = np.arange(self.n_context + size, dtype=np.int32)
        self._wanteds = np.ctypeslib.as_array(self._wanted)

    def _put(self, tokens: Sequence[int], at: int, *, wanted_from: int) -> None:
        count = len(tokens)
        self._tokens[:count] = tokens
        self._positions[:count] = self._counted[at : at + count]
        self._wanteds[:wanted_from] = 0
        self._wanteds[wanted_from:count] = 1
        self._decode(count)

    @timed
    def _decode(self, count: int) -> None:
        self._batch.n_tokens = count
        code = self.lib.llama_decode(self.context, self._batch)
        if code == _NO_SLOT:
            reason = f"prompt and answer do not fit into the context of {self.n_context} tokens"
            raise Failure(Status.PROMPT_TOO_LONG, reason)
        if code:
            raise Failure(Status.FAILED, f"llama_decode returned {code} for a batch of {count} tokens")

    def _warm_up(self) -> None:
        """Read all weights once, and test whether the cache can be rolled back."""
        token = max(0, self.lib.llama_vocab_bos(self.lib.llama_model_get_vocab(self.handle)))
        self.evaluate([token, token], 0, outputs=2)
        self.rows(2)
        self.rolls_back = bool(self.lib.llama_memory_seq_rm(self._memory, 0, 1, -1))
        self.clear()
        self.wait()


def read_in_batches(
    model: Model, text: Sequence[int], first: int, *, size: int = OUTPUTS
) -> Iterator[tuple[Logits, int]]:
    """Evaluate a text from a position on, in batches; yield each token's logits and the token after it.

    The last token is not evaluated: none follows it.
    """
    for start in range(first, len(text) - 1, size):
        batch = text[start : min(start + size, len(text) - 1)]
        model.evaluate(batch, start, outputs=len(batch))
        yield from zip(model.rows(len(batch)), text[start + 1 :], strict=False)


def open_model(lib: Llama, load: ModelLoad) -> Any:
    """Load a model.

    Raises:
        Failure: the library cannot.
    """
    params = lib.llama_model_default_params()
    if load.gpu_layers is not None:
        params.n_gpu_layers = load.gpu_layers
    if load.with_mtp or load.head is Method.DRAFT_MTP:
        params.load_mtp = True
    buffers = set_placement(lib, params, load)
    model = lib.llama_model_load_from_file(load.path.encode(), params)
    del buffers  # the library reads them until here
    if not model:
        raise Failure(Status.LOAD_FAILED, f"the library cannot load {load.path}")
    return model


def make_context(lib: Llama, model: Any, load: ModelLoad, **settings: Any) -> Any:
    """Return a context for a model; ``settings`` are further fields of llama_context_params.

    Raises:
        Failure: the library cannot create one of that size.
    """
    params = lib.llama_context_default_params()
    params.n_ctx = load.context_tokens
    params.n_batch = max(_BATCH, load.ubatch_tokens or 0)
    if load.ubatch_tokens is not None:
        params.n_ubatch = load.ubatch_tokens
    params.n_outputs_max = OUTPUTS
    params.n_outputs_max_per_seq = OUTPUTS
    params.swa_full = False
    if load.kv_type is not None:
        cache_type = CACHE_TYPES.get(load.kv_type)
        if cache_type is None:
            raise Failure(Status.FAILED, f"the library does not support the cache type {load.kv_type}")
        params.type_k = params.type_v = cache_type
        if load.kv_type not in _FLOAT_TYPES:
            params.flash_attn_type = FLASH_ATTENTION_ON
            params.flash_attn = True  # its name before llama.cpp b6325
    for name, value in settings.items():
        setattr(params, name, value)
    context = lib.llama_init_from_model(model, params)
    if not context:
        reason = f"the library cannot create a context of {load.context_tokens} tokens for {load.path}"
        raise Failure(Status.LOAD_FAILED, reason)
    return context


def make_sampler(lib: Llama, sampling: Sampling | None) -> Any:
    """Return the samplers of a run in llama.cpp's order (common/sampling.cpp); None: those of a drafter."""
    links = [lib.llama_sampler_init_top_k(LIKELIEST)]
    if sampling is not None:
        links = [
            lib.llama_sampler_init_top_k(sampling.top_k),
            lib.llama_sampler_init_top_p(sampling.top_p, 1),
            lib.llama_sampler_init_min_p(sampling.min_p, 1),
            lib.llama_sampler_init_temp(sampling.temperature),
        ]
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for link in (*links, lib.llama_sampler_init_dist(1)):
        lib.llama_sampler_chain_add(chain, link)
    return chain


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``: a pattern of tensor names, and the buffer type for them."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def set_placement(lib: Llama, params: Any, load: ModelLoad) -> tuple[Any, ...]:
    """Set the placement beside the layers; return buffers that must live until the model is loaded.

    Raises:
        Failure: the library lacks a device or a function.
    """
    _add_workers(lib, load.rpc)  # their devices can be named from here on
    if load.split_mode is not None:
        params.split_mode = SPLIT_MODES[load.split_mode]
    if load.main_gpu is not None:
        params.main_gpu = load.main_gpu
    buffers: list[Any] = []
    if load.tensor_split:
        most = int(lib.llama_max_devices())
        if len(load.tensor_split) > most:
            reason = f"{len(load.tensor_split)} shares, but the library supports at most {most} devices"
            raise Failure(Status.FAILED, reason)
        buffers.append((ctypes.c_float * most)(*load.tensor_split))
        params.tensor_split = ctypes.cast(buffers[-1], ctypes.c_void_p)
    if load.devices:
        buffers.append(_devices(lib, load.devices))
        params.devices = ctypes.cast(buffers[-1], ctypes.c_void_p)
    if load.cpu_moe is not None:
        buffers.append(_on_processor(lib, load))
        params.tensor_buft_overrides = ctypes.cast(buffers[-1], ctypes.c_void_p)
    return tuple(buffers)


def _add_workers(lib: Llama, addresses: tuple[str, ...]) -> None:
    """Register the devices of workers, as for ``--rpc`` (``add_rpc_devices`` in common/arg.cpp).

    The function that does it is not exported; the backend gives its address.
    """
    for address in addresses:
        if address in _registered:
            continue
        backend = _function(lib, "ggml_backend_reg_by_name")(b"RPC")
        if not backend:
            raise Failure(Status.FAILED, "the library has no RPC; `ggufspec build` makes one with it")
        find_address = _function(lib, "ggml_backend_reg_get_proc_address")
        add_server = find_address(backend, b"ggml_backend_rpc_add_server")
        if not add_server:
            raise Failure(Status.FAILED, "the library's RPC cannot add a worker")
        worker = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(add_server)(address.encode())
        if not worker:
            raise Failure(Status.WORKER_UNREACHABLE, f"the library cannot use the worker {address}")
        _function(lib, "ggml_backend_register")(worker)
        _registered.add(address)


def _devices(lib: Llama, names: tuple[str, ...]) -> Any:
    """Return a NULL-terminated list of devices, as for ``--device``."""
    if names == (_NOTHING,):
        return (ctypes.c_void_p * 1)(None)
    find_device = _function(lib, "ggml_backend_dev_by_name")
    devices = [find_device(name.encode()) for name in names]
    unknown = [name for name, device in zip(names, devices, strict=True) if not device]
    if unknown:
        raise Failure(Status.FAILED, f"the library has no device {unknown[0]}")
    return (ctypes.c_void_p * (len(devices) + 1))(*devices, None)


def _on_processor(lib: Llama, load: ModelLoad) -> Any:
    """Return the overrides of ``--cpu-moe`` or ``--n-cpu-moe``, with an empty one at the end."""
    buffer_type = _function(lib, "ggml_backend_cpu_buffer_type")()
    if load.cpu_moe == "all":
        patterns = [_EXPERTS]
    else:
        patterns = [rb"blk\.%d" % number + _EXPERTS for number in range(load.cpu_moe or 0)]
    overrides = (_Override * (len(patterns) + 1))()
    for override, pattern in zip(overrides, patterns, strict=False):
        override.pattern, override.buffer_type = pattern, buffer_type
    return overrides


def _function(lib: Llama, name: str) -> Any:
    try:
        return getattr(lib, name)
    except AttributeError as error:
        raise Failure(Status.FAILED, f"the library has no {name}, which this placement needs") from error
