"""Check by simulation that 95 % intervals contain the true value, and A/A comparisons find nothing.

    python scripts/validate_intervals.py

Simulates benches whose true speed-up is known and asks `ggufspec.stats` for it; needs no llama.cpp. Fails if
the interval of the speed-up contains the true value in less than 93 or more than 97 % of 2,000 benches, or if
more A/A comparisons than 5 % and twice their simulation error are significant. Scenarios below the line are
printed without a goal; docs/statistics.md says why. Takes two to three minutes on one core.

Noise: run times have an excess of 2 % on average, skewed to the right; every fiftieth run is slower by up to
another 30 %; the machine drifts slowly (AR(1) from run to run, φ = 0.9, standard deviation 2 %), and 0.5 % is
independent. Repeats run one after the other, the prompts of each in random order, the two arms of a prompt
side by side in random order.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ggufspec import stats

TRIALS = 2000
TRUTH = 1.5  # speed-up
LOW, HIGH = 0.93, 0.97
HIGHEST_AA = 0.05 + 1.96 * math.sqrt(0.05 * 0.95 / TRIALS)
DESIGNS = ((8, 3), (8, 5), (12, 3), (32, 3), (30, 1), (5, 3), (4, 3), (1, 10), (1, 3))  # prompts × repeats
SPREADS = (0.0, 0.06)  # standard deviation between prompts of the log speed-up
SEED = 4

Rates = dict[stats.Cell, float]


def main() -> None:
    started = time.process_time()
    line(
        "prompts × repeats",
        "prompts differ by",
        "contains the true value",
        "half width",
        "A/A p < 0.05",
        "A/A verdicts",
    )
    line(*["---"] * 6)
    passed = [row(design, spread) for design in DESIGNS for spread in SPREADS]
    line("*no goal*")
    for phi in (0.0, 0.9):
        line(f"8 × 3, tokens/s, drift φ = {phi:g}", "0%", f"{absolute((8, 3), phi):.1%}")
    line("8 × 3 and on until ±1%", "0%", f"{stopped(0.01):.1%}")
    seconds = time.process_time() - started
    print(f"\n{TRIALS} benches a row, {seconds:.0f} s of processor time")
    print("passed" if all(passed) else "FAILED")
    sys.exit(not all(passed))


def line(*texts: str) -> None:
    print(f"| {' | '.join((*texts, *[''] * (6 - len(texts))))} |", flush=True)


def row(design: tuple[int, int], spread: float) -> bool:
    """Print one scenario; return whether it is as it should be. A/A once per design: it knows no spread."""
    random = np.random.default_rng([SEED, *design, round(100 * spread)])
    hits, widths = 0, []
    for fast, slow, truth in benches(random, design, spread):
        gain = stats.speedup(fast, slow)
        hits += holds(gain, truth)
        widths.append(gain and gain.relative_half_width)
    told, low = [], 0.0
    if spread == 0:
        found = [stats.significance(a, b) for a, b, _ in benches(random, design, 0.0, truth=1.0)]
        low = sum(each is not None and each.p_value < 0.05 for each in found) / TRIALS
        wrong = sum(each is not None and each.verdict in {"faster", "slower"} for each in found) / TRIALS
        told = [f"{low:.1%}", f"{wrong:.1%}"]
    share, half = hits / TRIALS, float(np.median(np.array(widths, dtype=float)))
    line(f"{design[0]} × {design[1]}", f"{spread:.0%}", f"{share:.1%}", f"±{half:.1%}", *told)
    return LOW <= share <= HIGH and low <= HIGHEST_AA


def absolute(design: tuple[int, int], phi: float) -> float:
    """Return how often the interval of tokens/s itself holds the mean over all benches."""
    random = np.random.default_rng([SEED, *design, round(10 * phi)])
    found = [stats.mean_rate(slow) for _, slow, _ in benches(random, design, 0.0, phi=phi)]
    truth = math.exp(np.mean([math.log(each.value) for each in found if each]))
    return sum(holds(each, truth) for each in found) / TRIALS


def stopped(precision: float) -> float:
    """Return how often the interval holds when repeats are added, up to 20, until it is narrow enough."""
    random = np.random.default_rng([SEED, 20])
    hits = 0
    for fast, slow, truth in benches(random, (8, 20), 0.0):
        for repeats in range(3, 21):
            gain = stats.speedup({cell: rate for cell, rate in fast.items() if cell[1] < repeats}, slow)
            if gain and (gain.relative_half_width or 0.0) <= precision:
                break
        hits += holds(gain, truth)
    return hits / TRIALS


def holds(estimate: stats.Estimate | None, truth: float) -> bool:
    assert estimate is not None
    assert estimate.lo is not None
    assert estimate.hi is not None
    return estimate.lo <= truth <= estimate.hi


def benches(
    random: np.random.Generator,
    design: tuple[int, int],
    spread: float,
    *,
    truth: float = TRUTH,
    phi: float = 0.9,
) -> Iterator[tuple[Rates, Rates, float]]:
    """Yield both arms' rates and the true speed-up: over all prompts, or that of a single prompt."""
    prompts, repeats = design
    times = run_times(random, prompts, repeats, phi)
    own = random.normal(0, spread, (TRIALS, prompts))
    hard = random.normal(0, spread, (TRIALS, prompts))  # slows both arms
    cells = [(f"p{prompt:03}", repeat) for prompt in range(prompts) for repeat in range(repeats)]
    slow = 50 * np.exp(hard)[:, :, None] / times[:, 1]
    fast = 50 * truth * np.exp(own + hard)[:, :, None] / times[:, 0]
    for trial in range(TRIALS):
        real = truth * math.exp(own[trial, 0]) if prompts == 1 else truth
        yield (
            dict(zip(cells, fast[trial].ravel().tolist(), strict=True)),
            dict(zip(cells, slow[trial].ravel().tolist(), strict=True)),
            real,
        )


def run_times(random: np.random.Generator, prompts: int, repeats: int, phi: float) -> NDArray[np.float64]:
    """Return relative run times, shape (trials, 2 arms, prompts, repeats)."""
    runs = 2 * prompts * repeats
    drift = np.empty((TRIALS, runs))
    drift[:, 0] = random.normal(0, 0.02, TRIALS)
    for run in range(1, runs):
        step = random.normal(0, 0.02 * math.sqrt(1 - phi**2), TRIALS)
        drift[:, run] = phi * drift[:, run - 1] + step
    place = random.permuted(np.tile(np.arange(prompts), (TRIALS, repeats, 1)), axis=2).swapaxes(1, 2)
    pair = 2 * (np.arange(repeats) * prompts + place)  # shape (trials, prompts, repeats)
    first = random.integers(0, 2, pair.shape)
    order = np.stack((pair + first, pair + 1 - first), axis=1)
    slow_drift = np.take_along_axis(drift, order.reshape(TRIALS, -1), axis=1).reshape(order.shape)
    excess = 1 + random.gamma(1.5, 0.02 / 1.5, order.shape)
    outliers = np.where(random.random(order.shape) < 0.02, 1 + random.uniform(0, 0.3, order.shape), 1.0)
    times: NDArray[np.float64] = excess * outliers * np.exp(slow_drift + random.normal(0, 0.005, order.shape))
    return times


if __name__ == "__main__":
    main()
