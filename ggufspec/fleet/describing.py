"""Sentences about a stored fleet: what was not measured, and why."""

from __future__ import annotations

from collections.abc import Iterator

from ggufspec.fleet.journal import BlockEnded, NodeLost, StoredFleet
from ggufspec.fleet.scheduling import AttemptEnding
from ggufspec.units import counted

_STATES = {
    AttemptEnding.LOST: "lost with its machine each time",
    AttemptEnding.FAILED: "failed",
    AttemptEnding.UNPLACED: "not measured",
}


def list_unmeasured(stored: StoredFleet) -> tuple[BlockEnded, ...]:
    """Return how the blocks ended that were not measured."""
    return tuple(end for end in stored.endings.values() if end.ending is not AttemptEnding.MEASURED)


def describe_unmeasured(stored: StoredFleet) -> Iterator[str]:
    """Yield a sentence for each machine that took no part, each lost node, and what was not measured."""
    for refusal in stored.refused.values():
        yield f"{refusal.hostname} took no part: {refusal.reason}."
    for event in stored.events:
        if isinstance(event, NodeLost):
            yield f"{event.hostname} was lost while it measured block {event.block}: {event.reason}."
    ends: dict[tuple[AttemptEnding, str, str | None], list[BlockEnded]] = {}
    for end in list_unmeasured(stored):
        ends.setdefault((end.ending, end.reason or "no reason is known", end.machine), []).append(end)
    for (ending, reason, machine), alike in ends.items():
        where = "" if machine is None else f" on {machine}"
        yield f"{counted(len(alike), 'block')} {_STATES[ending]}{where}: {reason}."
