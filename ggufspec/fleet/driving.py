"""The driver of a fleet: hands out blocks, and stores what the machines send."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from ggufspec import results
from ggufspec.choices import Where
from ggufspec.domain import Role
from ggufspec.errors import ResultsError
from ggufspec.fleet import journal, orders
from ggufspec.fleet.nodes import Cluster, Reply, no_machine
from ggufspec.fleet.scheduling import AttemptEnding, Node, Schedule
from ggufspec.fleet.storing import FleetBenches
from ggufspec.units import counted, format_duration

_POLL_S = 1.0
_LONG_S = 2.0
_SLOW_S = 30.0  # after which a machine that still prepares is named
PATIENCE_S = 60.0
"""How long blocks wait after the last machine was lost, and machines for one that still prepares."""


@dataclass(kw_only=True)
class Drive:
    """One session of a driver.

    Attributes:
        cluster: the machines.
        order: what they measure; its name of the fleet is final.
        where: how blocks are spread.
        resumes: whether a stored fleet of this name is continued.
        max_time_s: when no more blocks are begun.
        patience_s: how long blocks wait for a machine where none measures, and machines that are ready for
            others before the first block is given to one.
    """

    cluster: Cluster
    order: orders.Order
    where: Where
    resumes: bool = False
    max_time_s: float | None = None
    patience_s: float = PATIENCE_S
    _benches: FleetBenches = field(init=False)
    _journal: journal.Journal | None = field(default=None, init=False)
    _schedule: Schedule | None = field(default=None, init=False)
    _plan: orders.CommonSetup | None = field(default=None, init=False)
    _hosts: dict[str, str] = field(default_factory=dict, init=False)  # node -> name of its host
    _preparing: dict[str, float] = field(default_factory=dict, init=False)  # node -> since when; inf if said
    _ready_since: float | None = field(default=None, init=False)  # when the first machine was prepared
    _prepared: dict[str, orders.Preparation] = field(default_factory=dict, init=False)
    _unfit: dict[str, str] = field(default_factory=dict, init=False)  # node -> why it takes no part
    _lost: set[str] = field(default_factory=set, init=False)
    _keys: dict[str, tuple[str, ...]] = field(default_factory=dict, init=False)  # pool -> keys of its blocks
    _lines: list[str] = field(default_factory=list, init=False)
    _n_stored_ends: int = field(default=0, init=False)
    _n_stored_refusals: int = field(default=0, init=False)  # of the schedule

    def __post_init__(self) -> None:
        self._benches = FleetBenches(fleet=self.order.fleet, command=self.order.command, resumes=self.resumes)

    def run(self) -> Generator[tuple[str, ...], None, None]:
        """Measure until every block ended; yield what happened after each round of news, as lines.

        Raises:
            GgufspecError: no machine can measure.
            ResultsError: results cannot be stored.
        """
        if self.resumes:
            stored = journal.read_fleet(self.order.fleet).fleet
            self.order = replace(self.order, id=stored.order_id or self.order.id)
        started = still_since = time.monotonic()
        try:
            while True:
                self._greet()
                for reply in self.cluster.wait(_POLL_S):
                    self._hear(reply)
                now = time.monotonic()
                self._name_slow(now)
                if self._schedule is None and self._is_ready(now):
                    self._begin()
                is_over = self.max_time_s is not None and now - started > self.max_time_s
                if self._schedule is not None and not is_over:
                    for job in self._schedule.assign():
                        self._ask(job.node)
                self._store_ends()
                yield self._take_lines()
                if self._schedule is not None and not self._schedule.is_still:
                    still_since = now
                elif self._is_complete:
                    self._benches.complete()
                    break
                elif is_over:
                    self._require_machine(dict.fromkeys(self._preparing, "it was not ready in time"))
                    self._say(f"the time limit was reached; continue with --resume {self.order.fleet}")
                    yield self._take_lines()
                    break
                elif self._preparing:
                    still_since = now
                elif now - still_since > self.patience_s:
                    self._give_up()
                    yield self._take_lines()
                    break
        finally:
            self._benches.close()
            if self._journal is not None:
                self._journal.close()

    @property
    def _is_complete(self) -> bool:
        """Whether every block ended. A machine that still prepares has blocks of its own with ``EACH``."""
        if self._schedule is None or not self._keys or not self._schedule.is_done:
            return False
        return self.where is Where.SAME or not self._preparing

    def _is_ready(self, now: float) -> bool:
        """Whether blocks can be given to machines: all are prepared, or one has waited long enough."""
        if self._ready_since is None or not self._prepared:
            return False
        return not self._preparing or now - self._ready_since > self.patience_s

    def _greet(self) -> None:
        """Ask nodes that are new to prepare."""
        for node, host in self.cluster.list_nodes().items():
            if node not in self._hosts:
                self._hosts[node] = host
                self._preparing[node] = time.monotonic()
                self.cluster.start(node, self.order)

    def _name_slow(self, now: float) -> None:
        for node, since in self._preparing.items():
            if now - since > _SLOW_S:
                self._preparing[node] = math.inf
                self._say(
                    f"{self._hosts[node]}: still prepares: it downloads, builds or reads files, or another "
                    "driver measures there"
                )

    def _hear(self, reply: Reply) -> None:
        node, message = reply.node, reply.message
        if node in self._lost:
            return
        match message:
            case None:
                self._lose(node, reply.reason)
            case orders.Preparation():
                self._preparing.pop(node, None)
                is_new = node not in self._prepared
                self._prepared[node] = message
                self._ready_since = self._ready_since or time.monotonic()
                if is_new and self._schedule is not None:
                    self._admit(node)
                elif not is_new:  # its runs were restored
                    self._ask(node)
            case orders.OrderFailure(reason=reason) if node in self._preparing or self._schedule is None:
                self._preparing.pop(node, None)
                self._refuse(node, reason)
            case orders.OrderFailure(reason=reason):
                self._say(f"{self._hosts[node]}: a block failed: {reason}")
                self._scheduled.fail(node, reason)
            case orders.RunsMissing():
                self._say(f"{self._hosts[node]}: its copy of the runs is missing and is sent again")
                self.cluster.restore(node, self._benches.of(self._machine_of(node)))
            case orders.RunStored():
                self._benches.append(self._machine_of(node), message)
            case orders.TextJudged():
                self._benches.judge(self._machine_of(node), message)
            case orders.BlockMeasured(waited_s=waited_s):
                if waited_s > _LONG_S:
                    waited = format_duration(waited_s)
                    self._say(f"{self._hosts[node]}: waited {waited} for another measurement on this host")
                self._scheduled.finish(node)

    def _begin(self) -> None:
        """Choose what is measured by most machines, and open the fleet.

        Raises:
            ResultsError: the fleet cannot be made, or cannot be resumed by these machines.
        """
        prepared = tuple(self._prepared.values())
        if self.resumes:
            self._journal = journal.reopen_fleet(self.order.fleet)
            self._plan = self._resumed_plan(self._journal.stored.fleet)
        else:
            self._plan = orders.choose_plan(prepared, self.where)
            self._journal = journal.create_fleet(
                self.order.fleet,
                order_id=self.order.id,
                command=self.order.command,
                where=self.where,
                plan=self._plan,
            )
        self._schedule = Schedule(
            where=self.where,
            hardware=self._journal.stored.fleet.hardware,
            begun=self._find_begun(self._journal.stored),
        )
        for node, reason in self._unfit.items():
            self._store_refusal(node, reason)
        for node in tuple(self._prepared):
            self._admit(node)

    def _resumed_plan(self, fleet: journal.Fleet) -> orders.CommonSetup:
        """Return what a fleet is resumed with: its own plan, to whose options values may be added.

        Raises:
            ResultsError: it was begun with another spread of blocks, was not measured by a driver, or none of
                these machines would measure the same.
        """
        if fleet.plan is None:
            raise ResultsError(
                f"the fleet {fleet.name} was joined from benches", "measure a new one, or join other benches"
            )
        if fleet.where is not self.where:
            raise ResultsError(
                f"the fleet {fleet.name} was begun with --where {fleet.where}", f"add --where {fleet.where}"
            )
        fit: list[orders.Preparation] = []
        reasons: list[str] = []
        for node, ready in self._prepared.items():
            reason = orders.explain_difference(
                replace(fleet.plan, blocks=ready.plan.blocks), ready.plan, self.where
            )
            if reason is None:
                fit.append(ready)
            else:
                reasons.append(f"{self._hosts[node]}: {reason}")
        if not fit:
            raise ResultsError(
                f"no machine can go on with the fleet {fleet.name}: {'; '.join(reasons)}",
                "resume it with the machines that began it, or start a new one",
            )
        return orders.choose_plan(fit, self.where)

    def _find_begun(self, stored: journal.StoredFleet) -> dict[int, str]:
        """Return the blocks of which a machine has runs, where each is measured by one machine."""
        if self.where is not Where.SAME:
            return {}
        keys = next(ready.keys for ready in self._prepared.values() if ready.plan == self._plan)
        numbers = {key: number for number, key in enumerate(keys)}
        begun: dict[int, str] = {}
        for machine, joined in stored.machines.items():
            for spec in results.load(joined.bench).runs.by_spec()[0]:
                number = None if spec.role is Role.DRAFTER else numbers.get(journal.block_key(spec))
                if number is not None:
                    begun[number] = machine
        return begun

    def _admit(self, node: str) -> None:
        """Let a prepared node take part, unless it would measure something else."""
        assert self._plan is not None
        preparation = self._prepared[node]
        machine, hardware = preparation.machine_id, preparation.plan.hardware
        reason = orders.explain_difference(self._plan, preparation.plan, self.where)
        if reason is None:
            try:
                self._benches.open(preparation)
            except ResultsError as error:  # for example, its llama.cpp is another one than before
                reason = error.message
        if reason is not None:
            self._refuse(node, reason)
            return
        if machine not in self._open_journal.stored.machines:
            hostname, bench = preparation.meta.machine.hostname, self._benches.name(machine)
            self._open_journal.append(journal.MachineJoined(machine=machine, hostname=hostname, bench=bench))
        pool = hardware if self.where is Where.SAME else machine
        if pool not in self._keys:
            measured = self._open_journal.stored.measured.get(pool, frozenset())
            self._keys[pool] = preparation.keys
            self._lines += [f"{self._hosts[node]}: {note}" for note in preparation.notes]
            self._scheduled.ended[pool] = {
                number for number, key in enumerate(preparation.keys) if key in measured
            }
        if self._scheduled.join(Node(id=node, machine=machine, hardware=hardware), preparation.expected_s):
            self._say(f"{self._hosts[node]}: takes part")

    def _ask(self, node: str) -> None:
        """Ask a node for the block that the schedule has given it."""
        runs = self._benches.of(self._machine_of(node)).runs
        block = self._scheduled.running[node]
        self.cluster.measure(node, block, len(runs), runs[-1].log if len(runs) else None)

    def _lose(self, node: str, reason: str) -> None:
        self._say(f"{self._hosts[node]}: lost: {reason}")
        self._lost.add(node)
        self._preparing.pop(node, None)
        if self._schedule is not None:
            block = self._schedule.running.get(node)
            if block is not None:
                self._open_journal.append(
                    journal.NodeLost(
                        machine=self._machine_of(node),
                        hostname=self._hosts[node],
                        block=block,
                        reason=reason,
                    )
                )
            self._schedule.lose(node, reason)
        elif self._prepared.pop(node, None) is None:
            self._unfit[node] = reason

    def _refuse(self, node: str, reason: str) -> None:
        """Let a node take no part, for a reason that stays."""
        self._unfit[node] = reason
        if self._journal is None:
            self._say(f"{self._hosts[node]}: takes no part: {reason}")
        else:
            self._store_refusal(node, reason)

    def _store_refusal(self, node: str, reason: str) -> None:
        host = self._hosts[node]
        ready = self._prepared.get(node)
        machine = host if ready is None else ready.machine_id
        self._say(f"{host}: takes no part: {reason}")
        self._open_journal.append(journal.MachineRefused(machine=machine, hostname=host, reason=reason))

    def _store_ends(self) -> None:
        """Store what became of blocks, and of machines that the schedule refuses."""
        if self._schedule is None:
            return
        ends = self._schedule.endings[self._n_stored_ends :]
        events = [
            journal.BlockEnded(key=self._keys[end.pool][end.block], **msgspec.structs.asdict(end))
            for end in ends
        ]
        for end in ends:
            if end.ending is not AttemptEnding.MEASURED:
                self._say(f"block {end.block} was not measured: {end.ending}: {end.reason}")
        if events:
            self._open_journal.append(*events)
            self._n_stored_ends += len(events)
        for machine in tuple(self._schedule.refused)[self._n_stored_refusals :]:
            node = next(node for node, ready in self._prepared.items() if ready.machine_id == machine)
            self._store_refusal(node, self._schedule.refused[machine])
            self._n_stored_refusals += 1

    def _require_machine(self, others: Mapping[str, str]) -> None:
        """Raise if no machine has taken part.

        Args:
            others: node -> why it does not, of nodes that were not refused.

        Raises:
            GgufspecError: none has.
        """
        if not self._keys:
            reasons = {**self._unfit, **others}
            raise no_machine({self._hosts[node]: reason for node, reason in reasons.items()})

    def _give_up(self) -> None:
        """End what waits for machines that do not come.

        Raises:
            GgufspecError: no machine could begin.
        """
        self._require_machine({})
        assert self._schedule is not None
        waiting = counted(self._schedule.n_waiting, "block")
        self._say(f"no machine is left for {waiting}; continue with --resume {self.order.fleet}")
        self._schedule.give_up()
        self._store_ends()

    def _take_lines(self) -> tuple[str, ...]:
        lines = tuple(self._lines)
        self._lines.clear()
        return lines

    def _say(self, line: str) -> None:
        self._lines.append(line)

    def _machine_of(self, node: str) -> str:
        return self._prepared[node].machine_id

    @property
    def _scheduled(self) -> Schedule:
        assert self._schedule is not None, "the fleet has not begun"
        return self._schedule

    @property
    def _open_journal(self) -> journal.Journal:
        assert self._journal is not None, "the fleet has not begun"
        return self._journal
