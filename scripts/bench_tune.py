"""Check what ``tune`` chooses against an exhaustive sweep, and against Optuna's TPE with as much time.

python scripts/bench_tune.py [--sources all] [--tunes 5] [--seeds 10]      takes half an hour
    needs `pip install optuna`, but not with --seeds 0

1. Sweep: the embedded target, what may draft for it, γ 1 to 16, three p_min, every prompt of the demo suite,
   twice, in llama-server. Its wall time is what tuning is compared with. What may draft is the drafter in
   three quantizations, or with --sources all: the drafter, its Q4_0, an EAGLE-3 and a
   DFlash head, and n-grams.
2. Tune, several times, within a tenth of that time each.
3. TPE: a trial costs and finds what the sweep measured of a configuration in one of its repeats; it stops
   when the mean time of a tuning is used up, and proposes the best that it has seen.
4. Final: every configuration that anybody proposed and the sweep's five best, measured side by side. The
   sweep's best owes a part of its figure to luck; these new figures do not, and decide between tune and TPE.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import terminal
from validate_forecast import DEMO, quantized

from ggufspec import stats, tuning
from ggufspec.analysis import THRESHOLD, arms
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Role, RunSpec
from ggufspec.measure import api, identify, prepare_session
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.sweep import Block
from ggufspec.options import BenchOptions, TuneOptions
from ggufspec.results import ResultSet

P_MINS = (0.0, 0.5, 0.8)
SHARE = 0.1  # of the sweep's time, for a tuning
CLOSE = 0.02  # to the best


@dataclass(frozen=True)
class Sources:
    """What may draft: quantizations of the drafter, further files beside it, and by which methods."""

    quantizations: tuple[str, ...]
    methods: tuple[str, ...]
    others: tuple[str, ...] = ()

    def models(self, folder: Path) -> tuple[Path, ...]:
        """Return the files, those that are quantized anew in a folder."""
        drafter = DEMO / "drafter.gguf"
        smaller = (quantized(drafter, folder, name) for name in self.quantizations)
        return (drafter, *smaller, *(DEMO / name for name in self.others))


_SOURCES = {
    "quantized": Sources(("Q4_0", "Q5_0"), ("draft-model",)),
    "all": Sources(
        ("Q4_0",),
        ("draft-model", "draft-eagle3", "draft-dflash", "ngram-simple", "ngram-mod"),
        ("eagle3.gguf", "dflash.gguf"),
    ),
}


def main() -> int:
    asked = _arguments()
    with tempfile.TemporaryDirectory() as name:
        sources = _SOURCES[asked.sources]
        request = BenchOptions(
            target=DEMO / "target.gguf",
            draft_model=sources.models(Path(name)),
            method=sources.methods,
            suite="demo",
            draft=tuple(range(1, 17)),
            p_min=P_MINS,
            n_predict=asked.tokens,
            threads=asked.threads,
            repeats=2,
        )
        swept, swept_s = _sweep(request)
        print(f"sweep: {len(swept)} configurations, {swept_s:.0f} s", flush=True)
        by_choice = {_choice(spec): spec for spec in swept}  # a tuning's own has the context to be served
        chosen, tuned_s = _tunings(request, sources.methods, swept_s * SHARE, asked.tunes)
        tuned = [by_choice[_choice(spec)] for spec in chosen]
        for choice in tuned:
            print(f"tune: {_said(choice)}")
        print(
            f"tune: {fmean(tuned_s):.0f} s each, {max(tuned_s) / swept_s:.1%} of the sweep at most",
            flush=True,
        )
        proposed = [_tpe(swept, fmean(tuned_s), seed) for seed in range(asked.seeds)]
        best = sorted(swept, key=lambda spec: -_rate(swept[spec]))[:5]
        again = _final(request, dict.fromkeys((*best, *tuned, *proposed)), asked.final)
        final = {spec: _rate(arm) for spec, arm in again.items()}
        print()
        terminal.print_head(
            "configuration", "in the sweep", "of its best", "final", "over the sweep's best [95 %]"
        )
        for spec in sorted(final, key=lambda spec: -_rate(swept[spec])):
            own, top = _rate(swept[spec]), _rate(swept[best[0]])
            figures = f"{own:.0f}", f"{own / top:.3f}", f"{final[spec]:.0f}"
            terminal.print_row(_said(spec), *figures, _paired(again[spec], again[best[0]]))
        worst = min(_rate(swept[spec]) / _rate(swept[best[0]]) for spec in tuned)
        print(f"\ntune: at least {worst:.3f} of the sweep's best (wanted {1 - CLOSE})")
        wins = [final[tuned[seed % len(tuned)]] >= final[spec] for seed, spec in enumerate(proposed)]
        near = [
            final[tuned[seed % len(tuned)]] >= final[spec] / (1 + THRESHOLD)
            for seed, spec in enumerate(proposed)
        ]
        if wins:
            print(
                f"tune at least as fast as TPE in {sum(wins)} of {len(wins)} seeds, within 1 % in {sum(near)}"
            )
    return 0


def _sweep(request: BenchOptions) -> tuple[dict[RunSpec, Arm], float]:
    session = prepare_session(request)
    (block,) = session.suite.blocks
    kept = Block(arms=tuple(arm for arm in block.arms if arm.role is not Role.DRAFTER))
    begun = time.monotonic()
    results = _measured(request, replace(session.suite, blocks=(kept,)))
    return {
        arm.spec: arm for arm in arms.group(results) if arm.role is Role.DRAFTING
    }, time.monotonic() - begun


def _measured(request: BenchOptions, suite: RunPlan) -> ResultSet:
    session = identify(replace(prepare_session(request), suite=suite))
    store = api.begin(session, command=("bench_tune",))
    with session.engine:
        *_, results = api.record(session, store)
    return results


def _tunings(
    request: BenchOptions, methods: tuple[str, ...], time_s: float, count: int
) -> tuple[list[RunSpec], list[float]]:
    chosen, seconds = [], []
    for seed in range(1, count + 1):
        begun = time.monotonic()
        asked = request.to(TuneOptions, seed=seed, method=methods, max_time=time_s, fresh=True)
        choice = tuning.tune(asked).overall.spec
        seconds.append(time.monotonic() - begun)
        chosen.append(choice)
    return chosen, seconds


def _tpe(swept: Mapping[RunSpec, Arm], time_s: float, seed: int) -> RunSpec:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sources = sorted({_source(spec) for spec in swept})
    by_choice = {_choice(spec): spec for spec in swept}
    order = random.Random(seed)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    spent, seen = 0.0, dict[RunSpec, float]()
    while spent < time_s:
        trial = study.ask()
        source = trial.suggest_categorical("source", sources)
        p_min = trial.suggest_categorical("p_min", P_MINS)
        spec = by_choice.get((source, trial.suggest_int("n_max", 1, 16), p_min))
        if spec is None:  # n-grams know no p_min, and draft nothing at some sizes
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            continue
        repeat = order.randrange(2)
        rates, cost = _one_repeat(swept[spec], repeat)
        spent += cost
        seen[spec] = rates
        study.tell(trial, rates)
    return max(seen, key=lambda spec: seen[spec])


def _one_repeat(arm: Arm, repeat: int) -> tuple[float, float]:
    """Return the rate and the wall time of an arm in one repeat, over all prompts."""
    mean = stats.mean_rate({cell: rate for cell, rate in arm.rates.items() if cell[1] == repeat})
    assert mean is not None
    walls = arm.runs.column("wall_s")
    return mean.value, sum(
        wall for wall, each in zip(walls, arm.runs.column("repeat"), strict=True) if each == repeat
    )


def _final(request: BenchOptions, specs: Mapping[RunSpec, None], repeats: int) -> dict[RunSpec, Arm]:
    session = prepare_session(request)
    (block,) = session.suite.blocks
    suite = replace(session.suite, blocks=(Block(arms=(block.arms[0], *specs)),), repeats=repeats, seed=99)
    results = _measured(request, suite)
    return {arm.spec: arm for arm in arms.group(results) if arm.role is Role.DRAFTING}


def _paired(arm: Arm, other: Arm) -> str:
    effect = stats.paired_effect(arm.rates, other.rates)
    if effect is None or effect.ratio.lo is None or effect.ratio.hi is None:
        return ""
    return f"{effect.ratio.value:.3f} [{effect.ratio.lo:.3f}, {effect.ratio.hi:.3f}]"


def _rate(arm: Arm) -> float:
    return arm.rate.value if arm.rate else 0.0


def _source(spec: RunSpec) -> str:
    assert spec.drafting is not None
    return str(spec.drafting.chain) if spec.drafter is None else spec.drafter.filename


def _drafting(spec: RunSpec) -> tuple[int, float]:
    assert spec.drafting is not None
    return spec.drafting.n_max, spec.drafting.p_min


def _choice(spec: RunSpec) -> tuple[str, int, float]:
    return (_source(spec), *_drafting(spec))


def _said(spec: RunSpec) -> str:
    size, p_min = _drafting(spec)
    return f"{_source(spec)}, γ = {size}, p-min {p_min:g}"


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("-n", "--tokens", type=int, default=120, help="of each run")
    parser.add_argument("-t", "--threads", type=int, help="as in a bench")
    parser.add_argument("--sources", choices=_SOURCES, default="quantized", help="what may draft")
    parser.add_argument("--final", type=int, default=8, help="repeats of the final bench")
    parser.add_argument("--tunes", type=int, default=5, help="how many tunings")
    parser.add_argument("--seeds", type=int, default=10, help="how many TPE studies")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
