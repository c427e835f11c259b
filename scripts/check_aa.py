"""Compare the same thing with itself, forty times, on this machine: how often is a difference found?

    scripts/check_aa.py [--comparisons 40] [--prompts 8] [--repeats 3] [-n 64]

Each comparison is a bench of its own: two arms that run the very same program on the same model and prompts
(they differ in the sampler's seed, which greedy sampling never asks), interleaved as any bench is. Half of
them run the target alone, half draft. With a test at 5 %, two of forty may find a difference by chance.
Exit code 1 for more than that.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from ggufspec import stats
from ggufspec.analysis import arms
from ggufspec.domain import RunSpec
from ggufspec.measure import api, measuring, request
from ggufspec.measure.sweep import Block, RunPlan
from ggufspec.results import ResultSet

ALPHA = 0.05


def main() -> int:
    options = _options()
    asked = request.Request(pair="demo", draft=3, n_predict=options.n_predict, engine=options.engine)
    session = request.identify(request.prepare_session(asked))
    target, _, drafting = session.suite.blocks[0].arms
    prompts = session.suite.prompts[: options.prompts]
    found = 0
    with session.engine:
        for number in range(options.comparisons):
            arm = (target, drafting)[number % 2]
            suite = RunPlan(
                blocks=(Block(arms=(arm, _twin(arm))),),
                prompts=prompts,
                repeats=options.repeats,
                warmups=number < 2,
                seed=number,
            )
            store = api.begin(replace(session, suite=suite), command=tuple(sys.argv))
            *_, bench = measuring.record(suite, session.engine, session.install, store)
            result = _compare(bench, arm, _twin(arm))
            found += result.p_value < ALPHA
            print(
                f"{number + 1:3}  {arm.role.value:8}  {result.ratio.value:.4f} "
                f"[{result.ratio.lo:.4f}, {result.ratio.hi:.4f}]  p = {result.p_value:.3f}  "
                f"{result.verdict.value}",
                flush=True,
            )
    print(f"{found} of {options.comparisons} comparisons of a thing with itself have p < {ALPHA}")
    return int(found > options.comparisons * ALPHA)


def _twin(arm: RunSpec) -> RunSpec:
    return replace(arm, sampling=replace(arm.sampling, seed=arm.sampling.seed + 1))


def _compare(bench: ResultSet, first: RunSpec, second: RunSpec) -> stats.Significance:
    rates = {arm.spec.sampling.seed: arm.rates for arm in arms.group(bench)}
    result = stats.significance(rates[first.sampling.seed], rates[second.sampling.seed])
    assert result is not None
    return result


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", default="server")
    parser.add_argument("-n", "--n-predict", type=int, default=64)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
