"""The child process that loads llama.cpp and answers requests until its engine closes the channel.

The engine starts it with a socket as standard output; what the library prints goes to standard error instead.
With a model on the command line, it makes one run, prints the record and exits.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter

from ggufspec.domain import Failure, Status
from ggufspec.engines.library import commandline
from ggufspec.engines.library.costing import curve
from ggufspec.engines.library.decoding import write
from ggufspec.engines.library.heads import BlockHead, ChainedHead, Drafter, make_head
from ggufspec.engines.library.llama_h import Llama, load_library
from ggufspec.engines.library.messages import (
    CurveRun,
    LibraryRecord,
    ModelLoad,
    Prepare,
    Prepared,
    Refusal,
    ScoreRun,
    TraceRun,
    WorkerReply,
    WorkerRequest,
    WorkerRun,
)
from ggufspec.engines.library.model import Model, Threadpools
from ggufspec.engines.library.scoring import score
from ggufspec.engines.library.spread import Spreads
from ggufspec.engines.library.tracing import trace

_Key = tuple[ModelLoad, bool]  # the second: the target drafts for itself and needs a second cache


class Worker:
    """All loaded models, by the request that loaded them."""

    def __init__(self, library: Path) -> None:
        self._library = library  # its folder
        self._lib: Llama | None = None
        self._threadpools: Threadpools | None = None
        self._models: dict[_Key, Model] = {}
        self._heads: dict[tuple[ModelLoad, ModelLoad], ChainedHead | BlockHead] = {}  # by target and head
        self._spreads = Spreads()
        self._compatible: set[tuple[ModelLoad, ModelLoad]] = set()

    def answer(self, request: WorkerRequest) -> WorkerReply:
        """Fulfil a request, or return why it failed. Only a crash of the library ends the process."""
        try:
            return self._fulfil(request)
        except Failure as failure:
            return Refusal(status=failure.status, reason=failure.reason)
        except MemoryError:
            return Refusal(status=Status.OUT_OF_MEMORY, reason="the worker ran out of memory")
        except Exception as error:  # noqa: BLE001  # a bug becomes a failed run; its traceback goes to the log
            traceback.print_exc()
            return Refusal(status=Status.FAILED, reason=f"{type(error).__name__}: {error}")

    def _fulfil(self, request: WorkerRequest) -> WorkerReply:
        match request:
            case Prepare():
                return self._prepare(request)
            case WorkerRun():
                load = request.drafter
                drafter = None if load is None else self._models[load, load == request.target]
                return write(self._models[request.target, False], drafter, request)
            case TraceRun():
                drafters = self._drafters(request.target, request.drafters)
                return trace(self._models[request.target, False], drafters, request, self._spreads)
            case ScoreRun():
                return score(self._models[request.target, False], request)
            case CurveRun():
                drafters = self._drafters(request.target, request.drafters)
                return curve(self._models[request.target, False], drafters, request)

    def _drafters(self, target: ModelLoad, loads: Sequence[ModelLoad]) -> list[Drafter]:
        return [
            self._models[load, load == target] if load.head is None else self._heads[target, load]
            for load in loads
        ]

    def _prepare(self, request: Prepare) -> Prepared:
        begun = perf_counter()
        n_before = len(self._models) + len(self._heads)
        target = self._model((request.target, False), request.threads)
        for load in request.drafters:
            if load.head is not None:
                self._load_head(request.target, load, request.threads)
                continue
            drafter = self._model((load, load == request.target), request.threads)
            if (request.target, load) not in self._compatible:
                target.check_rollback()
                drafter.check_rollback()
                target.vocabulary.check(drafter.vocabulary)
                self._compatible.add((request.target, load))
        is_new = len(self._models) + len(self._heads) > n_before
        return Prepared(load_s=perf_counter() - begun if is_new else None)

    def _model(self, key: _Key, threads: int) -> Model:
        if self._lib is None or self._threadpools is None:
            self._lib = load_library(self._library)
            self._threadpools = Threadpools(self._lib)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = Model(self._lib, self._threadpools, key[0], threads=threads)
        return model

    def _load_head(self, target: ModelLoad, load: ModelLoad, threads: int) -> None:
        if (target, load) not in self._heads:
            assert self._lib is not None
            assert self._threadpools is not None
            model = self._models[target, False]
            model.check_rollback()
            self._heads[target, load] = make_head(self._lib, self._threadpools, model, load, threads=threads)


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


def run_once(run: WorkerRun, library: Path) -> int:
    """Make one run and print its record; return the exit code."""
    worker = Worker(library)
    drafters = () if run.drafter is None else (run.drafter,)
    reply = worker.answer(Prepare(target=run.target, drafters=drafters, threads=run.threads))
    if isinstance(reply, Prepared):
        reply = worker.answer(run)
    if isinstance(reply, Refusal):
        sys.stderr.write(f"{reply.status.value}: {reply.reason}\n")
        return 1
    assert isinstance(reply, LibraryRecord)
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
