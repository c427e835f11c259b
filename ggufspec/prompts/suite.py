"""Prompt suites, and the checks for suites of every file format."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ggufspec.domain import Prompt, Request
from ggufspec.errors import GgufspecError

MOST_PROMPTS = 100_000
LONGEST_NAME = 200
_ESCAPED_BYTE = 0xDC00  # PEP 383: added to each byte of an argument that is not UTF-8


@dataclass(frozen=True, kw_only=True)
class PromptSuite:
    """Prompts in order, and prompts for warm-ups.

    ``instructions`` is whether the texts are messages to an assistant, which need the model's chat template;
    otherwise they are texts to continue as they are. ``licence`` is that of the texts, if the file names it.
    ``origin`` says which files of the Hub at which commit it was read from, with their SHA-256; None for a
    file of this machine.
    """

    name: str
    prompts: tuple[Prompt, ...]
    warmups: tuple[Prompt, ...] = ()
    instructions: bool
    licence: str | None = None
    origin: str | None = None

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of the prompts, in their order."""
        return tuple(dict.fromkeys(prompt.category for prompt in self.prompts if prompt.category))

    def with_category(self, name: str) -> PromptSuite:
        """Return the suite with a category for the prompts that have none."""
        return replace(
            self,
            prompts=tuple(
                replace(prompt, category=name) if prompt.category is None else prompt
                for prompt in self.prompts
            ),
        )

    def sample(self, per_category: int, seed: int | None = None) -> PromptSuite:
        """Return a suite with at most so many prompts of each category, in the same order.

        Args:
            per_category: how many, at least 1; prompts without a category count as one category.
            seed: chooses at random, the same for the same seed; None chooses the first ones.
        """
        groups: dict[str | None, list[int]] = defaultdict(list)
        for number, prompt in enumerate(self.prompts):
            groups[prompt.category].append(number)
        kept: set[int] = set()
        for category, numbers in groups.items():
            if seed is not None:
                random.Random(f"{seed}/{category}").shuffle(numbers)  # noqa: S311  # a choice, not a secret
            kept |= set(numbers[: max(1, per_category)])
        return replace(self, prompts=tuple(self.prompts[number] for number in sorted(kept)))


class PromptEntry(NamedTuple):
    """A prompt with its place in a file."""

    where: str  # FILE:LINE
    prompt: Prompt
    warmup: bool = False


class BadPromptError(ValueError):
    """A row or table is not a valid prompt. The caller, who knows its place, turns this into a GgufspecError.

    Args:
        message: what is wrong.
        hint: what to do, if the file's format is not the reason.
    """

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def build(
    *, name: object, turns: Iterable[object], category: object = None, request: Request | None = None
) -> Prompt:
    """Make a prompt from the values of a file.

    Args:
        name: the id, a text or a whole number.
        turns: the user's texts, one for each turn.
        category: a text or None.
        request: what is asked beside the text; with messages, the first turn only shows what they say.

    Raises:
        BadPromptError: a value is missing, empty, or of another type.
    """
    number = isinstance(name, int) and not isinstance(name, bool)
    texts = list(turns)
    if not texts:
        raise BadPromptError("it has no text")
    nouns = ["the text"] if len(texts) == 1 else [f"turn {place}" for place in range(1, len(texts) + 1)]
    first, *followups = map(check_text, texts, nouns)
    return Prompt(
        id=_name(str(name) if number else name, "the id"),
        text=first,
        category=None if category is None else _name(category, "the category"),
        followups=tuple(followups),
        request=request,
    )


def assemble(name: str, path: Path, entries: Iterable[PromptEntry], *, instructions: bool) -> PromptSuite:
    """Make a suite from the prompts of a file.

    Raises:
        GgufspecError: there is no prompt to measure, an id is used twice, or there are too many.
    """
    listed = list(islice(entries, MOST_PROMPTS + 1))
    if len(listed) > MOST_PROMPTS:
        raise GgufspecError(
            f"{path} has more than {MOST_PROMPTS:,} prompts", "keep only those that you want to measure"
        )
    origins: dict[str, str] = {}
    for entry in listed:
        if entry.prompt.id in origins:
            raise GgufspecError(
                f"{entry.where}: the id {entry.prompt.id} is already used in {origins[entry.prompt.id]}",
                "give every prompt a different id",
            )
        origins[entry.prompt.id] = entry.where
    prompts = tuple(entry.prompt for entry in listed if not entry.warmup)
    if not prompts:
        raise GgufspecError(f"{path} has no prompt to measure", "see models/prompts for examples of suites")
    return PromptSuite(
        name=name,
        prompts=prompts,
        warmups=tuple(entry.prompt for entry in listed if entry.warmup),
        instructions=instructions,
    )


def check_text(value: object, noun: str) -> str:
    """Check that a text can be passed to a program, and return it.

    Args:
        value: the text.
        noun: its name in messages.

    Raises:
        BadPromptError: it is not a string, it is empty, or it contains NUL or half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise BadPromptError(f"{noun} is not a string")
    if not value.strip():
        raise BadPromptError(f"{noun} is empty")
    if "\0" in value:
        raise BadPromptError(f"{noun} contains a NUL character (at character {value.index(chr(0))})")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _not_unicode(value, error.start, noun) from error
    return value


def _not_unicode(text: str, offset: int, noun: str) -> BadPromptError:
    """Return the error for half of a surrogate pair: Python's form of a byte in argv that is not UTF-8."""
    byte = ord(text[offset]) - _ESCAPED_BYTE
    if not 0x80 <= byte <= 0xFF:
        return BadPromptError(f"{noun} contains half of a surrogate pair, which is not a character")
    return BadPromptError(
        f"{noun} is not UTF-8: byte 0x{byte:02x} at offset {len(text[:offset].encode())}",
        "use a terminal with a UTF-8 locale, or convert the text: iconv -f WINDOWS-1252 -t UTF-8",
    )


def _name(value: object, noun: str) -> str:
    """Check an id or category: for tables and names of logs, it must be one short line."""
    if not isinstance(value, str):
        raise BadPromptError(f"{noun} is not a string")
    if not value.strip() or not value.isprintable() or len(value) > LONGEST_NAME:
        raise BadPromptError(f"{noun} has to be one line of 1 to {LONGEST_NAME} characters")
    return value
