"""A tuning on each machine of a fleet: each finds its own fastest configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ggufspec import results
from ggufspec.choices import Where
from ggufspec.fleet.cluster import Cluster, Reply, no_machine
from ggufspec.fleet.copies import store_copy
from ggufspec.fleet.journal import Journal, MachineJoined, MachineRefused, create_fleet
from ggufspec.fleet.machines import identify_machine
from ggufspec.fleet.orders import Order, OrderFailure, TunedHere
from ggufspec.results import Configuration

_POLL_S = 1.0


def tune_nodes(cluster: Cluster, order: Order) -> Iterator[tuple[str, Configuration | str]]:
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
    waiting = {node: host for host, node in hosts.items()}
    journal = create_fleet(order.fleet, order_id=order.id, command=order.command, where=Where.EACH)
    try:
        for node in waiting:
            cluster.start(node, order)
        while waiting:
            for reply in cluster.wait(_POLL_S):
                host = waiting.pop(reply.node, None)
                if host is not None:
                    yield host, _store(journal, host, reply)
    finally:
        journal.close()


def _store(journal: Journal, host: str, reply: Reply) -> Configuration | str:
    """Store what came from a host; return its configuration, or why there is none."""
    if not isinstance(reply.message, TunedHere):
        reason = reply.message.reason if isinstance(reply.message, OrderFailure) else reply.reason
        journal.append(MachineRefused(machine=host, hostname=host, reason=reason))
        return reason
    meta, runs, configuration, logs = reply.message
    machine = identify_machine(meta.machine)
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
