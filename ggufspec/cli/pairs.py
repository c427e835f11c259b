"""``ggufspec pairs`` and ``prompts``: the known pairs of models, and the built-in suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ggufspec.choices import SUITES
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, echo_json, echo_sentence, echo_table
from ggufspec.options import Options, PairsOptions, PromptsOptions

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.domain import ModelFile
    from ggufspec.forecast import planning
    from ggufspec.modelfiles import catalog, hub
    from ggufspec.prompts import PromptSuite


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
        from ggufspec.modelfiles import hub

        _show_fits(entries, asked.vram, asked.machine, asked.host, hub.Access.of(asked), asked.output)
    elif asked.verify:
        _verify_pairs(entries, asked.token, asked.output)
    elif asked.output == "json":
        echo_json([_format_json(entry) for entry in entries.values()])
    elif asked.name is not None:
        echo(_format_details(entries[asked.name]), nl=False)
    else:
        echo_table(["pair", "target", "drafter", "licence"], _list_cells(entries))
        echo(f"your own pairs: {catalog.user_file()}", err=True)


def _show_fits(
    entries: Mapping[str, catalog.CatalogueEntry],
    vram: Sequence[int] | None,
    machine: str | None,
    host: str | None,
    access: hub.Access,
    output: str,
) -> None:
    """Print how each pair fits this machine, or the one that options describe."""
    from ggufspec.forecast import planning
    from ggufspec.units import counted, format_bytes

    try:
        site = planning.detect_site(vram, machine, host)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    fits = [*_fit_pairs(entries, site, access)]
    if output == "json":
        echo_json([asdict(fit) for fit in fits])
        return
    headings = [*_FIT_HEADINGS]
    rows = [_fit_cells(fit) for fit in fits]
    shown = [place for place, heading in enumerate(headings) if heading != "GPU layers" or site.has_gpu]
    echo_table([headings[place] for place in shown], [[row[place] for place in shown] for row in rows])
    for note in site.notes:
        echo_sentence(note, err=True)
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
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.forecast import planning

    for entry in iterate_with_progress([*entries.values()], lambda entry: entry.pair.name):
        fit = planning.fit_pair(entry.pair, site, access)
        if fit.is_unreachable:
            access = replace(access, offline=True)
        yield fit


_FIT_HEADINGS = ("pair", "size", "fetched", "fits", "GPU layers", "quant that fits", "estimated tokens/s")


def _fit_cells(fit: planning.PairFit) -> list[str]:
    """Return the cells of a pair, under ``_FIT_HEADINGS``; what is not known is empty."""
    from ggufspec.units import format_bytes, format_rate

    quant = "" if fit.fits is None else "none"
    if fit.quant is not None and fit.quant_bytes is not None:
        quant = f"{fit.quant} ({format_bytes(fit.quant_bytes)})"
    elif fit.fits:
        quant = "as listed"
    return [
        fit.pair,
        "" if fit.size_bytes is None else format_bytes(fit.size_bytes),
        fit.fetched.value,
        "" if fit.fits is None else "yes" if fit.fits else "no",
        "" if fit.gpu_layers is None else f"{fit.gpu_layers}/{fit.max_layers}",
        quant,
        "" if fit.rate is None else format_rate(fit.rate),
    ]


def _list_cells(entries: Mapping[str, catalog.CatalogueEntry]) -> list[list[str]]:
    return [
        [
            name + ("" if entry.verified else " (unverified)"),
            entry.pair.target.filename,
            _describe_drafter(entry),
            entry.licence,
        ]
        for name, entry in entries.items()
    ]


def _format_details(entry: catalog.CatalogueEntry) -> str:
    lines = {
        "pair": entry.pair.name,
        "target": _format_location(entry.pair.target),
        "drafter": None if entry.pair.draft is None else _format_location(entry.pair.draft),
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


def _format_location(model: ModelFile) -> str:
    return str(model.path) if model.repo is None else f"{model.repo}/{model.filename}"


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


@dataclass(frozen=True, kw_only=True)
class _Availability:
    """What the Hub says about a pair: its size and the changed files, or an error."""

    pair: str
    size_bytes: int | None = None
    changed: tuple[str, ...] = ()
    error: str | None = None

    def __str__(self) -> str:
        from ggufspec.units import format_bytes

        if self.error is not None:
            return self.error
        changes = f"changed since it was listed: {', '.join(self.changed)}" if self.changed else "ok"
        return f"{changes}, {format_bytes(self.size_bytes or 0)}"


def _verify_pairs(entries: Mapping[str, catalog.CatalogueEntry], token: str | None, output: str) -> None:
    """Look up each pair on the Hub; an unavailable pair is a line, and in the end an error."""
    from ggufspec.cli.entry.output import iterate_with_progress
    from ggufspec.errors import CatalogError
    from ggufspec.modelfiles import hub

    access = hub.Access(token=token)
    pairs = [
        _look_up(entry, access)
        for entry in iterate_with_progress([*entries.values()], lambda entry: entry.pair.name)
    ]
    if output == "json":
        echo_json([asdict(pair) for pair in pairs])
    else:
        echo("".join(f"{pair.pair}: {pair}\n" for pair in pairs), nl=False)
    failed = sum(pair.error is not None for pair in pairs)
    if failed:
        raise CatalogError(f"{failed} of {len(entries)} pairs are not available", "fix the catalogue")


def _look_up(entry: catalog.CatalogueEntry, access: hub.Access) -> _Availability:
    from ggufspec.errors import GgufspecError
    from ggufspec.modelfiles import hub

    try:
        current = hub.survey_pair(entry.pair, access).pair
    except GgufspecError as error:
        return _Availability(pair=entry.pair.name, error=error.message)
    models = [
        (listed, model)
        for listed, model in ((entry.pair.target, current.target), (entry.pair.draft, current.draft))
        if listed is not None and model is not None
    ]
    return _Availability(
        pair=entry.pair.name,
        size_bytes=sum(model.size_bytes or 0 for _, model in models),
        changed=tuple(
            model.filename for listed, model in models if _is_changed(listed, entry.catalogue, model)
        ),
    )


def _is_changed(listed: ModelFile, catalogue: Path, current: ModelFile) -> bool:
    from ggufspec.modelfiles import pins

    pin = None if listed.repo is None else pins.find_pin(listed, catalogue)
    return pin is not None and current.sha256 is not None and pin.sha256 != current.sha256


_WORDS = 8  # of a prompt that are shown


@command_of(PromptsOptions)
def listed(asked: PromptsOptions) -> None:
    """List the suites, or the prompts of one. Lengths are in characters, without followups.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work -o json
    """
    from ggufspec import prompts

    if asked.suite is None:
        rows = [_describe_suite(prompts.suite(name)) for name in SUITES]
    else:
        rows = _describe_prompts(prompts.suite(asked.suite))
    if asked.output == "json":
        echo_json(rows)
        return
    echo_table(
        [heading.replace("_", " ") for heading in rows[0]],
        [[*map(_format_cell, row.values())] for row in rows],
    )
    if asked.suite is None:
        echo("the prompts of one: ggufspec prompts list --suite NAME", err=True)


@group_of(Options, list=listed)
def prompts(asked: Options) -> None:
    """Show what the built-in prompt suites hold. Measure with one by `--suite NAME`.

    \b
    ggufspec prompts list
    ggufspec prompts list --suite work
    """


def _describe_suite(suite: PromptSuite) -> dict[str, Any]:
    import statistics  # not for ``--help``: with it, fractions and decimal are imported

    return {
        "suite": suite.name,
        "categories": suite.categories,
        "prompts": len(suite.prompts),
        "median_characters": round(statistics.median(suite.lengths)),
        "largest_characters": max(suite.lengths),
        "conversations": suite.n_conversations,
        "licence": suite.licence,
    }


def _describe_prompts(suite: PromptSuite) -> list[dict[str, Any]]:
    return [
        {
            "prompt": prompt.id,
            "category": prompt.category,
            "characters": len(prompt.text),
            "followups": len(prompt.followups),
            "first_words": " ".join(prompt.text.split()[:_WORDS]),
        }
        for prompt in suite.prompts
    ]


def _format_cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(value) if isinstance(value, tuple) else str(value or "")
