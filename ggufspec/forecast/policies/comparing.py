"""``ggufspec policy``: what rules for the draft size would gain, replayed over the rounds of a stored bench.

A draft of a draft model is its own continuation of the text, wherever it begins, so the rounds of the largest
draft size tell what every shorter draft would have done, see ``trace.walks``. What a round costs follows from
the times of runs at several sizes. The token behind a draft that was accepted as a whole is not known: it is
drawn, many times, and the errors of the times with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ggufspec import results
from ggufspec.domain import NO_PROMPT, Drafting, Role, Round, RunResult, RunSpec, Status
from ggufspec.errors import GgufspecError
from ggufspec.forecast.policies.rules import RULES, Rule, best_sizes, fixed, read_rules, replay
from ggufspec.forecast.replaying import SIZE_ERROR, RoundsRun, time_rounds
from ggufspec.forecast.trace import chance_behind
from ggufspec.options import PolicyOptions, takes
from ggufspec.stats import Z95, Estimate, mean_over_prompts
from ggufspec.steps import SILENT, Sink

ORACLE = "oracle"
_DRAWS = 20
_SEVERAL = 2  # draft sizes, at least: one tells no cost of another
_NEEDED = "measure them with `ggufspec bench --engine server --draft 1,4,16`"


@dataclass(frozen=True, kw_only=True)
class PolicyGain:
    """What a rule does on some prompts; ratios have 95 % intervals over prompts, costs and unknown tokens.

    Attributes:
        rule: its name; ``γ 4`` for a fixed size.
        category: of the prompts; None for all.
        mean_size: tokens drafted in a round.
        gain: over the target alone.
        over_fixed: over the best fixed draft size, which was chosen by the same prompts.
        of_oracle: its speed over that of the oracle, which no rule exceeds.
    """

    rule: str
    category: str | None
    mean_size: float
    gain: Estimate
    over_fixed: Estimate
    of_oracle: Estimate


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """All rules, over all prompts and by category.

    Attributes:
        bench: its id.
        n_max: the largest draft size, whose rounds were replayed.
        best_fixed: the draft size that is the fastest fixed one.
        gains: the rules, the fastest first; fixed sizes beside the best one are left out.
        prompts: how many there are.
    """

    bench: str
    n_max: int
    best_fixed: int
    gains: tuple[PolicyGain, ...]
    prompts: int

    @property
    def rules(self) -> tuple[PolicyGain, ...]:
        """What each rule gains on all prompts, without the fixed size and the oracle; the fastest first."""
        beside = {ORACLE, f"γ {self.best_fixed}"}
        return tuple(gain for gain in self.gains if gain.category is None and gain.rule not in beside)


@takes(PolicyOptions)
def policy(asked: PolicyOptions, sink: Sink = SILENT) -> PolicyComparison:
    """Replay rules for the draft size over a stored bench, as ``ggufspec policy`` does.

    Raises:
        ResultsError: there is no such bench.
        GgufspecError: it has no rounds of a draft model at two sizes, or a rule of the user's fails.
    """
    bench = results.load_each([asked.bench], sink)[0]
    own = {name: rule for file in asked.rule or () for name, rule in read_rules(file).items()}
    runs, token_s = _read_runs(bench.current)
    n_max = max(run.n_max for run in runs)
    return compare_rules(
        [run for run in runs if run.n_max == n_max], _times(runs, token_s), {**RULES, **own}, bench.meta.id
    )


def _read_runs(stored: Sequence[RunResult]) -> tuple[list[RoundsRun], float]:
    """Return the runs of a draft model that tell their rounds, and seconds of a token of the target alone.

    Raises:
        GgufspecError: there are none, or of one draft size alone, or of several drafters or settings.
    """
    runs, alone, arms = [], [], set[RunSpec]()
    for run in stored:
        sample, drafting = run.sample, run.spec.drafting
        if sample.status is not Status.OK or not sample.gen_s:
            continue
        if run.spec.role is Role.TARGET and sample.decode_tps:
            alone.append(1 / sample.decode_tps)
        elif drafting == Drafting(n_max=drafting.n_max if drafting else 1) and sample.rounds:
            arms.add(replace(run.spec, prompt=NO_PROMPT, drafting=None))
            runs.append(
                RoundsRun(
                    prompt_id=run.spec.prompt.id,
                    rounds=sample.rounds,
                    seconds=sample.gen_s,
                    category=run.spec.prompt.category,
                )
            )
    if len({run.n_max for run in runs}) < _SEVERAL or not alone:
        raise GgufspecError(
            "the bench has no rounds of a draft model at two draft sizes beside the target alone: rounds "
            "with a p-min, of heads and of n-grams do not tell what other drafts would do",
            _NEEDED,
        )
    if len(arms) > 1:
        raise GgufspecError(
            f"the bench has {len(arms)} drafters, placements or settings", f"compare rules for one: {_NEEDED}"
        )
    return runs, float(np.mean(alone))


def _times(runs: Sequence[RoundsRun], token_s: float) -> dict[int, float]:
    """Return the seconds of a round by the tokens that it drafts, of each size that was measured."""
    curve = time_rounds(runs, token_s)
    return {point.tokens - 1: point.seconds.value for point in curve.verify}


def compare_rules(
    runs: Sequence[RoundsRun], times: Mapping[int, float], rules: Mapping[str, Rule], bench: str = ""
) -> PolicyComparison:
    """Replay rules, the fixed draft sizes and the oracle over runs of one draft size.

    Args:
        runs: of the largest draft size; the first of each prompt counts.
        times: seconds of rounds by their drafted tokens; 0 is a token of the target alone.
        rules: by their names.
        bench: its id.
    """
    n_max = max(run.n_max for run in runs)
    by_prompt = {run.prompt_id: run for run in reversed(runs)}
    chance = chance_behind([entry for run in by_prompt.values() for entry in run.rounds])
    named = {**{f"γ {size}": fixed(size) for size in range(1, n_max + 1)}, **rules}
    rates = {name: np.zeros((_DRAWS, len(by_prompt))) for name in (*named, ORACLE, "")}
    sizes = {name: np.zeros_like(table) for name, table in rates.items()}
    for number in range(_DRAWS):
        draw = random.Random(number)  # noqa: S311  # not for secrets
        seconds = _draw_times(times, draw if number else None)
        for column, run in enumerate(by_prompt.values()):
            right = _draw_text(run.rounds, chance, draw)
            replayed = {name: replay(right, rule, seconds, n_max) for name, rule in named.items()}
            replayed[ORACLE] = tuple(Round(size, size) for size in best_sizes(right, seconds, n_max))
            for name, rounds in replayed.items():
                rates[name][number, column] = math.log(
                    len(right) / sum(seconds(entry.drafted) for entry in rounds)
                )
                sizes[name][number, column] = fmean(entry.drafted for entry in rounds)
            rates[""][number, column] = -math.log(seconds(0))
    best = max((name for name in named if name[:2] == "γ "), key=lambda name: float(rates[name].mean()))
    categories = [run.category for run in by_prompt.values()]
    shown = sorted((best, *rules, ORACLE), key=lambda name: -float(rates[name].mean()))
    groups = [None, *dict.fromkeys(categories)] if len({*categories}) > 1 else [None]
    columns = {group: np.array([group in {None, one} for one in categories]) for group in groups}
    return PolicyComparison(
        bench=bench,
        n_max=n_max,
        best_fixed=int(best[2:]),
        gains=tuple(
            PolicyGain(
                rule=name,
                category=group,
                mean_size=float(sizes[name][:, chosen].mean()),
                gain=_ratio((rates[name] - rates[""])[:, chosen]),
                over_fixed=_ratio((rates[name] - rates[best])[:, chosen]),
                of_oracle=_ratio((rates[name] - rates[ORACLE])[:, chosen]),
            )
            for group, chosen in columns.items()
            for name in shown
        ),
        prompts=len(by_prompt),
    )


def _draw_text(rounds: Sequence[Round], chance: float, draw: random.Random) -> list[bool]:
    """Return which tokens of a text the drafter has right, with those that rounds do not tell."""
    right: list[bool] = []
    for drafted, accepted in rounds:
        right += [True] * accepted + [accepted == drafted and draw.random() < chance]
    return right


def _draw_times(times: Mapping[int, float], draw: random.Random | None) -> Callable[[int], float]:
    """Return the seconds of a round by its drafted tokens, with an error of each time that was measured."""
    known = sorted(times)
    drawn = [times[size] * (math.exp(draw.gauss(0, SIZE_ERROR)) if draw else 1.0) for size in known]
    largest = np.interp(range(known[-1] + 1), known, drawn).tolist()
    return lambda size: float(largest[size])


def _ratio(logs: NDArray[np.float64]) -> Estimate:
    """Return a ratio of speeds from its logarithms by draw and prompt."""
    by_prompt = {str(place): math.exp(value) for place, value in enumerate(logs.mean(axis=0))}
    estimate = mean_over_prompts(by_prompt)
    if estimate.lo is None or estimate.hi is None:
        return estimate
    half = math.hypot(math.log(estimate.hi / estimate.value), Z95 * float(logs.mean(axis=1).std(ddof=1)))
    return Estimate(
        value=estimate.value, lo=estimate.value * math.exp(-half), hi=estimate.value * math.exp(half)
    )
