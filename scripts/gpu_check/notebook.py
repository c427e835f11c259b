"""The Llama-3 notebook's table beside ours: the same shapes, layers, γ and acceptance, and our best γ."""

from __future__ import annotations

from ggufspec.analysis.arm import Arm
from ggufspec.domain import Layers, Role
from gpu_check.benches import Measured, gain, median_tps
from gpu_check.presets import NOTEBOOK, NOTEBOOK_RATE, NOTEBOOK_SIZE
from gpu_check.steps import NotRunError, Row, Section


def table(measured: Measured, layers: Layers) -> Section:
    """Return the notebook's row, ours at its γ, and ours at the best γ, there and over all layers."""
    rows: list[Row] = [
        {
            "what": "the notebook, April 2024",
            "layers asked": 45,
            "γ": NOTEBOOK_SIZE,
            "target alone": NOTEBOOK["target alone"],
            "drafter alone": NOTEBOOK["drafter alone"],
            "drafting": NOTEBOOK["drafting"],
            "accepted": f"{NOTEBOOK_RATE:.1%}",
            "speed-up": f"{NOTEBOOK['drafting'] / NOTEBOOK['target alone']:.2f}×",
        }
    ]
    here = [arm for at, arm in measured.arms() if at == layers and arm.role is Role.DRAFTING and gain(arm)]
    everywhere = [(at, arm) for at, arm in measured.arms() if arm.role is Role.DRAFTING and median_tps(arm)]
    if not here:
        raise NotRunError(f"the sweep did not come to {layers} layers")
    at, fastest = max(everywhere, key=lambda each: median_tps(each[1]) or 0)
    chosen = [
        *(("ours at its γ", layers, arm) for arm in here if arm.draft_size == NOTEBOOK_SIZE),
        ("ours at the best γ", layers, max(here, key=lambda arm: gain(arm) or 0)),
        ("our fastest", at, fastest),
    ]
    rows += [_ours(what, at, arm, measured) for what, at, arm in chosen]
    return Section(
        rows=rows,
        notes=["Ours: random weights and synthetic acceptance; tokens/s are medians over prompts."],
    )


def _ours(what: str, at: Layers, arm: Arm, measured: Measured) -> Row:
    drafter = next((each for _, each in measured.arms() if each.role is Role.DRAFTER), None)
    accepted = arm.acceptance
    times = gain(arm)
    return {
        "what": f"{what} (synthetic)",
        "layers asked": at,
        "γ": arm.draft_size,
        "target alone": _rounded(median_tps(arm.baseline)),
        "drafter alone": _rounded(median_tps(drafter)),
        "drafting": _rounded(median_tps(arm)),
        "accepted": None if accepted is None else f"{accepted.accept_rate:.1%}",
        "speed-up": None if times is None else f"{times:.2f}×",
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
