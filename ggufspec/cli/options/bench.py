"""The options of a bench, a sweep, a tuning and a chat."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from ggufspec.choices import ENGINES, Method
from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Axis, Depths, Limits, Methods, Ngram, Shares, join_values
from ggufspec.cli.options.placement import layer_options, placement_options, rpc_option
from ggufspec.cli.options.references import model_options
from ggufspec.cli.options.running import server_options
from ggufspec.cli.options.runtime import runtime_options
from ggufspec.cli.options.shared import (
    Command,
    Count,
    Decorator,
    Duration,
    Fraction,
    Number,
    SuiteName,
    add_options,
)

_FILE = click.Path(dir_okay=False, path_type=Path)


class _AxisOption(NamedTuple):
    names: tuple[str, ...]
    metavar: str
    axis: Axis
    text: str


_AXES = (
    _AxisOption(
        ("--method",),
        "METHOD",
        Methods(),
        f"Drafting method: {', '.join(Method)}; or a chain, such as ngram-mod+draft-mtp. "
        "[default: the pair's own]",
    ),
    _AxisOption(
        ("--draft",),
        "SIZES",
        Axis("draft sizes", least=1, most=64),
        "Draft sizes γ in tokens: 3 or 3,5,8 or 1-8. [default: depends on the method]",
    ),
    _AxisOption(
        ("--p-min",),
        "P",
        Axis("probabilities", number=float, most=1),
        "End a draft at a token below this probability.",
    ),
    _AxisOption(
        ("-t", "--threads"),
        "N",
        Axis("threads", least=1, most=1024),
        "CPU threads. [default: all physical cores]",
    ),
)
_LISTS = {"--draft", "--method", "--parallel", "--depth", "--rate"}  # several values even in a bench

_SAMPLING = (
    click.option(
        "--temp",
        type=Number(0),
        help="Temperature. [default: 0 (greedy); 1 with --top-k, --top-p or --min-p]",
    ),
    click.option(
        "--top-k",
        type=Count(0),
        help="Sample from the k most likely tokens. [default: 1 if greedy, otherwise 40]",
    ),
    click.option(
        "--top-p",
        type=Number(0, 1),
        default=1.0,
        show_default=True,
        help="Top-p (nucleus) sampling; 1 turns it off.",
    ),
    click.option(
        "--min-p", type=Number(0, 1), default=0.0, show_default=True, help="Min-p sampling; 0 turns it off."
    ),
)

_SHARED = (
    click.option("-c", "--ctx", type=Count(16), help="Context size in tokens. [default: as needed]"),
    click.option(
        "-s",
        "--seed",
        type=Count(0),
        default=1,
        show_default=True,
        help="Random seed for sampling and for the order of runs.",
    ),
    click.option(
        "--suite",
        type=SuiteName(),
        help="Built-in prompts: demo, domains, general, seven, work; or those of a dataset on the Hub, "
        "hf:USER/DATASET[@REVISION][:PART]. [default: chosen for the pair]",
    ),
    click.option("-p", "--prompt", multiple=True, help="Prompt to continue; can be repeated."),
    click.option(
        "-f",
        "--prompt-file",
        multiple=True,
        type=_FILE,
        help="Prompt suite (TOML, JSONL, Parquet) or a text to continue, also /dev/stdin; can be repeated.",
    ),
    click.option("--per-category", type=Count(1), help="Use N prompts of each category, drawn with --seed."),
    click.option(
        "--chat/--raw",
        default=None,
        help="Apply the target's chat template, or use texts as they are. [default: set by the suite]",
    ),
    click.option("--system", help="System prompt for the chat template."),
    click.option(
        "--timeout", type=Duration(), default="1h", show_default=True, help="Time limit for one run."
    ),
    click.option("--force", is_flag=True, help="Run even if the models do not fit into memory."),
    click.option("--name", help="Name of the stored result."),
)

_PARALLEL = _AxisOption(
    ("-np", "--parallel"),
    "USERS",
    Axis("users", least=1, most=1024),
    "Users who send requests at once, with --engine server. [default: one request after another]",
)
_DEPTH = _AxisOption(
    ("--depth",),
    "TOKENS",
    Depths(),
    "Tokens of other text before each prompt, with --engine server. [default: 0]",
)
_TRAFFIC = (
    _PARALLEL,
    _DEPTH,
    _AxisOption(
        ("--rate",),
        "RATES",
        Axis("rates", number=float, least=0.001, most=10_000),
        "Requests/s that arrive at random times, with --engine server. [default: users wait for answers]",
    ),
)

_CONTEXT_FILE = click.option(
    "--context-file",
    type=_FILE,
    help="Text or chat (JSONL) for --depth. [default: plays of Shakespeare, in the public domain]",
)
_REPEATING = (
    click.option(
        "--slo",
        type=Limits(),
        help="Latency limits for goodput, with --rate: ttft=500ms,itl=50ms.",
    ),
    click.option(
        "--replay",
        type=_FILE,
        help="Send recorded requests again when they arrived: JSONL with times, or llama-server's log with "
        "--verbose.",
    ),
    _CONTEXT_FILE,
    click.option(
        "--synthetic-accept",
        type=Shares(),
        help="Simulate acceptance with this probability: 0.7 for each token, 0.708@3 for an acceptance rate "
        "at γ 3, or 0.9,0.8,0.7 by position.",
    ),
    click.option(
        "-r",
        "--repeats",
        type=Count(1),
        help="Measured runs of each prompt. [default: 5, or 3 where loads take long]",
    ),
    click.option(
        "--loads",
        type=Count(1),
        help="How often to load the models of each arm, with --engine server or inprocess. "
        "[default: for every repeat]",
    ),
    click.option(
        "--warmup",
        type=Count(0),
        default=1,
        show_default=True,
        help="Discarded runs before the measured ones of each load.",
    ),
    click.option(
        "--precision", type=Fraction(), help="Repeat until speed-ups are within this margin, such as 2%."
    ),
    click.option(
        "--until",
        type=click.Choice(("decided",)),
        help="Repeat until every speed-up is decided: faster, slower or the same within 1 %.",
    ),
    click.option("--max-repeats", type=Count(4), help="Most repeats with --until decided. [default: 20]"),
    click.option("--max-time", type=Duration(), help="Time limit for the complete bench: 10m, 2h."),
    click.option(
        "--resume",
        metavar="BENCH",
        shell_complete=completions.runs,
        help="Continue an interrupted bench.",
    ),
)


def ngram_option(*, many: bool) -> Decorator:
    """Return --ngram; given several times, it is an axis."""
    repeated = " Repeat it for several." if many else ""
    return click.option(
        "--ngram",
        type=Ngram(),
        metavar="SETTINGS",
        multiple=many,
        help="Settings of n-gram methods: size-n=12 (tokens that recur), size-m=48 (longest draft, γ "
        f"outside a chain), min-hits=1, n-min=0.{repeated} [default: the method's]",
    )


sampling_options = add_options(*_SAMPLING)
"""Add the options of the sampler, besides its seed."""


def measure_options(
    *,
    many: bool,
    repeating: bool = True,
    llama: bool = True,
    engine: str | None = None,
    by_default: str = "the first one that can measure the pair",
    n_predict: int = 250,
) -> Decorator:
    """Add the options that MeasureOptions takes, and those of BenchOptions.

    Args:
        many: axes take several values, as in a sweep.
        repeating: add the options of BenchOptions: how often and how long to measure.
        llama: add --llama.
        engine: the default; None if it depends on the llama.cpp in use.
        by_default: how it does.
        n_predict: the default.
    """
    return add_options(
        model_options(many=many, fetches=True),
        layer_options(many=many),
        *(_axis(option, many=many) for option in _AXES),
        ngram_option(many=True),
        placement_options,
        rpc_option(many=True),
        runtime_options(many=many),
        sampling_options,
        click.option(
            "-n",
            "--n-predict",
            type=Count(2),
            default=n_predict,
            show_default=True,
            help="Tokens to generate in each run.",
        ),
        *_SHARED,
        *((_llama(many=repeating),) if llama else ()),
        click.option(
            "--engine",
            type=click.Choice(tuple(ENGINES)),
            default=engine,
            show_default=True,
            help="Measure with `speculative`, `speculative-simple`, `llama-server` or the library."
            + ("" if engine else f" [default: {by_default}]"),
        ),
        *(_axis(option, many=many) for option in (_TRAFFIC if repeating else ())),
        *((*_REPEATING, server_options) if repeating else ()),
    )


def grid_options(command: Command) -> Command:
    """Add the axes of a crossover: users and depth, and the text for the latter."""
    users = _PARALLEL._replace(text="Users who send requests at once. [default: 1,2,4,8]")
    depth = _DEPTH._replace(text="Tokens of other text before each prompt. [default: 0]")
    return add_options(_axis(users, many=True), _axis(depth, many=True), _CONTEXT_FILE)(command)


def _llama(*, many: bool) -> Decorator:
    text = "Folder of a llama.cpp installation"
    return click.option(
        "--llama",
        type=click.Path(path_type=Path),
        multiple=many,
        shell_complete=completions.installs,
        help=f"{text}; repeat it to compare two, OLD before NEW." if many else f"{text}.",
    )


def _axis(option: _AxisOption, *, many: bool) -> Decorator:
    several = many or option.names[-1] in _LISTS
    return click.option(
        *option.names,
        type=option.axis if several else option.axis.single(),
        metavar=option.metavar,
        multiple=several,
        callback=join_values if several else None,
        help=option.text,
    )
