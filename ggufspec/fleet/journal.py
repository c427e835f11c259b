"""What is stored of a fleet beside its runs: which machines measured, and what became of each block.

<data>/fleets/<name>/fleet.json      the command, and how blocks are spread
                    events.jsonl     one line for each machine and each block that ended, see seals.py
                    lock             held by the driver
<data>/runs/<name>.<machine>/        the runs of each machine, an ordinary bench

So each machine keeps its own conditions, builds and warnings, and runs of different machines are never one
arm. A driver may be killed at any moment: an incomplete line at the end of events.jsonl is not an event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from ggufspec import paths, results
from ggufspec.choices import Where
from ggufspec.domain import NO_PROMPT, Role, RunSpec
from ggufspec.errors import ResultsError
from ggufspec.fleet.orders import CommonSetup
from ggufspec.fleet.scheduling import AttemptEnding, BlockEnd
from ggufspec.results import ResultSet, seals
from ggufspec.units import counted

FLEET_VERSION = 1
_LONGEST_NAME = 50  # the id of a machine has up to 47 characters, and the name of a bench 100
_FLEET = "fleet.json"
_EVENTS = "events.jsonl"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What all machines of a fleet share; ``plan`` is None where benches were copied together.

    Machines keep their copies of the runs under ``order_id``.
    """

    name: str
    started_at: str  # ISO 8601, UTC
    command: tuple[str, ...]
    where: Where
    order_id: str | None = None
    plan: CommonSetup | None = None
    schema_version: int = FLEET_VERSION

    @property
    def hardware(self) -> str | None:
        """What the machines have in common, where they share blocks."""
        return None if self.plan is None or self.where is Where.EACH else self.plan.hardware


class MachineJoined(Struct, tag_field="event", tag="machine", frozen=True, kw_only=True):
    """A machine has a bench; ``hostname`` is its name for people."""

    machine: str
    hostname: str
    bench: str


class MachineRefused(Struct, tag_field="event", tag="refused", frozen=True, kw_only=True):
    """A machine takes no part."""

    machine: str
    hostname: str
    reason: str


class NodeLost(Struct, tag_field="event", tag="lost", frozen=True, kw_only=True):
    """A node of a machine was lost while it measured a block, which then waited for a machine again."""

    machine: str
    hostname: str
    block: int
    reason: str


class BlockEnded(BlockEnd, tag_field="event", tag="block", frozen=True, kw_only=True):
    """A block ended; ``key`` identifies it in runs, ``block`` is its number for people.

    ``pool`` is the hardware of the machines that share blocks, or the machine: it is measured there once.
    """

    key: str


Event = MachineJoined | MachineRefused | NodeLost | BlockEnded


@dataclass(frozen=True, kw_only=True)
class StoredFleet:
    """A fleet and its events, oldest first."""

    fleet: Fleet
    folder: Path
    events: tuple[Event, ...] = ()

    @property
    def machines(self) -> Mapping[str, MachineJoined]:
        """The machines that measured, by their ids."""
        return {event.machine: event for event in self.events if isinstance(event, MachineJoined)}

    @property
    def refused(self) -> Mapping[str, MachineRefused]:
        """The machines that took no part at last, by their ids."""
        refused: dict[str, MachineRefused] = {}
        for event in self.events:
            if isinstance(event, MachineRefused):
                refused[event.machine] = event
            elif isinstance(event, MachineJoined):
                refused.pop(event.machine, None)
        return refused

    @property
    def endings(self) -> Mapping[tuple[str, str], BlockEnded]:
        """The last ending of each block, by its pool and key: what failed may be tried again."""
        return {(event.pool, event.key): event for event in self.events if isinstance(event, BlockEnded)}

    @property
    def measured(self) -> Mapping[str, frozenset[str]]:
        """The keys of the blocks that were measured, by pool."""
        blocks: dict[str, set[str]] = {}
        for (pool, key), event in self.endings.items():
            if event.ending is AttemptEnding.MEASURED:
                blocks.setdefault(pool, set()).add(key)
        return {pool: frozenset(keys) for pool, keys in blocks.items()}


@dataclass(kw_only=True)
class Journal:
    """The events of a fleet, open for more."""

    stored: StoredFleet
    lock: results.Lock
    _writer: results.LineWriter = field(init=False)

    def __post_init__(self) -> None:
        """Continue behind the last complete event."""
        content, checksum = _read_lines(self.stored.folder, self.stored.fleet.name)
        file = self.stored.folder / _EVENTS
        with results.disk(file.parent):
            file.touch()
        self._writer = results.LineWriter(
            file=file, lock=self.lock, checksum=checksum, size=len(content), end=None
        )

    def append(self, *events: Event) -> None:
        """Store events durably.

        Raises:
            ResultsError: they cannot be written.
            DiskFullError: the disk is full.
        """
        with results.disk(self.stored.folder):
            self._writer.append([*map(msgspec.json.encode, events)])
        self.stored = replace(self.stored, events=(*self.stored.events, *events))

    def close(self) -> None:
        """Let another driver go on."""
        self.lock.release()


def new_name() -> str:
    """Return a name for a fleet, from the time."""
    return f"fleet-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def create_fleet(
    name: str,
    *,
    command: tuple[str, ...],
    where: Where,
    order_id: str | None = None,
    plan: CommonSetup | None = None,
) -> Journal:
    """Make the folder of a new fleet.

    Args:
        name: of the fleet.
        command: the command line that asked for it.
        where: how blocks are spread.
        order_id: of what its machines measure.
        plan: what they have in common.

    Raises:
        ResultsError: the name is in use or cannot be a name, or the folder cannot be written.
    """
    if len(name) > _LONGEST_NAME:
        raise ResultsError(
            f"the name of the fleet has {len(name)} characters",
            f"use up to {_LONGEST_NAME}: the benches of its machines are called NAME.MACHINE",
        )
    fleet = Fleet(
        name=results.check_name(name),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        command=command,
        where=where,
        order_id=order_id,
        plan=plan,
    )
    folder = paths.fleets_dir() / fleet.name
    with results.disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = results.Lock(folder)
        if (folder / _FLEET).exists():
            lock.release()
            raise ResultsError(f"the fleet {fleet.name} already exists", "resume it, or choose another name")
        results.write_object(folder / _FLEET, fleet)
    return Journal(stored=StoredFleet(fleet=fleet, folder=folder), lock=lock)


def reopen_fleet(name: str) -> Journal:
    """Open a stored fleet for more events.

    Raises:
        ResultsError: there is none, it cannot be read, or another driver goes on with it.
    """
    stored = read_fleet(name)
    with results.disk(stored.folder):
        lock = results.Lock(stored.folder)
    return Journal(stored=read_fleet(name), lock=lock)  # as it is now that nobody else writes


def list_fleets() -> tuple[str, ...]:
    """Return the names of all stored fleets, the oldest first."""
    root = paths.fleets_dir()
    folders = [folder for folder in root.iterdir() if (folder / _FLEET).is_file()] if root.is_dir() else []
    return tuple(folder.name for folder in sorted(folders, key=_start))


def _start(folder: Path) -> tuple[str, str]:
    """Return the sort key of a fleet; one that cannot be read comes first."""
    fleet = results.read_value(folder / _FLEET, Fleet)
    return ("" if fleet is None else fleet.started_at), folder.name


def read_fleet(name: str) -> StoredFleet:
    """Return a stored fleet, by its name or ``last``.

    Raises:
        ResultsError: there is none, or it cannot be read.
    """
    fleets = list_fleets()
    if name == results.LATEST and fleets:
        name = fleets[-1]
    if name not in fleets:
        hint = f"there are {', '.join(fleets)}" if fleets else "`ggufspec fleet merge` makes one of benches"
        raise ResultsError(f"there is no fleet {name!r}", hint)
    folder = paths.fleets_dir() / name
    lines, _ = _read_lines(folder, name)
    try:
        events = msgspec.json.Decoder(Event).decode_lines(lines)
    except ValueError as error:
        raise _unreadable(folder, str(error)) from error
    fleet = results.read_value(folder / _FLEET, Fleet)
    if fleet is None or fleet.schema_version != FLEET_VERSION:
        raise _unreadable(folder, f"{_FLEET} is damaged, or of another version of ggufspec")
    return StoredFleet(fleet=fleet, folder=folder, events=tuple(events))


def read_benches(stored: StoredFleet) -> dict[str, ResultSet]:
    """Return the bench of each machine, by its id, with the runs that count.

    A block that was begun on one machine and measured on another counts there alone. A drafter alone, which
    belongs to no single block, counts on the machine that has measured the most of its cells.

    Raises:
        ResultsError: a bench is missing or cannot be read.
    """
    benches = {machine: results.load(joined.bench) for machine, joined in stored.machines.items()}
    if stored.fleet.where is not Where.SAME:
        return benches
    measured = [event for event in stored.endings.values() if event.ending is AttemptEnding.MEASURED]
    elsewhere = {
        machine: {event.key for event in measured if event.machine != machine} for machine in benches
    }
    of_drafters = {machine: _count_drafter_cells(bench) for machine, bench in benches.items()}

    def counts(machine: str, spec: RunSpec) -> bool:
        if spec.role is Role.DRAFTER:
            return machine == max(of_drafters, key=lambda other: of_drafters[other][spec.key])
        return block_key(spec) not in elsewhere[machine]

    return {machine: _select(bench, partial(counts, machine)) for machine, bench in benches.items()}


def block_key(spec: RunSpec) -> str:
    """Return what identifies the block of a run, or of an arm: its target alone, on no prompt."""
    return replace(spec.baseline, prompt=NO_PROMPT, build=None).key


def _count_drafter_cells(bench: ResultSet) -> Counter[str]:
    """Return how many cells a bench has of each drafter alone, by its key."""
    specs, spec_of = bench.current.by_spec()  # not all runs: a disturbed cell has up to three
    return Counter(specs[number].key for number in spec_of.tolist() if specs[number].role is Role.DRAFTER)


def _select(bench: ResultSet, counts: Callable[[RunSpec], bool]) -> ResultSet:
    """Return a bench with the runs of some specifications."""
    specs, spec_of = bench.runs.by_spec()
    selected = [*map(counts, specs)]
    if all(selected):
        return bench
    kept = [index for index, number in enumerate(spec_of.tolist()) if selected[number]]
    return replace(bench, runs=bench.runs.select(kept))


def _read_lines(folder: Path, name: str) -> tuple[bytes, int]:
    """Return the complete events at the start of the file, and the checksum after them.

    Raises:
        ResultsError: an event before the last one is damaged.
    """
    file = folder / _EVENTS
    content = file.read_bytes() if file.exists() else b""
    checksum, size = seals.start(name), 0
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        after = seals.follow(line, checksum)
        if after is None:
            if any(seals.check_seal(later) is not None for later in lines[number:]):
                raise _unreadable(folder, f"line {number} of {_EVENTS} is damaged")
            break
        checksum, size = after, size + len(line)
    return content[:size], checksum


def _unreadable(folder: Path, reason: str) -> ResultsError:
    return ResultsError(
        f"cannot read the fleet in {folder}: {reason}",
        "the runs of its machines are benches of their own: `ggufspec show --list`",
    )


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
