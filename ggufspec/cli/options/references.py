"""The options that name models and say how the Hub is asked; every command that has one has it from here."""

from __future__ import annotations

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.shared import Decorator, add_options

offline_option = click.option(
    "--offline", is_flag=True, help="Use only cached files; do not connect to the Hub."
)

token_option = click.option(
    "--token", help="Access token for the Hub. [default: the stored login or HF_TOKEN]"
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Download more than 10 GB without confirmation.")

pair_option = click.option(
    "--pair",
    metavar="NAME",
    shell_complete=completions.pairs,
    help="Pair from the catalogue. [default: the one fetched last, otherwise the embedded one]",
)


def model_options(*, many: bool = False, fetches: bool = False, finds_head: bool = True) -> Decorator:
    """Add the options that name a pair or its models, and those of access to the Hub.

    Args:
        many: several targets and drafters, as in a sweep.
        fetches: the command downloads what is missing, so it has --yes.
        finds_head: the drafter ``auto`` means the head beside the target.
    """
    return add_options(
        pair_option,
        *reference_options(many=many, finds_head=finds_head),
        offline_option,
        token_option,
        *((yes_option,) if fetches else ()),
    )


def reference_options(*, many: bool = False, finds_head: bool = True) -> tuple[Decorator, ...]:
    """Return the options that name a target and a drafter; see ``model_options``."""
    return (
        click.option(
            "-m",
            "--target",
            metavar="REF",
            multiple=many,
            shell_complete=completions.models,
            help="Target: a file, user/repo:QUANT, or half of a pair (demo:target).",
        ),
        click.option(
            "-md",
            "--draft-model",
            metavar="REF",
            multiple=many,
            shell_complete=completions.models,
            help="Drafter, in the same forms"
            + ("; auto is the head beside the target." if finds_head else "."),
        ),
    )
