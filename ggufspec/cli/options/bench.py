"""What can be asked of a bench and of a sweep: one table of axes, and the options that both share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.axes import Axis, Shares, flat
from ggufspec.cli.options.shared import KV_TYPES, PLACING, Count, Duration, Fraction, Number, Suite, placed

ENGINES = ("binary", "binary-simple", "server", "inprocess")
METHODS = ("draft-model", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
_FILE = click.Path(dir_okay=False, path_type=Path)

Command = Callable[..., Any]

_AXES: tuple[tuple[tuple[str, ...], dict[str, Any], str], ...] = (
    (
        ("-ngl", "--ngl"),
        {"name": "layers", "words": ("all", "auto")},
        "Target layers on the GPU: 45, all, auto.",
    ),
    (("-ngld", "--ngld"), {"name": "layers", "words": ("all", "auto")}, "Drafter layers there, likewise."),
    (
        ("--method",),
        {"name": "methods", "kind": None, "words": METHODS},
        "What drafts: draft-model, or the text so far by ngram-simple, ngram-mod, ….",
    ),
    (("--draft",), {"name": "draft sizes", "least": 1, "most": 64}, "Draft sizes γ: 3 or 3,5,8 or 1-8."),
    (
        ("--p-min",),
        {"name": "probabilities", "kind": float, "most": 1},
        "End a draft below this probability.",
    ),
    (("-t", "--threads"), {"name": "threads", "least": 1, "most": 1024}, "Threads; else all physical cores."),
    (
        ("-ctk", "--kv-type", "--type"),
        {"name": "types", "kind": None, "words": KV_TYPES},
        "Type of both caches.",
    ),
    (
        ("-ub", "--ubatch"),
        {"name": "tokens", "least": 1, "most": 65536},
        "Tokens that are evaluated at once.",
    ),
)
_LISTS = {"--draft", "--method"}  # several values even in a bench

_SHARED = (
    click.option(
        "--pair",
        metavar="NAME",
        shell_complete=completions.pairs,
        help="A pair of the catalogue; `ggufspec fetch` it first.",
    ),
    click.option(
        "-n",
        "--n-predict",
        type=Count(2),
        default=250,
        show_default=True,
        help="Tokens per run.",
    ),
    click.option("-c", "--ctx", type=Count(16), help="Context in tokens; what is needed without it."),
    click.option(
        "--temp",
        type=Number(0),
        help="Temperature; 0, the default, is greedy, but 1 where --top-k, --top-p or --min-p ask to sample.",
    ),
    click.option("--top-k", type=Count(0), help="Keep the k likeliest tokens; 1 if greedy, else 40."),
    click.option("--top-p", type=Number(0, 1), default=1.0, show_default=True, help="Nucleus sampling."),
    click.option("--min-p", type=Number(0, 1), default=0.0, show_default=True, help="Min-p sampling."),
    click.option(
        "-s",
        "--seed",
        type=Count(0),
        default=1,
        show_default=True,
        help="Of sampler and order.",
    ),
    click.option(
        "--suite",
        type=Suite(),
        help="Built-in prompts: demo, domains, general, seven; those that fit without it.",
    ),
    click.option("-p", "--prompt", multiple=True, help="A text to continue; may be repeated."),
    click.option(
        "-f", "--prompt-file", multiple=True, type=_FILE, help="A suite (TOML, JSONL) or a text to continue."
    ),
    click.option("--per-category", type=Count(1), help="Take so many prompts of each category."),
    click.option("--chat/--raw", default=None, help="Use the target's chat template, or texts as they are."),
    click.option("--system", help="The system prompt for the chat template."),
    click.option(
        "--timeout", type=Duration(), default=3600.0, show_default=True, help="Seconds that one run may take."
    ),
    click.option(
        "--llama",
        type=click.Path(path_type=Path),
        shell_complete=completions.installs,
        help="Folder of an installed llama.cpp.",
    ),
    click.option("--force", is_flag=True, help="Run even what will not fit into memory."),
    click.option("--name", help="What to call the stored result."),
)

_REPEATING = (
    click.option(
        "--synthetic-accept",
        type=Shares(),
        help="Let dice accept drafts: each token with this chance (0.7, 0.708@3), or shares by position.",
    ),
    click.option(
        "-r",
        "--repeats",
        type=Count(1),
        default=3,
        show_default=True,
        help="Runs per prompt.",
    ),
    click.option(
        "--warmup",
        type=Count(0),
        default=1,
        show_default=True,
        help="Discarded first runs.",
    ),
    click.option("--precision", type=Fraction(), help="Repeat until speed-ups are known to ±2%, say."),
    click.option("--max-time", type=Duration(), help="End the measurement then: 10m, 2h."),
    click.option(
        "--resume",
        metavar="RUN",
        shell_complete=completions.runs,
        help="Go on with a stored result that was cut off.",
    ),
)


def asking(*, many: bool, repeating: bool = True, engine: str = ENGINES[0]) -> Callable[[Command], Command]:
    """Add the options of a bench.

    Args:
        many: axes take several values, as in a sweep.
        repeating: how often and how long to measure can be asked for, too.
        engine: the default.
    """

    def add(command: Command) -> Command:
        options: list[Callable[[Command], Command]] = [
            _model("-m", "--target", many=many, text="The target's GGUF."),
            _model("-md", "--draft-model", many=many, text="The drafter's GGUF."),
            *(_axis(names, told, text, many=many) for names, told, text in _AXES),
            *PLACING,
            *_SHARED,
            click.option(
                "--engine",
                type=click.Choice(ENGINES),
                default=engine,
                show_default=True,
                help="Measure with `speculative`, `speculative-simple`, `llama-server` or the library.",
            ),
            *(_REPEATING if repeating else ()),
        ]
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _model(*names: str, many: bool, text: str) -> Callable[[Command], Command]:
    return click.option(*names, type=_FILE, multiple=many, shell_complete=completions.files, help=text)


def _axis(
    names: tuple[str, ...], told: dict[str, Any], text: str, *, many: bool
) -> Callable[[Command], Command]:
    several = many or names[-1] in _LISTS
    kind = Axis(**told, single=not several)
    return click.option(*names, type=kind, multiple=several, callback=flat if several else None, help=text)


def given(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given, so that a request's own defaults stand for the others."""
    return placed({name: value for name, value in asked.items() if value is not None and value != ()})
