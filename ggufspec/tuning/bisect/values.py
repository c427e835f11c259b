"""What a bisection is about: the quantity, the versions of its history, and what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ggufspec.choices import Quantity
from ggufspec.errors import SourceError
from ggufspec.llama.source import LEGACY, commits_between, releases_between

_COMMIT_DIGITS = 12
_COMMIT_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """A bisection as it is stored, so that it can go on: all else follows from the benches of its trials.

    ``versions`` are releases of llama-cpp-python or commits, the good one first and the bad one last.
    ``skipped`` maps those that could not be measured to the reason.
    """

    name: str
    source: str | None  # the folder of a git repository; None for releases
    versions: tuple[str, ...]
    quantity: Quantity
    most_repeats: int
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def skipped_places(self) -> frozenset[int]:
        """The places of the skipped versions in the history."""
        return frozenset(self.versions.index(version) for version in self.skipped)

    def label(self, index: int) -> str:
        """Return a version for people."""
        version = self.versions[index]
        return version[:_COMMIT_DIGITS] if len(version) == _COMMIT_LENGTH else version

    def bench(self, number: int, indices: Sequence[int]) -> str:
        """Return the name of the bench of a trial."""
        inner = (self.label(index) for index in indices if 0 < index < len(self.versions) - 1)
        return "-".join((self.name, str(number), *inner))


def find_versions(good: str, bad: str, folder: Path | None) -> tuple[str, ...]:
    """Return the history from a good version to a bad one, both included, the oldest first.

    Args:
        good: a release of llama-cpp-python, or with a folder a commit, tag or branch.
        bad: the same of a later one.
        folder: a git repository of llama.cpp on this machine.

    Raises:
        SourceError: a version is not known, or the bad one is not the later one.
    """
    if folder is None:
        first, last = (LEGACY if version == "legacy" else version for version in (good, bad))
        return releases_between(first, last)
    if not folder.is_dir():
        raise SourceError(f"{folder} is not a folder", "give a git repository of llama.cpp on this machine")
    return commits_between(folder, good, bad)
