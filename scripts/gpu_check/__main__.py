"""The check itself; scripts/gpu_check.sh says what it does and how it is called."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ggufspec.errors import GgufspecError
from gpu_check import llama, pack, plan, presets, steps, writing
from gpu_check.benches import Bench
from gpu_check.models import Models
from gpu_check.steps import Report

_CALL_S = 590.0  # of the ten minutes that a call may take
_CPU_CALL_S = 480.0


def main() -> int:
    """Run one call of the check; 0 where nothing failed, 1 where a step did, 2 where nothing could run."""
    asked = _arguments()
    started = time.monotonic() - (time.time() - asked.started if asked.started else 0)
    try:
        if asked.pack is not None:
            print(pack.pack(asked.pack, without=asked.without, limit_mib=asked.limit, python=asked.python))
            return 0
        return _check(asked, started + asked.time)
    except GgufspecError as error:
        print(f"gpu_check: {error.message}" + (f"\n  {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2


def _check(asked: argparse.Namespace, deadline: float) -> int:
    if asked.bin is not None:
        llama.adopt(asked.bin, asked.work / "cache")
    os.environ["GGUFSPEC_DATA"] = str(asked.work / "data")  # results of a check are not mixed with others
    folder = llama.folder(asked.bin, asked.carry, gpu=not asked.cpu, seconds=deadline - time.monotonic())
    if asked.call == "build":
        print(folder)
        return 0
    preset = presets.SMALLEST if asked.smallest else presets.CPU if asked.cpu else presets.GPU
    with ExitStack() as children:
        models = Models(folder=asked.models or asked.work / "models", children=children)
        models.begin(*plan.models_of(preset, asked.call))
        return _measure(asked, Bench(preset=preset, llama=folder, models=models, gpu=not asked.cpu), deadline)


def _measure(asked: argparse.Namespace, bench: Bench, deadline: float) -> int:
    mode = "gpu" if bench.gpu else "cpu"
    reports = writing.read(asked.out, mode)
    logs = asked.work / "recorded"
    every = list(plan.steps(bench, reports, logs, asked.out))
    order = {step.name: number for number, step in enumerate(every)}

    def save(latest: Sequence[Report]) -> None:
        reports.update({each.name: each for each in latest})
        writing.write(asked.out, mode, sorted(reports.values(), key=lambda each: order.get(each.name, 0)))

    found = steps.run(
        _of_call(every, asked.call), deadline=deadline, before=dict(reports), save=save, say=_say
    )
    save(found)
    writing.pack_logs(asked.out / "logs.tar.gz", reports.values(), logs)
    print((asked.out / "summary.md").read_text(encoding="utf-8"))
    _say(f"written to {asked.out}")
    return writing.status_of(reports)


def _of_call(every: Sequence[steps.Step], call: str) -> list[steps.Step]:
    """Return the steps of a call: its own, and after those of the second what the first one left."""
    if call == "all":
        return list(every)
    closing = [step for step in every if step.closes]
    others = [step for step in every if not step.closes]
    own = [step for step in others if f"part{step.part}" == call]
    left = [] if call == "part1" else [step for step in others if step not in own]
    return [*own, *left, *closing]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/gpu_check.sh", description=__doc__)
    parser.add_argument("call", nargs="?", default="all", choices=("build", "part1", "part2", "all"))
    parser.add_argument("--cpu", action="store_true", help="small shapes on the processor: a dry run")
    parser.add_argument("--smallest", action="store_true", help="with --cpu: a minute at most")
    parser.add_argument("--bin", type=Path, help="a folder of prebuilt programs (or GGUFSPEC_LLAMA)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or "gpu-check"))
    parser.add_argument("--work", type=Path, required=True, help="for models, builds and results")
    parser.add_argument("--models", type=Path, help="for the models alone, such as a folder in memory")
    parser.add_argument("--carry", type=Path, required=True, help="what --pack made")
    parser.add_argument("--time", type=float, help="seconds that this call may take")
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="gather what a bare machine needs")
    parser.add_argument("--without", default="", help="with --pack: wheels that the machine has, by commas")
    parser.add_argument("--limit", type=float, default=60, help="with --pack: MiB")
    parser.add_argument("--python", default=None, help="with --pack: the machine's Python, 3.12")
    asked = parser.parse_args()
    asked.work, asked.out = asked.work.absolute(), asked.out.absolute()
    asked.smallest = asked.smallest and asked.cpu
    asked.time = asked.time or (_CPU_CALL_S if asked.cpu else _CALL_S)
    return asked


if __name__ == "__main__":
    sys.exit(main())
