"""``ggufspec fetch``: download a pair of models and verify the files."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.errors import RemoteFileNotFoundError
from ggufspec.options import FetchOptions, only

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
    pair = asked.pair
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import api, hub, pins

    quiet = verbosity.current(click.get_current_context()).quiet
    access = replace(hub.Access.of(asked), local_dir=asked.local_dir)
    if asked.largest:
        from ggufspec.cli.steps import fitting

        if pair is not None or asked.target is not None:
            raise click.UsageError("--largest chooses the pair; do not name one")
        pair, reason = fitting.choose_largest(access)
        echo(reason, err=True)
    survey = _survey_models(pair, only(asked.target), only(asked.draft_model), asked.revision, access)
    if asked.revision is None and not asked.repin:
        pins.check_pins(survey)
    _warn_of_method(survey.pair)
    if asked.dry_run or not quiet:
        hub_access.print_survey(survey, err=not asked.dry_run)
    if asked.dry_run:
        _print_next_step(survey, quiet=True)
        return
    hub.check_room(survey)
    hub_access.confirm_download(survey, yes=asked.yes, quiet=quiet)
    if not asked.no_check:
        api.check_survey(survey, access)
    fetched = hub_access.download_pair(survey, access, quiet=quiet)
    if asked.revision is None:
        hub_access.pin_files(survey, replace=asked.repin, quiet=quiet)
    for role, model in (("target", fetched.target), ("drafter", fetched.draft)):
        if model is not None:
            echo(model.path if quiet else f"{role:<8} {model.path}")
    _print_next_step(replace(survey, pair=fetched), quiet=quiet)


def _warn_of_method(pair: Pair) -> None:
    """Print a note if no command can measure what a pair drafts by."""
    from ggufspec.errors import UnsupportedMethodError
    from ggufspec.modelfiles import catalog

    try:
        catalog.drafting_method(pair)
    except UnsupportedMethodError as error:
        echo(f"note: {error.message}: no command can measure it", err=True)


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


def _survey_models(
    pair: str | None, target: str | None, draft_model: str | None, revision: str | None, access: hub.Access
) -> hub.Survey:
    from ggufspec.modelfiles import api, hub

    try:
        references, name = api.find_references(pair, target, draft_model, revision, access)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        return hub.survey_fetch(name, references[0], references[1] if len(references) > 1 else None, access)
    except hub.SeveralModelsError as error:
        raise RemoteFileNotFoundError(
            error.message,
            f"{error.hint}; for example: {_format_command(references, error, revision, access)}",
        ) from error


def _format_command(
    references: list[hub.Reference],
    error: hub.SeveralModelsError,
    revision: str | None,
    access: hub.Access,
) -> str:
    """Return the command that names one of several models, with the other options unchanged."""
    words = ["ggufspec", "fetch"]
    options, chosen = ("--target", "--draft-model"), False
    for option, reference in zip(options, references, strict=False):
        text = reference.text
        is_ambiguous = (reference.repo, reference.filename) == (error.repo, None)
        if is_ambiguous and reference.quant in (None, error.quant) and not chosen:
            at = f"@{reference.revision}" if reference.revision and revision is None else ""
            text, chosen = f"{error.repo}{at}{error.example}", True
        words += [option, text]
    words += ["--revision", revision] if revision is not None else []
    if access.local_dir is not None:
        words += ["--local-dir", str(access.local_dir)]
    return shlex.join(words)
