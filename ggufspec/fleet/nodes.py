"""The nodes of a cluster, and what all are asked: to prepare a bench, to check their machines, or to tune."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from ggufspec import results
from ggufspec.choices import Where
from ggufspec.errors import GgufspecError
from ggufspec.fleet import orders
from ggufspec.fleet.journal import Journal, MachineJoined, MachineRefused, create_fleet
from ggufspec.fleet.scheduling import Node, Schedule
from ggufspec.fleet.storing import store_copy
from ggufspec.results import Configuration, ResultSet

START_HINT = "start machines with: ray start --address=HOST:PORT --resources='{\"bench\": 1}'"


def no_machine(refused: Mapping[str, str]) -> GgufspecError:
    """Return the error where no machine can measure; ``refused`` has the reason by the name of each host."""
    reasons = "; ".join(f"{host}: {reason}" for host, reason in refused.items())
    message = "no machine of the fleet can measure"
    return GgufspecError(f"{message}: {reasons}" if reasons else message, START_HINT)


class Reply(NamedTuple):
    """What came from a node; None for a node that is lost, with the reason."""

    node: str
    message: orders.Message | None
    reason: str = ""

    @property
    def refusal(self) -> str:
        """Why the node does not do what it was asked for."""
        return self.message.reason if isinstance(self.message, orders.OrderFailure) else self.reason


class Cluster(Protocol):
    """The machines, as the driver sees them."""

    def list_nodes(self) -> Mapping[str, str]:
        """Return the nodes that can measure, by their ids, with the names of their hosts."""

    def start(self, node: str, order: orders.Order | None) -> None:
        """Start what measures on a node, and ask it to prepare, or to tune.

        Without an order, it checks its machine.
        """

    def measure(self, node: str, block: int, n_known: int, last_log: str | None) -> None:
        """Ask a node to measure a block."""

    def restore(self, node: str, bench: ResultSet) -> None:
        """Send a node the runs that are stored of its machine."""

    def wait(self, timeout_s: float) -> list[Reply]:
        """Return what came from nodes, in order; nothing after so many seconds."""


_POLL_S = 1.0
_MOST_S = 600.0  # large models are read for their checksums


class MeasuredBlock(NamedTuple):
    """A block that a machine measures to its end, in seconds from the start."""

    machine: str
    block: int
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """The blocks of each machine, and why other machines have none.

    Attributes:
        measured: when each block would be measured, by the expected times.
        hosts: machine -> name of its host.
        refused: name of a host -> why it would take no part.
    """

    measured: tuple[MeasuredBlock, ...]
    hosts: Mapping[str, str]
    refused: Mapping[str, str]


def plan_fleet(
    prepared: Mapping[str, orders.Preparation], refused: Mapping[str, str], where: Where
) -> FleetPlan:
    """Return what each machine would measure.

    Args:
        prepared: node -> what it says of itself; at least one.
        refused: name of a host -> why it cannot measure, from before.
        where: how blocks are spread.
    """
    chosen = orders.choose_plan(prepared.values(), where)
    unfit = dict(refused)
    nodes: list[Node] = []
    for name, ready in prepared.items():
        reason = orders.explain_difference(chosen, ready.plan, where)
        if reason is None:
            nodes.append(Node(id=name, machine=ready.machine_id, hardware=ready.plan.hardware))
        else:
            unfit[ready.machine.hostname] = reason
    schedule = Schedule(where=where, hardware=chosen.hardware if where is Where.SAME else None)
    return FleetPlan(
        measured=tuple(_run_schedule(schedule, nodes, lambda node: prepared[node.id].expected_s)),
        hosts={node.machine: prepared[node.id].machine.hostname for node in nodes},
        refused=unfit,
    )


def _run_schedule(
    schedule: Schedule, nodes: Iterable[Node], expected_s: Callable[[Node], Sequence[float]]
) -> Iterator[MeasuredBlock]:
    """Yield when blocks would be measured if each took what is expected, and no machine were lost."""
    known = {node.id: node for node in nodes}
    for node in known.values():
        schedule.join(node, expected_s(node))
    now_s, running = 0.0, list[tuple[float, str, MeasuredBlock]]()
    while True:
        for job in schedule.assign():
            node = known[job.node]
            until_s = now_s + expected_s(node)[job.block]
            block = MeasuredBlock(node.machine, job.block, now_s, until_s)
            heapq.heappush(running, (until_s, job.node, block))
        if not running:
            return
        now_s, ended, block = heapq.heappop(running)
        yield block
        schedule.finish(ended)


def prepare_nodes(
    cluster: Cluster, order: orders.Order
) -> tuple[dict[str, orders.Preparation], dict[str, str]]:
    """Ask all nodes what they would measure.

    Args:
        cluster: the machines.
        order: what to measure; should be a plan.

    Returns:
        What each node says, and of the others the name of the host and the reason.

    Raises:
        GgufspecError: no node can measure it.
    """
    prepared: dict[str, orders.Preparation] = {}
    refused: dict[str, str] = {}
    for host, reply in _ask(cluster, dict(cluster.list_nodes()), order, timeout_s=_MOST_S):
        if isinstance(reply.message, orders.Preparation):
            prepared[reply.node] = reply.message
        else:
            refused[host] = reply.refusal
    if not prepared:
        raise no_machine(refused)
    return prepared, refused


def examine_nodes(cluster: Cluster) -> Iterator[tuple[str, orders.Examined | str]]:
    """Check all nodes; yield the name of each host with what was found, or why it cannot measure."""
    for host, reply in _ask(cluster, dict(cluster.list_nodes()), None, timeout_s=_MOST_S):
        yield host, reply.message if isinstance(reply.message, orders.Examined) else reply.refusal


def _ask(
    cluster: Cluster, hosts: Mapping[str, str], order: orders.Order | None, *, timeout_s: float = math.inf
) -> Iterator[tuple[str, Reply]]:
    """Start nodes, and yield the name of the host of each with its reply, as they come.

    Args:
        cluster: the machines.
        hosts: the nodes with the names of their hosts.
        order: as for ``Cluster.start``.
        timeout_s: how long to wait for all of them.
    """
    for node in hosts:
        cluster.start(node, order)
    waiting = dict(hosts)
    deadline = time.monotonic() + timeout_s
    while waiting and time.monotonic() < deadline:
        for reply in cluster.wait(_POLL_S):
            host = waiting.pop(reply.node, None)
            if host is not None:
                yield host, reply
    for node, host in waiting.items():
        yield host, Reply(node, None, f"it did not answer in {timeout_s:.0f} s")


def tune_nodes(cluster: Cluster, order: orders.Order) -> Iterator[tuple[str, Configuration | str]]:
    """Tune on each host of a cluster, and store what each recommends.

    A host that is lost is not tried again: a tuning has a time limit, and what it has measured is stored on
    the machine.

    Args:
        cluster: the machines. Of several nodes on a host, one tunes.
        order: what to tune.

    Yields:
        The name of each host, as it ends, with its configuration or the reason why there is none.

    Raises:
        GgufspecError: the cluster has no node that can measure.
        ResultsError: results cannot be stored.
    """
    hosts = {host: node for node, host in cluster.list_nodes().items()}
    if not hosts:
        raise no_machine({})
    journal = create_fleet(order.fleet, order_id=order.id, command=order.command, where=Where.EACH)
    try:
        for host, reply in _ask(cluster, {node: host for host, node in hosts.items()}, order):
            yield host, _store(journal, host, reply)
    finally:
        journal.close()


def _store(journal: Journal, host: str, reply: Reply) -> Configuration | str:
    """Store what came from a host; return its configuration, or why there is none."""
    if not isinstance(reply.message, orders.TunedHere):
        journal.append(MachineRefused(machine=host, hostname=host, reason=reply.refusal))
        return reply.refusal
    meta, runs, configuration, logs = reply.message
    machine = orders.identify_machine(meta.machine)
    name = f"{journal.stored.fleet.name}.{machine}"
    configuration = replace(configuration, id=name)

    def add_files(folder: Path) -> None:
        (folder / "logs").mkdir()
        for log, content in logs.items():
            (folder / "logs" / Path(log).name).write_bytes(content)
        results.write_configuration(configuration, folder)

    store_copy(name, meta, runs, add_files)
    journal.append(MachineJoined(machine=machine, hostname=meta.machine.hostname, bench=name))
    return configuration
