"""The child process that has llama.cpp loaded: answers requests until its engine is gone.

As the engine starts it, its standard output is a socket to the engine; what the library writes there goes
to standard error instead. Given a model, it makes one run, prints its record and ends.
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
from typing import Any

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library import binding, commandline
from ggufspec.engines.library.costing import curve
from ggufspec.engines.library.decoding import write
from ggufspec.engines.library.messages import (
    CurveRun,
    ModelLoad,
    Prepare,
    Prepared,
    Record,
    Refusal,
    Reply,
    Request,
    Run,
    ScoreRun,
    TraceRun,
)
from ggufspec.engines.library.model import Model, Threadpools
from ggufspec.engines.library.scoring import score
from ggufspec.engines.library.tracing import trace

_Key = tuple[ModelLoad, bool]  # the second: it drafts for itself, and needs a second cache for that


class Worker:
    """Everything that is loaded, by what was asked to load it."""

    def __init__(self, library: Path) -> None:
        self._library = library
        self._lib: Any = None
        self._threadpools: Threadpools | None = None
        self._models: dict[_Key, Model] = {}
        self._fitting: set[tuple[ModelLoad, ModelLoad]] = set()

    def answer(self, request: Request) -> Reply:
        """Fulfil a request, or say why not; only a crash of the library gets out."""
        try:
            return self._fulfil(request)
        except Failure as failure:
            return Refusal(status=failure.status, reason=failure.reason)
        except MemoryError:
            return Refusal(status=Status.OUT_OF_MEMORY, reason="the worker ran out of memory")
        except Exception as error:  # noqa: BLE001  # a bug of ours becomes a row, its traceback goes to the log
            traceback.print_exc()
            return Refusal(status=Status.FAILED, reason=f"{type(error).__name__}: {error}")

    def _fulfil(self, request: Request) -> Reply:
        match request:
            case Prepare():
                return self._prepare(request)
            case Run():
                (drafter,) = (
                    self._drafters(request.target, (request.drafter,)) if request.drafter else (None,)
                )
                return write(self._models[request.target, False], drafter, request)
            case TraceRun():
                drafters = self._drafters(request.target, request.drafters)
                return trace(self._models[request.target, False], drafters, request)
            case ScoreRun():
                return score(self._models[request.target, False], request)
            case CurveRun():
                drafters = self._drafters(request.target, request.drafters)
                return curve(self._models[request.target, False], drafters, request)

    def _drafters(self, target: ModelLoad, loads: Sequence[ModelLoad]) -> list[Model]:
        return [self._models[load, load == target] for load in loads]

    def _prepare(self, asked: Prepare) -> Prepared:
        begun = perf_counter()
        before = len(self._models)
        target = self._model((asked.target, False), asked.threads)
        for load in asked.drafters:
            drafter = self._model((load, load == asked.target), asked.threads)
            if (asked.target, load) not in self._fitting:
                target.check_rollback()
                drafter.check_rollback()
                target.vocabulary.check(drafter.vocabulary)
                self._fitting.add((asked.target, load))
        return Prepared(load_s=perf_counter() - begun if len(self._models) > before else None)

    def _model(self, key: _Key, threads: int) -> Model:
        if self._threadpools is None:
            self._lib = binding.load_binding(self._library)
            self._threadpools = Threadpools(self._lib)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = Model(self._lib, self._threadpools, key[0], threads=threads)
        return model


def serve(channel: Connection, library: Path) -> None:
    """Answer requests one after the other, until nobody asks any more."""
    worker = Worker(library)
    gc.disable()  # it may not run in the middle of a measurement
    while True:
        try:
            request = channel.recv()
        except (EOFError, ConnectionError):
            return
        channel.send(worker.answer(request))
        gc.collect()
        gc.freeze()  # what is left stays for good, and need not be looked through again


def once(run: Run, library: Path) -> int:
    """Make one run and print its record; return the exit code."""
    worker = Worker(library)
    drafters = () if run.drafter is None else (run.drafter,)
    reply = worker.answer(Prepare(target=run.target, drafters=drafters, threads=run.threads))
    if isinstance(reply, Prepared):
        reply = worker.answer(run)
    if isinstance(reply, Refusal):
        sys.stderr.write(f"{reply.status.value}: {reply.reason}\n")
        return 1
    assert isinstance(reply, Record)
    sys.stdout.write(reply.to_json())
    return 0


def main(argv: Sequence[str]) -> int:
    """Serve, or make the run that the command line describes."""
    library, run = commandline.read_command(argv)
    if run is not None:
        return once(run, library)
    channel = Connection(os.dup(1))
    os.dup2(2, 1)
    serve(channel, library)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # unloading is the system's affair; libraries have crashed in it
