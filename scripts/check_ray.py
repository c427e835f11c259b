"""Measure what Ray costs the measurements of a machine.

    python scripts/check_ray.py [--sessions 3] [-n 64] [--repeats 5] [-t THREADS]

Needs Ray (`pip install 'ggufspec[fleet]'`) and a quiet machine. The embedded pair is measured in turn as
`ggufspec bench` does, without Ray, and as `ggufspec fleet bench` does: beside a head, a node and a driver,
all on this machine. Each comes first in every other session. A Ray cluster of its own is started for each
measurement and ended after it.

Prints the comparison of the sessions, and how many cores other programs used during runs of each kind: with a
fleet, Ray's processes and the driver are among them. Three sessions are the fewest that give a verdict.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import terminal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ggufspec import fleet  # noqa: E402
from ggufspec.analysis import comparing  # noqa: E402
from ggufspec.choices import Where  # noqa: E402
from ggufspec.measure import api  # noqa: E402
from ggufspec.options import BenchOptions, FleetBenchOptions  # noqa: E402
from ggufspec.report.text import comparison  # noqa: E402
from ggufspec.results import ResultSet  # noqa: E402
from tests.support.ray_nodes import start_cluster  # noqa: E402


def main() -> int:
    options = _options()
    if find_spec("ray") is None:
        sys.exit("Ray is not installed: pip install 'ggufspec[fleet]'")
    request = BenchOptions(
        pair="demo",
        draft=3,
        n_predict=options.n_predict,
        engine="binary",
        repeats=options.repeats,
        threads=options.threads,
    )
    alone: list[ResultSet] = []
    beside_ray: list[ResultSet] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GGUFSPEC_DATA"] = folder
        for session in range(options.sessions):
            print(f"session {session + 1} of {options.sessions}", file=sys.stderr)
            if session % 2:
                beside_ray.append(measure_in_fleet(request, f"ray{session}"))
            alone.append(api.bench(request))
            if not session % 2:
                beside_ray.append(measure_in_fleet(request, f"ray{session}"))
        compared = comparing.compare(alone, beside_ray)
        print(comparison.page(compared).text())
        for name, benches in (("alone", alone), ("beside Ray", beside_ray)):
            print(f"other programs used {median_others(benches):.3f} cores ({name}, median of all runs)")
    return 0


def measure_in_fleet(request: BenchOptions, name: str) -> ResultSet:
    """Measure a request on a fleet of this machine alone."""
    with start_cluster() as nodes:
        nodes.add("node", {})
        with fleet.RayCluster(address=nodes.address) as cluster:
            order = fleet.make_order(name, request.to(FleetBenchOptions), command=tuple(sys.argv))
            for _ in fleet.Drive(cluster=cluster, order=order, where=Where.EACH).run():
                pass
    (bench,) = fleet.read_benches(fleet.read_fleet(name)).values()
    return bench


def median_others(benches: list[ResultSet]) -> float:
    """Return the median of the cores that other programs used, over all runs of benches."""
    conditions = (run.conditions for bench in benches for run in bench.runs)
    cores = [one.others_cores for one in conditions if one and one.others_cores is not None]
    return statistics.median(cores)


def _options() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("-n", "--n-predict", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
