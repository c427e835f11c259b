"""Kill a process that stores runs at random instants, go on with what it left, and count what is there.

    python scripts/crash_store.py [--kills 200] [--seed 1]

A child makes a bench and appends its cells; it dies of SIGKILL after a random time. The next child goes on
with the same bench until every cell is there. After each kill, what the child knew to be stored must be
there, at most one run more, and nothing twice. Texts are large, so that a kill can cut a write in two. As
many children are killed while they make a bench.

As many power cuts follow: of the last append, which nobody was told of, a disk has kept a part. It is torn
(only its beginning is there), zeroed (the file has its length, and zeros at the end or everywhere in it), or
reordered (any of its sectors are there and the others are zeros). What was told to be stored must be there.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ggufspec import paths, results  # noqa: E402
from ggufspec.domain import RunResult  # noqa: E402
from tests.support import values  # noqa: E402

CELLS = 8
LETTERS = 4_000_000
SECTOR = 512  # bytes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GGUFSPEC_DATA"] = folder
        bench = 0
        while seen["kills"] < options.kills:
            one_life(f"bench-{bench}", chance, seen)
            bench += is_whole(f"bench-{bench}")
        while not is_whole(f"bench-{bench}"):  # the last one in peace
            fill(f"bench-{bench}", None)
        for number in range(options.kills):
            one_birth(f"born-{number}", chance, seen)
        for number in range(options.kills):
            one_power_cut(f"cut-{number}", chance, seen)
        for name in (name for name in results.ids() if name.startswith("bench")):
            repeats = [run.repeat for run in results.load(name).runs]
            assert repeats == list(range(CELLS)), f"{name}: {repeats}"
    print(", ".join(f"{count} {what}" for what, count in seen.items()))
    print(f"{len(range(bench + 1))} benches with every cell once, none lost, none double")
    return 0


def one_life(name: str, chance: random.Random, seen: Counter[str]) -> None:
    """Let a child work on a bench until it is killed or done; check what it leaves."""
    before = stored(name)
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        fill(name, sender)
        os._exit(0)
    os.close(sender)
    time.sleep(chance.uniform(0, chance.choice((0.002, 0.02, 0.2))))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    known = 0
    while told := os.read(receiver, 4096):
        known += len(told)
    os.close(receiver)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, f"the child failed: {status}"
    seen["kills"] += os.WIFSIGNALED(status)
    after = stored(name)
    assert before + known <= after <= before + known + 1, f"{before} + {known} became {after}"
    seen["between a run and its acknowledgement"] += after == before + known + 1
    seen["within a line"] += is_cut(paths.runs_dir() / name / "runs.jsonl")


def one_birth(name: str, chance: random.Random, seen: Counter[str]) -> None:
    """Kill a child while it makes a bench: there is an empty one or none, and the name can be used."""
    child = os.fork()
    if not child:
        values.bench(name=name)
        os._exit(0)
    time.sleep(chance.uniform(0, 0.004))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    listed = name in results.ids()
    bench = results.reopen(name) if listed else values.bench(name=name)
    results.close(results.append(bench, run(0)))
    assert stored(name) == 1
    seen["in the making"] += not listed and (paths.runs_dir() / name).is_dir()


def one_power_cut(name: str, chance: random.Random, seen: Counter[str]) -> None:
    """Let a disk keep a part of the last append: the runs before it are there, and it can be made again."""
    bench = values.bench(name=name)
    file = bench.folder / "runs.jsonl"
    told = chance.randrange(4)
    for repeat in range(told):
        bench = results.append(bench, run(repeat, letters=chance.choice((8, 2000))))
    before = file.read_bytes()
    results.close(results.append(bench, run(told, letters=chance.choice((8, 2000, 20_000)))))
    kind = chance.choice(("torn", "zeroed", "reordered"))
    file.write_bytes(before + kept(file.read_bytes()[len(before) :], len(before), kind, chance))
    loaded = results.load(name)
    assert told <= stored(name) <= told + 1, f"{name}, {kind}: {told} became {stored(name)}"
    assert loaded.damage or stored(name) == told + 1 or file.read_bytes() == before, f"{name}: no warning"
    again = results.reopen(name)
    for repeat in range(stored(name), told + 2):
        again = results.append(again, run(repeat, letters=8))
    results.close(again)
    assert (stored(name), results.load(name).damage) == (told + 2, ())
    seen[f"appends {kind} by a power cut"] += 1


def kept(lines: bytes, start: int, kind: str, chance: random.Random) -> bytes:
    """Return what a disk has kept of an append that began at a place of the file: sectors, or a beginning."""
    size = chance.randrange(len(lines) + 1)
    if kind == "torn":
        return lines[:size]
    if kind == "zeroed":
        return lines[:size] + bytes(len(lines) - size) if chance.random() < 0.5 else bytes(len(lines))
    there = bytearray(lines)
    for sector in range(start // SECTOR, (start + len(lines)) // SECTOR + 1):
        first, end = max(0, sector * SECTOR - start), min(len(lines), (sector + 1) * SECTOR - start)
        if chance.random() < 0.5:
            there[first:end] = bytes(end - first)
    return bytes(there)


def fill(name: str, sender: int | None) -> None:
    """Append the cells that a bench does not have yet; tell each once it is stored."""
    bench = results.reopen(name) if name in results.ids() else values.bench(name=name)
    done = results.finished(bench)
    for repeat in range(CELLS):
        if results.cell(values.spec(), repeat) not in done:
            bench = results.append(bench, run(repeat))
            if sender is not None:
                os.write(sender, b".")


def run(repeat: int, *, letters: int = LETTERS) -> RunResult:
    """Return the run of a cell, with a text of its own, but for the first."""
    text = f"{repeat} " * (letters // 2 if repeat else 1)
    made = values.run(repeat=repeat)
    return replace(made, sample=replace(made.sample, text=text))


def stored(name: str) -> int:
    """Return how many runs a bench has; it must not have one twice."""
    if name not in results.ids():
        return 0
    repeats = [run.repeat for run in results.load(name).runs]
    assert repeats == list(range(len(repeats))), f"{name}: {repeats}"
    return len(repeats)


def is_whole(name: str) -> bool:
    """Return whether a bench has all its cells."""
    return stored(name) == CELLS


def is_cut(file: Path) -> bool:
    """Return whether a file ends within a line."""
    return file.exists() and file.stat().st_size > 0 and not file.read_bytes().endswith(b"\n")


if __name__ == "__main__":
    sys.exit(main())
