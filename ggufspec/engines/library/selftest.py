"""Whether a library computes what the embedded model is known to write.

Token by token, in a batch, and after a roll-back: a library whose parameters agree with a layout may still
have other functions than are declared. Run as a program, this loads the library and says what went wrong; a
crash ends that process alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ggufspec import paths
from ggufspec.domain import Failure
from ggufspec.engines.library.layouts import load_library
from ggufspec.engines.library.messages import ModelLoad
from ggufspec.engines.library.model import Logits, Model, Threadpools

PROBE = (sys.executable, "-P", "-m", "ggufspec.engines.library.selftest")
PASSED = "passed"
"""Printed if the library can be used; otherwise why it cannot."""

_MODEL = paths.models_dir() / "demo" / "target.gguf"
_PROMPT = 'def count_stones(stones):\n    """Return how many stones there are."""'
_ANSWER = "\n    total = 0\n    for stone in stones:\n        total += 1\n    return total\n"
"""What the embedded target writes; each token leads the next likeliest by 2.8 in logits or more, so that no
order of additions, on any processor, chooses another one."""

_ROLLED_BACK = 8  # tokens


def check(folder: Path) -> str:
    """Load the library in a folder and let it compute; return ``PASSED``, or why it cannot be used."""
    try:
        library = load_library(folder)
        load = ModelLoad(path=str(_MODEL), context_tokens=256, gpu_layers=0)
        model = Model(library, Threadpools(library), load, threads=1)
        prompt, answer = model.vocabulary.tokens(_PROMPT), model.vocabulary.continuation(_ANSWER.encode())
        return _compare(model, prompt, answer or [])
    except Failure as failure:
        return failure.reason


def _compare(model: Model, prompt: Sequence[int], answer: Sequence[int]) -> str:
    """Compare the likeliest tokens with the answer's."""
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
    return PASSED


def _likeliest(logits: Logits) -> int:
    return int(logits.argmax())


if __name__ == "__main__":
    result = check(Path(sys.argv[1]))
    sys.stdout.write(f"{result}\n")
    sys.stdout.flush()
    os._exit(0)  # skip unloading, in which libraries have crashed
