"""Check forecasts against llama.cpp's own speculative-simple: acceptance and tokens/s, γ = 1 to 12.

python scripts/validate_forecast.py                   the embedded pair and what can be made of it
python scripts/validate_forecast.py --extra T D       one more pair of files as well

Pairs: the embedded one; its target in 4 bits; the target drafted for by its own 4-bit copy, which is far too
slow; random weights of another shape, drafted for by their own first layers. Every pair is forecast from one
look at each suite, then every draft size is measured, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ggufspec import api, arms, paths, tuning
from ggufspec.domain import Program, Role
from ggufspec.llama import install as installs
from ggufspec.request import Request
from ggufspec.tuning.running import default

SUITES = ("demo", "general", "seven")
SIZES = tuple(range(1, 13))
TOKENS = 120
DEMO = paths.models_dir() / "demo"


@dataclass(frozen=True, kw_only=True)
class Miss:
    """How far one forecast lies from what was measured."""

    size: int
    points: float  # percentage points of acceptance
    speed: float  # relative, forecast over measured - 1


def main() -> int:
    asked = _arguments()
    print("| pair | suite | acceptance: worst (points) | tokens/s: median | worst | at γ |")
    print("|---|---|---|---|---|---|")
    all_misses: list[Miss] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, target, drafter in _pairs(Path(folder), asked.extra):
            for suite in SUITES:
                misses = list(_misses(target, drafter, suite, asked))
                all_misses += misses
                speeds = [abs(miss.speed) for miss in misses]
                worst = max(misses, key=lambda miss: abs(miss.speed))
                print(
                    f"| {name} | {suite} | {max(abs(miss.points) for miss in misses):.2f} "
                    f"| {statistics.median(speeds):.1%} | {worst.speed:+.1%} | {worst.size} |",
                    flush=True,
                )
    points = max(abs(miss.points) for miss in all_misses)
    speeds = [abs(miss.speed) for miss in all_misses]
    print(
        f"\nall {len(all_misses)}: acceptance within {points:.2f} points (wanted 0.5), tokens/s within "
        f"{statistics.median(speeds):.1%} in the middle (5 %) and {max(speeds):.1%} at worst (10 %)"
    )
    return 0


def _misses(target: Path, drafter: Path, suite: str, asked: argparse.Namespace) -> Iterator[Miss]:
    request = default(
        target=target,
        draft_model=drafter,
        suite=suite,
        chat=False,
        draft=SIZES,
        p_min=0.0,
        n_predict=TOKENS,
        threads=asked.threads,
        repeats=asked.repeats,
        engine="binary-simple",
        per_category=asked.per_category,
    )
    known = {each.arm.drafting: each.overall for each in outlook(request).prospects}
    for arm in arms.group(api.bench(request)):
        if arm.role is not Role.DRAFTING or arm.rate is None or arm.acceptance is None:
            continue
        forecast = known[arm.spec.drafting]
        assert arm.spec.drafting is not None
        assert forecast.accept_rate is not None
        assert arm.acceptance.accept_rate is not None
        yield Miss(
            size=arm.spec.drafting.n_max,
            points=100 * (forecast.accept_rate - arm.acceptance.accept_rate),
            speed=forecast.tokens_per_s.value / arm.rate.value - 1,
        )


def outlook(request: Request) -> tuning.Outlook:
    """Look ahead for a drafting model, and forecast every configuration that was asked for."""
    asked = tuning.TuneRequest(request=request, methods=("draft-model",), max_time_s=None, fresh=True)
    plan = tuning.prepare(asked)
    looking = tuning.look(plan)
    while True:
        try:
            next(looking)
        except StopIteration as end:
            outlook: tuning.Outlook = end.value
            return outlook


def _pairs(folder: Path, extra: list[Path] | None) -> Iterator[tuple[str, Path, Path]]:
    target, drafter = DEMO / "target.gguf", DEMO / "drafter.gguf"
    small = quantized(target, folder, "Q4_0")
    yield "embedded", target, drafter
    yield "embedded, target in Q4_0", small, drafter
    yield "embedded, drafted for by its Q4_0", target, small
    yield "random weights, 12 and 4 layers", _random(folder, 12), _random(folder, 4)
    if extra:
        yield f"{extra[0].stem} + {extra[1].stem}", extra[0], extra[1]


def _random(folder: Path, layers: int) -> Path:
    """Write a model of random weights; one with fewer layers agrees with one with more in part."""
    made = folder / f"random-{layers}.gguf"
    shape = ["--embd", "512", "--ff", "1408", "--heads", "8", "--kv-heads", "8", "--vocab", "4000"]
    script = Path(__file__).with_name("make_random_gguf.py")
    words = [sys.executable, script, *shape, "--layers", str(layers), "--quant", "Q8_0", "-o", made]
    subprocess.run(words, check=True, capture_output=True, timeout=600)
    return made


def quantized(model: Path, folder: Path, kind: str) -> Path:
    made = folder / f"{model.stem}-{kind}.gguf"
    plain = installs.find(None).executable(Program.PLAIN).path
    quantize = plain.with_name("llama-quantize")
    subprocess.run(
        [quantize, "--allow-requantize", model, made, kind], check=True, capture_output=True, timeout=600
    )
    return made


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    parser.add_argument("-r", "--repeats", type=int, default=1, help="measured runs of each")
    parser.add_argument("--per-category", type=int, default=1, help="prompts of each category")
    parser.add_argument("--extra", type=Path, nargs=2, metavar=("TARGET", "DRAFTER"), help="one more pair")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
