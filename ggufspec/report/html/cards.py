"""The first screen of a bench's section: one card with the verdict, its figures, and what they rest on."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from ggufspec import units
from ggufspec.analysis import Arm, CrossoverCell, CrossoverMap, Ranking, is_meaningful, models_of, rank
from ggufspec.domain import Estimate, Missing, Role, RunSpec, SpeedJudgement, SpeedVerdict
from ggufspec.report.text import configuration, crossovers, judgements, verdict
from ggufspec.report.text.figures import engine, extent, unchanged
from ggufspec.results import Configuration, ResultSet

NO_VERDICT = "no verdict"
_SIGNS: Mapping[str, str] = {
    SpeedVerdict.FASTER: "▲",
    SpeedVerdict.UNDECIDED: "?",
    SpeedVerdict.ESTIMATE: "?",
    SpeedVerdict.SAME: "=",
    SpeedVerdict.SLOWER: "▼",
    NO_VERDICT: "–",
}
"""Of several loads or builds, the card is about one with the first of these verdicts."""


@dataclass(frozen=True, kw_only=True)
class CardFigure:
    """A figure of a card: its name, its value, and a detail in small letters."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What the first screen shows.

    Attributes:
        verdict: faster, slower, same, undecided, or ``NO_VERDICT``.
        headline: the finding in one sentence, without a full stop.
        speedup: over the target alone; empty where it is not known.
        interval: of the speed-up, or why it has none.
        readings: tokens/s, acceptance and text.
        basis: what the verdict rests on.
        notes: sentences on what is missing, on texts, and on other loads.
        action: what the command does.
        command: to copy.
    """

    verdict: str
    headline: str
    speedup: str
    interval: str
    readings: tuple[CardFigure, ...]
    basis: tuple[str, ...]
    notes: tuple[str, ...]
    action: str
    command: str

    @property
    def sign(self) -> str:
        """A sign for the verdict, beside its word."""
        return _SIGNS[self.verdict]


@dataclass(frozen=True, kw_only=True)
class _CardFinding:
    """A verdict with the arms that it is about."""

    verdict: str
    headline: str
    judgement: SpeedJudgement | None = None
    arm: Arm | None = None
    alone: Arm | None = None


def make_card(
    results: ResultSet,
    groups: Sequence[Arm],
    tuned: Configuration | None = None,
    crossover: CrossoverMap | None = None,
) -> Card:
    """Return the card of a bench.

    Args:
        results: the bench.
        groups: its arms.
        tuned: the configuration of the tuning that this bench confirmed.
        crossover: its map, if it is a crossover.
    """
    if crossover is not None:
        return _crossover_card(results, groups, crossover)
    finding = _find(groups) if tuned is None else _find_tuned(groups, tuned)
    action, command = _command(results, finding, tuned)
    return Card(
        verdict=finding.verdict,
        headline=finding.headline,
        **_speedup(finding.judgement.ratio if finding.judgement else None),
        readings=tuple(_readings(finding)),
        basis=tuple(_basis(results, groups, finding.judgement)),
        notes=tuple(dict.fromkeys(_notes(results, groups, finding, tuned))),
        action=action,
        command=command,
    )


def _find(groups: Sequence[Arm]) -> _CardFinding:
    """Return the finding of a bench; of several loads or builds, the most promising one."""
    rankings = [(alone, ranking) for alone, ranking in _rankings(groups) if ranking.best is not None]
    if not rankings:
        first = verdict.verdicts(groups)[0] if groups else "Nothing was measured."
        return _CardFinding(verdict=NO_VERDICT, headline=first.rstrip("."))
    alone, ranking = min(
        rankings, key=lambda pair: ([*_SIGNS].index(pair[1].verdict), -_ratio(pair[1].judgement))
    )
    assert ranking.best is not None
    where, headline = verdict.where(alone), _headline(ranking, verdict.name(ranking.best), len(groups))
    return _CardFinding(
        verdict=ranking.verdict.value,
        headline=f"{where}{verdict.inside(headline)}" if where else headline,
        judgement=ranking.judgement,
        arm=ranking.best,
        alone=alone,
    )


def _rankings(groups: Sequence[Arm]) -> Iterator[tuple[Arm, Ranking[Arm]]]:
    """Yield each target alone, and what the arms that are compared with it say together."""
    for alone in (arm for arm in groups if arm.role is Role.TARGET):
        drafting = [arm for arm in groups if arm.role is Role.DRAFTING and arm.baseline is alone]
        judged = [(arm, arm.judgement) for arm in drafting if arm.gain and arm.judgement is not None]
        if judged:
            yield alone, rank(judged)


def _headline(ranking: Ranking[Arm], name: str, n_arms: int) -> str:
    inside = verdict.inside(name)
    match ranking.verdict:
        case SpeedVerdict.FASTER:
            return f"{name} is faster"
        case SpeedVerdict.ESTIMATE:
            return f"{name}: an estimate, not a verdict"
        case SpeedVerdict.UNDECIDED:
            return f"Undecided whether {inside} is faster"
        case SpeedVerdict.SAME:
            return f"{name} is as fast as the target alone"
        case _ if n_arms > 2:
            return f"No arm is faster than the target alone; {inside} comes closest"
    return f"{name} is slower"


def _find_tuned(groups: Sequence[Arm], tuned: Configuration) -> _CardFinding:
    """Return the finding of a tuning, with the arms of the bench that confirmed it."""
    overall = tuned.overall
    candidate, judgement = overall.candidate, overall.judgement
    if candidate is None or judgement is None:
        return _find(groups)
    arm = next((arm for arm in groups if _is_same(arm.spec, candidate)), None)
    called = f"Drafting with {configuration.name(candidate)}" if arm is None else verdict.name(arm)
    name = f"{called}{configuration.at_once(candidate)}"
    ranking = Ranking(verdict=judgement.verdict, best=arm, judgement=judgement)
    headline = _headline(ranking, name, len(groups))
    if judgement.pays and not overall.drafts:
        headline += ", but llama-server cannot serve it"
    return _CardFinding(
        verdict=judgement.verdict.value,
        headline=headline,
        judgement=judgement,
        arm=arm,
        alone=arm.baseline if arm is not None else None,
    )


def _is_same(spec: RunSpec, other: RunSpec) -> bool:
    """Whether two specifications draft alike."""
    return spec.role is Role.DRAFTING and (spec.drafting, models_of(spec)) == (
        other.drafting,
        models_of(other),
    )


def _ratio(judgement: SpeedJudgement | None) -> float:
    return judgement.ratio.value if judgement is not None and judgement.ratio is not None else 0.0


def _speedup(ratio: Estimate | None) -> dict[str, str]:
    if ratio is None:
        return {"speedup": "", "interval": ""}
    return {"speedup": units.format_factor(ratio.value), "interval": _interval(ratio, units.format_factor)}


def _interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    """Return a 95 % interval in words, or that it needs more runs."""
    if estimate.lo is None or estimate.hi is None or not is_meaningful(estimate):
        return "no interval yet"
    return f"{show(estimate.lo)} to {show(estimate.hi)} (95 %)"


def _readings(finding: _CardFinding) -> Iterator[CardFigure]:
    arm, alone = finding.arm, finding.alone
    for name, measured in (("drafting", arm), ("target alone", alone)):
        rate = measured.rate if measured is not None else None
        if rate is not None:
            value, interval = units.format_rate(rate.value), _interval(rate, units.format_rate)
            yield CardFigure(name=f"tokens/s, {name}", value=value, detail=interval)
    if arm is None:
        return
    if arm.acceptance is not None and arm.acceptance.accept_rate is not None:
        accepted = units.format_percent(arm.acceptance.accept_rate)
        yield CardFigure(name="accepted", value=accepted, detail="of the tokens drafted")
    if unchanged(arm):
        of_what = "all answers" if arm.traffic is not None else "prompts"
        yield CardFigure(name="text unchanged", value=unchanged(arm), detail="" if arm.synthetic else of_what)


def _basis(results: ResultSet, groups: Sequence[Arm], judgement: SpeedJudgement | None) -> Iterator[str]:
    if judgement is not None:
        done, planned = judgement.runs_done, judgement.runs_planned
        partly = f", after {judgements.runs(judgement)}" if planned is not None and done < planned else ""
        yield f"Rests on {judgements.basis(judgement)}{partly}."
    elif groups:
        yield f"{extent(groups[0])}."
    yield engine(results.meta.engine)


def _notes(
    results: ResultSet, groups: Sequence[Arm], finding: _CardFinding, tuned: Configuration | None
) -> Iterator[str]:
    """Yield what a reader of the verdict must know, too."""
    judgement, arm = finding.judgement, finding.arm
    if judgement is not None and not judgement.is_decided:
        if judgement.missing != (Missing.RUNS,):
            yield judgements.sentence(judgements.needs(judgement))
        yield from judgements.deciding(results, judgement, names_command=False)
        yield "Meanwhile, the target alone is what is safe."
    policy = () if tuned is None else configuration.policy(tuned.overall, tuned.by_category, tuned.launch)
    yield from tuple(policy) or judgements.depends_on_text(arm, finding.alone)
    if arm is not None and not all(arm.compared.values()):
        yield verdict.text_sentence(arm)
    if tuned is not None:
        is_decided = judgement is None or judgement.is_decided
        served = set() if is_decided else {*configuration.served(tuned.launch, tuned.serving)}
        sentences = [*configuration.sentences_of(tuned)][1:]
        yield from (sentence for sentence in sentences if sentence not in served)
        return
    others = [pair for pair in _rankings(groups) if pair[0] is not finding.alone]
    if others:
        yield from verdict.verdicts([member for member in groups if not _is_about(member, finding)])


def _is_about(arm: Arm, finding: _CardFinding) -> bool:
    return arm is finding.alone or (arm.baseline is not None and arm.baseline is finding.alone)


def _command(results: ResultSet, finding: _CardFinding, tuned: Configuration | None) -> tuple[str, str]:
    """Return what the card's command does, and the command."""
    if finding.judgement is not None and not finding.judgement.is_decided:
        words = judgements.deciding_command(results, finding.judgement)
        if words is not None:
            return "Decide it", shlex.join(words)
    if tuned is not None and tuned.serving_argv:
        what = "Serve it" if tuned.overall.drafts else "Serve the target alone"
        return what, shlex.join(tuned.serving_argv)
    return "Measure it again", _own_command(results)


def _own_command(results: ResultSet) -> str:
    """Return the command of a bench for another shell: the program's name without its folder."""
    program, *words = results.meta.command or ("",)
    return shlex.join([PurePath(program).name, *words])


def _crossover_card(results: ResultSet, groups: Sequence[Arm], crossover: CrossoverMap) -> Card:
    """Return the card of a crossover: its policy, and the cell where drafting gains most."""
    computed = [cell for cell in crossover.cells if cell.best is not None]
    cell = min(computed, key=_cell_order, default=None)
    basis, *more = [*crossovers.basis(crossover)][:-1]  # the last names the bench, as the card does
    policy, stop, rest = crossovers.policy(crossover).partition(". ")
    finding = NO_VERDICT if cell is None else cell.verdict.value
    best = None if cell is None else cell.best
    speedup = _speedup(None if best is None else best.speedup)
    readings = []
    if cell is not None and best is not None:
        at = f"for {units.counted(cell.users, 'user')}, depth {cell.depth:,}"
        speedup["interval"] += f", {at}"
        rates = {"drafting": best.tokens_per_s, "target alone": cell.target_tokens_per_s}
        readings = [
            CardFigure(name=f"tokens/s, {name}", value=units.format_rate(rate), detail=at)
            for name, rate in rates.items()
            if rate is not None
        ]
    return Card(
        verdict=finding,
        headline="No cell was measured, so there is no verdict" if cell is None else policy.rstrip("."),
        **speedup,
        readings=tuple(readings),
        basis=(basis, engine(results.meta.engine)),
        notes=(*([rest] if stop else []), *more),
        action="Measure it again",
        command=_own_command(results),
    )


def _cell_order(cell: CrossoverCell) -> tuple[int, float]:
    """Order cells by verdict, and the largest speed-up first."""
    assert cell.best is not None
    return [*_SIGNS].index(cell.verdict), -cell.best.speedup.value
