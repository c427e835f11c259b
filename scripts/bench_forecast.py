"""Compare the time of one look ahead with that of measuring every draft size, one process per run.

python scripts/bench_forecast.py      γ 1 to 12 with one drafter, γ 1 to 16 with three

Wall seconds in one script run: loading, traces and cost curves on one side; on the other each cell once
with llama.cpp's speculative-simple, the target alone included. Wanted: at most 1/8 and 1/20.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import terminal
from validate_forecast import DEMO, quantized

from ggufspec import tuning
from ggufspec.domain import Role
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions, TuneOptions


def main() -> int:
    asked = _arguments()
    with tempfile.TemporaryDirectory() as name:
        folder, drafter = Path(name), DEMO / "drafter.gguf"
        three = (drafter, quantized(drafter, folder, "Q4_0"), quantized(drafter, folder, "Q5_0"))
        terminal.print_head("draft sizes", "drafters", "tracing", "measuring each once", "ratio", "goal")
        for sizes, drafters, wanted in ((range(1, 13), three[:1], 8), (range(1, 17), three, 20)):
            request = BenchOptions(
                target=DEMO / "target.gguf",
                draft_model=drafters,
                suite="demo",
                draft=tuple(sizes),
                p_min=0.0,
                n_predict=asked.tokens,
                threads=asked.threads,
                engine="binary-simple",
            )
            begun = time.perf_counter()
            _look(request)
            looked_s = time.perf_counter() - begun
            measured_s = _measured_s(request, folder)
            ratio, seconds = measured_s / looked_s, (f"{looked_s:.1f} s", f"{measured_s:.1f} s")
            terminal.print_row(f"1 to {max(sizes)}", len(drafters), *seconds, f"1/{ratio:.1f}", f"1/{wanted}")
    return 0


def _look(request: BenchOptions) -> tuning.TuningForecast:
    """Trace, time the costs and forecast every configuration, with one short run of the target."""
    asked = request.to(TuneOptions, method="draft-model", max_time=None, fresh=True)
    return tuning.outlook(tuning.prepare_tuning(asked, forecast_only=True))


def _measured_s(request: BenchOptions, folder: Path) -> float:
    session = prepare_session(request)
    begun = time.perf_counter()
    with session.engine as engine:
        for arm in session.suite.blocks[0].arms:
            if arm.role is not Role.DRAFTER:
                for prompt in session.suite.prompts:
                    engine.measure(replace(arm, prompt=prompt), folder / "run")
    return time.perf_counter() - begun


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("-n", "--tokens", type=int, default=250, help="of each run, as in a bench")
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
