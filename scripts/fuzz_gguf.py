"""Damage headers of real GGUFs in many ways: every one must give a card or a ModelFileError, soon.

    scripts/fuzz_gguf.py [CASES] [FILE ...]

Without files, the embedded pair is damaged. The address space is limited to 2 GiB, so that a header that
makes us allocate what it claims ends the run. Prints the slowest case; whatever else is raised leaves its
bytes behind.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from pathlib import Path

from ggufspec import paths
from ggufspec.domain import ModelRun, Offload, Program
from ggufspec.errors import ModelFileError
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.compat import judging
from ggufspec.modelfiles.gguf import ModelCard, parse_header
from tests.support.damage import mutate
from tests.support.models import Memory

SLOW_S = 2.0
_HEAD = 1 << 20  # the front of a file; a vocabulary that is cut off is one more kind of damage


def main() -> None:
    asked = _arguments()
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    heads = []
    for file in asked.files:
        with file.open("rb") as opened:
            heads.append(opened.read(_HEAD))
    cards = refused = 0
    slowest = 0.0
    for case in range(asked.cases):
        content = mutate(heads[case % len(heads)], random.Random(case))
        started = time.process_time()
        try:
            _use(parse_header(Memory(content), name="damaged"))
            cards += 1
        except ModelFileError as error:
            refused += 1
            _be_readable(error)
        except BaseException:
            Path(f"fuzz-{case}.gguf").write_bytes(content)
            raise
        slowest = max(slowest, time.process_time() - started)
    print(f"{asked.cases} cases: {cards} cards, {refused} refused; the slowest took {slowest * 1000:.0f} ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if slowest > SLOW_S:
        sys.exit(f"slower than {SLOW_S} s")


def _use(card: ModelCard) -> None:
    """A card that was accepted must not fail later either."""
    judging.check_pair(card, card, judging.rule_for(Program.SIMPLE))
    memory.plan(
        card,
        card,
        Offload(target=ModelRun(layers=1), drafter=ModelRun(layers="all")),
        memory.MemorySettings(context=4096),
    )


def _be_readable(error: ModelFileError) -> None:
    if not error.message.isprintable() or len(error.message) > 300:
        sys.exit(f"no clear line: {error.message[:400]!r}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    demo = paths.models_dir() / "demo"
    parser.add_argument("cases", nargs="?", type=int, default=100_000, help="by default 100,000")
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        default=[demo / "target.gguf", demo / "drafter.gguf"],
        help="to damage, by default the embedded pair",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
