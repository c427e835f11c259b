"""A bench as people read it: one table, one line of what it rests on, and the doubts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ggufspec import units
from ggufspec.analysis import Arm, arms, review
from ggufspec.domain import Placement, Role, Sample, Status, Verdict
from ggufspec.report.text import formats
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
    table = formats.table(columns(rows), rows)
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
    went = offload(groups)
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
    needs = review.wanting(groups, wished).values()
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


_MOST = 3  # phrases of one line; a sweep over layers has more


def offload(groups: Sequence[Arm]) -> str | None:
    """Return what went to GPUs: ``offload: 45/81 layers, 17.2 GiB on CUDA0``; None where nothing did."""
    said = [(arm.role, output) for arm in groups for output in arm.outputs if output.status is Status.OK]
    targets = _phrases(
        _phrase(output.offloaded_layers, output.total_layers, output.placement)
        for role, output in said
        if role is not Role.DRAFTER
    )
    drafters = _phrases(_drafters(role, output) for role, output in said if role is not Role.TARGET)
    parts = (targets, drafters and f"drafter {drafters}")
    return "offload: " + "; ".join(filter(None, parts)) if any(parts) else None


def _drafters(role: Role, output: Sample) -> str | None:
    if role is Role.DRAFTER:
        return _phrase(output.offloaded_layers, output.total_layers, output.placement)
    return _phrase(output.draft_offloaded_layers, output.draft_total_layers, output.draft_placement)


def _phrase(layers: int | None, total: int | None, placement: tuple[Placement, ...]) -> str | None:
    """Return one model's layers and what it occupies on each GPU; None where it is on none."""
    held = [each for each in placement if not each.on_host]
    if not held:
        return None
    where = " + ".join(f"{units.format_bytes(each.total_bytes)} on {each.device}" for each in held)
    return where if layers is None else f"{layers}/{total} layers, {where}"


def _phrases(found: Iterable[str | None]) -> str:
    """Join what differs between arms."""
    each = list(dict.fromkeys(filter(None, found)))
    return " or ".join(each[:_MOST]) + (f" or {len(each) - _MOST} others" if len(each) > _MOST else "")


_RECORDS = {"binary": "server", "binary-simple": "server", "server": "inprocess"}
"""Engine -> the one that records positions and rounds where it does not, with any llama.cpp."""
_OF_ROUNDS = {"position": "draft positions", "round": "verification rounds"}


def why_empty(results: ResultSet, per: str) -> str | None:
    """Return why a table of ``show --per`` is empty, and the command that records what is missing.

    Args:
        results: a bench.
        per: what has a row: arm, category, prompt, run, position or round.

    Returns:
        One sentence; None where there is something to show.
    """
    name, runs = results.meta.id, results.current
    if per == "arm" or (per == "run" and results.runs):
        return None
    if not runs:
        return f"nothing was measured in {name}: `ggufspec bench` measures"
    if not any(output.status is Status.OK for output in runs.outputs):
        return f"no run of {name} ended well: `ggufspec show {name} --runs` says how they ended"
    if per == "category" and not any(spec.prompt.category for spec in runs.specs):
        return (
            f"no prompt of {name} has a category: those of `ggufspec bench --suite domains` do, and those of "
            'a suite of your own may (category = "…")'
        )
    if per in _OF_ROUNDS and not _has_rounds(results, per):
        return _without_rounds(results, _OF_ROUNDS[per])
    return None


def _has_rounds(results: ResultSet, per: str) -> bool:
    if per == "round":
        return any(rounds for rounds in results.current.column("rounds"))
    return any(arm.acceptance and arm.acceptance.by_position for arm in arms.group(results))


def _without_rounds(results: ResultSet, what: str) -> str:
    name, engine = results.meta.id, results.meta.engine
    if not any(spec.role is Role.DRAFTING for spec in results.current.specs):
        return f"nothing drafts in {name}, so it has no {what}: name a drafter with -md FILE, or a --method"
    other = _RECORDS.get(engine)
    how = f": `ggufspec bench --engine {other}` records them" if other else ""
    return f"no {what} were recorded in {name}, because the engine {engine} did not tell them{how}"
