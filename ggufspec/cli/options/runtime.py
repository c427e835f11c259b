"""Options for llama.cpp's settings besides placement, in its own spelling, and for arguments passed on."""

from __future__ import annotations

from typing import NamedTuple

import click

from ggufspec.cli.options.axes import Axis, join_values
from ggufspec.cli.options.shared import KV_TYPES, Decorator, add_options


class _Setting(NamedTuple):
    names: tuple[str, ...]
    metavar: str
    axis: Axis | None  # None for text that may contain commas
    text: str


def _types(text: str, *names: str) -> _Setting:
    return _Setting(names, "TYPE", Axis("types", number=None, words=KV_TYPES), text)


_SETTINGS = (
    _types("Type of both KV caches, such as f16 or q8_0. [default: f16]", "--kv-type"),
    _types("Type of the K cache.", "-ctk", "--cache-type-k"),
    _types("Type of the V cache.", "-ctv", "--cache-type-v"),
    _types("Type of both KV caches of the drafter. [default: the target's]", "--kv-type-draft"),
    _types("Type of the drafter's K cache. [default: the target's]", "-ctkd", "--cache-type-k-draft"),
    _types("Type of the drafter's V cache. [default: the target's]", "-ctvd", "--cache-type-v-draft"),
    _Setting(
        ("--draft-backend-sampling",),
        "on|off",
        Axis("settings", number=None, words=("on", "off")),
        "Sample drafts of a head where it is evaluated. [default: llama.cpp's]",
    ),
    _Setting(
        ("-fa", "--flash-attn"),
        "on|off|auto",
        Axis("settings", number=None, words=("on", "off", "auto")),
        "Flash attention. [default: auto; on for a quantised cache]",
    ),
    _Setting(
        ("-b", "--batch-size", "batch"),
        "TOKENS",
        Axis("tokens", least=1, most=65536),
        "Logical batch size in tokens. [default: llama.cpp's]",
    ),
    _Setting(
        ("-ub", "--ubatch-size", "ubatch"),
        "TOKENS",
        Axis("tokens", least=1, most=65536),
        "Physical batch size in tokens. [default: llama.cpp's]",
    ),
    _Setting(
        ("-ot", "--override-tensor"),
        "PATTERN=BUFFER,…",
        None,
        "Buffers for tensors whose names match a pattern, such as exps=CPU.",
    ),
    _Setting(
        ("--numa",),
        "TYPE",
        Axis("types", number=None, words=("distribute", "isolate", "numactl")),
        "How to use NUMA nodes: distribute, isolate or numactl.",
    ),
    _Setting(("-C", "--cpu-mask"), "MASK", None, "CPUs to run on, as a hexadecimal mask."),
    _Setting(
        ("--prio",),
        "N",
        Axis("priorities", number=None, words=("-1", "0", "1", "2", "3")),
        "Priority of threads: -1 low, 0 normal, 1 medium, 2 high, 3 realtime.",
    ),
    _Setting(
        ("--poll",),
        "0…100",
        Axis("levels", most=100),
        "How much threads poll for work; 0 waits. [default: llama.cpp's]",
    ),
    _Setting(
        ("--args", "--vary", "args"),
        "ARGS",
        None,
        "Other arguments for llama.cpp, in quotes, or after -- at the end; ' | ' separates values.",
    ),
    _Setting(("--draft-args",), "ARGS", None, "The same for the runs that draft."),
)

_SWITCHES = (
    click.option("--mlock", is_flag=True, help="Keep the models in RAM."),
    click.option("--no-mmap", is_flag=True, help="Load the models instead of mapping their files."),
)


def runtime_options(*, many: bool) -> Decorator:
    """Add the options that RuntimeOptions takes.

    Args:
        many: several values make an axis, as in a sweep.
    """
    return add_options(*(_option(setting, many=many) for setting in _SETTINGS), *_SWITCHES)


def _option(setting: _Setting, *, many: bool) -> Decorator:
    axis = setting.axis
    return click.option(
        *setting.names,
        type=str if axis is None else axis if many else axis.single(),
        metavar=setting.metavar,
        multiple=many,
        callback=join_values if many and axis is not None else None,
        help=setting.text,
    )
