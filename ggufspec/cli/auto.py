"""``ggufspec auto``: from the name of a model to the fastest way to serve it."""

from __future__ import annotations

import click

from ggufspec.cli.entry.command import command_of
from ggufspec.options import AutoOptions


@command_of(AutoOptions)
def command(asked: AutoOptions) -> None:
    """Find everything that may draft for TARGET, download it, tune, and say how to serve it.

    TARGET is user/repo:QUANT, a file, or a pair of the catalogue. Drafters are smaller models of its family
    that llama.cpp accepts, and heads; n-gram methods and layers of the target need no file. What is found is
    listed with its size before anything is downloaded. The tuning is that of `ggufspec tune`.

    After an interruption, the same command goes on: downloads resume, and stored runs are not repeated.

    \b
    ggufspec auto Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec auto big.gguf -md small.gguf -md eagle3.gguf --max-time 20m
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --parallel 4    the best for four users at once
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M -f my-prompts.jsonl   judged by texts of yours
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --yes --max-download 8G --serve -- --port 8000
    """
    from ggufspec.cli.steps import automatic, limits, serving

    if asked.words and not asked.serve:
        raise click.UsageError("options for llama-server need --serve")
    deadline = limits.begin_tuning(asked.max_time)
    limits.announce_limit(deadline)
    searched_s = deadline.elapsed_s
    sources = automatic.find_sources(asked)
    # a Hub that cannot be reached is tried again for most of a minute
    deadline = limits.without_network(deadline, searched_s, "search for drafters")
    with automatic.explain_interruption():
        deadline = automatic.fetch_sources(sources, asked, deadline)
        configuration = automatic.tune_sources(sources, asked, deadline)
    automatic.print_commands(configuration, asked)
    if asked.serve:
        serving.run_server(serving.prepare_server(configuration.id, asked.words))
