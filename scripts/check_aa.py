"""Compare a configuration with itself a hundred times on this machine: how often is a difference found?

    scripts/check_aa.py [--engine server] [--comparisons 100] [--prompts 8] [--repeats 3] [-t THREADS] [-n 64]

Each comparison is a bench: two arms that run the same program on the same models and prompts, interleaved as
in any bench. They differ in the sampler's seed, which greedy decoding does not use. Each arm is loaded anew
for each repeat, so the two never share a process. Half of the comparisons run the target alone, half draft.

A test at 5 % finds a difference in 5 of 100 comparisons on average, and in more than 9 with a probability of
2.8 %. The exit code is 1 for more than 9, or for what that is with another number of comparisons.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from ggufspec import stats
from ggufspec.analysis import arms, judge_ratio
from ggufspec.domain import ENGINES, RunSpec
from ggufspec.measure import api, identify, prepare_session
from ggufspec.measure.sweep import Block
from ggufspec.options import BenchOptions
from ggufspec.results import ResultSet

ALPHA = 0.05
_TOO_MANY = 0.03  # the largest probability of an exit code of 1 where nothing differs


def main() -> int:
    options = _options()
    session = identify(
        prepare_session(
            BenchOptions(
                pair="demo",
                draft=3,
                n_predict=options.n_predict,
                engine=options.engine,
                repeats=options.repeats,
                threads=options.threads,
            )
        )
    )
    target, _, drafting = session.suite.blocks[0].arms
    differences = 0
    with session.engine:
        for number in range(options.comparisons):
            arm = (target, drafting)[number % 2]
            suite = replace(
                session.suite,
                blocks=(Block(arms=(arm, _twin(arm))),),
                prompts=session.suite.prompts[: options.prompts],
                seed=number,
            )
            comparison = replace(session, suite=suite)
            store = api.begin(comparison, command=tuple(sys.argv))
            *_, bench = api.record(comparison, store)
            result = _compare(bench, arm, _twin(arm))
            assert result.p_value is not None, f"no interval: {result.gap}"
            differences += result.p_value < ALPHA
            print(
                f"{number + 1:3}  {arm.role.value:8}  {result.ratio.value:.4f} "
                f"[{result.ratio.lo:.4f}, {result.ratio.hi:.4f}]  p = {result.p_value:.3f}  "
                f"{judge_ratio(result.ratio).value}",
                flush=True,
            )
    most = _most(options.comparisons)
    print(
        f"{options.engine}: {differences} of {options.comparisons} comparisons with itself have p < {ALPHA}; "
        f"at most {most} may"
    )
    return int(differences > most)


def _most(comparisons: int) -> int:
    """Return the number of differences that a perfect test seldom exceeds, see _TOO_MANY."""
    from scipy.stats import binom

    return int(binom.isf(_TOO_MANY, comparisons, ALPHA))


def _twin(arm: RunSpec) -> RunSpec:
    return replace(arm, sampling=replace(arm.sampling, seed=arm.sampling.seed + 1))


def _compare(bench: ResultSet, first: RunSpec, second: RunSpec) -> stats.Effect:
    rates = {arm.spec.sampling.seed: arm.rates for arm in arms.group(bench)}
    result = stats.paired_effect(rates[first.sampling.seed], rates[second.sampling.seed])
    assert result is not None
    assert result.p_value is not None
    return result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", choices=tuple(ENGINES), default="server")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int)
    parser.add_argument("-n", "--n-predict", type=int, default=64)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
