"""Flip one bit anywhere in a stored bench, and see that no wrong figure is read without a warning.

    python scripts/fuzz_store.py [--flips 10000] [--seed 1] [--everywhere]

A bench has a few runs of every kind: warm-ups, anchors, drafting, failures, judgements. In a copy of it one
bit of meta.json or runs.jsonl is flipped, and the copy is read. That must end in an error that names the
damage, or give what was stored, or less than that with a warning. Then the copy is salvaged: every run that
comes back must be one that was stored, with a warning where one is missing.

With --everywhere every bit is flipped once, instead of as many random ones.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ggufspec import results  # noqa: E402
from ggufspec.domain import Conditions, Difference, Role, RunResult, Status, TextVerdict  # noqa: E402
from ggufspec.errors import ResultsError  # noqa: E402
from ggufspec.results import ResultSet  # noqa: E402
from tests.support import values  # noqa: E402

FILES = ("meta.json", "runs.jsonl")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--everywhere", action="store_true")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GGUFSPEC_DATA"] = folder
        stored = make("fuzzed")
        intact = {name: (stored.folder / name).read_bytes() for name in FILES}
        copy = Path(folder) / "copy"
        copy.mkdir()
        total = sum(map(len, intact.values())) * 8
        chance = random.Random(options.seed)
        bits: Iterator[int] = iter(range(total))
        if not options.everywhere:
            bits = (chance.randrange(total) for _ in range(options.flips))
        for bit in bits:
            name = write_with_flip(copy, intact, bit)
            outcomes[f"{name}: {judge(stored, copy)}"] += 1
            judge_salvaged(stored, copy, bit)
    print(f"{sum(outcomes.values())} flips of {total} bits: never a wrong figure without a warning")
    for outcome, count in sorted(outcomes.items()):
        print(f"  {outcome}: {count}")
    return 0


def write_with_flip(copy: Path, intact: dict[str, bytes], bit: int) -> str:
    """Write a copy of the bench with one bit changed; return the name of the file that it is in."""
    changed = ""
    for name, content in intact.items():
        damaged = bytearray(content)
        if 0 <= bit < len(content) * 8:
            damaged[bit // 8] ^= 1 << bit % 8
            changed = name
        (copy / name).write_bytes(damaged)
        bit -= len(content) * 8
    return changed


def judge(stored: ResultSet, copy: Path) -> str:
    """Read a damaged copy and return what happened; a wrong figure without a warning ends the script."""
    try:
        loaded = results.load(copy)
    except ResultsError:
        return "an error"
    if loaded.damage:
        assert loaded.meta == stored.meta
        assert as_measured(loaded) == as_measured(stored)[: len(loaded.runs)]
        assert all(run in stored.runs or run.text_identical is None for run in loaded.runs)
        return "a part, with a warning"
    assert (loaded.meta, loaded.runs) == (stored.meta, stored.runs), "a wrong figure without a warning"
    return "what was stored"


def judge_salvaged(stored: ResultSet, copy: Path, bit: int) -> None:
    """Salvage a damaged copy: what comes back was stored, and what does not is warned of."""
    salvaged = results.load(copy, salvage=True)
    assert all(run in as_measured(stored) for run in as_measured(salvaged)), f"bit {bit}"
    assert salvaged.damage or salvaged.runs == stored.runs, f"bit {bit}"
    assert salvaged.damage or salvaged.meta == stored.meta, f"bit {bit}"


def as_measured(bench: ResultSet) -> list[RunResult]:
    """Return the runs without what was found out later."""
    return [replace(run, text_identical=None, difference=None) for run in bench.runs]


def make(name: str) -> ResultSet:
    """Store a bench with runs of every kind."""
    stored = values.bench(doubts={"few-repeats": "use more"}, name=name, planned_runs=12)
    for number in range(16):
        drafting = number % 3 == 1
        status = Status.CRASHED if number == 9 else Status.OK
        stored = results.append(stored, run(number, drafting=drafting, status=status))
        if number % 5 == 4:
            last = next(run for run in reversed(stored.runs) if run.spec.drafting)
            difference = Difference(at_char=4, at_token=2, margin=0.5, verdict=TextVerdict.NEAR_TIE)
            stored = results.judge(stored, replace(last, text_identical=False, difference=difference))
    results.close(stored)
    return stored


def run(number: int, *, drafting: bool, status: Status) -> RunResult:
    """Return one run of a bench."""
    role = Role.DRAFTING if drafting else Role.TARGET
    made = values.run(
        role,
        prompt=f"p{number % 2}",
        repeat=number // 2,
        tps=100 / (2.4 + number / 8),
        draft=3 if drafting else None,
        drafted=24,
        accepted=18,
        status=status,
    )
    text = f"words {number % 4}" if status is Status.OK else None
    return replace(
        made,
        sample=replace(made.sample, text=text),
        log=f"{number:04d}",
        started_at=f"2026-01-02T03:04:{number:02d}.678+00:00",
        warmup=number < 2,
        anchor=number == 5,
        conditions=Conditions(others_cores=0.25, cpu_mhz=2500.5),
        text_identical=None,
    )


if __name__ == "__main__":
    sys.exit(main())
