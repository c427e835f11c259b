"""Which machine would measure what, and how long: a simulation of the fleet in which nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ggufspec.choices import Where
from ggufspec.fleet.cluster import Cluster, Reply, no_machine
from ggufspec.fleet.orders import Examined, Order, OrderFailure, Preparation, choose_plan, explain_difference
from ggufspec.fleet.scheduling import Node, Schedule
from ggufspec.fleet.simulating import Simulation, Stay, simulate

_POLL_S = 1.0
_MOST_S = 600.0  # large models are read for their checksums


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """The blocks of each machine, and why other machines have none.

    Attributes:
        simulation: when each block would be measured, by the expected times.
        hosts: machine -> name of its host.
        refused: name of a host -> why it would take no part.
    """

    simulation: Simulation
    hosts: Mapping[str, str]
    refused: Mapping[str, str]


def plan_fleet(prepared: Mapping[str, Preparation], refused: Mapping[str, str], where: Where) -> FleetPlan:
    """Return what each machine would measure.

    Args:
        prepared: node -> what it says of itself; at least one.
        refused: name of a host -> why it cannot measure, from before.
        where: how blocks are spread.
    """
    chosen = choose_plan(prepared.values(), where)
    unfit = dict(refused)
    stays: list[Stay] = []
    for name, ready in prepared.items():
        reason = explain_difference(chosen, ready.plan, where)
        if reason is None:
            node = Node(id=name, machine=ready.machine_id, hardware=ready.plan.hardware)
            stays.append(Stay(node=node))
        else:
            unfit[ready.machine.hostname] = reason
    schedule = Schedule(where=where, hardware=chosen.hardware if where is Where.SAME else None)
    return FleetPlan(
        simulation=simulate(schedule, stays, lambda node: prepared[node.id].expected_s),
        hosts={stay.node.machine: prepared[stay.node.id].machine.hostname for stay in stays},
        refused=unfit,
    )


def prepare_nodes(
    cluster: Cluster, order: Order, *, timeout_s: float = _MOST_S
) -> tuple[dict[str, Preparation], dict[str, str]]:
    """Ask all nodes what they would measure.

    Args:
        cluster: the machines.
        order: what to measure; should be a plan.
        timeout_s: how long to wait for all answers.

    Returns:
        What each node says, and of the others the name of the host and the reason.

    Raises:
        GgufspecError: no node can measure it.
    """
    hosts = dict(cluster.list_nodes())
    for node in hosts:
        cluster.start(node, order)
    prepared: dict[str, Preparation] = {}
    refused: dict[str, str] = {}
    waiting = dict(hosts)
    deadline = time.monotonic() + timeout_s
    while waiting and time.monotonic() < deadline:
        for reply in cluster.wait(_POLL_S):
            host = waiting.pop(reply.node, None)
            if host is None:
                continue
            match reply.message:
                case Preparation():
                    prepared[reply.node] = reply.message
                case OrderFailure(reason=reason):
                    refused[host] = reason
                case _:
                    refused[host] = reply.reason
    refused |= dict.fromkeys(waiting.values(), f"it did not answer in {timeout_s:.0f} s")
    if not prepared:
        raise no_machine(refused)
    return prepared, refused


def examine_nodes(cluster: Cluster, *, timeout_s: float = _MOST_S) -> Iterator[tuple[str, Examined | str]]:
    """Check all nodes; yield the name of each host with what was found, or why it cannot measure."""
    waiting = dict(cluster.list_nodes())
    for node in waiting:
        cluster.start(node, None)
    deadline = time.monotonic() + timeout_s
    while waiting and time.monotonic() < deadline:
        for reply in cluster.wait(_POLL_S):
            host = waiting.pop(reply.node, None)
            if host is not None:
                yield host, _read_answer(reply)
    for host in waiting.values():
        yield host, f"it did not answer in {timeout_s:.0f} s"


def _read_answer(reply: Reply) -> Examined | str:
    match reply.message:
        case Examined():
            return reply.message
        case OrderFailure(reason=reason):
            return reason
    return reply.reason
