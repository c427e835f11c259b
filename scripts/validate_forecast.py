"""Check forecasts against llama.cpp's own speculative-simple: acceptance and tokens/s, γ = 1 to 12.

python scripts/validate_forecast.py                   the embedded pair and what can be made of it
python scripts/validate_forecast.py --extra T D       one more pair of files as well

Pairs: the embedded one; its target in 4 and in 5 bits; random weights of another shape, drafted for by their
own first layers. The library reads every prompt once. Then costs are timed anew before each prompt, and all
draft sizes measured on it in random order: a machine that becomes faster or slower does so for both.
For each repeat the library is loaded anew, as the program is for each run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from ggufspec import engines, forecast, paths, stats, tuning
from ggufspec.domain import Program, RunSpec, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import Forecast, profiles, trace
from ggufspec.llama.install import installs
from ggufspec.measure.request import Request, Session, prepare_session

SUITES = ("demo", "general", "seven")
SIZES = tuple(range(1, 13))
TOKENS = 120
ATTEMPTS = 6  # the program loses the end of a log now and then
DEMO = paths.models_dir() / "demo"


@dataclass(frozen=True, kw_only=True)
class Miss:
    """How far one forecast lies from what was measured; ``spread`` is that of the measured repeats."""

    size: int
    points: float  # percentage points of acceptance
    speed: float  # relative, forecast over measured - 1
    spread: float  # relative standard deviation of single runs of the same prompt and γ


def main() -> int:
    asked = _arguments()
    print(
        "| pair | suite | acceptance: worst (points) | tokens/s: median | worst | at γ | repeats differ by |"
    )
    print("|---|---|---|---|---|---|---|")
    all_misses: list[Miss] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for pair, target, drafter in _pairs(folder, asked.extra):
            for suite in SUITES:
                misses = list(_misses(target, drafter, suite, asked, folder))
                all_misses += misses
                worst = max(misses, key=lambda miss: abs(miss.speed))
                print(
                    f"| {pair} | {suite} | {max(abs(miss.points) for miss in misses):.2f} "
                    f"| {statistics.median(abs(miss.speed) for miss in misses):.1%} "
                    f"| {worst.speed:+.1%} | {worst.size} "
                    f"| {statistics.median(miss.spread for miss in misses):.1%} |",
                    flush=True,
                )
    points = max(abs(miss.points) for miss in all_misses)
    speeds = [abs(miss.speed) for miss in all_misses]
    print(
        f"\nall {len(all_misses)}: acceptance within {points:.2f} points (wanted 0.5), tokens/s within "
        f"{statistics.median(speeds):.1%} in the middle (5 %) and {max(speeds):.1%} at worst (10 %)"
    )
    return 0


def _misses(
    target: Path, drafter: Path, suite: str, asked: argparse.Namespace, folder: Path
) -> Iterator[Miss]:
    session = prepare_session(
        Request(
            target=target,
            draft_model=drafter,
            suite=suite,
            chat=False,
            draft=SIZES,
            n_predict=TOKENS,
            threads=asked.threads,
            engine="binary-simple",
            per_category=asked.per_category,
        )
    )
    alone, *others = session.suite.blocks[0].arms
    arms = {arm.drafting.n_max: arm for arm in others if arm.drafting}
    found, forecasts = _measured(session, alone, arms, asked.repeats, folder)
    for size, (rates, counts) in found.items():
        rate = stats.mean_rate(rates)
        known = forecasts[size]
        assert rate is not None
        assert known.accept_rate is not None
        accepted = sum(a for _, a in counts) / sum(d for d, _ in counts)
        yield Miss(
            size=size,
            points=100 * (known.accept_rate - accepted),
            speed=known.tokens_per_s.value / rate.value - 1,
            spread=_spread(rates),
        )


def _measured(
    session: Session, alone: RunSpec, arms: dict[int, RunSpec], repeats: int, folder: Path
) -> tuple[dict[int, tuple[dict[stats.Cell, float], list[tuple[int, int]]]], dict[int, Forecast]]:
    """Return tokens/s and counts of every γ, and what was forecast of it."""
    drafter = arms[1].drafter
    assert drafter is not None
    found: dict[int, tuple[dict[stats.Cell, float], list[tuple[int, int]]]] = {s: ({}, []) for s in arms}
    order, timings = random.Random(1), []
    prompts = session.suite.prompts
    with _library(session) as library:
        long = replace(alone, n_predict=trace.needed(TOKENS, max(SIZES), Program.SIMPLE))
        texts = list(profiles.traces(library, long, prompts, [drafter]))
    first = min(each.own.n_prompt for each in texts)
    depths = profiles.depths_for(first, max(each.own.n_prompt for each in texts) + TOKENS)
    for repeat in range(repeats):
        # loaded anew, as the program is for each run: where models lie in memory is worth some per cent
        with _library(session) as library, engines.make("binary-simple", session.install) as program:
            for prompt in prompts:
                spec = replace(alone, prompt=prompt)
                batches = range(1, max(SIZES) + 2)
                timings.append(library.curve(spec, [drafter], batches=batches, depths=depths, repeats=1))
                for size in order.sample(list(arms), len(arms)):
                    rate, counts = _run(program, replace(arms[size], prompt=prompt), folder)
                    found[size][0][prompt.id, repeat] = rate
                    found[size][1].append(counts)
    about = profiles.of(alone, drafter, build=None, machine=None)
    forecasts = forecast.forecasts(
        [each.by_drafter[0] for each in texts],
        profiles.pooled(timings, about),
        n_max=SIZES,
        program=Program.SIMPLE,
        n_predict=TOKENS,
        build=session.install.build_number,
    )
    return found, {each.n_max: each for each in forecasts if each.category is None}


def _library(session: Session) -> InprocessEngine:
    return cast("InprocessEngine", engines.make("inprocess", session.install))


def _run(program: engines.Engine, spec: RunSpec, folder: Path) -> tuple[float, tuple[int, int]]:
    for _ in range(ATTEMPTS):
        sample = program.measure(spec, folder / "run").sample
        if sample.status is Status.OK and sample.decode_tps:
            return sample.decode_tps, (sample.n_drafted or 0, sample.n_accepted or 0)
    raise SystemExit(f"no run of {ATTEMPTS} ended well")


def _spread(rates: dict[stats.Cell, float]) -> float:
    by_prompt: dict[str, list[float]] = {}
    for (prompt, _), rate in rates.items():
        by_prompt.setdefault(prompt, []).append(rate)
    return statistics.mean(
        statistics.stdev(each) / statistics.mean(each) for each in by_prompt.values() if len(each) > 1
    )


def outlook(request: Request) -> tuning.TuningForecast:
    """Look ahead for a drafting model, and forecast every configuration that was asked for."""
    asked = tuning.TuneRequest(request=request, methods=("draft-model",), max_time_s=None, fresh=True)
    return tuning.outlook(tuning.prepare_tuning(asked))


def _pairs(folder: Path, extra: list[Path] | None) -> Iterator[tuple[str, Path, Path]]:
    target, drafter = DEMO / "target.gguf", DEMO / "drafter.gguf"
    yield "embedded", target, drafter
    for kind in ("Q4_0", "Q5_0"):
        yield f"embedded, target in {kind}", quantized(target, folder, kind), drafter
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
    """Return a copy of a model in another quantization."""
    made = folder / f"{model.stem}-{kind}.gguf"
    plain = installs.find_install(None).executable(Program.PLAIN).path
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
    parser.add_argument("-r", "--repeats", type=int, default=2, help="measured runs of each")
    parser.add_argument("--per-category", type=int, default=1, help="prompts of each category")
    parser.add_argument("--extra", type=Path, nargs=2, metavar=("TARGET", "DRAFTER"), help="one more pair")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
