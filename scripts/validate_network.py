"""Compare what drafting gains over a network with the forecast of ``ggufspec whatif --rtt``.

    python scripts/validate_network.py --work build/network
    python scripts/validate_network.py --work build/network --delay 0,2,10 --draft 1,3,7 --repeats 5

A worker on this machine holds the target; the drafter is in the program that measures. Between the two are
proxies, one for each --delay, which delay what passes: half of the milliseconds in each direction. One bench
measures all of them, and a first proxy without a delay from which the costs are taken. So the forecast for
0 ms shows how well a measurement repeats. Round trips of a pass are counted by another proxy beforehand; how
long one takes is what ``bench --rpc`` measures before it starts.

It prints a table, and exits with 1 if a forecast is off by more than 10 %, or drafting changed a text. Run it
on a quiet machine. It takes about twenty minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import terminal

from ggufspec.domain import ModelRun

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import ggufspec  # noqa: E402
from ggufspec import engines  # noqa: E402
from ggufspec.analysis import Arm  # noqa: E402
from ggufspec.analysis.arms import group  # noqa: E402
from ggufspec.domain import Drafting, Offload, Role, Status  # noqa: E402
from ggufspec.forecast import whatif  # noqa: E402
from ggufspec.llama.install import installs  # noqa: E402
from ggufspec.llama.install.installs import Install  # noqa: E402
from ggufspec.llama.rpc import lending  # noqa: E402
from tests.support import embedded  # noqa: E402
from tests.support.rpc_workers import free_port  # noqa: E402
from tests.support.slow_network import slow_network  # noqa: E402

HEAD = ("delay", "round trip", "γ", "tokens per round", "speed-up", "forecast", "off by", "text")
GOAL = 0.1
SHORT, LONG = 16, 48  # tokens of the runs whose round trips are counted


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Round trips and bytes of each pass of the target, as the proxy counts them."""

    round_trips: float
    bytes: float


def main() -> int:
    asked = _arguments()
    asked.work.mkdir(parents=True, exist_ok=True)
    os.environ["GGUFSPEC_DATA"] = str((asked.work / "data").absolute())
    install = installs.find_install(asked.llama)
    lent = lending.WorkerSettings(port=free_port(), threads=asked.threads, devices=("CPU",))
    with ExitStack() as stack:
        stack.enter_context(lending.start_worker(install, lent))
        counted = {
            draft: count_passes(install, lent.own_address, draft, asked.work)
            for draft in (None, *asked.draft)
        }
        for draft, passes in counted.items():
            name = "target alone" if draft is None else f"drafting, γ = {draft}"
            print(f"{name}: {passes.round_trips:.2f} round trips and {passes.bytes:,.0f} bytes a pass")
        networks = [
            stack.enter_context(slow_network(lent.own_address, delay_s=delay / 2000))
            for delay in (0.0, *asked.delay)
        ]
        bench = ggufspec.bench(
            pair=asked.pair,
            llama=install.root,
            engine="server",
            rpc=tuple(network.address for network in networks),
            ngl="all",
            ngld=0,
            draft=asked.draft,
            p_min=0.0,
            threads=asked.threads,
            repeats=asked.repeats,
        )
    arms = group(bench)
    rtt_s = {worker.address: worker.rtt_s or 0.0 for worker in bench.meta.workers}
    trips = counted[None].round_trips
    print()
    terminal.print_head(*HEAD)
    costs = {arm.draft_size: arm for arm in _drafting(arms, networks[0].address)}
    is_good = True
    for delay, network in zip(asked.delay, networks[1:], strict=True):
        added_s = rtt_s[network.address] - rtt_s[networks[0].address]
        for arm in _drafting(arms, network.address):
            expected = forecast(costs[arm.draft_size], _drafter_rate(arms), trips, max(added_s, 0.0))
            assert arm.gain is not None
            assert arm.acceptance is not None
            measured = arm.gain.ratio.value
            off, is_same = expected / measured - 1, all(arm.compared.values())
            is_good = is_good and abs(off) <= GOAL and is_same
            terminal.print_row(
                *(f"{delay:g} ms", f"{rtt_s[network.address] * 1000:.2f} ms", arm.draft_size),
                *(f"{arm.acceptance.mean_accepted_length:.2f}", f"{measured:.2f}", f"{expected:.2f}"),
                *(f"{off:+.1%}", "the same" if is_same else "differs"),
            )
    return 0 if is_good else 1


def forecast(costs: Arm, drafter_tps: float, round_trips: float, rtt_s: float) -> float:
    """Return the speed-up that ``whatif`` forecasts over a network, from an arm that has none.

    Args:
        costs: drafting with a worker that is near; its target alone is the baseline.
        drafter_tps: tokens/s of the drafter alone.
        round_trips: of a pass.
        rtt_s: seconds of each that the near worker did not have.
    """
    assert costs.rate is not None
    assert costs.baseline is not None
    assert costs.baseline.rate is not None
    assert costs.acceptance is not None
    assert costs.acceptance.mean_accepted_length is not None
    assert costs.draft_size is not None
    answer = whatif.whatif(
        target_tps=costs.baseline.rate.value,
        drafter_tps=drafter_tps,
        accept=(costs.acceptance.mean_accepted_length - 1) / costs.draft_size,
        observed=costs.rate.value,
        draft=costs.draft_size,
        rtt=rtt_s * 1000,
        round_trips=round_trips,
    )
    return answer.best.speedup


def count_passes(install: Install, worker: str, draft: int | None, folder: Path) -> Passes:
    """Return what a pass of the target costs: the difference of a long and a short run.

    Args:
        install: the llama.cpp.
        worker: its address.
        draft: γ; None for the target alone.
        folder: for logs.
    """
    role = Role.TARGET if draft is None else Role.DRAFTING
    totals = []
    with (
        slow_network(worker) as network,
        engines.make("server", install, timeout_s=120, capacity=1) as engine,
    ):
        offload = Offload(target=ModelRun(layers="all"), drafter=ModelRun(layers=0), rpc=(network.address,))
        drafting = None if draft is None else Drafting(n_max=draft)
        spec = replace(embedded.spec(role, offload), drafting=drafting)
        for tokens in (LONG, SHORT, LONG):  # the first loads the models
            network.reset()
            sample = engine.measure(replace(spec, n_predict=tokens), folder / "count").sample
            assert sample.status is Status.OK, sample.status
            passes = sample.n_rounds if draft else sample.decoded
            assert passes is not None
            totals.append((passes, network.round_trips, network.up_bytes + network.down_bytes))
    _, short, long = totals
    passes = long[0] - short[0]
    return Passes(round_trips=(long[1] - short[1]) / passes, bytes=(long[2] - short[2]) / passes)


def _drafting(arms: tuple[Arm, ...], address: str) -> Iterator[Arm]:
    return (arm for arm in arms if arm.role is Role.DRAFTING and arm.spec.offload.rpc == (address,))


def _drafter_rate(arms: tuple[Arm, ...]) -> float:
    rate = next(arm.rate for arm in arms if arm.role is Role.DRAFTER)
    assert rate is not None
    return rate.value


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the bench")
    parser.add_argument("--pair", default="demo", help="of the catalogue, by default demo")
    parser.add_argument("--llama", type=Path, help="a llama.cpp with RPC")
    parser.add_argument("--delay", type=_numbers, default=(0.0, 2.0, 10.0), help="ms, by default 0,2,10")
    parser.add_argument("--draft", type=_sizes, default=(1, 3, 7), help="draft sizes, by default 1,3,7")
    parser.add_argument("-r", "--repeats", type=int, default=5, help="of the bench, by default 5")
    parser.add_argument("-t", "--threads", type=int, default=1, help="of the worker and of the program")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
