"""A command with its options in sections, and with the flags that all commands share."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click

from ggufspec.cli.entry import verbosity

_MOST_WITHOUT_SECTIONS = 9  # options
_SEVERAL_LETTERS = re.compile(r"-[A-Za-z]{2}")
_SECTIONS = {
    "Models": "tuned pair target draft_model drafters max_download largest revision token offline "
    "local_dir no_check repin outtype",
    "Drafting": "draft p_min accept alpha method ngram draft_sizes synthetic_accept draft_backend_sampling "
    "quantize_drafter",
    "Placement": "ngl ngld threads ctx serve_ctx serve_parallel vram reserve force",
    "Cache and batches": "kv_type cache_type_k cache_type_v kv_type_draft cache_type_k_draft "
    "cache_type_v_draft flash_attn batch ubatch",
    "Processor": "override_tensor mlock no_mmap numa cpu_mask prio poll",
    "GPUs": "fit devices draft_devices tensor_split split_mode main_gpu cpu_moe draft_cpu_moe rpc",
    "Text": "suite prompt prompt_file per_category chat system n_predict",
    "Traffic": "parallel depth rate slo replay context_file",
    "Running servers": "url url_drafting served_model api_key_file",
    "Fleet": "address where build_missing share_token",
    "Sampling": "temp top_k top_p min_p seed",
    "Costs": "target_tps drafter_tps verify_cost verify_ratio observed profile like machine host bandwidth "
    "flops overhead rtt round_trips token_bytes",
    "Measuring": "quantity repeats loads warmup precision until max_repeats max_time timeout name resume "
    "dry_run fresh",
    "llama.cpp": "llama engine args draft_args build program version backend cuda_arch source jobs remove "
    "torch cmake",
    "Publishing": "with_texts author to_hub public",
    "Output": "verify fits output out per runs columns checks variance plot salvage delete listing forecast "
    "export serve html png svg open once fail_slower threshold strict",
    "General": "yes quiet verbose debug",
}
_PLAIN_NAMES = {"INTEGER RANGE": "N", "FLOAT RANGE": "X", "DIRECTORY": "FOLDER"}
_SECTION_OF = {name: title for title, names in _SECTIONS.items() for name in names.split()}


BETWEEN = "\0--\0"
"""What ``--`` becomes as a value of a ``DividedArgument``; no command line can hold it."""


class DividedArgument(click.Argument):
    """An argument of several values that ``--`` divides. Options may follow it, unlike elsewhere."""


class Command(click.Command):
    """A command with sections of options; ``of`` makes one from a click command."""

    @classmethod
    def of(cls, plain: click.Command) -> click.Command:
        """Return the command with the shared flags; its own options take precedence. A group is unchanged."""
        if isinstance(plain, click.Group | Command):
            return plain
        taken = {name for param in plain.params for name in param.opts}
        shared = [option for option in verbosity.options() if not taken & set(option.opts)]
        return cls(
            name=plain.name,
            context_settings=plain.context_settings,
            callback=plain.callback,
            params=[*plain.params, *shared],
            help=plain.help,
            epilog=plain.epilog,
            options_metavar=plain.options_metavar,
            no_args_is_help=plain.no_args_is_help,
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; those after ``--`` are for llama.cpp if the command passes such on.

        Raises:
            NoSuchOption: an unknown option such as -ot. Click would read it as -o with the value t.
        """
        if any(isinstance(param, DividedArgument) for param in self.params):  # click would drop the ``--``
            return super().parse_args(ctx, [BETWEEN if word == "--" else word for word in args])
        options = {
            name: param for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts)
        }
        end = _find_end(args, options, ctx)
        if "--args" in options and end < len(args):
            args = [*args[:end], "--args", shlex.join(args[end + 1 :])]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options by section, in the order of the table; a few options need no sections."""
        params = self.get_params(ctx)
        options = [param for param in params if isinstance(param, click.Option) and not param.hidden]
        grouped = len(options) > _MOST_WITHOUT_SECTIONS
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Options", *_SECTIONS) if grouped or title == "Options"
        }
        for option in options:
            record = option.get_help_record(ctx)
            if record is not None:
                title = (
                    "General" if "--help" in option.opts else _SECTION_OF.get(option.name or "", "Options")
                )
                sections[title if grouped else "Options"].append((_simplify_names(record[0]), record[1]))
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; with ``-v``, log first which settings apply and where they were set."""
        level = verbosity.current(ctx)
        if level.verbose or level.debug:
            from ggufspec.cli.entry import defaults

            defaults.log_settings(ctx)
        return super().invoke(ctx)


def _takes_value(option: click.Parameter) -> bool:
    """Whether an option's value is the word after it."""
    return isinstance(option, click.Option) and not option.is_flag and not option.count


def _find_end(args: Sequence[str], options: Mapping[str, click.Parameter], ctx: click.Context) -> int:
    """Return how many arguments stand before ``--``, or how many there are.

    Raises:
        NoSuchOption: one of them has one dash and several letters, and is not an option of the command.
    """
    place = 0
    while place < len(args) and args[place] != "--":
        option, name = options.get(args[place]), args[place].partition("=")[0]
        if option is not None:
            place += _takes_value(option)  # it may look like an option
        elif name in _OF_LLAMA_CPP and name not in options and _OF_LLAMA_CPP[name][0] in options:
            here = " ".join(_OF_LLAMA_CPP[name])
            raise click.UsageError(f"{name} is llama.cpp's spelling: say {here}", ctx=ctx)
        elif _SEVERAL_LETTERS.match(name) and name not in options:
            similar = [other for other in options if other.lower().startswith(name.lower())]
            raise _UnknownOption(name, possibilities=similar, ctx=ctx, passed_on="--args" in options)
        place += 1
    return min(place, len(args))


_OF_LLAMA_CPP = {
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo"), ("-m", "user/repo:QUANT")),
    **dict.fromkeys(("-hff", "--hf-file"), ("-m", "user/repo/FILE.gguf")),
    **dict.fromkeys(("-mu", "--model-url"), ("-m", "https://…/FILE.gguf")),
    **dict.fromkeys(("-hfd", "-hfrd", "--hf-repo-draft"), ("-md", "user/repo:QUANT")),
}
"""llama.cpp's spelling of a model on the Hub -> the option here, and what follows it."""


class _UnknownOption(click.NoSuchOption):
    def __init__(self, name: str, *, passed_on: bool, **values: Any) -> None:
        super().__init__(name, **values)
        self._passed_on = passed_on

    def format_message(self) -> str:
        message = super().format_message()
        name = self.option_name
        return (
            f"{message} If it is an option of llama.cpp, add it after --: -- {name}"
            if self._passed_on
            else message
        )


def _simplify_names(names: str) -> str:
    """Return an option's names with a plain word in place of click's name for a type."""
    for technical, plain in _PLAIN_NAMES.items():
        names = names.replace(f" {technical}", f" {plain}")
    return names
