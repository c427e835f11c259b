"""Check verdicts beside real busy loops: record runs of the embedded pair, then judge many benches of them.

    scripts/validate_disturbance.py record runs.jsonl --pattern one --repeats 4
    scripts/validate_disturbance.py judge runs.jsonl

``record`` measures the target alone and drafting, each twice (two arms that differ in a seed that they do not
use), while other programs compute, and appends every run to a file. It may be called again and again: a piece
of four repeats takes one or two minutes. The patterns:

- none: nothing beside it, for the true speed-up;
- one, two: so many busy loops all the time;
- page: one busy loop, on for 0.2 to 2 s and off for 0.5 to 5 s, as a page with scripts;
- build: two busy loops, on for 5 to 20 s and off for as long.

``judge`` draws benches of 5 repeats from all recorded repeats of an engine, whatever was beside them, and
gives them to the code that judges stored benches; prompts count that were measured beside nothing, too. The
truth is the speed-up of those runs; drafting is multiplied so that this is 1.5. Wanted: at least 93 % of
intervals hold it, it is found in at least 80 % of benches, and at most 5 % of the comparisons of the target
with its twin find a difference.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import terminal
from interval_paths import stored

from ggufspec.analysis.arms import group
from ggufspec.domain import (
    ENGINES,
    Conditions,
    RunResult,
    RunSpec,
    SpeedJudgement,
    SpeedVerdict,
)
from ggufspec.measure import api, identify, prepare_session
from ggufspec.measure.sweep import Block
from ggufspec.options import BenchOptions
from ggufspec.results import ResultSet

PROMPTS, REPEATS = 8, 5
_QUIET_CORES = 0.2  # of other programs, up to which a run counts for the truth
_DIFFERENT = {SpeedVerdict.FASTER, SpeedVerdict.SLOWER}

Run = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Busy loops, and for how many seconds they run and rest; they never rest without ``rests_s``."""

    loops: int
    runs_s: tuple[float, float] = (1.0, 1.0)
    rests_s: tuple[float, float] | None = None


PATTERNS = {
    "none": Pattern(loops=0),
    "one": Pattern(loops=1),
    "two": Pattern(loops=2),
    "page": Pattern(loops=1, runs_s=(0.2, 2.0), rests_s=(0.5, 5.0)),
    "build": Pattern(loops=2, runs_s=(5.0, 20.0), rests_s=(5.0, 20.0)),
}

_LOOP = """
import os, time
end = time.time() + {seconds}
while time.time() < end and os.path.exists("{lock}"):
    pass
"""


@contextmanager
def busy_loops(pattern: Pattern, lock: Path) -> Iterator[None]:
    """Run busy loops meanwhile: as other programs, so that they are no descendants of this process.

    A loop ends by itself when ``lock`` is removed.
    """
    lock.touch()
    over = threading.Event()
    chance = random.Random(1)

    def start(seconds: float) -> None:
        loop = _LOOP.format(seconds=seconds, lock=lock)
        for _ in range(pattern.loops):
            subprocess.run(
                ["sh", "-c", '"$0" -c "$1" &', sys.executable, loop], start_new_session=True, check=True
            )

    def turn_on_and_off() -> None:
        while not over.is_set():
            seconds = chance.uniform(*pattern.runs_s)
            start(seconds)
            over.wait(seconds + chance.uniform(*(pattern.rests_s or (0, 0))))

    thread = threading.Thread(target=turn_on_and_off, daemon=True)
    if pattern.rests_s is None:
        start(3600)
    else:
        thread.start()
    try:
        time.sleep(0.5)
        yield
    finally:
        over.set()
        lock.unlink()


def record(options: argparse.Namespace) -> int:
    """Measure a piece and append its runs to the file."""
    session = identify(
        prepare_session(
            BenchOptions(
                pair="demo",
                draft=options.draft,
                n_predict=options.n_predict,
                engine=options.engine,
                repeats=options.repeats,
                threads=options.threads,
            )
        )
    )
    target, _, drafting = session.suite.blocks[0].arms
    suite = replace(
        session.suite,
        blocks=(Block(arms=(target, _twin(target), drafting, _twin(drafting))),),
        prompts=session.suite.prompts[: options.prompts],
        seed=int(time.time()),
    )
    session = replace(session, suite=suite)
    lock = options.file.with_suffix(".lock")
    with session.engine, busy_loops(PATTERNS[options.pattern], lock):
        store = api.begin(session, command=tuple(sys.argv))
        known = 0
        for bench in api.record(session, store):
            with options.file.open("a") as file:
                for run in bench.runs[known:]:
                    file.write(json.dumps(_describe(run, options.pattern, bench)) + "\n")
            known = len(bench.runs)
    return 0


def _describe(run: RunResult, pattern: str, bench: ResultSet) -> dict[str, Any]:
    """Return what ``judge`` needs of a run."""
    state = run.conditions
    return {
        "pattern": pattern,
        "engine": bench.meta.engine,
        "piece": bench.meta.id,
        "arm": f"{run.spec.role.value}-{run.spec.sampling.seed}",
        "draft": run.spec.draft_size,
        "prompt": run.spec.prompt.id,
        "repeat": run.repeat,
        "extra": run.warmup or run.anchor,
        "tps": run.sample.decode_tps,
        "load": run.load,
        "threads": run.spec.threads,
        "cores": bench.meta.machine.cores,
        "others_cores": None if state is None else state.others_cores,
        "wall_s": run.wall_s,
        "doubts": run.doubts,
    }


def judge(options: argparse.Namespace) -> int:
    """Print how often verdicts of benches drawn from recorded runs are right."""
    runs = [run for file in options.files for run in map(json.loads, file.open()) if not run["extra"]]
    figures = "runs", "holds", "true 1.5 found", "false, equal arms", "half width"
    terminal.print_head("engine, threads", *figures)
    for engine, threads in sorted({(run["engine"], run["threads"]) for run in runs}):
        newest = {
            (run["piece"], run["repeat"], run["prompt"], run["arm"]): run
            for run in runs
            if (run["engine"], run["threads"]) == (engine, threads) and run["tps"]
        }
        quiet = [run for run in newest.values() if run["others_cores"] < _QUIET_CORES]
        means = _means(quiet)
        repeats = _complete_repeats(newest, sorted(means["target"]))
        if not means["target"] or len(repeats) < REPEATS:
            terminal.print_row(f"{engine}, {threads}", "too few runs", *[""] * 4)
            continue
        truth = fmean(means["drafting"][prompt] - means["target"][prompt] for prompt in means["target"])
        chance = random.Random(options.seed)
        draws = [chance.sample(repeats, REPEATS) for _ in range(options.benches)]
        found = [_judge(draw, engine, ("target", "drafting"), 1.5 / math.exp(truth)) for draw in draws]
        equal = [_judge(draw, engine, ("target", "twin"), 1.0) for draw in draws]
        ratios = [one.ratio for one in found if one is not None and one.ratio is not None]
        known = [(ratio.lo, ratio.hi) for ratio in ratios if ratio.lo is not None and ratio.hi is not None]
        shares = (
            sum(lo <= 1.5 <= hi for lo, hi in known) / max(1, len(known)),
            sum(one is not None and one.pays for one in found) / len(found),
            sum(one is not None and one.verdict in _DIFFERENT for one in equal) / len(equal),
        )
        half = fmean(math.log(hi / lo) / 2 for lo, hi in known)
        cells = (f"{len(newest):,}", *(f"{share:.1%}" for share in shares), f"±{half:.1%}")
        terminal.print_row(f"{engine}, {threads}", *cells)
    return 0


def _means(runs: Iterable[Run]) -> dict[str, dict[str, float]]:
    """Return the mean log rate of each role on each prompt."""
    logs: dict[str, dict[str, list[float]]] = {"target": {}, "drafting": {}}
    for run in runs:
        logs[run["arm"].partition("-")[0]].setdefault(run["prompt"], []).append(math.log(run["tps"]))
    shared = logs["target"].keys() & logs["drafting"].keys()
    return {role: {prompt: fmean(of[prompt]) for prompt in sorted(shared)} for role, of in logs.items()}


def _complete_repeats(
    newest: Mapping[tuple[str, int, str, str], Run], prompts: Sequence[str]
) -> list[dict[str, list[Run]]]:
    """Return the repeats that have these prompts, each twice: once for either copy of its arms."""
    repeats = []
    for piece, repeat in sorted({key[:2] for key in newest}):
        for own, other in (("1", "2"), ("2", "1")):
            names = {"target": f"target-{own}", "drafting": f"drafting-{own}", "twin": f"target-{other}"}
            keys = {role: [(piece, repeat, prompt, arm) for prompt in prompts] for role, arm in names.items()}
            if all(key in newest for role in keys for key in keys[role]):
                repeats.append({role: [newest[key] for key in keys[role]] for role in keys})
    return repeats


def _judge(
    repeats: Sequence[Mapping[str, Sequence[Run]]], engine: str, roles: tuple[str, str], factor: float
) -> SpeedJudgement | None:
    """Judge a bench of some repeats, in which the second role's speeds are multiplied by a factor."""
    arms = []
    for number, role in enumerate(roles):
        runs = [repeat[role] for repeat in repeats]
        places = [(p, r) for r in range(len(runs)) for p in range(len(runs[r]))]
        tps = np.array([[run["tps"] for run in repeat] for repeat in runs]).T * (factor if number else 1.0)
        loads = np.tile(np.arange(len(runs)), (len(tps), 1)) + number * len(runs)
        arms.append(
            stored.SimulatedArm(
                spec=stored.drafting() if number else stored.target_alone(),
                tps=tps,
                loads=None if engine.startswith("binary") else loads,
                conditions={(p, r): Conditions(others_cores=runs[r][p]["others_cores"]) for p, r in places},
                doubts={(p, r): tuple(runs[r][p]["doubts"]) for p, r in places},
            )
        )
    return group(stored.bench(arms, engine=engine))[1].judgement


def _twin(arm: RunSpec) -> RunSpec:
    return replace(arm, sampling=replace(arm.sampling, seed=arm.sampling.seed + 1))


def main() -> int:
    """Record or judge."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # busy loops end
    return int(options.run(options))


def _options() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--pattern", choices=tuple(PATTERNS), required=True)
    recording.add_argument("--engine", choices=tuple(ENGINES), default="server")
    recording.add_argument("--repeats", type=int, default=4)
    recording.add_argument("--prompts", type=int, default=PROMPTS)
    recording.add_argument("--draft", type=int, default=3)
    recording.add_argument("-t", "--threads", type=int)
    recording.add_argument("-n", "--n-predict", type=int, default=128)
    recording.set_defaults(run=record)
    judging = commands.add_parser("judge")
    judging.add_argument("files", type=Path, nargs="+")
    judging.add_argument("--benches", type=int, default=1000)
    judging.add_argument("--seed", type=int, default=1)
    judging.set_defaults(run=judge)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
