"""``ggufspec auto``: from the name of a model to the fastest way to serve it."""

from __future__ import annotations

from pathlib import Path

import click

from ggufspec.cli.options import completions
from ggufspec.cli.options.placement import rpc_option
from ggufspec.cli.options.references import offline_option, reference_options, token_option
from ggufspec.cli.options.serving import capacity_options, server_words
from ggufspec.cli.options.shared import Count, Duration, Size

_, _DRAFT_MODELS = reference_options(many=True, finds_head=False)


@click.command()
@click.argument("target", metavar="TARGET", shell_complete=completions.models_and_pairs)
@_DRAFT_MODELS
@click.option(
    "--drafters",
    type=Count(0),
    default=3,
    show_default=True,
    help="Maximum number of the drafters that are found to try.",
)
@click.option(
    "--max-download", type=Size(), help="Leave out drafters beyond this download, such as 8G. [default: none]"
)
@click.option("-y", "--yes", is_flag=True, help="Download without confirmation.")
@click.option(
    "--max-time",
    type=Duration(),
    default="5m",
    show_default=True,
    help="Time limit for the complete tuning: 2m, 1h.",
)
@capacity_options
@click.option(
    "-t", "--threads", type=click.IntRange(1, 1024), help="CPU threads. [default: all physical cores]"
)
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of a llama.cpp installation.",
)
@rpc_option(many=False)
@offline_option
@token_option
@click.option("--fresh", is_flag=True, help="Tune again, even if the same tuning is stored.")
@click.option("--serve", is_flag=True, help="Run llama-server at the end, with the options after --.")
@server_words
def command(
    *,
    target: str,
    draft_model: tuple[str, ...],
    drafters: int,
    max_download: int | None,
    yes: bool,
    max_time: float,
    parallel: int | None,
    serve_ctx: int | None,
    serve_parallel: int,
    threads: int | None,
    llama: Path | None,
    rpc: str | None,
    offline: bool,
    token: str | None,
    fresh: bool,
    serve: bool,
    words: tuple[str, ...],
) -> None:
    """Find everything that may draft for TARGET, download it, tune, and say how to serve it.

    TARGET is user/repo:QUANT, a file, or a pair of the catalogue. Drafters are smaller models of its family
    that llama.cpp accepts, and heads; n-gram methods and layers of the target need no file. What is found is
    listed with its size before anything is downloaded. The tuning is that of `ggufspec tune`.

    After an interruption, the same command goes on: downloads resume, and stored runs are not repeated.

    \b
    ggufspec auto Qwen/Qwen3-32B-GGUF:Q4_K_M
    ggufspec auto big.gguf -md small.gguf -md eagle3.gguf --max-time 20m
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --parallel 4    the best for four users at once
    ggufspec auto Qwen/Qwen3-8B-GGUF:Q4_K_M --yes --max-download 8G --serve -- --port 8000
    """
    from ggufspec import tuning
    from ggufspec.cli.steps import automatic, limits, serving

    if words and not serve:
        raise click.UsageError("options for llama-server need --serve")
    asked = tuning.AutoRequest(
        target=target,
        draft_model=draft_model,
        drafters=drafters,
        max_download_bytes=max_download,
        max_time_s=max_time,
        serve_ctx=serve_ctx,
        serve_parallel=serve_parallel,
        parallel=parallel,
        threads=threads,
        llama=llama,
        offline=offline,
        token=token,
        fresh=fresh,
        rpc=rpc,
    )
    deadline = limits.begin_tuning(max_time)
    limits.announce_limit(deadline)
    searched_s = deadline.elapsed_s
    sources = automatic.find_sources(asked)
    # a Hub that cannot be reached is tried again for most of a minute
    deadline = limits.without_network(deadline, searched_s, "search for drafters")
    with automatic.explain_interruption():
        deadline = automatic.fetch_sources(sources, asked, deadline, yes=yes)
        configuration = automatic.tune_sources(sources, asked, deadline)
    automatic.print_commands(configuration)
    if serve:
        serving.run_server(serving.prepare_server(configuration.id, words))
