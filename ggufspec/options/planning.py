"""The options of commands about models, memory and forecasts, which run no model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec.choices import Program
from ggufspec.errors import GgufspecError
from ggufspec.options import groups, kinds
from ggufspec.options.fields import option
from ggufspec.options.kinds import Count, FilePath, Number, Word

if TYPE_CHECKING:
    from pathlib import Path

_DRAFTING_PROGRAMS = (Program.SERVER, Program.SIMPLE, Program.TREE)


class PlanOptions(
    groups.TunedOption,
    groups.ModelOptions,
    groups.MethodOption,
    groups.ContextOption,
    groups.LayerOptions,
    groups.SplitOptions,
    groups.RpcOption,
    groups.MachineOptions,
    groups.CacheTypeOptions,
    groups.UbatchOption,
    groups.ProjectorOption,
    groups.MemoryOptions,
    groups.TableOptions,
    section="Placement",
):
    """What to plan memory for; sizes are in bytes."""

    ctx: int = option(default=4096, common=True, shown=None)
    kv_type: tuple[str, ...] | None = option(default=("f16",), common=True, shown=None)
    ubatch: tuple[int, ...] | None = option(default=(512,), shown=None)
    build: int | None = option(
        "--build",
        section="llama.cpp",
        kind=Count(1),
        help="Plan for this build number of llama.cpp.",
        shown="the newest",
    )


class WhatIfOptions(
    groups.DraftOption,
    groups.ModelOptions,
    groups.ContextOption,
    groups.LayerOptions,
    groups.SplitOptions,
    groups.MachineOptions,
    groups.MemoryOptions,
    groups.ProjectorOption,
    groups.UsersOption,
    groups.ServerOptions,
    groups.TableOptions,
    section="Costs",
    several="draft",
):
    """What to forecast, and from what.

    Rates are in tokens/s, ``bandwidth`` in bytes/s, ``flops`` in operations/s, ``overhead`` and ``rtt`` in
    milliseconds.
    """

    pair: str | None = option(default=None, setting=None)
    draft_model: tuple[str | Path, ...] | None = option(default=None, help="Drafter, in the same forms.")
    draft: tuple[int, ...] = option(default=tuple(range(1, 17)), shown="1-16")
    parallel: tuple[int, ...] | None = option(
        default=(1,), help="Users who are served at once; tokens/s are of all together.", shown=None
    )
    accept: float | str | tuple[float, ...] | None = option(
        "--accept",
        kind=kinds.AcceptanceText(),
        section="Drafting",
        metavar="A",
        common=True,
        help="Acceptance rate at every γ: 0.7, 0.5-0.9; at one γ: 0.708@3; by position: 0.9,0.8,0.7.",
    )
    alpha: float | str | tuple[float, ...] | None = option(
        "--alpha",
        kind=kinds.AcceptanceText(),
        section="Drafting",
        metavar="A",
        common=True,
        help="Probability that each drafted token is accepted: 0.8 or 0.5-0.9.",
    )
    target_tps: float | None = option(
        "--target-tps", kind=Number(0, is_open=True), common=True, help="Tokens/s of the target alone."
    )
    drafter_tps: float | None = option(
        "--drafter-tps", kind=Number(0, is_open=True), common=True, help="Tokens/s of the drafter alone."
    )
    verify_cost: tuple[float, ...] | None = option(
        "--verify-cost",
        kind=kinds.Numbers(),
        help="Relative cost of verifying 1, 2, … tokens, such as 1,1.1,1.25.",
    )
    verify_ratio: float | None = option(
        "--verify-ratio", kind=Number(1), help="Relative cost of verifying a draft of any size."
    )
    observed: float | None = option(
        "--observed", kind=Number(0, is_open=True), help="Tokens/s measured with drafting."
    )
    profile: str | None = option(
        "--profile",
        metavar="ID",
        common=True,
        help="Use the costs of a profile of `tune`: its id, or last; `list` prints them all.",
    )
    like: Path | None = option(
        "--like",
        metavar="BUNDLE",
        kind=FilePath("PATH"),
        help="Forecast for the machine of a published bundle, from the costs in it.",
    )
    machine: str | None = option(default=None, common=True)
    vram: tuple[int, ...] | None = option(
        default=None,
        common=False,
        help="With --machine and --host: the fastest places for each γ that fit into this memory of the GPU.",
        shown="the named places",
    )
    reserve: int = option(default=1 << 30, common=False)
    bandwidth: float | None = option(
        "--bandwidth",
        kind=kinds.PerSecond(),
        help="Memory bandwidth in bytes/s, such as 936G; with --rtt that of the network, such as 1G.",
    )
    flops: float | None = option(
        "--flops", kind=kinds.PerSecond(), help="Arithmetic in operations/s, such as 71T."
    )
    ctx: int = option(default=1024, kind=Count(0), help="Context depth in tokens.", shown=None)
    overhead: float = option("--overhead", 0.0, kind=Number(0), help="Other time per round, in milliseconds.")
    rtt: float | None = option(
        "--rtt",
        kind=kinds.Latency(),
        help="Round trip to the workers that hold the target, such as 2ms.",
        shown="the target is here",
    )
    round_trips: float = option(
        "--round-trips", 1.0, kind=Number(0), help="Round trips of each pass of the target, with --rtt."
    )
    token_bytes: float | None = option(
        "--token-bytes",
        kind=kinds.PerSecond(),
        help="Bytes that each token of a pass sends and gets, with --rtt.",
        shown="embedding and logits, where headers are read",
    )
    program: str = option(
        "--program",
        Program.SERVER.value,
        section="llama.cpp",
        kind=Word(*_DRAFTING_PROGRAMS),
        help="Program that drafts.",
    )
    url: tuple[str, ...] | None = option(
        default=None,
        common=True,
        help="Forecast other draft sizes of a llama-server that runs and drafts, by its traffic so far. Name "
        "one with the target alone, too, for the speed-up.",
    )
    server_log: Path | None = option(
        "--server-log",
        kind=FilePath(),
        section="Running servers",
        help="Log of that server; if started with LLAMA_TRACE=1, with its rounds in order, not only counted.",
    )


class CheckOptions(
    groups.ModelOptions,
    groups.LlamaOption,
    groups.DraftOption,
    groups.LayerOptions,
    groups.RpcOption,
    groups.ThreadsOption,
    groups.TextOptions,
    groups.LengthOption,
    groups.AnswerOption,
    section="llama.cpp",
):
    """Which drafter and target to compare, by which rule, and what they write with ``run``."""

    model: str | None = option("model", metavar="[TARGET]", complete="models_and_pairs")
    drafter: str | None = option("drafter", metavar="[DRAFTER]", complete="models")
    build: int | None = option(
        "--build", kind=Count(1), help="Use the rule of this build of llama.cpp, such as 2697."
    )
    program: str | None = option(
        "--program",
        kind=Word(*reversed(_DRAFTING_PROGRAMS)),
        help="Program that drafts.",
        shown="speculative; server for a head",
    )
    run: bool = option(
        "--run",
        False,
        section="Measuring",
        common=True,
        help="Run both models, and say whether the drafter works, or what is broken. The options of texts, "
        "placement and draft size are for this.",
    )
    draft: tuple[int, ...] = option(default=(8,), shown=None)
    n_predict: int = option(default=128)

    def check(self) -> None:
        """Refuse a drafter without a target.

        Raises:
            GgufspecError: only the drafter is given.
        """
        super().check()
        if self.drafter is not None and self.model is None:
            raise GgufspecError("a drafter was given without a target", "name the target first")


class FetchOptions(
    groups.PairOption, groups.ReferenceOptions, groups.HubOptions, groups.YesOption, section="Models"
):
    """What to download, and where to."""

    pair: str | None = option("pair", shown=None, metavar="[PAIR]")
    largest: bool = option(
        "--largest", False, help="Choose the largest pair of the catalogue that fits into memory."
    )
    revision: str | None = option("--revision", help="Branch, tag or commit of all files.")
    local_dir: Path | None = option(
        "--local-dir", kind=FilePath("FOLDER"), help="Store the files here instead of in the Hub's cache."
    )
    dry_run: bool = option(
        "--dry-run",
        False,
        section="Measuring",
        help="Print files, sizes and free disk space without downloading.",
    )
    no_check: bool = option("--no-check", False, help="Do not check first whether the two models match.")
    repin: bool = option(
        "--repin", False, help="Accept files of PAIR that differ from the catalogue's or the first fetch's."
    )


class ConvertOptions(groups.HubOptions, groups.LlamaOption, groups.YesOption, section="Models"):
    """Which head to convert, and with which converter."""

    head: str = option("head", "", required=True, metavar="HEAD")
    target: str = option(
        "--target -m",
        "",
        hidden=groups.TARGET,
        required=True,
        metavar="TARGET",
        help="Target of the head, as it was published: user/repo, or a folder with config.json and "
        "tokenizer.",
    )
    outtype: str = option(
        "--outtype",
        "auto",
        kind=Word("auto", "bf16", "f16", "f32", "q8_0"),
        help="Type of the weights, as the converter names it; auto keeps their 16 bits.",
    )
    out: Path | None = option(
        "--out",
        section="Output",
        kind=FilePath(),
        help="File to write.",
        shown="METHOD-HEAD.gguf in the current folder",
    )
    torch: Path | None = option(
        "--torch",
        section="llama.cpp",
        metavar="WHEEL",
        kind=FilePath("PATH"),
        help="Wheel of PyTorch to install.",
        shown="the release that llama.cpp pins, for the CPU",
    )
    version: str | None = option(
        "--version",
        elsewhere=groups.VERSION_ELSEWHERE,
        section="llama.cpp",
        metavar="V",
        help="Use the converter of this version, instead of that of the llama.cpp in use.",
    )
    source: str | None = option(
        "--source",
        section="llama.cpp",
        metavar="WHERE",
        help="Use the converter of this source: sdist, git, git+URL or a path.",
    )
    dry_run: bool = option(
        "--dry-run",
        False,
        section="Measuring",
        help="Print sizes and free disk space; download only configurations and tokenizer.",
    )


class SuggestOptions(groups.HubOptions, groups.AnswerOption, groups.TargetArgument):
    """For which target to look for drafters."""

    most: int = option(
        "--most",
        6,
        kind=Count(1),
        help="Maximum number of repositories to check, of draft models and of heads.",
    )


class PairsOptions(groups.MachineOptions, groups.HubOptions, groups.AnswerOption, section="Output"):
    """Which pairs to list, and what to say of them."""

    name: str | None = option("name", complete="pairs")
    verify: bool = option("--verify", False, help="Check on the Hub that the files exist and are unchanged.")
    fits: bool = option("--fits", False, help="Show which pairs fit this machine, and estimated tokens/s.")
    vram: tuple[int, ...] | None = option(
        "--vram",
        section="Placement",
        kind=kinds.Sizes(),
        help="GPU memory for --fits: 24G, or 24G,12G for two.",
        shown="free memory",
    )


class ModelsOptions(groups.FoldersOption, groups.AnswerOption):
    """Where to look for models."""


class PromptsOptions(groups.AnswerOption):
    """Which prompts to list."""

    suite: str | None = option(
        "--suite",
        kind=kinds.SuiteName(),
        help="List the prompts of this suite, also of hf:USER/DATASET[:PART].",
    )
