"""``ggufspec policy``: what rules for the draft size would gain, replayed over the rounds of a stored bench.

A draft of a draft model is its own continuation of the text, wherever it begins, so the rounds of the largest
draft size tell what every shorter draft would have done, see ``trace.walks``. What a round costs follows from
the times of runs at several sizes. The token behind a draft that was accepted as a whole is not known: it is
drawn, many times, and the errors of the times with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ggufspec import results
from ggufspec.domain import NO_PROMPT, Drafting, Role, Round, RunResult, RunSpec, Status
from ggufspec.errors import GgufspecError
from ggufspec.forecast.policies.rules import (
    RULES,
    Rule,
    Seconds,
    best_sizes,
    fixed,
    read_rules,
    replay,
    replay_p_min,
)
from ggufspec.forecast.policies.schedules import DraftSchedule, ScheduleComparison, compare_schedule
from ggufspec.forecast.replaying import SIZE_ERROR, RoundsRun, chance_behind, time_rounds
from ggufspec.options import PolicyOptions, takes
from ggufspec.stats import Z95, Estimate, mean_over_prompts
from ggufspec.steps import SILENT, Sink

ORACLE, BY_CATEGORY = "oracle", "γ by category"
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
class ReplayCheck:
    """A rule that the bench measured, too: its replayed speed over the measured one."""

    rule: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """All rules, over all prompts and by category.

    Attributes:
        bench: its id.
        n_max: the largest draft size, whose rounds were replayed.
        best_fixed: the draft size that is the fastest fixed one.
        gains: the rules, the fastest first; fixed sizes beside the best one are left out.
        prompts: how many there are.
        checks: of the sizes and p-mins that the bench measured.
        users: who were answered at once where the times were measured.
        depth: tokens before each prompt there.
        cells: the same by users and depth, with the times of another bench.
    """

    bench: str
    n_max: int
    best_fixed: int
    gains: tuple[PolicyGain, ...]
    prompts: int
    checks: tuple[ReplayCheck, ...] = ()
    users: int = 1
    depth: int = 0
    cells: tuple[PolicyComparison, ...] = ()

    @property
    def rules(self) -> tuple[PolicyGain, ...]:
        """What each rule gains on all prompts, without the fixed size and the oracle; the fastest first."""
        beside = {ORACLE, f"γ {self.best_fixed}"}
        return tuple(gain for gain in self.gains if gain.category is None and gain.rule not in beside)


@takes(PolicyOptions)
def policy(asked: PolicyOptions, sink: Sink = SILENT) -> PolicyComparison | ScheduleComparison:
    """Replay rules for the draft size over a stored bench, as ``ggufspec policy`` does.

    Returns:
        The rules; of a bench with several numbers of users, a schedule.

    Raises:
        ResultsError: there is no such bench.
        GgufspecError: it has no rounds of a draft model at two sizes, the other bench does not fit, or a rule
            of the user's fails.
    """
    bench = results.load_each([asked.bench], sink)[0]
    users = {spec.traffic.users for spec in bench.current.specs if spec.traffic is not None}
    if asked.schedule is not None or len(users) > 1:
        schedule = None if asked.schedule is None else DraftSchedule.parse(asked.schedule)
        return compare_schedule(bench.current, schedule, bench.meta.id)
    own = {name: rule for file in asked.rule or () for name, rule in read_rules(file).items()}
    rules = {**RULES, **own}
    runs, token_s = _read_runs(bench.current)
    compared = compare_rules(runs, _times(runs[0.0], token_s), rules, bench.meta.id)
    if asked.times is None:
        return compared
    timed = results.load_each([asked.times], sink)[0]
    pairs = {spec.pair for part in (bench, timed) for spec in part.current.specs if spec.drafting is not None}
    if len(pairs) > 1:
        raise GgufspecError(f"{timed.meta.id} has other models than {bench.meta.id}", _NEEDED)
    cells = compare_cells(runs[0.0], timed.current, rules, timed.meta.id)
    return replace(compared, cells=tuple(cells))


def compare_cells(
    runs: Sequence[RoundsRun], timed: Sequence[RunResult], rules: Mapping[str, Rule], bench: str = ""
) -> Iterator[PolicyComparison]:
    """Yield the comparison of rules at each number of users and depth of another bench, by its times.

    Users who are answered at once share each round, whose time is a straight line in all that they draft. So
    one of them is replayed, as all follow the same rule. What is accepted is taken from the rounds of one
    request after another.

    Args:
        runs: of one request after another, at several draft sizes.
        timed: runs of several users, or behind other text.
        rules: by their names.
        bench: the id of the second one.

    Raises:
        GgufspecError: it lacks the target alone, or two draft sizes that have rounds.
    """
    cells: dict[tuple[int, int], dict[tuple[int, str], list[float]]] = {}
    for run in timed:
        traffic, drafting = run.spec.traffic, run.spec.drafting
        if run.sample.traffic is None or traffic is None or run.sample.status is not Status.OK:
            continue
        token_s = cells.setdefault((traffic.users, traffic.depth), {})
        for request in run.sample.traffic.requests:
            if request.is_steady and request.token_s:
                key = 0 if drafting is None else drafting.n_max, traffic.prompts[request.prompt].id
                token_s.setdefault(key, []).append(request.token_s)
    for (users, depth), token_s in sorted(cells.items()):
        there = [
            replace(run, seconds=fmean(found) * sum(entry.accepted + 1 for entry in run.rounds))
            for run in runs
            if (found := token_s.get((run.size, run.prompt_id))) is not None
        ]
        alone = [fmean(found) for (size, _), found in token_s.items() if not size]
        if len({run.size for run in there}) < _SEVERAL or not alone:
            raise GgufspecError(
                f"{bench} has no times of the target alone and of two draft sizes on the same prompts, with "
                f"{users} users at depth {depth}",
                "measure both benches with the same prompts and sizes, the second with --parallel or --depth",
            )
        compared = compare_rules({0.0: there}, _times(there, fmean(alone)), rules, bench)
        yield replace(compared, users=users, depth=depth)


def _read_runs(stored: Sequence[RunResult]) -> tuple[dict[float, list[RoundsRun]], float]:
    """Return the runs of a draft model that tell their rounds by p-min, and seconds of a token alone.

    Raises:
        GgufspecError: there are none, or of one draft size alone, or of several drafters or settings.
    """
    runs: dict[float, list[RoundsRun]] = {0.0: []}
    alone, arms = [], set[RunSpec]()
    for run in stored:
        sample, drafting = run.sample, run.spec.drafting
        if sample.status is not Status.OK or not sample.gen_s or run.spec.traffic is not None:
            continue
        if run.spec.role is Role.TARGET and sample.decode_tps:
            alone.append(1 / sample.decode_tps)
        elif drafting and sample.rounds and drafting == Drafting(n_max=drafting.n_max, p_min=drafting.p_min):
            arms.add(replace(run.spec, prompt=NO_PROMPT, drafting=None))
            runs.setdefault(drafting.p_min, []).append(
                RoundsRun(
                    prompt_id=run.spec.prompt.id,
                    rounds=sample.rounds,
                    seconds=sample.gen_s,
                    category=run.spec.prompt.category,
                    size=drafting.n_max,
                )
            )
    if len({run.n_max for run in runs[0.0]}) < _SEVERAL or not alone:
        raise GgufspecError(
            "the bench has no rounds of a draft model at two draft sizes beside the target alone, without a "
            "p-min: rounds of heads and of n-grams do not tell what other drafts would do",
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


_Sizes = tuple[Sequence[int], Sequence[int]]
"""How many tokens each round drafts, and how many are proposed for that."""

_Play = Callable[[Sequence[bool], int, Seconds, random.Random], _Sizes]
"""Returns the sizes of the rounds over a text, which has a number among the prompts."""


def compare_rules(
    measured: Mapping[float, Sequence[RoundsRun]],
    times: Mapping[int, float],
    rules: Mapping[str, Rule],
    bench: str = "",
) -> PolicyComparison:
    """Replay rules, the fixed draft sizes, p-min and the oracle over the runs of the largest draft size.

    Args:
        measured: by p-min; the first run of each prompt at the largest size counts.
        times: seconds of rounds by their drafted tokens; 0 is a token of the target alone.
        rules: by their names.
        bench: its id.
    """
    n_max = max(run.n_max for run in measured[0.0])
    by_prompt = {run.prompt_id: run for run in reversed(measured[0.0]) if run.n_max == n_max}
    chance = chance_behind([entry for run in by_prompt.values() for entry in run.rounds])
    sizes = range(1, n_max + 1)
    families = {
        "": {_name(size): _play_rule(fixed(size), n_max) for size in sizes},
        **{
            _name(0, p_min): {_name(size, p_min): of_size(size) for size in sizes}
            for p_min, runs in measured.items()
            if p_min and (of_size := _play_p_min(runs, [*by_prompt], n_max)) is not None
        },
    }
    plays = {name: play for family in families.values() for name, play in family.items()}
    plays |= {name: _play_rule(rule, n_max) for name, rule in rules.items()}
    plays[ORACLE] = _play_oracle(n_max)
    rates = {name: np.zeros((_DRAWS, len(by_prompt))) for name in (*plays, "")}
    drafted = {name: np.zeros_like(table) for name, table in rates.items()}
    for number in range(_DRAWS):
        draw = random.Random(number)  # noqa: S311  # not for secrets
        seconds = _draw_times(times, draw if number else None)
        for column, run in enumerate(by_prompt.values()):
            right = _draw_text(run.rounds, chance, draw)
            for name, play in plays.items():
                drafts, proposals = play(right, column, seconds, draw)
                rates[name][number, column] = math.log(len(right) / sum(map(seconds, proposals)))
                drafted[name][number, column] = fmean(drafts)
            rates[""][number, column] = -math.log(seconds(0))
    best, *of_p_min = (
        max(family, key=lambda name: float(rates[name].mean())) for family in families.values()
    )
    categories = [run.category for run in by_prompt.values()]
    by_category = _choose_by_category({name: rates[name] for name in families[""]}, categories)
    for table in (rates, drafted) if by_category else ():
        table[BY_CATEGORY] = np.stack([table[name][:, at] for at, name in enumerate(by_category)], axis=1)
    own = [best, *of_p_min, *rules, ORACLE, *([BY_CATEGORY] if by_category else [])]
    shown = sorted(own, key=lambda name: -float(rates[name].mean()))
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
                mean_size=float(drafted[name][:, chosen].mean()),
                gain=_ratio((rates[name] - rates[""])[:, chosen]),
                over_fixed=_ratio((rates[name] - rates[best])[:, chosen], least=name == ORACLE),
                of_oracle=_ratio((rates[name] - rates[ORACLE])[:, chosen], most=True),
            )
            for group, chosen in columns.items()
            for name in shown
        ),
        prompts=len(by_prompt),
        checks=tuple(_check_replays(measured, rates, [*by_prompt], by_category)),
    )


def _choose_by_category(
    rates: Mapping[str, NDArray[np.float64]], categories: Sequence[str | None]
) -> list[str]:
    """Return the fixed size that is best on the other prompts of each prompt's category.

    A prompt that is alone in its category gets what is best on all others; with one category there is none.
    """
    if len({*categories}) == 1:
        return []
    chosen = []
    for place, category in enumerate(categories):
        others = [at for at in range(len(categories)) if at != place]
        alike = [at for at in others if categories[at] == category] or others
        chosen.append(max(rates, key=lambda name: float(rates[name][:, alike].mean())))
    return chosen


def _name(size: int, p_min: float = 0.0) -> str:
    return f"γ {size}" if not p_min else f"γ {size}, p-min {p_min:g}"


def _play_rule(rule: Rule, n_max: int) -> _Play:
    def play(right: Sequence[bool], _: int, seconds: Seconds, __: random.Random) -> _Sizes:
        sizes = [entry.drafted for entry in replay(right, rule, seconds, n_max)]
        return sizes, sizes

    return play


def _play_oracle(n_max: int) -> _Play:
    def play(right: Sequence[bool], _: int, seconds: Seconds, __: random.Random) -> _Sizes:
        sizes = best_sizes(right, seconds, n_max)
        return sizes, sizes

    return play


def _play_p_min(
    runs: Sequence[RoundsRun], prompts: Sequence[str], n_max: int
) -> Callable[[int], _Play] | None:
    """Return the play of a p-min by its draft size; None where not every prompt has a run at the largest.

    Where a draft ended tells of which tokens the drafter is sure enough. The token that ends a draft costs as
    much as one that is drafted.
    """
    by_prompt = {run.prompt_id: run for run in reversed(runs) if run.size == n_max}
    if not {*prompts} <= by_prompt.keys():
        return None
    every = [entry for run in by_prompt.values() for entry in run.rounds]
    tails = [entry.drafted - entry.accepted - 1 for entry in every if entry.drafted > entry.accepted] or [0]
    sure = [
        [known for entry in by_prompt[name].rounds for known in _read_confidence(entry, n_max)]
        for name in prompts
    ]
    told = [known for text in sure for known in text if known is not None]
    share = sum(told) / max(1, len(told))

    def of_size(size: int) -> _Play:
        def play(right: Sequence[bool], column: int, _: Seconds, draw: random.Random) -> _Sizes:
            known = (*sure[column], *[None] * len(right))[: len(right)]
            confident = [draw.random() < share if one is None else one for one in known]
            rounds, proposals = replay_p_min(right, confident, tails, size, draw)
            return [entry.drafted for entry in rounds], proposals

        return play

    return of_size


def _read_confidence(entry: Round, n_max: int) -> list[bool | None]:
    """Return of which of a round's tokens the drafter was sure enough; None is not known."""
    behind = None if entry.accepted == entry.drafted == n_max else entry.drafted > entry.accepted
    return [*[True] * entry.accepted, behind]


def _check_replays(
    measured: Mapping[float, Sequence[RoundsRun]],
    rates: Mapping[str, NDArray[np.float64]],
    prompts: Sequence[str],
    by_category: Sequence[str],
) -> Iterator[ReplayCheck]:
    """Yield how replays compare with what the bench measured of the same sizes and p-min.

    A server that takes the size from each request drafts with it as one that was started with it.
    """
    logs: dict[str, dict[str, list[float]]] = {}
    for p_min, runs in measured.items():
        for run in sorted(runs, key=lambda run: run.size):
            name = _name(run.size, p_min)
            if name in rates and run.prompt_id in prompts:
                shown = math.log(sum(entry.accepted + 1 for entry in run.rounds) / run.seconds)
                replayed = float(rates[name][:, prompts.index(run.prompt_id)].mean())
                logs.setdefault(name, {}).setdefault(run.prompt_id, []).append(replayed - shown)
    for name, by_prompt in logs.items():
        yield ReplayCheck(rule=name, ratio=math.exp(fmean(chain.from_iterable(by_prompt.values()))))
    chosen = [logs.get(name, {}).get(prompt) for name, prompt in zip(by_category, prompts, strict=False)]
    if chosen and None not in chosen:
        yield ReplayCheck(rule=BY_CATEGORY, ratio=math.exp(fmean(map(fmean, filter(None, chosen)))))


def _draw_text(rounds: Sequence[Round], chance: float, draw: random.Random) -> list[bool]:
    """Return which tokens of a text the drafter has right, with those that rounds do not tell."""
    right: list[bool] = []
    for drafted, accepted in rounds:
        right += [True] * accepted + [accepted == drafted and draw.random() < chance]
    return right


def _draw_times(times: Mapping[int, float], draw: random.Random | None) -> Seconds:
    """Return the seconds of a round by its drafted tokens, with an error of each time that was measured."""
    known = sorted(times)
    drawn = [times[size] * (math.exp(draw.gauss(0, SIZE_ERROR)) if draw else 1.0) for size in known]
    largest = np.interp(range(known[-1] + 1), known, drawn).tolist()
    return lambda size: float(largest[size])


def _ratio(logs: NDArray[np.float64], *, most: bool = False, least: bool = False) -> Estimate:
    """Return a ratio of speeds from its logarithms by draw and prompt.

    A share of the fastest is at most 1, and the fastest over another is at least 1, whatever the prompts: an
    interval is cut there, which loses no true value.

    Args:
        logs: by draw and prompt.
        most: whether the ratio is at most 1.
        least: whether it is at least 1.
    """
    by_prompt = {str(place): math.exp(value) for place, value in enumerate(logs.mean(axis=0))}
    ratio = mean_over_prompts(by_prompt).widened(Z95 * float(logs.mean(axis=1).std(ddof=1)))
    if ratio.lo is None or ratio.hi is None:
        return ratio
    return replace(
        ratio, lo=max(ratio.lo, 1.0) if least else ratio.lo, hi=min(ratio.hi, 1.0) if most else ratio.hi
    )
