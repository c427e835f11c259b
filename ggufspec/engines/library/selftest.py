"""Whether the engine ``inprocess`` can use a library: by what it computes, not by where it came from.

It has to compute what the embedded models are known to write: token by token, in a batch, and after a
roll-back. A library whose parameters agree with a layout may still have other functions than are declared.
Then each kind of head drafts for the target, as the functions that feed heads may be there and return
something else.

Run as a program, this loads the library and prints what it does and finds line by line; a crash ends that
process alone, and what was printed before it counts. The answer is kept in the cache folder, under the
digest of the library's files and of what it was compared with.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from ggufspec import digests, paths, proc, temporary
from ggufspec.domain import Failure, Method, Sampling
from ggufspec.engines.library.decoding import likeliest
from ggufspec.engines.library.llama_h import LAYOUTS, find_header, load_library
from ggufspec.engines.library.messages import (
    DraftLimits,
    ModelLoad,
    Prepare,
    Prepared,
    RecordedTrace,
    TraceRun,
)
from ggufspec.engines.library.model import Model, read_in_batches
from ggufspec.engines.library.worker import Worker
from ggufspec.engines.library.worker_process import worker_environment
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import Install, find_library

_TIMEOUT_S = 60.0
_SERVER = "`ggufspec bench --engine server` and `ggufspec sweep --engine server` need none"
_BUILD = f"`ggufspec build` makes one that fits; {_SERVER}"
PROGRAM = (sys.executable, "-P", "-m", "ggufspec.engines.library.selftest")
MARK = "self-test: "
"""Begins each line of the answer."""

STEP = "self-test step: "
"""Begins each line that says what is done next."""

PASSED = "passed"
"""The first line if the library can be used, otherwise why it cannot. The methods of heads follow."""

_DEMO = paths.models_dir() / "demo"
_PROMPT = 'def count_stones(stones):\n    """Return how many stones there are."""'
_ANSWER = "\n    total = 0\n    for stone in stones:\n        total += 1\n    return total\n"
"""What the embedded target writes; each token leads the next likeliest by 2.8 in logits or more, so that no
order of additions, on any processor, chooses another one."""

_ROLLED_BACK = 8  # tokens
_CONTEXT = 256  # tokens
_DRAFTED = 4  # tokens
_WRITTEN = 30  # tokens
_HEADS = {
    Method.DRAFT_EAGLE3: ("target.gguf", "eagle3.gguf", 0.65),
    Method.DRAFT_MTP: ("mtp.gguf", "mtp.gguf", 0.55),  # layers inside the target
    Method.DRAFT_DFLASH: ("target.gguf", "dflash.gguf", 0.35),
}
"""An embedded target and head, and the least share of drafted tokens that the target accepts.

The target accepts 0.95, 0.95 and 0.61 of what they draft here, and 0.36, 0.19 and 0.05 where the states are
all zero. Each limit lies between, so that no order of additions decides."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that computes what it should.

    Attributes:
        folder: where it is.
        heads: the methods whose heads it feeds with the target's states, through C++ names that no header
            promises.
    """

    folder: Path
    heads: frozenset[Method]


def check_library(install: Install) -> Library:
    """Return what an install's library can do.

    Raises:
        NoInstallError: there is no library beside the programs, it is a fork's, it does not load, its
            parameters are unknown, or it computes something else.
    """
    if install.fork is not None:
        reason = f"the library of {install.fork} in {install.root} has other functions than llama.cpp's"
        raise NoInstallError(reason, f"`ggufspec build` makes a llama.cpp; {_SERVER}")
    file = find_library(install.library or install.root)
    if file is None:
        reason = f"the llama.cpp in {install.root} has no shared library beside its programs"
        raise NoInstallError(reason, f"`ggufspec build` makes one; {_SERVER}")
    problem, heads = _examine(file)
    if problem is not None:
        raise NoInstallError(f"the engine inprocess cannot use {file}: {problem}", _BUILD)
    return Library(folder=file.parent, heads=frozenset(map(Method, heads)))


@cache
def _examine(file: Path) -> tuple[str | None, tuple[str, ...]]:
    """Return why a library cannot be used, and the methods of the heads that it feeds."""
    kept = paths.cache_dir() / "libraries" / f"{_digest(file)}.json"
    with suppress(OSError, ValueError):
        problem, heads = json.loads(kept.read_text(encoding="utf-8"))
        return problem, tuple(heads)
    with temporary.folder() as scratch:
        completed, out, _ = proc.capture(
            [*PROGRAM, str(file.parent)], env=worker_environment(scratch), cwd=scratch, timeout_s=_TIMEOUT_S
        )
    marked = [line for line in out.splitlines() if line.startswith(MARK)]  # a library prints, too
    answer, *heads = [line.removeprefix(MARK) for line in marked] or [""]
    if not answer:
        step = next((line for line in reversed(out.splitlines()) if line.startswith(STEP)), f"{STEP}starting")
        code = completed.signal or f"exit code {completed.returncode}"
        end = f"did not end within {_TIMEOUT_S:.0f} s" if completed.timed_out else f"ended with {code}"
        return f"its test {end} while {step.removeprefix(STEP)}", ()
    problem = None if answer == PASSED else answer
    with suppress(OSError):  # without a cache, the test is made again
        paths.write_atomically(kept, json.dumps([problem, heads]))
    return problem, tuple(heads)


def _digest(file: Path) -> str:
    """Return what the answer depends on: the library, ggml's beside it, the layouts, its header, the test."""
    beside = sorted(path for path in file.parent.iterdir() if path.name.startswith(("libggml", "ggml")))
    header = find_header(file)
    files = (file, *beside, LAYOUTS, Path(__file__), *filter(None, (header,)))
    contents = "".join(digests.of_file(path).sha256 for path in files if path.is_file())
    return hashlib.sha256(contents.encode()).hexdigest()


def check(folder: Path) -> Iterator[str]:
    """Yield each step after ``STEP``, and the answer after ``MARK``.

    The answer is ``PASSED`` and the methods of the heads that a library feeds, or why it cannot be used.
    """
    try:
        yield f"{STEP}loading it and comparing its parameters"
        library = load_library(folder)
        yield f"{STEP}loading the embedded model"
        model = Model(library, _load("target.gguf"), threads=1)
        prompt, answer = model.vocabulary.tokens(_PROMPT), model.vocabulary.continuation(_ANSWER.encode())
        problem = yield from _compare(model, prompt, answer or [])
    except Failure as failure:
        file = str(find_library(folder))  # the answer is kept for all copies of a library: it names no place
        problem = failure.reason.removeprefix(f"{file} cannot be used: ").replace(file, Path(file).name)
    yield f"{MARK}{problem or PASSED}"
    if problem is None:
        worker = Worker(folder)
        for method, (target, head, least) in _HEADS.items():
            inside = target == head
            loads = _load(target, with_mtp=inside), _load(head, head=method)
            if _accepted(worker, *loads) >= least:
                yield f"{MARK}{method.value}"


def _load(name: str, **how: Any) -> ModelLoad:
    return ModelLoad(path=str(_DEMO / name), context_tokens=_CONTEXT, gpu_layers=0, **how)


def _compare(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> Generator[str, None, str | None]:
    """Yield steps; return how the likeliest tokens differ from the answer's, None if they do not."""
    yield f"{STEP}writing a text"
    text, start = (*prompt, *answer), len(prompt) - 1
    model.evaluate(prompt[:-1], 0)
    written = [likeliest(row) for row, _ in read_in_batches(model, text, start, size=1)]
    if written != [*answer]:
        return f"the embedded model writes {model.vocabulary.text(written)!r}"
    if not model.rolls_back:
        return "its cache cannot be rolled back"
    for at in (start, len(text) - 1 - _ROLLED_BACK):  # the answer as one batch, then its end once more
        yield f"{STEP}evaluating a batch{'' if at == start else ' after a roll-back'}"
        model.forget(at)
        if [likeliest(row) for row, _ in read_in_batches(model, text, at)] != [*text[at + 1 :]]:
            return f"a batch of {len(text) - 1 - at} tokens gives other tokens than one after the other"
    return None


def _accepted(worker: Worker, target: ModelLoad, head: ModelLoad) -> float:
    """Return the share of a head's drafted tokens that are accepted; 0 if it cannot draft."""
    run = TraceRun(
        target=target,
        drafters=(head,),
        prompt=_PROMPT,
        n_predict=_WRITTEN,
        threads=1,
        sampling=Sampling(),
        limits=DraftLimits(sizes=(_DRAFTED,)),
    )
    prepared = worker.answer(Prepare(target=target, threads=1, drafters=(head,)))
    reply = worker.answer(run) if isinstance(prepared, Prepared) else prepared
    if not isinstance(reply, RecordedTrace):
        return 0.0
    (traced,) = reply.drafters
    drafts = traced.drafts or (traced.blocks or {}).get(_DRAFTED, {}).values()
    return fmean(draft.accepted for draft in drafts) / _DRAFTED if drafts else 0.0


if __name__ == "__main__":
    for line in check(Path(sys.argv[1])):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    os._exit(0)  # skip unloading, in which libraries have crashed
