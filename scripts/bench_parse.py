"""Time the log parser on large logs, beside `grep -c`, which is about as fast as reading can be.

    python scripts/bench_parse.py [--megabytes 100]

Two logs: a drafting run's, behind the lines of recorded logs, a server's requests and the token by token
chatter of a high verbosity, in equal parts; and a server's, where every fifth line counts. What is timed is
processor time, the best of five, so that a busy machine matters less.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import terminal

from ggufspec.domain import Status
from ggufspec.llama.logs import read
from ggufspec.llama.logs.parsing import parse

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "logs"
GOAL_MB_PER_S = 50
REPEATS = 5


def main() -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("--megabytes", type=int, default=100)
    size = parser.parse_args().megabytes * 10**6
    closing = (GOLDEN / "0.3.16" / "tree.log").read_bytes()
    speeds = [
        measure("drafting", size, [recorded(), requests(), chatter()], closing),
        measure("server", size, [requests()], b""),
    ]
    reached = min(speeds) >= GOAL_MB_PER_S
    print(f"{GOAL_MB_PER_S} MB/s {'reached' if reached else 'MISSED'}")
    return 0 if reached else 1


def measure(name: str, size: int, parts: list[Iterator[bytes]], closing: bytes) -> float:
    """Print what parsing and searching one log takes; return the parser's speed in MB/s."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "large.log"
        write(log, size, parts, closing)
        data = log.read_bytes()
        ours, people, grep = float("inf"), float("inf"), float("inf")
        for _ in range(REPEATS):
            before = os.times()
            sample = parse(data)
            ours = min(ours, os.times().user + os.times().system - before.user - before.system)
            before = os.times()
            read(data, log.name)
            people = min(people, os.times().user + os.times().system - before.user - before.system)
            before = os.times()
            subprocess.run(["grep", "-c", "eval time", str(log)], check=True, capture_output=True)
            after = os.times()
            children = after.children_user + after.children_system
            grep = min(grep, children - before.children_user - before.children_system or 0.01)
    if sample.status is not Status.OK:
        sys.exit(f"the numbers were not found: {sample}")
    megabytes = len(data) / 1e6
    print(
        f"{name}: {megabytes:.0f} MB, parse {megabytes / ours:.0f} MB/s, "
        f"as `ggufspec parse` {megabytes / people:.0f} MB/s, "
        f"grep -c {megabytes / grep:.0f} MB/s, ratio {ours / grep:.1f}"
    )
    return megabytes / ours


def write(log: Path, size: int, parts: list[Iterator[bytes]], closing: bytes) -> None:
    """Write a log of a size, in blocks of its parts."""
    with log.open("wb") as out:
        for part in itertools.cycle(parts):
            if out.tell() > size:
                break
            out.writelines(itertools.islice(part, 2000))
        out.write(closing)


def recorded() -> Iterator[bytes]:
    """Yield the lines of all recorded logs, but those of servers, over and over."""
    logs = sorted(log for log in GOLDEN.glob("*/*.log") if not log.stem.startswith("server"))
    return itertools.cycle(line for log in logs for line in log.read_bytes().splitlines(keepends=True))


def requests() -> Iterator[bytes]:
    """Yield what a server says of its requests."""
    for task in itertools.count():
        slot = b"slot %s: id  0 | task %d | "
        yield b"slot launch_slot_: id  0 | task %d | processing task, is_child = 0\n" % task
        yield slot % (b"update_slots", task) + b"new prompt, n_ctx_slot = 4096, n_keep = 0, n_tokens = 512\n"
        yield slot % (b"update_slots", task) + b"n_tokens = 0, memory_seq_rm [0, end)\n"
        yield slot % (b"update_slots", task) + b"prompt processing progress, n_tokens = 512, progress = 1.0\n"
        yield slot % (b"print_timing", task) + b"\n"
        for kind, ms, tokens in ((b"prompt ", 68.44, 17), (b"       ", 246.59, 32)):
            rates = (ms / tokens, tokens / ms * 1000)
            rate = b"(%8.2f ms per token, %8.2f tokens per second)" % rates
            yield kind + b"eval time = %10.2f ms / %5d tokens %s\n" % (ms, tokens, rate)
        yield b"      total time =     315.02 ms /    49 tokens\n"
        yield slot % (b"release", task) + b"stop processing: n_tokens = 48, truncated = 0\n"
        yield b"srv  log_server_r: request: POST /completion 127.0.0.1 200\n"


def chatter() -> Iterator[bytes]:
    """Yield what a program says of every token at a high verbosity."""
    for position in itertools.count():
        for rank in range(4):
            yield b" - draft candidate %3d, pos %3d: %6d (   0.123) ' lantern'\n" % (
                rank,
                position % 999,
                rank * 77,
            )
        yield b"common_speculative_gen_draft: n_past = %d\n" % position
        yield b"accepted 3/4 draft tokens, the last target token is: (%d)\n" % position
        yield b"clear kv cache from any extra tokens, n_past = %d\n" % position
        yield b"The morning was cold, and Mira carried the brass lantern over the hill.\n"


if __name__ == "__main__":
    sys.exit(main())
