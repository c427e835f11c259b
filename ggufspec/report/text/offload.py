"""Where models were, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ggufspec import units
from ggufspec.analysis.arms import Arm
from ggufspec.domain import Placement, Role, Sample, Status

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
