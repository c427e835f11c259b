"""Compare the in-process engine's drafting tokens/s with llama-speculative-simple's, run by run in turn.

python scripts/bench_inprocess.py                                   the embedded pair
python scripts/bench_inprocess.py -m big.gguf -md small.gguf        files of your own

Prints for each γ the ratio of every pair of neighbouring runs, as a geometric mean with its 95 % interval,
and what share of a run the engine spends outside of llama.cpp's own functions: all that can be its fault.
Wanted: within 5 % on the embedded pair, within 1 % on a target of a billion parameters or more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import terminal

from ggufspec import engines, stats
from ggufspec.domain import RunSpec, Status
from ggufspec.engines.library import commandline
from ggufspec.engines.library.messages import LibraryRecord, Prepare
from ggufspec.engines.library.worker import Worker
from ggufspec.llama.install.installs import Install
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions

ATTEMPTS = 6  # the program loses the end of a log now and then
FEWEST = 10  # pairs, before an interval is believed


def main() -> int:
    asked = _arguments()
    models = {"target": asked.target, "draft_model": asked.drafter} if asked.target else {"pair": "demo"}
    sizes = tuple(map(int, asked.draft.split(",")))
    session = prepare_session(
        BenchOptions(
            **models,
            draft=sizes,
            threads=asked.threads,
            n_predict=asked.tokens,
            suite=None if asked.prompt else "demo",
            prompt=(asked.prompt,) if asked.prompt else (),
            per_category=None if asked.prompt else 1,
            chat=False,
            engine="binary-simple",
        )
    )
    arms = {arm.drafting.n_max: arm for arm in session.suite.blocks[0].arms if arm.drafting}
    rates = "speculative-simple, tokens/s", "in process, tokens/s"
    terminal.print_head("γ", "pairs", *rates, "ratio [95 %]", "outside")
    with (
        tempfile.TemporaryDirectory() as name,
        engines.make("binary-simple", session.install) as theirs,
    ):
        log = Path(name) / "run"
        for size in sizes:
            mine: dict[stats.Cell, float] = {}
            other: dict[stats.Cell, float] = {}
            for repeat in range(asked.repeats + 1):
                # where models lie in memory is worth some per cent: load anew, as a program does for each run
                with engines.make("inprocess", session.install) as ours:
                    for prompt in session.suite.prompts:
                        spec = replace(arms[size], prompt=prompt)
                        pair = [(ours, mine), (theirs, other)]
                        for engine, found in pair if repeat % 2 else reversed(pair):
                            rate = _rate(engine, spec, log)
                            if repeat:  # the first round warms up
                                found[prompt.id, repeat] = rate
                if _settled(mine, other, asked.precision):
                    break
            effect = stats.paired_effect(mine, other)
            means = stats.mean_rate(other), stats.mean_rate(mine)
            assert effect is not None
            assert means[0] is not None
            assert means[1] is not None
            ratio = effect.ratio
            span = f" [{ratio.lo:.3f}, {ratio.hi:.3f}]" if ratio.lo and ratio.hi else ""
            outside = _outside(replace(arms[size], prompt=session.suite.prompts[0]), session.install)
            figures = f"{means[0].value:.2f}", f"{means[1].value:.2f}", f"{ratio.value:.3f}{span}"
            terminal.print_row(size, len(mine), *figures, f"{outside:.2%}")
    return 0


def _rate(engine: engines.Engine, spec: RunSpec, log: Path) -> float:
    for _ in range(ATTEMPTS):
        sample = engine.measure(spec, log).sample
        if sample.status is Status.OK and sample.decode_tps:
            return sample.decode_tps
    raise SystemExit(f"{engine.name}: no run of {ATTEMPTS} ended well")


def _settled(mine: dict[stats.Cell, float], other: dict[stats.Cell, float], precision: float) -> bool:
    effect = stats.paired_effect(mine, other) if len(mine) >= FEWEST else None
    half = effect.ratio.relative_half_width if effect else None
    return half is not None and half <= precision


def _outside(spec: RunSpec, install: Install) -> float:
    """Return the share of a run's time that is not spent in functions of llama.cpp, seen from within."""
    argv = engines.make("inprocess", install).argv(spec)
    library, run = commandline.parse_command(argv[len(commandline.WORKER) :])
    assert run is not None
    worker = Worker(library)
    with tempfile.TemporaryFile() as log:  # the library says much while it loads
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        worker.answer(Prepare(target=run.target, drafters=run.drafters, threads=run.threads))
        os.dup2(stderr, 2)
        os.close(stderr)
    models = worker._models.values()  # noqa: SLF001  # nobody else wants to know
    busy_s, begun = sum(model.busy_s for model in models), time.perf_counter()
    record = worker.answer(run)
    whole_s = time.perf_counter() - begun
    if not isinstance(record, LibraryRecord):
        raise SystemExit(f"no run to look into: {record}")
    return 1 - (sum(model.busy_s for model in models) - busy_s) / whole_s


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("-m", "--target", type=Path, help="GGUF; the embedded pair without it")
    parser.add_argument("-md", "--drafter", type=Path, help="GGUF")
    parser.add_argument("-n", "--tokens", type=int, default=250, help="of each run")
    parser.add_argument("-r", "--repeats", type=int, default=5, help="pairs of each prompt at most")
    parser.add_argument(
        "--precision", type=float, default=0.0, help="enough, where the interval is ± so much: 0.01 is 1 %%"
    )
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    parser.add_argument("-p", "--prompt", help="one text instead of four of the demo suite")
    parser.add_argument("--draft", default="3,8", help="draft sizes γ")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
