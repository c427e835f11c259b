"""Is the drafting text the target's own? Compared prompt by prompt, greedy runs only."""

from __future__ import annotations

from ggufspec.domain import Difference
from ggufspec.llama import tokens
from ggufspec.llama.install import Install


def compare(drafting: str, target: str) -> int | None:
    """Return the first differing character, or None where the shorter text begins the longer one.

    Drafting programs write up to a draft more than they were asked for, so only what both wrote counts.
    """
    if target.startswith(drafting) or drafting.startswith(target):
        return None
    return next(i for i, (a, b) in enumerate(zip(drafting, target, strict=False)) if a != b)


def locate(drafting: str, target: str, install: Install, model: str) -> Difference | None:
    """Return where two texts part, or None for the same text.

    The token is found by tokenising both texts again, because the programs print text and no tokens; it
    stays None where the install has no tokenizer program.
    """
    at = compare(drafting, target)
    if at is None:
        return None
    ours, theirs = (tokens.tokenize(install, model, text) for text in (drafting, target))
    if ours is None or theirs is None:
        return Difference(at_char=at, at_token=None)
    bos = 1 if ours[:1] == theirs[:1] and tokens.tokenize(install, model, "") == ours[:1] else 0
    parted = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    return Difference(at_char=at, at_token=parted - bos)
