"""The machines of a fleet, as those that drive it see them: Ray's cluster, or another one in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ggufspec.errors import GgufspecError
from ggufspec.fleet.orders import Message, Order
from ggufspec.results import ResultSet

START_HINT = "start machines with: ray start --address=HOST:PORT --resources='{\"bench\": 1}'"


def no_machine(refused: Mapping[str, str]) -> GgufspecError:
    """Return the error where no machine can measure; ``refused`` has the reason by the name of each host."""
    reasons = "; ".join(f"{host}: {reason}" for host, reason in refused.items())
    message = "no machine of the fleet can measure"
    return GgufspecError(f"{message}: {reasons}" if reasons else message, START_HINT)


class Reply(NamedTuple):
    """What came from a node; None for a node that is lost, with the reason."""

    node: str
    message: Message | None
    reason: str = ""


class Cluster(Protocol):
    """The machines, as the driver sees them."""

    def list_nodes(self) -> Mapping[str, str]:
        """Return the nodes that can measure, by their ids, with the names of their hosts."""
        ...

    def start(self, node: str, order: Order | None) -> None:
        """Start what measures on a node, and ask it to prepare, or to tune.

        Without an order, it checks its machine.
        """
        ...

    def measure(self, node: str, block: int, n_known: int, last_log: str | None) -> None:
        """Ask a node to measure a block."""
        ...

    def restore(self, node: str, bench: ResultSet) -> None:
        """Send a node the runs that are stored of its machine."""
        ...

    def wait(self, timeout_s: float) -> list[Reply]:
        """Return what came from nodes, in order; nothing after so many seconds."""
        ...
