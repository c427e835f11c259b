"""``ggufspec fetch``: download a pair of models and verify the files."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import FetchOptions

if TYPE_CHECKING:
    from ggufspec.domain import Pair
    from ggufspec.modelfiles import hub


@command_of(FetchOptions)
def command(asked: FetchOptions) -> None:
    """Download a pair of models into the Hub's cache, and verify the files.

    The first fetch of a pair pins its files by SHA-256, unless the catalogue does; later ones refuse others.

    PAIR is a name from the catalogue, by default that of `ggufspec config`, otherwise the pair of the Llama-3
    notebook. REF is user/repo:QUANT (as in llama.cpp's -hf), user/repo/file.gguf, hf://…, a Hub URL, half of
    a pair (demo:target) or a local path. A REF in place of PAIR is a target without a drafter; if its
    repository has several models, they are listed. With --quiet, only the paths are printed.

    \b
    ggufspec fetch qwen3-8b
    ggufspec fetch unsloth/Qwen3-8B-GGUF
    ggufspec fetch --target unsloth/Qwen3-8B-GGUF:Q4_K_M --draft-model unsloth/Qwen3-0.6B-GGUF:Q8_0
    """
    terminal = Terminal()
    with usage_errors():
        survey = api.fetch(asked, sink=terminal)
    is_quiet = asked.dry_run or terminal.is_quiet
    if asked.dry_run:
        from ggufspec.cli.entry import printing

        printing.print_survey(survey, err=False)
    else:
        for role, model in (("target", survey.pair.target), ("drafter", survey.pair.draft)):
            if model is not None:
                echo(model.path if is_quiet else f"{role:<8} {model.path}")
    _print_next_step(survey, quiet=is_quiet)


def _print_next_step(survey: hub.Survey, *, quiet: bool) -> None:
    """Print how to measure a pair, or where a target without a drafter gets one; quietly, only the latter."""
    from ggufspec.errors import UnsupportedMethodError
    from ggufspec.modelfiles import catalog

    pair, target = survey.pair, survey.pair.target
    try:
        has_method = catalog.drafting_method(pair) is not None
    except UnsupportedMethodError:
        return
    if has_method or _has_layers_for_mtp(pair):
        way = "" if has_method else " --method draft-mtp"
        if not quiet:
            echo(f"measure it: ggufspec bench{way}", err=True)
        return
    model = str(target.path) if target.repo is None else f"{target.repo}/{target.filename}"
    if not survey.heads:
        find = shlex.join(["ggufspec", "suggest", model])
        echo(f"note: this target has no drafter; find one: {find}", err=True)
    for head in survey.heads:
        words = ["ggufspec", "fetch", "--target", model, "--draft-model", f"{head.repo}/{head.filename}"]
        echo(f"note: its repository has a head that may draft for it; get it: {shlex.join(words)}", err=True)


def _has_layers_for_mtp(pair: Pair) -> bool:
    """Whether the target can draft for itself; False if its file is not here, or cannot be read."""
    from ggufspec.errors import GgufspecError
    from ggufspec.modelfiles import gguf
    from ggufspec.modelfiles.compat import mtp_layers

    if pair.target.path is None:
        return False
    try:
        return mtp_layers(gguf.read_card(pair.target.path)) > 0
    except GgufspecError:
        return False
