"""A Ray cluster on this machine, in a process of its own, whose nodes come and go as a test says.

    python -m tests.support.ray_nodes       reads orders as lines of JSON, and ends with its input

Its nodes inherit the environment of the test, so they share its home. A node may pretend to be another
machine, with results of its own. Without Ray, tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import shell

_MARK = "ray_nodes: "  # before our own lines: Ray prints, too
_PATIENCE_S = 60.0
_ROOT = Path(__file__).parents[2]
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0"}
_PRETEND = "import platform\nplatform.node = lambda: {name!r}\n"


@dataclass(kw_only=True)
class RayNodes:
    """A cluster whose head measures nothing; ``address`` is HOST:PORT."""

    process: subprocess.Popen[str]
    address: str

    def add(self, name: str, *, blocks_at_once: int = 1, env: Mapping[str, str] | None = None) -> None:
        """Add a node that may measure.

        Args:
            name: of the node.
            blocks_at_once: how many drivers may use it.
            env: what its environment has more than that of the cluster.
        """
        self._send(add=name, bench=blocks_at_once, env=dict(env or {}))

    def add_machine(self, name: str, folder: Path, **env: str) -> None:
        """Add a node that is a machine of this name, with its results below a folder."""
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_PRETEND.format(name=name))
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        self.add(name, env={"PYTHONPATH": path, "GGUFSPEC_DATA": str(folder / "data"), **env})

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once."""
        self._send(kill=name)

    def _send(self, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(order)}\n")
        self.process.stdin.flush()
        assert _read(self.process) == "done"


@contextmanager
def start_cluster(env: Mapping[str, str] | None = None) -> Iterator[RayNodes]:
    """Start a cluster, and end all its processes.

    Args:
        env: the environment of its nodes; None for that of the test.
    """
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'ggufspec[fleet]'")
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_nodes"],
            cwd=_ROOT,
            env={
                **(os.environ if env is None else env),
                "RAY_TMPDIR": folder,
                "RAY_USAGE_STATS_ENABLED": "0",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            yield RayNodes(process=process, address=_read(process))
        finally:
            family = psutil.Process(process.pid).children(recursive=True)
            try:
                process.communicate(timeout=_PATIENCE_S)  # closes its input
            finally:
                process.kill()
                left = [other for other in family if shell.is_alive(other)]
                for other in left:
                    other.kill()
        assert not left, "Ray left processes behind"


def _read(process: subprocess.Popen[str]) -> str:
    """Return the next line of the cluster.

    Raises:
        AssertionError: it ended; its error is on standard error.
    """
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_MARK):
            return line.removeprefix(_MARK).rstrip()
    raise AssertionError("the cluster ended")


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes: dict[str, Any] = {}
    _answer(cluster.address)
    inherited = dict(os.environ)
    for line in sys.stdin:
        match json.loads(line):
            case {"add": name, "bench": bench, "env": env}:
                os.environ.update(env)
                nodes[name] = cluster.add_node(num_cpus=1, resources={"bench": bench})
                os.environ.clear()
                os.environ.update(inherited)
            case {"kill": name}:
                cluster.remove_node(nodes.pop(name), allow_graceful=False)
        _answer("done")
    cluster.shutdown()


def _answer(line: str) -> None:
    sys.stdout.write(f"{_MARK}{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
