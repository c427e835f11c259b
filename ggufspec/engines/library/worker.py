"""The child process that loads llama.cpp and answers requests until its engine closes the channel.

The engine starts it with a socket as standard output; what the library prints goes to standard error instead.
With a model on the command line, it makes one run, prints the record and exits.

A text that is known already is scored as the target itself sees it: teacher forcing, in batches.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ggufspec import stats
from ggufspec.domain import Failure, Status
from ggufspec.engines.library import commandline, messages
from ggufspec.engines.library.costing import curve
from ggufspec.engines.library.decoding import write
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, load_head
from ggufspec.engines.library.llama_h import Llama, load_library
from ggufspec.engines.library.model import OUTPUTS, Logits, Model, read_in_batches
from ggufspec.engines.library.spread import Spreads
from ggufspec.engines.library.tracing import trace
from ggufspec.stats import sampling as exact

_BROKEN = "\N{REPLACEMENT CHARACTER}"  # stands for bytes that are not known any more
_LINE_BREAKS = 8  # that may have stood at the end of a text, and are never stored


def score(target: Model, run: messages.ScoreRun) -> messages.TextScores:
    """Return what the target says of each token.

    Raises:
        Failure: prompt and answer do not fit into the context, or the answer cannot be written in tokens.
    """
    target.use_threads(run.threads)
    target.clear()
    prompt = target.vocabulary.tokens(run.prompt)
    if not prompt:
        raise Failure(Status.FAILED, "the prompt has no tokens, and the model adds none")
    target.evaluate(prompt[:-1], 0)
    if isinstance(run.answer, str):
        if not run.sampling.greedy:
            raise Failure(Status.FAILED, "the tokens of a sampled text are not known")
        return messages.TextScores(margins=_score_text(target, prompt, run.answer, ended=run.ended))
    if run.sampling.greedy:
        return messages.TextScores(margins=_score_tokens(target, prompt, run.answer, ended=run.ended))
    return messages.TextScores(places=_place_tokens(target, prompt, run))


def _score_tokens(
    target: Model, prompt: Sequence[int], answer: Sequence[int], *, ended: bool
) -> tuple[float, ...]:
    text = (*prompt, *answer)
    margins = [_margin(row, token) for row, token in read_in_batches(target, text, len(prompt) - 1)]
    if ended and not (answer and target.vocabulary.ends(answer[-1])):
        margins.append(_end_margin(target, target.step(text[-1], len(text) - 1)))
    return tuple(margins)


def _score_text(target: Model, prompt: Sequence[int], answer: str, *, ended: bool) -> tuple[float, ...]:
    """Score a text whose tokens are not known: where two tokens begin its rest, the target's choice counts.

    A text is tokenised otherwise than it was written now and then. What the target would have written is
    therefore tried at each place before the tokeniser's own choice. A text is scored up to its first byte
    that is not known.
    """
    target.check_rollback()
    whole, broken, _ = answer.partition(_BROKEN)
    rest, last, at = whole.encode(), prompt[-1], len(prompt) - 1
    vocabulary = target.vocabulary
    margins: list[float] = []
    while rest:
        tokens = vocabulary.continuation(rest)
        if tokens is None:
            raise Failure(Status.FAILED, "the vocabulary has no tokens that write this text")
        target.evaluate([last, *tokens[: OUTPUTS - 1]], at, outputs=min(OUTPUTS, len(tokens) + 1))
        for row, token in zip(target.rows(OUTPUTS), tokens, strict=False):
            choice = int(row.argmax())
            piece = vocabulary.piece(choice)
            is_other = choice != token and bool(piece) and rest.startswith(piece)
            last = choice if is_other else token
            margins.append(_margin(row, last))
            rest = rest.removeprefix(vocabulary.piece(last))
            at += 1
            if is_other:
                break
        target.forget(at)
    if ended and not broken:
        row = target.step(last, at)
        for _ in range(_LINE_BREAKS):
            choice = int(row.argmax())
            if vocabulary.ends(choice) or vocabulary.piece(choice).strip(b"\n"):
                break
            at += 1
            row = target.step(choice, at)
        margins.append(_end_margin(target, row))
    return tuple(margins)


def _place_tokens(target: Model, prompt: Sequence[int], run: messages.ScoreRun) -> tuple[float | None, ...]:
    """Return each token's place in its distribution; random within its probability, the same every time."""
    assert not isinstance(run.answer, str)
    generator = np.random.default_rng([len(prompt), *(abs(token) for token in run.answer)])
    return tuple(
        stats.place_token(exact.distribution(row, run.sampling), token, generator.random())
        for row, token in read_in_batches(target, (*prompt, *run.answer), len(prompt) - 1)
    )


def _margin(row: Logits, token: int) -> float:
    """Return how much likelier the likeliest token is, in nats: what logits differ by."""
    return float(row.max() - row[token])


def _end_margin(target: Model, row: Logits) -> float:
    """Return how much likelier than any end of the text the likeliest token is."""
    return min((_margin(row, token) for token in target.vocabulary.end_tokens), default=float("inf"))


_CHOSEN = b"ffn_moe_topk-"  # before the layer's number: build_moe_ffn in llama.cpp's src/llama-graph.cpp
_Callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)


class _TensorShape(ctypes.Structure):
    """How struct ggml_tensor begins; ``sizes`` are in elements and ``strides`` in bytes."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * 4),
        ("strides", ctypes.c_size_t * 4),
    )


def trace_experts(target: Model, run: messages.ExpertRun) -> messages.ExpertChoices:
    """Evaluate a text in a second context of the target, and keep what its routers choose.

    llama.cpp's callback for evaluations splits a graph behind every tensor that it looks at, which takes
    time. So it has a context of its own, beside the one in which runs are timed.

    Raises:
        Failure: there is no memory for another context, or the text does not fit into it.
    """
    lib = target.lib
    chosen: dict[int, list[tuple[int, ...]]] = {}

    def observe(tensor: int, is_question: bool, _: Any) -> bool:
        name: bytes = lib.ggml_get_name(tensor)
        if not name.startswith(_CHOSEN):
            return not is_question
        if not is_question:
            chosen.setdefault(int(name.removeprefix(_CHOSEN)), []).extend(_read_rows(lib, tensor))
        return True

    callback = _Callback(observe)  # as long as this name lives, llama.cpp may call it
    address = ctypes.cast(callback, ctypes.c_void_p).value
    model = Model(lib, run.target, threads=run.threads, handle=target.handle, cb_eval=address)
    try:
        prompt = model.vocabulary.tokens(run.prompt)
        model.evaluate(prompt[:-1], 0)
        chosen.clear()
        # the last layer evaluates only tokens whose logits are wanted, so that all of them are
        for _ in read_in_batches(model, (*prompt, *run.answer), len(prompt) - 1):
            pass
        model.wait()
    finally:
        lib.llama_free(model.context)
    return messages.ExpertChoices(layers={layer: tuple(rows) for layer, rows in sorted(chosen.items())})


def _read_rows(lib: Llama, tensor: int) -> list[tuple[int, ...]]:
    """Return the experts of each token: the first columns of what sorts all of them, so rows lie apart."""
    shape = _TensorShape.from_address(tensor)
    n_used, n_tokens = shape.sizes[0], shape.sizes[1]
    row = (ctypes.c_int32 * n_used)()
    rows = []
    for token in range(n_tokens):
        lib.ggml_backend_tensor_get(tensor, row, token * shape.strides[1], ctypes.sizeof(row))
        rows.append(tuple(row))
    return rows


_Key = tuple[messages.ModelLoad, bool]  # the second: the target drafts for itself and needs a second cache


class Worker:
    """All loaded models, by the request that loaded them."""

    def __init__(self, library: Path) -> None:
        self._library = library  # its folder
        self._models: dict[_Key, Model] = {}
        self._heads: dict[
            tuple[messages.ModelLoad, messages.ModelLoad], ChainedHead | BlockHead
        ] = {}  # by target and head
        self._spreads = Spreads()
        self._compatible: set[tuple[messages.ModelLoad, messages.ModelLoad]] = set()

    @cached_property
    def _lib(self) -> Llama:
        """The library, which is loaded with the first model."""
        return load_library(self._library)

    def answer(self, request: messages.WorkerRequest) -> messages.WorkerReply:
        """Fulfil a request, or return why it failed. Only a crash of the library ends the process."""
        try:
            return self._fulfil(request)
        except Failure as failure:
            return messages.Refusal(status=failure.status, reason=failure.reason)
        except MemoryError:
            return messages.Refusal(status=Status.OUT_OF_MEMORY, reason="the worker ran out of memory")
        except Exception as error:  # noqa: BLE001  # a bug becomes a failed run; its traceback goes to the log
            traceback.print_exc()
            return messages.Refusal(status=Status.FAILED, reason=f"{type(error).__name__}: {error}")

    def _fulfil(self, request: messages.WorkerRequest) -> messages.WorkerReply:
        if isinstance(request, messages.Prepare):
            return self._prepare(request)
        target = self._models[request.target, False]
        drafters = [self._drafter(request.target, load) for load in request.drafters]
        match request:
            case messages.WorkerRun():
                return write(target, drafters, request, request.drafting)
            case messages.TraceRun():
                return trace(target, drafters, request, self._spreads)
            case messages.ScoreRun():
                return score(target, request)
            case messages.ExpertRun():
                return trace_experts(target, request)
            case _:
                assert isinstance(request, messages.CurveRun)
                return curve(target, drafters, request)

    def _drafter(self, target: messages.ModelLoad, load: messages.ModelLoad) -> Drafter:
        return self._models[load, load == target] if load.head is None else self._heads[target, load]

    def _prepare(self, request: messages.Prepare) -> messages.Prepared:
        begun = perf_counter()
        n_before = len(self._models) + len(self._heads)
        target = self._model((request.target, False), request.threads)
        for load in request.drafters:
            both = request.target, load
            if load.head is not None:
                target.check_rollback()
                if both not in self._heads:
                    self._heads[both] = load_head(target, load, threads=request.threads)
                continue
            drafter = self._model((load, load == request.target), request.threads)
            if both not in self._compatible:
                target.check_rollback()
                drafter.check_rollback()
                target.vocabulary.check(drafter.vocabulary)
                self._compatible.add(both)
        is_new = len(self._models) + len(self._heads) > n_before
        return messages.Prepared(load_s=perf_counter() - begun if is_new else None)

    def _model(self, key: _Key, threads: int) -> Model:
        if key not in self._models:
            self._models[key] = Model(self._lib, key[0], threads=threads)
        return self._models[key]


def serve(channel: Connection, library: Path) -> None:
    """Answer requests one by one until the channel is closed."""
    worker = Worker(library)
    gc.disable()  # it must not run during a measurement
    while True:
        try:
            request = channel.recv()
        except (EOFError, ConnectionError):
            return
        channel.send(worker.answer(request))
        gc.collect()
        gc.freeze()  # what remains is kept, and later collections skip it


def run_once(run: messages.WorkerRun, library: Path) -> int:
    """Make one run and print its record; return the exit code."""
    worker = Worker(library)
    reply = worker.answer(messages.Prepare(target=run.target, drafters=run.drafters, threads=run.threads))
    if isinstance(reply, messages.Prepared):
        reply = worker.answer(run)
    if isinstance(reply, messages.Refusal):
        sys.stderr.write(f"{reply.status.value}: {reply.reason}\n")
        return 1
    assert isinstance(reply, messages.LibraryRecord)
    sys.stdout.write(reply.to_json())
    return 0


def main(argv: Sequence[str]) -> int:
    """Serve requests, or make the run that the command line describes."""
    library, run = commandline.parse_command(argv)
    if run is not None:
        return run_once(run, library)
    channel = Connection(os.dup(1))
    os.dup2(2, 1)
    serve(channel, library)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # skip unloading, in which libraries have crashed
