"""A bench as people read it: one table, one line of what it rests on, and the doubts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggufspec import units
from ggufspec.analysis import arms, precision, review
from ggufspec.analysis.arms import Arm
from ggufspec.domain import Status, Verdict
from ggufspec.report.text import markdown, offload
from ggufspec.report.text.figures import engine, extent, layers, spread, three_digits, unchanged
from ggufspec.results import ResultSet

_ALWAYS = ("", "model", "tokens/s")
_FINE = 0.005  # half a per cent: finer than what repeats of a quiet machine differ by
_IF_VARIED = ("threads", "KV type", "ubatch", "p-min")


def overview(results: ResultSet) -> str:
    """Return the closing table of a bench; columns that say nothing are left out."""
    groups = arms.group(results)
    if not groups:
        return "Nothing was measured.\n"
    rows = [row(arm) for arm in groups]
    table = markdown.table(columns(rows), rows)
    warnings = (f"warning {name}: {advice}" for name, advice in review.warnings(results, groups).items())
    return "\n".join((engine(results.meta.engine), "", table, "", *_basis(results, groups), *warnings, ""))


def columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the columns that say something: no empty one, no setting and no good ending that all share."""
    return [
        name
        for name in (rows[0] if rows else ())
        if name in _ALWAYS
        or (
            any(row[name] not in {"", Status.OK.value} for row in rows)
            and (name not in _IF_VARIED or len({row[name] for row in rows} - {""}) > 1)
        )
    ]


def row(arm: Arm) -> dict[str, str]:
    """Return an arm's cells, by the names of their columns."""
    spec, drafting, accepted = arm.spec, arm.spec.drafting, arm.acceptance
    length = accepted and accepted.mean_accepted_length
    return {
        "": arm.what,
        "model": " + ".join(arm.models),
        "GPU layers": layers(arm),
        "threads": str(spec.threads),
        "KV type": spec.kv_type or "",
        "ubatch": str(spec.ubatch or ""),
        "γ": str(drafting.n_max) if drafting else "",
        "p-min": units.format_number(drafting.p_min) if drafting and drafting.method.needs_drafter else "",
        "tokens/s": spread(arm.rate, units.format_rate),
        "accepted": f"{accepted.accept_rate:.1%}" if accepted and accepted.accept_rate is not None else "",
        "tokens/round": f"{length:.2f}" if length is not None else "",
        **{f"{device} J/token": _joules(arm, device) for device in ("GPU", "CPU")},
        "speed-up": spread(arm.gain.ratio if arm.gain else None, lambda value: f"{value:.2f}×"),
        "verdict": arm.gain.verdict.value if arm.gain else "",
        "text unchanged": _texts(arm),
        "status": arm.status,
    }


def _joules(arm: Arm, device: str) -> str:
    return spread(arm.energy[device].per_token, three_digits) if device in arm.energy else ""


def _texts(arm: Arm) -> str:
    said = unchanged(arm)
    ties = {
        spec.prompt.id
        for spec, difference in zip(arm.good.specs, arm.good.column("difference"), strict=True)
        if difference is not None and difference.verdict is Verdict.NEAR_TIE
    }
    return f"{said}, {units.counted(len(ties), 'near-tie')}" if ties else said


def _basis(results: ResultSet, groups: Sequence[Arm]) -> Iterator[str]:
    """Yield what the numbers are, and where they come from."""
    build, first = results.meta.build, groups[0]
    version = " ".join(
        part for part in ("llama.cpp", build.version, build.commit and f"({build.commit[:9]})") if part
    )
    yield (f"{extent(first)}; {version}, {build.backend or 'backend unknown'}; {results.meta.machine.cpu}.")
    yield (
        "Tokens/s: geometric mean over prompts of tokens decoded after the prompt per second; "
        "[95 % interval over prompts and repeats]."
    )
    went = offload.offload(groups)
    if went is not None:
        yield f"{went}."
    yield from _precision(groups)
    yield (
        f"Stored as {results.meta.id}: `ggufspec show {results.meta.id}` prints this again, "
        f"raw logs are in {results.folder / 'logs'}"
    )


def _precision(groups: Sequence[Arm]) -> Iterator[str]:
    """Say how precise the speed-ups are, and what twice that precision would take."""
    widths = [width for arm in groups if arm.gain and (width := arm.gain.ratio.relative_half_width)]
    if not widths or max(widths) < _FINE:
        return
    wished = max(widths) / 2
    needs = precision.wanting(groups, wished).values()
    repeats = [need.repeats for need in needs if need.repeats is not None]
    prompts = [need.prompts for need in needs if need.prompts is not None]
    takes = (
        f"about {units.counted(max(repeats), 'repeat')}"
        if repeats and len(repeats) == len(needs)
        else f"about {max(prompts)} prompts like these"
        if prompts
        else ""
    )
    if takes:
        yield f"Speed-ups are known to ±{max(widths):.1%} or better; ±{wished:.1%} would take {takes}."
