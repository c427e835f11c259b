"""Whether a library computes what the embedded models are known to write.

Token by token, in a batch, and after a roll-back: a library whose parameters agree with a layout may still
have other functions than are declared. Then each kind of head drafts for the target, as the functions that
feed heads may be there and return something else. Run as a program, this loads the library and prints what it
found line by line; a crash ends that process alone, and what was printed before it counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ggufspec import paths
from ggufspec.domain import Failure, Method, Sampling
from ggufspec.engines.library.layouts import load_library
from ggufspec.engines.library.messages import (
    DraftLimits,
    ModelLoad,
    Prepare,
    Prepared,
    RecordedTrace,
    TraceRun,
)
from ggufspec.engines.library.model import Logits, Model, Threadpools
from ggufspec.engines.library.worker import Worker
from ggufspec.llama.install import find_library

PROGRAM = (sys.executable, "-P", "-m", "ggufspec.engines.library.selftest")
MARK = "self-test: "
"""Begins each line of the answer."""

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


def check(folder: Path) -> Iterator[str]:
    """Yield ``PASSED`` and the methods of the heads that a library feeds, or why it cannot be used."""
    try:
        library = load_library(folder)
        model = Model(library, Threadpools(library), _load("target.gguf"), threads=1)
        prompt, answer = model.vocabulary.tokens(_PROMPT), model.vocabulary.continuation(_ANSWER.encode())
        problem = _compare(model, prompt, answer or [])
    except Failure as failure:
        file = str(find_library(folder))  # the answer is kept for all copies of a library: it names no place
        problem = failure.reason.removeprefix(f"{file} cannot be used: ").replace(file, Path(file).name)
    yield problem or PASSED
    if problem is None:
        worker = Worker(folder)
        for method, (target, head, least) in _HEADS.items():
            inside = target == head
            loads = _load(target, with_mtp=inside), _load(head, head=method)
            if _accepted(worker, *loads) >= least:
                yield method.value


def _load(name: str, **how: Any) -> ModelLoad:
    return ModelLoad(path=str(_DEMO / name), context_tokens=_CONTEXT, gpu_layers=0, **how)


def _compare(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> str | None:
    """Return how the likeliest tokens differ from the answer's; None if they do not."""
    start = len(prompt)
    model.evaluate(prompt, 0, outputs=1)
    written = [_likeliest(model.rows(1)[0])]
    for position, token in enumerate(answer[:-1], start):
        written.append(_likeliest(model.step(token, position)))
    if written != [*answer]:
        return f"the embedded model writes {model.vocabulary.text(written)!r}"
    if not model.rolls_back:
        return "its cache cannot be rolled back"
    for at in (0, len(answer) - _ROLLED_BACK):  # the answer as one batch, then its end once more
        model.forget(start + at)
        batch = answer[at:-1]
        model.evaluate(batch, start + at, outputs=len(batch))
        if [*map(_likeliest, model.rows(len(batch)))] != [*answer[at + 1 :]]:
            return f"a batch of {len(batch)} tokens gives other tokens than one after the other"
    return None


def _likeliest(logits: Logits) -> int:
    return int(logits.argmax())


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
        sys.stdout.write(f"{MARK}{line}\n")
        sys.stdout.flush()
    os._exit(0)  # skip unloading, in which libraries have crashed
