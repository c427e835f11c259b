"""``ggufspec fetch``: the right two files, checked before and after."""

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
@click.option("-m", "--target", metavar="REF", help="The model whose text is wanted, instead of PAIR.")
@click.option("-md", "--draft-model", metavar="REF", help="The model that drafts for it.")
@click.option("--fit", is_flag=True, help="The largest pair of the catalogue that this machine holds.")
@click.option("--revision", help="Branch, tag or commit, for all files.")
@click.option("--token", help="Access token, instead of the usual login (hf auth login, HF_TOKEN).")
@click.option("--offline", is_flag=True, help="Use what is cached, ask nobody.")
@click.option("--local-dir", type=click.Path(file_okay=False, path_type=Path), help="Put the files here.")
@click.option("--dry-run", is_flag=True, help="Only show files, sizes, what is here and the free disk.")
@click.option("--no-check", is_flag=True, help="Do not read the headers first.")
@click.option("-y", "--yes", is_flag=True, help="Agree to more than 10 GB beforehand.")
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
    yes: bool,
) -> None:
    """Download a pair, whole and verified, into the cache of all Hub tools.

    Without PAIR or --target it is the pair that is set (`ggufspec config`), else the Llama-3 notebook's. REF
    is user/repo:QUANT (as llama.cpp's -hf), user/repo/file.gguf, hf://…, a Hub URL, half a pair (demo:target)
    or a local path. In place of PAIR, a REF is a target without a drafter; of a repository that has several
    models, they are listed. With --quiet, the two paths are all that is printed.

    \b
    ggufspec fetch qwen3-8b
    ggufspec fetch unsloth/Qwen3-8B-GGUF
    ggufspec fetch --target unsloth/Qwen3-8B-GGUF:Q4_K_M --draft-model unsloth/Qwen3-0.6B-GGUF:Q8_0
    """
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import hub

    quiet = verbosity.of(click.get_current_context()).quiet
    access = hub.Access(token=token, offline=offline, local_dir=local_dir)
    if fit:
        from ggufspec.cli.steps import fitting

        if pair is not None or target is not None:
            raise click.UsageError("--fit chooses the pair itself")
        pair, why = fitting.largest(access)
        echo(why, err=True)
    found = _survey(pair, target, draft_model, revision, access)
    drafts, advice = _next_step(found.pair)
    if not drafts:
        echo(f"note: {advice}", err=True)
    if dry_run or not quiet:
        echo(hub_access.plan(found), nl=False, err=not dry_run)
    if dry_run:
        return
    hub.check_room(found)
    _ask(found, yes=yes, quiet=quiet)
    if not no_check:
        _check(found, access)
    fetched = hub_access.download(found, access, quiet=quiet)
    for role, model in (("target", fetched.target), ("drafter", fetched.draft)):
        if model is not None:
            echo(model.path if quiet else f"{role:<8} {model.path}")
    if drafts and not quiet:
        echo(advice, err=True)


def _next_step(pair: Pair) -> tuple[bool, str]:
    """Return whether a bench would measure drafting, and what to do with a pair, or why it would not."""
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
        return False, f"nothing drafts for this target; find a drafter: {find}"
    return True, "measure it: ggufspec bench" + ("" if method.needs_drafter else " --engine server")


def _ask(found: hub.Survey, *, yes: bool, quiet: bool) -> None:
    """Let a person agree to a large download, unless nothing may be said: then nobody can be asked."""
    from ggufspec.cli.steps import hub_access
    from ggufspec.errors import ConsentNeededError
    from ggufspec.units import format_bytes

    if quiet and not yes and found.missing_bytes > hub_access.ASK_ABOVE_BYTES:
        raise ConsentNeededError(
            f"{format_bytes(found.missing_bytes)} would be downloaded, and --quiet asks nothing", "add --yes"
        )
    hub_access.ask(found, yes=yes)


def _survey(
    pair: str | None, target: str | None, draft_model: str | None, revision: str | None, access: hub.Access
) -> hub.Survey:
    from dataclasses import replace

    from ggufspec.modelfiles import catalog, hub

    if pair is not None and target is not None:
        raise click.UsageError("give a PAIR or a --target, not both")
    pairs = catalog.load()
    named = pair is not None and pair not in pairs and _is_reference(pair)
    if named:
        pair, target = None, pair
    if draft_model is not None and target is None:
        raise click.UsageError("a --draft-model needs a --target")
    if target is None:
        listed = catalog.find(pair or catalog.DEFAULT)
        references = [hub.of_model(model) for model in (listed.target, listed.draft) if model is not None]
        name = listed.name
    else:
        texts = [target] if draft_model is None else [target, draft_model]
        references = [hub.parse(text, pairs, endpoint=access.endpoint) for text in texts]
        name = " + ".join(reference.text for reference in references)
    if named:
        references[0] = replace(references[0], use_default=False)
    if revision is not None:
        if any(reference.revision not in (None, revision) for reference in references):
            raise BadReferenceError("--revision contradicts the revision in a reference", "name it once")
        references = [replace(reference, revision=revision) for reference in references]
    try:
        return hub.survey(name, references[0], references[1] if len(references) > 1 else None, access)
    except hub.SeveralModelsError as error:
        raise RemoteFileNotFoundError(
            error.message, f"{error.hint}; for example: {_command(references, error, revision, access)}"
        ) from error


def _is_reference(text: str) -> bool:
    """Return whether a text can only be a model: no pair has a slash or a colon in its name."""
    return "/" in text or ":" in text or text.endswith(".gguf")


def _command(
    references: list[hub.Reference],
    error: hub.SeveralModelsError,
    revision: str | None,
    access: hub.Access,
) -> str:
    """Return the command that names one of several models, with everything else as it was given."""
    words = ["ggufspec", "fetch"]
    options, chosen = ("--target", "--draft-model"), False
    for option, reference in zip(options, references, strict=False):
        text = reference.text
        means = (reference.repo, reference.filename) == (error.repo, None)
        if means and reference.quant in (None, error.quant) and not chosen:
            at = f"@{reference.revision}" if reference.revision and revision is None else ""
            text, chosen = f"{error.repo}{at}{error.example}", True
        words += [option, text]
    words += ["--revision", revision] if revision is not None else []
    if access.local_dir is not None:
        words += ["--local-dir", str(access.local_dir)]
    return shlex.join(words)


def _check(found: hub.Survey, access: hub.Access) -> None:
    """Read both headers, which a few megabytes hold, before gigabytes travel for a pair that cannot work."""
    from ggufspec.cli.steps import hub_access
    from ggufspec.modelfiles import hub
    from ggufspec.modelfiles.compat import judging

    target, draft = found.pair.target, found.pair.draft
    if draft is None:
        return
    verdict = judging.check(
        hub.read_card(target, access), hub.read_card(draft, access), hub_access.rule_in_use()
    )
    if verdict.outcome is judging.Outcome.REFUSED:
        raise judging.refusal(verdict)
