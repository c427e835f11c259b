"""Which machine measures which block next: decisions without a clock, a network or files.

The driver of a fleet and the simulation make the same calls, so what is simulated is what is run.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from ggufspec.choices import Where

_MOST_ATTEMPTS = 3  # of a block: it may be what ends its machines
_NO_MACHINE = "no machine was left that could measure it"
_MOST_IN_A_ROW = 3  # blocks that a machine begins and does not end: it would take, and lose, all others


class AttemptEnding(StrEnum):
    """How a block ended."""

    MEASURED = "measured"  # its runs are stored, failed ones included
    LOST = "lost"  # each time with the machine that measured it
    FAILED = "failed"  # with an error that is not that of a run
    UNPLACED = "unplaced"  # no machine was left that could measure it


@dataclass(frozen=True, kw_only=True)
class Node:
    """A process that can measure.

    Attributes:
        id: unique; a node that comes back has another one.
        machine: the id of its machine, which nodes on one host share: one of them measures at a time.
        hardware: what equal machines have in common.
    """

    id: str
    machine: str
    hardware: str


class Job(NamedTuple):
    """A block that a node is to measure now."""

    node: str
    block: int


class BlockEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a block; ``machine`` is the last one that had it, ``reason`` why it was not measured."""

    pool: str
    block: int
    ending: AttemptEnding
    machine: str | None = None
    reason: str | None = None


@dataclass(kw_only=True)
class _WaitingBlocks:
    """Blocks that wait, and the machines that may measure any of them."""

    waiting: list[tuple[float, int]]  # a heap of (-expected seconds, block)
    expected_s: Sequence[float]
    free: dict[str, None] = field(default_factory=dict)  # machines, in the order in which they became free
    attempts: Counter[int] = field(default_factory=Counter)
    avoided: dict[int, set[str]] = field(default_factory=dict)  # block -> machines on which it failed
    begun: dict[str, list[int]] = field(default_factory=dict)  # machine -> blocks of which it has runs
    reasons: dict[int, str] = field(default_factory=dict)  # block -> why it was not measured when last tried

    @property
    def n_waiting(self) -> int:
        """How many blocks wait."""
        return len(self.waiting) + sum(map(len, self.begun.values()))

    def put(self, block: int) -> None:
        heapq.heappush(self.waiting, (-self.expected_s[block], block))

    def take(self, machine: str) -> int | None:
        """Remove and return a block for a machine; None if all that wait failed on it.

        The first choice is a block of which it has runs, then the longest one.
        """
        if machine in self.begun:
            block = self.begun[machine].pop()
            if not self.begun[machine]:
                del self.begun[machine]
            return block
        passed: list[tuple[float, int]] = []
        taken = None
        while self.waiting and taken is None:
            entry = heapq.heappop(self.waiting)
            if machine in self.avoided.get(entry[1], ()):
                passed.append(entry)
            else:
                taken = entry[1]
        for entry in passed:
            heapq.heappush(self.waiting, entry)
        return taken

    def give_away(self, present: Collection[str]) -> None:
        """Let any machine measure the blocks that were begun by machines that are not present."""
        for machine in self.begun.keys() - present:
            for block in self.begun.pop(machine):
                self.put(block)


@dataclass(kw_only=True)
class Schedule:
    """Hands blocks to machines, the longest first, and takes back those of machines that are lost.

    The longest first keeps the end short: with equal machines, exact expectations and no losses, everything
    takes at most 4/3 of the shortest possible time (R. L. Graham, Bounds on multiprocessing timing anomalies,
    1969).

    With ``Where.SAME``, each block is measured once, by one of the machines with the given ``hardware``; with
    ``Where.EACH``, each machine measures every block. Blocks of one pool are measured once: a pool is the
    hardware, or a machine.

    Attributes:
        where: how blocks are spread.
        hardware: of the machines that take part, with ``Where.SAME``.
        ended: pool -> blocks that ended earlier, and are left out; read when the pool's first node joins.
        begun: block -> machine that has runs of it, with ``Where.SAME``. It goes on with it if it is there
            when blocks are first assigned; waiting longer could make a long block the last one.
        endings: of all blocks that ended since.
        refused: machine -> why it takes no part.
    """

    where: Where
    hardware: str | None = None
    ended: dict[str, Collection[int]] = field(default_factory=dict)
    begun: Mapping[int, str] = field(default_factory=dict)
    endings: list[BlockEnd] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    _pools: dict[str, _WaitingBlocks] = field(default_factory=dict)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _hosts: dict[str, dict[str, None]] = field(default_factory=dict)  # machine -> its nodes
    _running: dict[str, int] = field(default_factory=dict)  # node -> block
    _unfinished: Counter[str] = field(default_factory=Counter)  # machine -> blocks since it ended one
    _changed: dict[str, None] = field(default_factory=dict)  # pools that may have a block for a machine

    @property
    def is_done(self) -> bool:
        """Whether every block of every pool ended."""
        return not self._running and not self.n_waiting

    @property
    def is_still(self) -> bool:
        """Whether nothing is measured. After ``assign``, the blocks that wait then wait for a machine."""
        return not self._running

    @property
    def n_waiting(self) -> int:
        """How many blocks wait for a machine."""
        return sum(pool.n_waiting for pool in self._pools.values())

    @property
    def running(self) -> Mapping[str, int]:
        """The block of each node that measures."""
        return self._running

    def join(self, node: Node, expected_s: Sequence[float]) -> bool:
        """Let a node take part; return whether it does.

        Args:
            node: is new.
            expected_s: of each block, in seconds, on its machine; of a pool, the first node's count.
        """
        if node.machine in self.refused or self.hardware not in {None, node.hardware}:
            return False
        name = self._pool_of(node)
        if name not in self._pools:
            ended = frozenset(self.ended.get(name, ()))
            pool = _WaitingBlocks(waiting=[], expected_s=expected_s)
            self._pools[name] = pool
            for block in range(len(expected_s)):
                if block in ended:
                    continue
                if block in self.begun:
                    pool.begun.setdefault(self.begun[block], []).append(block)
                else:
                    pool.put(block)
        self._nodes[node.id] = node
        self._hosts.setdefault(node.machine, {})[node.id] = None
        self._free(node.machine, name)
        return True

    def assign(self) -> list[Job]:
        """Give free machines the blocks that wait, and return the new jobs."""
        jobs: list[Job] = []
        for name in self._changed:
            pool = self._pools[name]
            pool.give_away(self._hosts.keys())
            for machine in tuple(pool.free) if pool.n_waiting else ():
                block = pool.take(machine)
                if block is not None:
                    del pool.free[machine]
                    node = next(iter(self._hosts[machine]))
                    self._running[node] = block
                    jobs.append(Job(node, block))
                if not pool.n_waiting:
                    break
        self._changed.clear()
        return jobs

    def finish(self, node_id: str) -> None:
        """Note that a node has measured its block. A node without one changes nothing."""
        block = self._running.pop(node_id, None)
        if block is None:
            return
        node = self._nodes[node_id]
        self._unfinished[node.machine] = 0
        self._end(node, block, AttemptEnding.MEASURED)
        self._free(node.machine, self._pool_of(node))

    def fail(self, node_id: str, reason: str) -> None:
        """Note that a node's block ended with an error; other machines of its pool try it again.

        A node without a block changes nothing.
        """
        block = self._running.pop(node_id, None)
        if block is None:
            return
        node = self._nodes[node_id]
        pool = self._pools[self._pool_of(node)]
        pool.avoided.setdefault(block, set()).add(node.machine)
        last = _MOST_ATTEMPTS if self.where is Where.SAME else 1  # there is no other machine
        self._try_again(node, block, AttemptEnding.FAILED, reason, most=last)
        self._free(node.machine, self._pool_of(node))
        self._count_unfinished(node.machine)

    def lose(self, node_id: str, reason: str) -> None:
        """Note that a node is gone; its block, if it had one, waits again.

        A node that takes no part changes nothing.
        """
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        name = self._pool_of(node)
        nodes = self._hosts[node.machine]
        del nodes[node_id]
        block = self._running.pop(node_id, None)
        if not nodes:
            self._drop(node.machine, name)
        if block is not None:
            self._try_again(node, block, AttemptEnding.LOST, reason, most=_MOST_ATTEMPTS)
            if nodes:
                self._free(node.machine, name)
            self._count_unfinished(node.machine)

    def refuse(self, machine: str, reason: str) -> None:
        """Let a machine take no part any more; a block that it has waits again, as if never begun."""
        self.refused[machine] = reason
        for node_id in self._hosts.get(machine, {}):
            node = self._nodes.pop(node_id)
            name = self._pool_of(node)
            self._drop(machine, name)
            block = self._running.pop(node_id, None)
            if block is not None:
                self._pools[name].put(block)

    def give_up(self) -> None:
        """End all blocks that wait; there is no machine for them."""
        for name, pool in self._pools.items():
            begun = [block for blocks in pool.begun.values() for block in blocks]
            for block in sorted((*(block for _, block in pool.waiting), *begun)):
                failed = name if self.where is Where.EACH else None
                reason = pool.reasons.get(block) or self.refused.get(name, _NO_MACHINE)
                self.endings.append(
                    BlockEnd(
                        pool=name, block=block, ending=AttemptEnding.UNPLACED, machine=failed, reason=reason
                    )
                )
            pool.waiting.clear()
            pool.begun.clear()

    def _pool_of(self, node: Node) -> str:
        return node.hardware if self.where is Where.SAME else node.machine

    def _free(self, machine: str, pool: str) -> None:
        """Note that a machine can measure, unless one of its nodes does."""
        nodes = self._hosts.get(machine, {})
        if nodes and not any(node in self._running for node in nodes):
            self._pools[pool].free[machine] = None
            self._changed[pool] = None

    def _drop(self, machine: str, pool: str) -> None:
        """Note that a machine is not there any more; others may measure what it began."""
        self._hosts.pop(machine, None)
        self._pools[pool].free.pop(machine, None)
        self._changed[pool] = None

    def _try_again(self, node: Node, block: int, ending: AttemptEnding, reason: str, *, most: int) -> None:
        name = self._pool_of(node)
        pool = self._pools[name]
        pool.attempts[block] += 1
        pool.reasons[block] = reason
        if pool.attempts[block] < most:
            pool.put(block)
            self._changed[name] = None
        else:
            self._end(node, block, ending, reason)

    def _end(self, node: Node, block: int, ending: AttemptEnding, reason: str | None = None) -> None:
        pool = self._pool_of(node)
        self.endings.append(
            BlockEnd(pool=pool, block=block, ending=ending, machine=node.machine, reason=reason)
        )

    def _count_unfinished(self, machine: str) -> None:
        self._unfinished[machine] += 1
        if self.where is Where.SAME and self._unfinished[machine] >= _MOST_IN_A_ROW:
            self.refuse(machine, f"it began {_MOST_IN_A_ROW} blocks in a row and ended none")
