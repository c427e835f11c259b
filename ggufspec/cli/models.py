"""``ggufspec models``: the models on this machine, and which of them can draft for which."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import ModelsOptions
from ggufspec.units import counted

if TYPE_CHECKING:
    from ggufspec.modelfiles.api import LocalPair


_MOST_NAMED = 3


@command_of(ModelsOptions)
def command(asked: ModelsOptions) -> None:
    """List the models on this machine, and which of them can draft for which.

    Looks into each FOLDER with all below it, the Hub's cache, and where llama.cpp (LLAMA_CACHE), LM Studio
    and Ollama (OLLAMA_MODELS) keep models. Only headers are read. Whether llama.cpp accepts a drafter is
    decided as by `ggufspec check`; draft models of more than 60 % of the target's size are left out.

    \b
    ggufspec models
    ggufspec models ~/models /mnt/gguf -o json
    """
    from ggufspec.report.rows import listing
    from ggufspec.report.text import overview

    found = api.models(asked, sink=Terminal())
    if asked.output == "json":
        echo_json(
            {
                "models": [listing.LocalModelRow.to_json(model) for model in found.models],
                "pairs": [listing.LocalPairRow.to_json(pair) for pair in found.pairs],
            }
        )
        return
    if not found.models:
        echo("no models are here: `ggufspec fetch` downloads a pair, `ggufspec demo` has one", err=True)
        return
    echo(overview.model_list(found.models, found.pairs))
    smallest = {pair.target.path: pair for pair in reversed(found.pairs)}
    ending = ". Find out what pays:" if found.pairs else ""
    echo(f"\n{counted(len(found.pairs), 'pair')} here{ending}", err=True)
    for pair in [*smallest.values()][:_MOST_NAMED]:
        echo(_tune_command(pair), err=True)


def _tune_command(pair: LocalPair) -> str:
    drafter = () if pair.drafter is pair.target else ("-md", str(pair.drafter.path))
    return shlex.join(["ggufspec", "tune", "-m", str(pair.target.path), *drafter])
