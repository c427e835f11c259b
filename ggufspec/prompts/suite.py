"""What a prompt suite is, and the checks that every suite passes, whatever file it comes from."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from ggufspec.domain import Prompt
from ggufspec.errors import GgufspecError

MOST_PROMPTS = 100_000
LONGEST_NAME = 200
_ESCAPED_BYTE = 0xDC00  # PEP 383: added to each byte of an argument that is not UTF-8


@dataclass(frozen=True, kw_only=True)
class PromptSuite:
    """Prompts that belong together, in their order, and those that only warm up.

    ``instructions`` says that the texts are messages to an assistant, so that the model's chat template
    belongs around them; otherwise they are texts to be continued as they are.
    """

    name: str
    prompts: tuple[Prompt, ...]
    warmups: tuple[Prompt, ...] = ()
    instructions: bool

    def sample(self, per_category: int, seed: int | None = None) -> PromptSuite:
        """Return a suite of at most so many prompts of each category, in the same order.

        Args:
            per_category: how many, at least 1; prompts without a category count as one of their own.
            seed: draws them at random, the same for the same seed; None takes the first ones.
        """
        groups: dict[str | None, list[int]] = defaultdict(list)
        for place, prompt in enumerate(self.prompts):
            groups[prompt.category].append(place)
        kept: set[int] = set()
        for category, places in groups.items():
            if seed is not None:
                random.Random(f"{seed}/{category}").shuffle(places)  # noqa: S311  # a choice, not a secret
            kept |= set(places[: max(1, per_category)])
        return replace(self, prompts=tuple(self.prompts[place] for place in sorted(kept)))


class PromptEntry(NamedTuple):
    """A prompt as it stands in a file."""

    where: str  # FILE:LINE
    prompt: Prompt
    warmup: bool = False


class BadPromptError(ValueError):
    """Why a row or table is no prompt; whoever knows its place makes an error for users of it.

    Args:
        message: what is wrong.
        hint: what to do about it, where the form of the file is not the reason.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def build(*, name: object, turns: Iterable[object], category: object = None) -> Prompt:
    """Make a prompt of what a file says.

    Args:
        name: the id, text or a whole number.
        turns: what the user says, one text per turn.
        category: a text or None.

    Raises:
        BadPromptError: something is missing, empty, or of another type.
    """
    number = isinstance(name, int) and not isinstance(name, bool)
    first, *followups = _texts(turns)
    return Prompt(
        id=_name(str(name) if number else name, "the id"),
        text=first,
        category=None if category is None else _name(category, "the category"),
        followups=tuple(followups),
    )


def assemble(name: str, path: Path, entries: Iterable[PromptEntry], *, instructions: bool) -> PromptSuite:
    """Put the prompts of a file together.

    Raises:
        GgufspecError: there is no prompt to measure, an id is used twice, or there are too many.
    """
    found = list(entries)
    too_many(path, len(found))
    places: dict[str, str] = {}
    for entry in found:
        if entry.prompt.id in places:
            raise GgufspecError(
                f"{entry.where}: the id {entry.prompt.id} is taken by {places[entry.prompt.id]}",
                "give every prompt an id of its own",
            )
        places[entry.prompt.id] = entry.where
    prompts = tuple(entry.prompt for entry in found if not entry.warmup)
    if not prompts:
        raise GgufspecError(f"{path} holds no prompt to measure", "see models/prompts for examples of suites")
    return PromptSuite(
        name=name,
        prompts=prompts,
        warmups=tuple(entry.prompt for entry in found if entry.warmup),
        instructions=instructions,
    )


def too_many(path: Path, count: int) -> None:
    """Refuse a suite of more prompts than anybody measures.

    Raises:
        GgufspecError: there are more than ``MOST_PROMPTS``.
    """
    if count > MOST_PROMPTS:
        raise GgufspecError(
            f"{path} holds more than {MOST_PROMPTS:,} prompts", "keep the part that you want to measure"
        )


def _texts(turns: Iterable[object]) -> list[str]:
    texts = list(turns)
    if not texts:
        raise BadPromptError("there is no text in it")
    return [
        check_text(text, "the text" if len(texts) == 1 else f"turn {n}") for n, text in enumerate(texts, 1)
    ]


def check_text(value: object, what: str) -> str:
    """Return a text that a program can be given.

    Args:
        value: the text.
        what: its name in messages.

    Raises:
        BadPromptError: it is not a string, empty, or contains what no program takes.
    """
    if not isinstance(value, str):
        raise BadPromptError(f"{what} is not a string")
    if not value.strip():
        raise BadPromptError(f"{what} is empty")
    if "\0" in value:
        raise BadPromptError(f"{what} contains a NUL character (at character {value.index(chr(0))})")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _not_unicode(value, error.start, what) from error
    return value


def _not_unicode(text: str, place: int, what: str) -> BadPromptError:
    """Say which byte of the command line is not UTF-8; Python shows it as half of a surrogate pair."""
    byte = ord(text[place]) - _ESCAPED_BYTE
    if not 0x80 <= byte <= 0xFF:
        return BadPromptError(f"{what} contains half of a surrogate pair, which is not a character")
    return BadPromptError(
        f"{what} is not UTF-8: byte 0x{byte:02x} at offset {len(text[:place].encode())}",
        "use a terminal with a UTF-8 locale, or convert the text: iconv -f WINDOWS-1252 -t UTF-8",
    )


def _name(value: object, what: str) -> str:
    """Ids and categories go into tables and the names of logs: short, on one line, no control characters."""
    if not isinstance(value, str):
        raise BadPromptError(f"{what} is not a string")
    if not value.strip() or not value.isprintable() or len(value) > LONGEST_NAME:
        raise BadPromptError(f"{what} has to be one line of 1 to {LONGEST_NAME} characters")
    return value
