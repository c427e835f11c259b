"""A bench as people read it: one table, one line of what it rests on, and the doubts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tabulate import tabulate

from ggufspec import arms, units
from ggufspec.arms import Arm, Layers
from ggufspec.domain import Role, Status
from ggufspec.results import ResultSet
from ggufspec.stats import Estimate

_ALWAYS = ("", "model", "tokens/s")


def overview(results: ResultSet) -> str:
    """Return the closing table of a bench; a column that says nothing in any row is left out."""
    groups = arms.group(results)
    if not groups:
        return "Nothing was measured.\n"
    rows = [_row(arm) for arm in groups]
    said = [
        name
        for name in rows[0]
        if name in _ALWAYS or any(row[name] not in {"", Status.OK.value} for row in rows)
    ]
    table = tabulate(
        [[row[name] for name in said] for row in rows], headers=said, tablefmt="github", disable_numparse=True
    )
    return "\n".join((table, "", _basis(results, groups), *_warnings(results), ""))


def _row(arm: Arm) -> dict[str, str]:
    texts = arm.compared
    return {
        "": arm.role.value,
        "model": " + ".join(_models(arm)),
        "GPU layers": " + ".join(_layers(layers) for layers in (arm.layers, arm.draft_layers) if layers),
        "γ": "" if arm.draft_size is None else str(arm.draft_size),
        "tokens/s": _estimate(arm.rate, units.format_rate),
        "accepted": "" if arm.accept_rate is None else f"{arm.accept_rate:.1%}",
        "speed-up": _estimate(arm.gain, lambda value: f"{value:.2f}×"),
        "text unchanged": f"{sum(texts.values())} of {len(texts)}" if texts else "",
        "status": arm.status,
    }


def _models(arm: Arm) -> Iterator[str]:
    pair = arm.runs[0].spec.pair
    if arm.role is not Role.DRAFTER:
        yield pair.target.filename
    if arm.role is not Role.TARGET and pair.draft is not None:
        yield pair.draft.filename


def _layers(layers: Layers) -> str:
    return str(layers.offloaded) if layers.total is None else f"{layers.offloaded}/{layers.total}"


def _estimate(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    if estimate is None:
        return ""
    if estimate.lo is None or estimate.hi is None:
        return show(estimate.value)
    return f"{show(estimate.value)} [{show(estimate.lo)}, {show(estimate.hi)}]"


def _basis(results: ResultSet, groups: tuple[Arm, ...]) -> str:
    """Say what the numbers are, and where they come from."""
    build, first = results.meta.build, groups[0]
    spec = first.runs[0].spec
    version = " ".join(
        part for part in ("llama.cpp", build.version, build.commit and f"({build.commit[:9]})") if part
    )
    return (
        f"{first.prompts} prompts × {first.repeats} repeats, {spec.n_predict} tokens each, "
        f"{spec.threads} threads, "
        f"{'greedy' if spec.sampling.greedy else f'temperature {spec.sampling.temperature:g}'}; "
        f"{version}, {build.backend or 'backend unknown'}; {results.meta.machine.cpu}.\n"
        "Tokens/s: geometric mean over prompts of tokens decoded after the prompt per second; "
        "[95 % interval over repeats].\n"
        f"Stored as {results.meta.id}: `ggufspec show {results.meta.id}` prints this again, "
        f"raw logs are in {results.folder / 'logs'}"
    )


def _warnings(results: ResultSet) -> Iterator[str]:
    for name, advice in arms.warnings(results).items():
        yield f"warning {name}: {advice}"
