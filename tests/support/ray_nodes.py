"""A Ray cluster on this machine, in a process of its own, whose nodes come and go as a test says.

    python -m tests.support.ray_nodes       reads orders as lines of JSON, and ends with its input

Its nodes have the environment of the test that adds them, so they share its home. A node may pretend to be
another machine, with results of its own. Without Ray, tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import shell

_MARK = "ray_nodes: "  # before our own lines: Ray prints, too
_PATIENCE_S = 60.0
_ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # actors start processes of their own
}
_PRETEND = "import platform\nplatform.node = lambda: {name!r}\n"


@dataclass(kw_only=True)
class RayNodes:
    """A cluster whose head measures nothing; ``address`` is HOST:PORT."""

    process: subprocess.Popen[str]
    address: str
    names: list[str] = field(default_factory=list)
    """The nodes that are there beside the head."""

    def add(self, name: str, env: Mapping[str, str]) -> None:
        """Add a node that may measure; ``env`` is what its environment has more than others."""
        self._send(add=name, env={**os.environ, **env})
        self.names.append(name)

    def add_machine(self, name: str, folder: Path, **env: str) -> None:
        """Add a node that is a machine of this name, with its results below a folder."""
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_PRETEND.format(name=name))
        path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        self.add(name, {"PYTHONPATH": path, "GGUFSPEC_DATA": str(folder / "data"), **env})

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once."""
        self._send(remove=name, gently=False)
        self.names.remove(name)

    def end_all(self) -> None:
        """End all nodes but the head."""
        while self.names:
            self._send(remove=self.names.pop(), gently=True)

    def _send(self, **order: object) -> None:
        self.process.stdin.write(f"{json.dumps(order)}\n")
        self.process.stdin.flush()
        assert _read(self.process) == "done"


@contextmanager
def start_cluster() -> Iterator[RayNodes]:
    """Start a cluster, and end all its processes."""
    if find_spec("ray") is None:
        pytest.skip("needs Ray: pip install 'ggufspec[fleet]'")
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.ray_nodes"],
            cwd=_ROOT,
            env={**os.environ, "RAY_TMPDIR": folder, **_SETTINGS},
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
    for line in process.stdout:
        if line.startswith(_MARK):
            return line.removeprefix(_MARK).rstrip()
    raise AssertionError("the cluster ended")


def main() -> None:
    from ray.cluster_utils import Cluster

    bare = {"num_cpus": 0, "include_dashboard": False, "include_log_monitor": False}  # nobody asks these
    cluster = Cluster(initialize_head=True, head_node_args=bare)
    nodes: dict[str, Any] = {}
    _answer(cluster.address)
    inherited = dict(os.environ)
    for line in sys.stdin:
        match json.loads(line):
            case {"add": name, "env": env}:
                settings = {key: text for key, text in inherited.items() if key.startswith("RAY_")}
                os.environ.clear()
                os.environ.update(env | settings)
                nodes[name] = cluster.add_node(num_cpus=1, resources={"bench": 1})
                os.environ.clear()
                os.environ.update(inherited)
            case {"remove": name, "gently": gently}:
                cluster.remove_node(nodes.pop(name), allow_graceful=gently)
        _answer("done")
    cluster.shutdown()


def _answer(line: str) -> None:
    sys.stdout.write(f"{_MARK}{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
