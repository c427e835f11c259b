"""Simulate confirmations of a tuning, and count the verdicts of the real judging code.

A confirmation has the target alone and one arm that drafts, some prompts, and a load of its own for each
repeat. Loads of each arm differ by chance, and so do runs. Wanted: a speed-up of 1.6 is found faster in at
least 95 % of confirmations, and an arm that is as fast as the target in at most 5 %.

    python scripts/validate_judging.py --benches 2000
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ggufspec import stats
from ggufspec.analysis import judge_effect
from ggufspec.domain import SpeedVerdict

CASES = ((1.6, 0.05, 0.05), (1.6, 0.1, 0.05), (1.2, 0.05, 0.05), (1.0, 0.05, 0.05), (1.0, 0.1, 0.02))
"""True speed-up; standard deviations of the logarithm of a speed between loads, and between runs."""

PROMPT_SD = 0.08  # of the logarithm of a speed-up between prompts: what domains show


def simulate(
    chance: np.random.Generator, truth: float, load_sd: float, run_sd: float, prompts: int, loads: int
) -> SpeedVerdict:
    """Return the verdict of one simulated confirmation."""
    own = chance.normal(0, PROMPT_SD if truth != 1 else 0.0, (prompts, 1))
    ids, repeats = [f"p{number}" for number in range(prompts)], list(range(loads))
    tables = [
        50.0
        * np.exp(middle + chance.normal(0, load_sd, (1, loads)) + chance.normal(0, run_sd, (prompts, loads)))
        for middle in (np.log(truth) + own, np.zeros((prompts, 1)))
    ]
    rates = [
        stats.Rates(ids, repeats, table, loads=np.tile(np.arange(loads) + 100.0 * arm, (prompts, 1)))
        for arm, table in enumerate(tables)
    ]
    effect = stats.paired_effect(rates[0], rates[1])
    return judge_effect(effect, prompts=prompts, repeats=loads).verdict


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table of verdicts, and return whether one of the two goals is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--benches", type=int, default=1000, help="of each case, by default 1000")
    parser.add_argument("--prompts", type=int, nargs="+", default=[4, 8], help="by default 4 and 8")
    parser.add_argument("--loads", type=int, nargs="+", default=[3, 4], help="by default 3 and 4")
    asked = parser.parse_args(arguments)
    print("| truth | load sd | run sd | prompts | loads | faster | slower | same | undecided |")
    print(f"|{'---|' * 9}")
    missed = False
    for truth, load_sd, run_sd in CASES:
        for prompts in asked.prompts:
            for loads in asked.loads:
                chance = np.random.default_rng(20261125)
                found = Counter(
                    simulate(chance, truth, load_sd, run_sd, prompts, loads) for _ in range(asked.benches)
                )
                shares = {verdict: found[verdict] / asked.benches for verdict in SpeedVerdict}
                cells = (
                    truth,
                    load_sd,
                    run_sd,
                    prompts,
                    loads,
                    *(f"{share:.1%}" for share in shares.values()),
                )
                print(f"| {' | '.join(map(str, cells))} |")
                if (truth, load_sd) == (1.6, 0.05):
                    missed |= shares[SpeedVerdict.FASTER] < 0.95
                if truth == 1.0:
                    missed |= shares[SpeedVerdict.FASTER] > 0.05
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
