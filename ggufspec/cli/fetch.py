"""``ggufspec fetch``: download a pair of models and verify the files."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.errors import BadReferenceError, RemoteFileNotFoundError

if TYPE_CHECKING:
    from ggufspec.domain import Pair
    from ggufspec.modelfiles import hub


@click.command()
@click.argument("pair", required=False, shell_complete=completions.pairs)
@click.option("-m", "--target", metavar="REF", help="Target to download, instead of PAIR.")
@click.option("-md", "--draft-model", metavar="REF", help="Drafter to download with --target.")
@click.option("--fit", is_flag=True, help="Choose the largest pair of the catalogue that fits into memory.")
@click.option("--revision", help="Branch, tag or commit of all files.")
@click.option("--token", help="Access token for the Hub. [default: the stored login or HF_TOKEN]")
@click.option("--offline", is_flag=True, help="Use only cached files; do not connect to the Hub.")
@click.option(
    "--local-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Store the files here instead of in the Hub's cache.",
)
@click.option("--dry-run", is_flag=True, help="Print files, sizes and free disk space without downloading.")
@click.option("--no-check", is_flag=True, help="Do not check first whether the two models match.")
@click.option(
    "--repin",
    is_flag=True,
    help="Accept files of PAIR that differ from the catalogue's or the first fetch's.",
)
@click.option("-y", "--yes", is_flag=True, help="Download more than 10 GB without confirmation.")
def command(
    *,
    pair: str | None,
    target: str | None,
    draft_model: str | None,
    fit: bool,
    revision: str | None,
    token: str | None,
    offline: bool,
    local_dir: Path | None,
    dry_run: bool,
    no_check: bool,
    repin: bool,
    yes: bool,
) -> None:
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
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import hub, pins

    quiet = verbosity.current(click.get_current_context()).quiet
    access = hub.Access(token=token, offline=offline, local_dir=local_dir)
    if fit:
        from ggufspec.cli.steps import fitting

        if pair is not None or target is not None:
            raise click.UsageError("--fit chooses the pair; do not name one")
        pair, reason = fitting.choose_largest(access)
        echo(reason, err=True)
    survey = _survey_models(pair, target, draft_model, revision, access)
    if revision is None and not repin:
        pins.check_pins(survey)
    drafts, advice = _describe_next_step(survey.pair)
    if not drafts:
        echo(f"note: {advice}", err=True)
    if dry_run or not quiet:
        hub_access.print_survey(survey, err=not dry_run)
    if dry_run:
        return
    hub.check_room(survey)
    _confirm_download(survey, yes=yes, quiet=quiet)
    if not no_check:
        _check_pair(survey, access)
    fetched = hub_access.download_pair(survey, access, quiet=quiet)
    if revision is None:
        _pin_files(survey, replace=repin, quiet=quiet)
    for role, model in (("target", fetched.target), ("drafter", fetched.draft)):
        if model is not None:
            echo(model.path if quiet else f"{role:<8} {model.path}")
    if drafts and not quiet:
        echo(advice, err=True)


def _describe_next_step(pair: Pair) -> tuple[bool, str]:
    """Return whether a bench can measure drafting with a pair, and what to do next or why it cannot."""
    from ggufspec.domain import Chain, Method
    from ggufspec.errors import UnsupportedMethodError
    from ggufspec.modelfiles import catalog

    try:
        method = catalog.drafting_method(pair)
    except UnsupportedMethodError as error:
        return False, f"{error.message}: no command can measure it"
    if method is None:
        target = pair.target
        model = str(target.path) if target.repo is None else f"{target.repo}/{target.filename}"
        find = shlex.join(["ggufspec", "suggest", model])
        return False, f"this target has no drafter; find one: {find}"
    is_draft_model = method == Chain(Method.DRAFT_MODEL)
    return True, "measure it: ggufspec bench" + ("" if is_draft_model else " --engine server")


def _pin_files(survey: hub.Survey, *, replace: bool, quiet: bool) -> None:
    """Pin the files of a catalogue's pair; where that cannot be stored, print a warning."""
    from ggufspec.modelfiles import pins

    try:
        pinned = pins.pin_files(survey, replace=replace)
    except OSError as error:
        echo(f"warning: cannot write {pins.user_file()}: {error.strerror}; nothing was pinned", err=True)
        return
    if pinned and not quiet:
        echo(f"pinned in {pins.user_file()}: {', '.join(pinned)}", err=True)


def _confirm_download(survey: hub.Survey, *, yes: bool, quiet: bool) -> None:
    """Ask for confirmation of a large download; with --quiet it must be given by --yes."""
    from ggufspec.cli.steps import hub_access
    from ggufspec.errors import ConsentNeededError
    from ggufspec.units import format_bytes

    if quiet and not yes and survey.missing_bytes > hub_access.ASK_ABOVE_BYTES:
        raise ConsentNeededError(
            f"the download of {format_bytes(survey.missing_bytes)} needs confirmation; --quiet does not ask",
            "add --yes",
        )
    hub_access.confirm_download(survey, yes=yes)


def _survey_models(
    pair: str | None, target: str | None, draft_model: str | None, revision: str | None, access: hub.Access
) -> hub.Survey:
    from dataclasses import replace

    from ggufspec.modelfiles import catalog, hub

    if pair is not None and target is not None:
        raise click.UsageError("name a PAIR or a --target, not both")
    pairs = catalog.load_catalogue()
    is_reference = pair is not None and pair not in pairs and _is_reference(pair)
    if is_reference:
        pair, target = None, pair
    if draft_model is not None and target is None:
        raise click.UsageError("--draft-model needs --target")
    if target is None:
        listed = catalog.find_pair(pair or catalog.DEFAULT)
        references = [hub.of_model(model) for model in (listed.target, listed.draft) if model is not None]
        name = listed.name
    else:
        texts = [target] if draft_model is None else [target, draft_model]
        references = [hub.parse_reference(text, pairs, endpoint=access.endpoint) for text in texts]
        name = " + ".join(reference.text for reference in references)
    if is_reference:
        references[0] = replace(references[0], use_default=False)
    if revision is not None:
        if any(reference.revision not in (None, revision) for reference in references):
            raise BadReferenceError(
                "--revision contradicts the revision in a reference", "use only one of them"
            )
        references = [replace(reference, revision=revision) for reference in references]
    try:
        return hub.survey_fetch(name, references[0], references[1] if len(references) > 1 else None, access)
    except hub.SeveralModelsError as error:
        raise RemoteFileNotFoundError(
            error.message,
            f"{error.hint}; for example: {_format_command(references, error, revision, access)}",
        ) from error


def _is_reference(text: str) -> bool:
    """Return whether a text is a model reference: names of pairs have no slash and no colon."""
    return "/" in text or ":" in text or text.endswith(".gguf")


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


def _check_pair(survey: hub.Survey, access: hub.Access) -> None:
    """Check from the headers, which are small, that llama.cpp accepts the drafter, before the download."""
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.compat import judging

    target, draft = survey.pair.target, survey.pair.draft
    if draft is None:
        return
    draft_card = hub.read_card(draft, access)
    rule = hub_access.find_rule("server" if judging.is_head(draft_card) else "binary")
    verdict = judging.check_pair(hub.read_card(target, access), draft_card, rule)
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)
