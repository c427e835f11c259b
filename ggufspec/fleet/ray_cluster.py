"""Ray's nodes as a ``Cluster``: an actor measures on each node that has the resource "bench"."""

from __future__ import annotations

import os
import pickle
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ggufspec.errors import GgufspecError
from ggufspec.fleet.benching import Bencher, list_software
from ggufspec.fleet.nodes import Reply
from ggufspec.fleet.orders import Order, OrderFailure
from ggufspec.results import ResultSet

RESOURCE = "bench"
"""What a node is started with that may measure: ``ray start --resources='{"bench": 1}'``."""

_LEAST = (2, 50)
_CONNECT_S = 10.0
_START = "start one with: ray start --head --include-dashboard=false --disable-usage-stats"
_NO_STATISTICS = "RAY_USAGE_STATS_ENABLED"
_SET_BY_RAY = {"OMP_NUM_THREADS": "1"}
"""What Ray sets for actors that reserve no processors. llama.cpp's libraries would inherit it."""

_WORKER_ENVIRONMENT = {
    # older Rays would hide the GPUs of a node from actors that reserve none
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # an actor of a lost node would end its program first, and store the run as one that was killed
    "RAY_kill_child_processes_on_worker_exit": "0",
}
"""Variables of the processes of actors."""


@dataclass(kw_only=True)
class _RayWorker:
    """The actor of a node. ``number`` counts the actors of the node: a killed one gets a successor."""

    actor: Any
    number: int
    stream: Any = None
    has_answered: bool = False


@dataclass(kw_only=True)
class RayCluster:
    """Connects to a Ray cluster that runs already; it has to be closed.

    Attributes:
        address: ``auto`` for the cluster on this machine, or HOST:PORT.

    Raises:
        GgufspecError: the address is none, Ray is not installed or too old, no cluster is there, or it has
            another version of Ray or Python.
    """

    address: str
    _ray: Any = field(init=False)
    _workers: dict[str, _RayWorker] = field(default_factory=dict, init=False)  # by Ray's id of the node
    _numbers: dict[str, int] = field(default_factory=dict, init=False)
    _useless: set[str] = field(default_factory=set, init=False)  # nodes whose actor never answered

    def __post_init__(self) -> None:
        """Connect."""
        _check_address(self.address)
        self._ray = _import_ray()
        os.environ[_NO_STATISTICS] = "0"
        try:
            self._ray.init(address=self.address, log_to_driver=False, configure_logging=False)
        except ConnectionError as error:
            raise GgufspecError(
                f"no Ray cluster lets this driver join at {self.address}",
                f"{_START}; if it asks for a token, set RAY_AUTH_MODE=token and copy ~/.ray/auth_token",
            ) from error
        except (RuntimeError, self._ray.exceptions.RayError) as error:
            raise GgufspecError(
                f"cannot join the Ray cluster at {self.address}: {' '.join(str(error).split())}",
                "the driver and all nodes need the same versions of Ray and Python, and the same token",
            ) from error

    def __enter__(self) -> RayCluster:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the cluster, which ends the actors."""
        self._ray.shutdown()

    def list_nodes(self) -> Mapping[str, str]:
        """Return the nodes that can measure, with the names of their hosts."""
        return {
            self._id(name): host for name, host in self._list_alive().items() if name not in self._useless
        }

    def start(self, node: str, order: Order | None) -> None:
        """Start the actor of a node, and ask it to prepare, or to tune.

        Without an order, it checks its machine.
        """
        name, _, number = node.partition("/")
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(name, soft=False)
        actor = (
            self._ray.remote(Bencher)
            .options(
                num_cpus=0,
                resources={RESOURCE: 1},
                max_restarts=0,
                max_task_retries=0,
                runtime_env={"env_vars": _WORKER_ENVIRONMENT},
                scheduling_strategy=affinity,
            )
            .remote(order=pickle.dumps(order), software=list_software(), unset=_SET_BY_RAY)
        )
        self._workers[name] = _RayWorker(actor=actor, number=int(number))
        method = "examine" if order is None else "tune" if order.tunes else "prepare"
        self._ask(node, method)

    def measure(self, node: str, block: int, n_known: int, last_log: str | None) -> None:
        """Ask a node to measure a block."""
        self._ask(node, "measure", block, n_known, last_log)

    def restore(self, node: str, bench: ResultSet) -> None:
        """Send a node the runs that are stored of its machine."""
        self._ask(node, "restore", bench.meta, tuple(bench.runs))

    def wait(self, timeout_s: float) -> list[Reply]:
        """Return what came from nodes."""
        streams = {worker.stream: name for name, worker in self._workers.items() if worker.stream is not None}
        ready: list[Any] = []
        if not streams:
            time.sleep(timeout_s)
        else:
            ready, _ = self._ray.wait(list(streams), num_returns=len(streams), timeout=0, fetch_local=True)
            if not ready:
                ready, _ = self._ray.wait(list(streams), num_returns=1, timeout=timeout_s, fetch_local=True)
        replies = [reply for stream in ready if (reply := self._read(streams[stream])) is not None]
        alive = self._list_alive()
        gone = [name for name in self._workers if name not in alive]
        return replies + [self._lose(name, "its node left the cluster") for name in gone]

    def _read(self, name: str) -> Reply | None:
        """Return the next message of a node; None at the end of an answer."""
        worker, exceptions = self._workers[name], self._ray.exceptions
        node = self._id(name)
        try:
            message = self._ray.get(next(worker.stream))
        except StopIteration:
            worker.stream = None
            return None
        except exceptions.RayTaskError as error:
            worker.stream = None
            return Reply(node, OrderFailure(reason=_summarize(error.cause or error)))
        except exceptions.RayError as error:
            return self._lose(name, _summarize(error))
        worker.has_answered = True
        return Reply(node, message)

    def _lose(self, name: str, reason: str) -> Reply:
        """End the actor of a node, which may only be out of reach; the next one has another number."""
        node, worker = self._id(name), self._workers.pop(name)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        self._numbers[name] = worker.number + 1
        if not worker.has_answered:  # for example, ggufspec is not installed there
            self._useless.add(name)
        return Reply(node, None, reason)

    def _ask(self, node: str, method: str, *values: object) -> None:
        worker = self._workers[node.partition("/")[0]]
        worker.stream = getattr(worker.actor, method).options(num_returns="streaming").remote(*values)

    def _id(self, name: str) -> str:
        worker = self._workers.get(name)
        return f"{name}/{self._numbers.get(name, 0) if worker is None else worker.number}"

    def _list_alive(self) -> dict[str, str]:
        try:
            nodes = self._ray.nodes()
        except self._ray.exceptions.RayError as error:
            raise GgufspecError(
                f"the Ray cluster does not answer: {_summarize(error)}",
                "start Ray again, and continue with --resume",
            ) from error
        return {
            node["NodeID"]: node["NodeManagerHostname"]
            for node in nodes
            if node["Alive"] and node["Resources"].get(RESOURCE)
        }


def _check_address(address: str) -> None:
    """Refuse what is not HOST:PORT, and where nothing listens, before Ray looks at it.

    Ray would start a cluster for ``local``, and a client for ray://, and would wait for minutes.

    Raises:
        GgufspecError: it is neither that nor ``auto``, or there is no connection.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdecimal():
        raise GgufspecError(f"{address!r} is not the address of a Ray cluster", "give HOST:PORT, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise GgufspecError(f"there is no Ray cluster at {address}: {error}", _START) from error


def _import_ray() -> Any:
    """Return the library.

    Raises:
        GgufspecError: it is missing or too old.
    """
    hint = "pip install 'ggufspec[fleet]'"
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise GgufspecError(
            "measuring on several machines needs Ray, which is not installed", hint
        ) from error
    if tuple(map(int, ray.__version__.split(".")[:2])) < _LEAST:
        raise GgufspecError(f"Ray {ray.__version__} is too old; 2.50 or newer is needed", hint)
    return ray


def _summarize(error: BaseException) -> str:
    """Return an error in one line: Ray writes what happened first, and the cause last, behind a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " … ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else type(error).__name__
