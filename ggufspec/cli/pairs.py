"""``ggufspec pairs`` and ``prompts``: the known pairs of models, and the built-in suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from ggufspec.choices import SUITES
from ggufspec.cli.entry.command import command_of, group_of, usage_errors
from ggufspec.cli.entry.output import (
    echo,
    echo_json,
    echo_rows,
    echo_sentence,
    echo_table,
)
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import Options, PairsOptions, PromptsOptions
from ggufspec.units import counted, format_bytes, format_rate

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.domain import ModelFile
    from ggufspec.forecast import planning
    from ggufspec.modelfiles import catalog, hub


@command_of(PairsOptions)
def pairs(asked: PairsOptions) -> None:
    """List the known pairs of models, or print the details of one.

    With --fits, headers and lists of files are read from the Hub where they are not here. "quant that fits"
    is the largest one of the target's repository that fits completely beside the drafter. Tokens/s are not
    measured: they are estimated for the target alone from memory bandwidth. Most programs reach less, but
    models that fit into a processor's cache are faster; what fits into this one's has no estimate.

    Add your own pairs to pairs.toml in your configuration folder, in the format of models/pairs.toml.

    \b
    ggufspec pairs
    ggufspec pairs llama-3-70b --verify
    ggufspec pairs --fits
    ggufspec pairs --fits --vram 24G --machine rtx-4090
    ggufspec pairs -o json
    """
    from ggufspec.modelfiles import catalog

    entries = catalog.entries()
    if asked.name is not None:
        catalog.find_pair(asked.name)
        entries = {asked.name: entries[asked.name]}
    if asked.verify and asked.fits:
        raise click.UsageError("use either --verify or --fits")
    if not asked.fits and any(option is not None for option in (asked.vram, asked.machine, asked.host)):
        raise click.UsageError("--vram, --machine and --host are for --fits")
    if asked.fits:
        _show_fits(entries, asked)
    elif asked.verify:
        _verify_pairs(entries, asked.token, asked.output)
    elif asked.output == "json":
        echo_json([_format_json(entry) for entry in entries.values()])
    elif asked.name is not None:
        echo(_format_details(entries[asked.name]), nl=False)
    else:
        rows = [
            [
                name + ("" if entry.verified else " (unverified)"),
                entry.pair.target.filename,
                _describe_drafter(entry),
                entry.licence,
            ]
            for name, entry in entries.items()
        ]
        echo_table(["pair", "target", "drafter", "licence"], rows)
        echo(f"your own pairs: {catalog.user_file()}", err=True)


def _show_fits(entries: Mapping[str, catalog.CatalogueEntry], asked: PairsOptions) -> None:
    """Print how each pair fits this machine, or the one that options describe."""
    from ggufspec.forecast import planning
    from ggufspec.modelfiles import hub

    with usage_errors():
        site = planning.detect_site(asked.vram, asked.machine, asked.host)
    fits = [*_fit_pairs(entries, site, hub.Access.of(asked))]
    if asked.output == "json":
        echo_json([asdict(fit) for fit in fits])
        return
    rows = [_fit_cells(fit) for fit in fits]
    shown = [heading for heading in rows[0] if heading != "GPU layers" or site.has_gpu]
    echo_table(shown, [[row[heading] for heading in shown] for row in rows])
    for note in site.notes:
        echo_sentence(note)
    echo(
        "tokens/s: estimated for the target alone from memory bandwidth, at a context of "
        f"{planning.CONTEXT:,} tokens; not measured",
        err=True,
    )
    cached = [fit.pair for fit in fits if fit.in_cache]
    if cached and site.cache_bytes is not None:
        echo(
            f"tokens/s not estimated for {', '.join(cached)}: the processor's cache "
            f"({format_bytes(site.cache_bytes)}) can hold all that is read for a token",
            err=True,
        )
    failed = [fit for fit in fits if fit.error is not None]
    if failed:
        count = counted(len(failed), "pair")
        echo(f"not known for {count}; {failed[0].pair}: {failed[0].error}", err=True)


def _fit_pairs(
    entries: Mapping[str, catalog.CatalogueEntry], site: planning.Site, access: hub.Access
) -> Iterator[planning.PairFit]:
    """Yield how each pair fits; once the Hub cannot be reached, only the cache is asked."""
    from ggufspec.forecast import planning

    for entry in Terminal().each([*entries.values()], lambda entry: entry.pair.name):
        fit = planning.fit_pair(entry.pair, site, access)
        if fit.is_unreachable:
            access = replace(access, offline=True)
        yield fit


def _fit_cells(fit: planning.PairFit) -> dict[str, str]:
    """Return the cells of a pair by their headings; what is not known is empty."""
    quant = "" if fit.fits is None else "none"
    if fit.quant is not None and fit.quant_bytes is not None:
        quant = f"{fit.quant} ({format_bytes(fit.quant_bytes)})"
    elif fit.fits:
        quant = "as listed"
    return {
        "pair": fit.pair,
        "size": "" if fit.size_bytes is None else format_bytes(fit.size_bytes),
        "fetched": fit.fetched.value,
        "fits": "" if fit.fits is None else "yes" if fit.fits else "no",
        "GPU layers": "" if fit.fitting_layers is None else f"{fit.fitting_layers}/{fit.max_layers}",
        "quant that fits": quant,
        "estimated tokens/s": "" if fit.rate is None else format_rate(fit.rate.value),
    }


def _format_details(entry: catalog.CatalogueEntry) -> str:
    lines = {
        "pair": entry.pair.name,
        "target": entry.pair.target.reference,
        "drafter": None if entry.pair.draft is None else entry.pair.draft.reference,
        "method": _format_method(entry),
        "γ": entry.gamma,
        "p-min": entry.p_min,
        "pinned": "; ".join(
            _format_pin(model, entry.catalogue) for model in entry.pair.models if model.repo is not None
        )
        or None,
        "licence": entry.licence,
        "source": entry.source,
        "verified": entry.evidence or "no; check with --verify",
        "note": entry.note,
        "listed in": entry.catalogue,
    }
    return "".join(f"{key:<10} {value}\n" for key, value in lines.items() if value is not None)


def _describe_drafter(entry: catalog.CatalogueEntry) -> str:
    """Return the drafter's file; for other methods than drafting with a model, the method."""
    from ggufspec.domain import Method

    if entry.method == Method.DRAFT_MODEL and entry.pair.draft is not None:
        return entry.pair.draft.filename
    return _format_method(entry)


def _format_method(entry: catalog.CatalogueEntry) -> str:
    return entry.method + ("" if entry.supported else " (not supported yet)")


def _format_pin(model: ModelFile, catalogue: Path) -> str:
    """Return which content a model must have, and who says so."""
    from ggufspec.modelfiles import pins

    pin = pins.find_pin(model, catalogue)
    if pin is None:
        return f"{model.filename} not yet: its first fetch does it"
    commit = f" of {pin.commit[:12]}" if pin.commit else ""
    return f"{model.filename}{commit}, SHA-256 {pin.sha256[:12]}… (in {pin.stated_in})"


def _format_json(entry: catalog.CatalogueEntry) -> dict[str, object]:
    return {
        "pair": entry.pair.name,
        "target": _format_model(entry.pair.target, entry.catalogue),
        "drafter": None if entry.pair.draft is None else _format_model(entry.pair.draft, entry.catalogue),
        "method": entry.method,
        "supported": entry.supported,
        "gamma": entry.gamma,
        "p_min": entry.p_min,
        "licence": entry.licence,
        "source": entry.source,
        "verified": entry.verified,
        "evidence": entry.evidence,
        "note": entry.note,
        "listed_in": str(entry.catalogue),
    }


def _format_model(model: ModelFile, catalogue: Path) -> dict[str, object]:
    from ggufspec.modelfiles import pins

    pin = None if model.repo is None else pins.find_pin(model, catalogue)
    return {
        "repo": model.repo,
        "file": model.filename,
        "quant": model.quant,
        "revision": model.revision,
        "sha256": model.sha256,
        "pinned_commit": pin and pin.commit,
        "pinned_sha256": pin and pin.sha256,
        "path": None if model.path is None else str(model.path),
    }


def _verify_pairs(entries: Mapping[str, catalog.CatalogueEntry], token: str | None, output: str) -> None:
    """Look up each pair on the Hub; an unavailable pair is a line, and in the end an error."""
    from ggufspec.errors import CatalogError
    from ggufspec.modelfiles import hub

    access = hub.Access(token=token)
    rows = [
        _look_up(entry, access)
        for entry in Terminal().each([*entries.values()], lambda entry: entry.pair.name)
    ]
    if output == "json":
        echo_json(rows)
    else:
        for row in rows:
            state = f"changed since it was listed: {', '.join(row['changed'])}" if row["changed"] else "ok"
            echo(f"{row['pair']}: " + (row["error"] or f"{state}, {format_bytes(row['size_bytes'])}"))
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        raise CatalogError(f"{failed} of {len(entries)} pairs are not available", "fix the catalogue")


def _look_up(entry: catalog.CatalogueEntry, access: hub.Access) -> dict[str, Any]:
    """Return what the Hub says about a pair: its size and the files that have changed, or an error."""
    from ggufspec.errors import GgufspecError
    from ggufspec.modelfiles import hub, pins

    facts = {"pair": entry.pair.name, "size_bytes": None, "changed": (), "error": None}
    try:
        current = hub.survey_pair(entry.pair, access).pair
    except GgufspecError as error:
        return {**facts, "error": error.message}
    size_bytes, changed = 0, []
    for listed, model in ((entry.pair.target, current.target), (entry.pair.draft, current.draft)):
        if listed is None or model is None:
            continue
        size_bytes += model.size_bytes or 0
        pin = None if listed.repo is None else pins.find_pin(listed, entry.catalogue)
        if pin is not None and model.sha256 not in {None, pin.sha256}:
            changed.append(model.filename)
    return {**facts, "size_bytes": size_bytes, "changed": changed}


@command_of(PromptsOptions)
def listed(asked: PromptsOptions) -> None:
    """List the suites, or the prompts of one. Lengths are in characters, without followups.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work -o json
    """
    from ggufspec import prompts
    from ggufspec.report.rows import listing

    if asked.suite is not None:
        echo_rows(listing.ListedPromptRow, prompts.suite(asked.suite).prompts, asked.output)
        return
    echo_rows(listing.ListedSuiteRow, [*map(prompts.suite, SUITES)], asked.output)
    if asked.output != "json":
        echo("the prompts of one: ggufspec prompts list --suite NAME", err=True)


@group_of(Options, list=listed)
def prompts(asked: Options) -> None:
    """Show what the built-in prompt suites hold. Measure with one by `--suite NAME`.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work
    """
