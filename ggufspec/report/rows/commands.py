"""The rows of what commands list beside benches: possible drafters, suites, prompts, and what is stored."""

from __future__ import annotations

import statistics

from ggufspec.prompts import PromptSuite
from ggufspec.report.columns import Row, column, shown
from ggufspec.units import format_bytes

_WORDS = 8  # of a prompt that are shown


class DrafterRow(Row):
    """A possible drafter; see ``modelfiles.api.SuggestedDrafter``."""

    drafter: str = column(of="name")
    method: str = column("drafts by")
    size_bytes: int | None = column("size", format_bytes, of="file.size_bytes")
    ratio: float = column(show=lambda ratio: f"1/{1 / ratio:.0f}")
    downloads: int | None = column(show="{:,}".format)
    verdict: str = shown(
        "llama.cpp", of=lambda drafter: ": ".join((drafter.verdict.outcome, *drafter.verdict.reasons[:1]))
    )
    outcome: str = column(of="verdict.outcome")
    reasons: list[str] = column(of="verdict.reasons")
    helps: list[str] = column(of="verdict.helps")


class StoredItemRow(Row):
    """A build, a model, a bench or another item that takes disk space; see ``doctor.storage``."""

    name: str
    kind: str
    size_bytes: int = column("size", format_bytes)
    changed_at: str = column(of=lambda item: item.changed_at.isoformat(timespec="seconds"))
    day: str = shown("changed", of=lambda item: item.changed_at.date().isoformat())
    note: str | None = column(of=lambda item: item.note or None)
    path: str = column(of=lambda item: str(item.places[0]))


def _lengths(suite: PromptSuite) -> list[int]:
    return [len(prompt.text) for prompt in suite.prompts]


class ListedSuiteRow(Row):
    """A suite of prompts; lengths are in characters."""

    suite: str = column(of="name")
    categories: list[str] = column(show=", ".join)
    prompts: int = column(of=lambda suite: len(suite.prompts))
    median_characters: int = column(
        "median characters", of=lambda suite: round(statistics.median(_lengths(suite)))
    )
    largest_characters: int = column("largest characters", of=lambda suite: max(_lengths(suite)))
    conversations: int = column(of=lambda suite: sum(bool(prompt.followups) for prompt in suite.prompts))
    licence: str | None


class ListedPromptRow(Row):
    """A prompt of a suite, with how it begins."""

    prompt: str = column(of="id")
    category: str | None
    characters: int = column(of=lambda prompt: len(prompt.text))
    followups: int = column(of=lambda prompt: len(prompt.followups))
    first_words: str = column("first words", of=lambda prompt: " ".join(prompt.text.split()[:_WORDS]))
