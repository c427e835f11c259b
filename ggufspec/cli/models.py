"""``ggufspec models``: the models on this machine, and which of them can draft for which."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, echo_json
from ggufspec.options import ModelsOptions
from ggufspec.units import counted

if TYPE_CHECKING:
    from ggufspec.modelfiles import local


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
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.modelfiles import local
    from ggufspec.modelfiles.api import find_rules
    from ggufspec.report.rows import listing
    from ggufspec.report.text import overview

    files = local.find_files(asked.folders)
    read = map(local.read_model, iterate_with_progress(files, lambda file: file.name))
    models = [model for model in read if model is not None]
    pairs = list(local.find_pairs(models, find_rules()))
    if asked.output == "json":
        echo_json(
            {
                "models": [listing.LocalModelRow.to_json(model) for model in models],
                "pairs": [listing.LocalPairRow.to_json(pair) for pair in pairs],
            }
        )
        return
    if not models:
        echo("no models are here: `ggufspec fetch` downloads a pair, `ggufspec demo` has one", err=True)
        return
    echo(overview.model_list(models, pairs))
    smallest = {pair.target.path: pair for pair in reversed(pairs)}
    echo(f"\n{counted(len(pairs), 'pair')} here" + (". Find out what pays:" if pairs else ""), err=True)
    for pair in [*smallest.values()][:_MOST_NAMED]:
        echo(_tune_command(pair), err=True)


def _tune_command(pair: local.LocalPair) -> str:
    drafter = () if pair.drafter is pair.target else ("-md", str(pair.drafter.path))
    return shlex.join(["ggufspec", "tune", "-m", str(pair.target.path), *drafter])
