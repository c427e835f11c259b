"""What stored benches show of llama.cpp, each by one run: the gravest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from ggufspec import units
from ggufspec.analysis import Arm, arms, comparing
from ggufspec.choices import FindingKind
from ggufspec.domain import Build, Role, RunResult, RunSpec, SpeedVerdict, Status, TextVerdict
from ggufspec.results import ResultSet
from ggufspec.tuning.bisect import BisectedBench

HARDLY_ACCEPTED = 0.05
"""The acceptance rate below which drafts are all but lost: sound pairs have more, even of hard texts."""
_SIDES = 2
_LEAST_DRAFTED = 100  # tokens
_LEAST_DROP = 0.05  # of the acceptance rate between two builds; greedy drafts do not differ by chance


@dataclass(frozen=True, kw_only=True)
class UpstreamFinding:
    """Something that is wrong with a llama.cpp, and the run that shows it.

    Attributes:
        kind: what is wrong.
        spec: of the run.
        builds: the llama.cpp that is wrong; before it the one that is not, where two were compared.
        engine: that measured.
        size: by how much: the logarithm of a ratio of speeds, or a difference of acceptance rates.
        summary: what was stored, as a sentence.
        first_bad: the last good and the first bad version of a bisection.
    """

    kind: FindingKind
    spec: RunSpec
    builds: tuple[Build, ...]
    engine: str
    size: float = 0.0
    summary: str
    first_bad: tuple[str, str] | None = None


def list_findings(benches: Sequence[ResultSet], bisected: BisectedBench | None) -> list[UpstreamFinding]:
    """Return what some benches show.

    Args:
        benches: one, or two that are compared; the last is judged.
        bisected: the step that a bisection found, in the last trial, which is the only bench.
    """
    if bisected is not None:
        return [*_of_bisection(bisected)]
    bench = benches[-1]
    found = [*_of_runs(bench)]
    if len(benches) > 1 or len(bench.meta.builds) == _SIDES:
        compared = comparing.compare(benches[0], benches[1] if len(benches) > 1 else None)
        for row in compared.rows:
            if row.before.build != row.after.build:  # else other settings were measured, not another build
                change = row.change  # of two benches an estimate: the runs in turn will tell
                seems_slower = change.verdict is SpeedVerdict.ESTIMATE and (change.ratio.hi or 1) < 1
                is_slower = change.verdict is SpeedVerdict.SLOWER or seems_slower
                found += _of_change(row.before, row.after, is_slower=is_slower)
    found += _of_acceptance(bench)
    order = [*FindingKind]
    return sorted(found, key=lambda finding: order.index(finding.kind))


def _of_runs(bench: ResultSet) -> Iterator[UpstreamFinding]:
    """Yield the first crash, wrong text, and drafting that is off; a run shows one of them at most."""
    seen = set[FindingKind]()
    for run in bench.current:
        if run.spec.servers is not None or run.spec.traffic is not None:
            continue  # there is no command that shows it
        for kind, summary in _faults(run):
            if kind not in seen:
                seen.add(kind)
                yield UpstreamFinding(
                    kind=kind,
                    spec=run.spec,
                    builds=(bench.meta.build_of(run.spec),),
                    engine=bench.meta.engine,
                    summary=summary,
                )


def _faults(run: RunResult) -> Iterator[tuple[FindingKind, str]]:
    difference = run.difference
    if run.sample.status is Status.CRASHED:
        yield FindingKind.CRASH, f"it crashes: {run.error}"
    elif run.sample.status is Status.DRAFTING_INACTIVE:
        yield FindingKind.OFF, f"it is started to draft, and does not: {run.error}"
    elif difference is not None and difference.verdict is TextVerdict.DIVERGENCE:
        at = "" if difference.at_token is None else f" from token {difference.at_token + 1} on"
        margin = "" if difference.margin is None else f" by {difference.margin:.1f} nats"
        yield FindingKind.TEXT, f"drafting changes the text{at}: the target prefers its own token{margin}"


def _of_change(before: Arm, after: Arm, *, is_slower: bool) -> Iterator[UpstreamFinding]:
    """Yield what is worse with the second of two llama.cpps, by the prompt on which it is worst."""
    if after.spec.servers is not None or after.spec.traffic is not None:
        return
    logs = {
        prompt: _mean_log(before, prompt) - _mean_log(after, prompt)
        for prompt in {prompt for prompt, _ in before.rates} & {prompt for prompt, _ in after.rates}
    }
    worst = max(logs, key=lambda prompt: logs[prompt], default=None)
    find = partial(
        UpstreamFinding,
        spec=_spec_of(after, worst),
        builds=(before.build, after.build),
        engine=after.runs[0].engine,
    )
    if worst is not None and is_slower and logs[worst] > 0:
        ratio = units.format_factor(math.exp(-logs[worst]))
        summary = f"{after.role.value} is {ratio} as fast"
        yield find(kind=FindingKind.SLOWER, size=logs[worst], summary=summary)
    was, now = before.acceptance, after.acceptance
    if was is not None and now is not None and was.accept_rate - now.accept_rate > _LEAST_DROP:
        rates = [units.format_percent(rate.accept_rate, 1) for rate in (was, now)]
        summary = f"{rates[1]} of the drafted tokens are accepted, and {rates[0]} before"
        yield find(kind=FindingKind.ACCEPTANCE, size=was.accept_rate - now.accept_rate, summary=summary)


def _of_acceptance(bench: ResultSet) -> Iterator[UpstreamFinding]:
    """Yield an arm whose drafts are hardly ever accepted."""
    for arm in arms.group(bench):
        counts = arm.acceptance
        if counts is None or arm.synthetic or arm.spec.traffic or arm.spec.servers:
            continue
        if counts.n_drafted >= _LEAST_DRAFTED and counts.accept_rate < HARDLY_ACCEPTED:
            rate = units.format_percent(counts.accept_rate, 1)
            yield UpstreamFinding(
                kind=FindingKind.ACCEPTANCE,
                spec=_spec_of(arm, None),
                builds=(arm.build,),
                engine=arm.runs[0].engine,
                summary=f"{rate} of {counts.n_drafted:,} drafted tokens are accepted",
            )
            return


def _of_bisection(bisected: BisectedBench) -> Iterator[UpstreamFinding]:
    """Yield what is worse behind the step that a bisection found."""
    groups = [arm for arm in arms.group(bisected.bench) if arm.role in bisected.quantity.roles]
    for arm in sorted(groups, key=lambda arm: arm.role is not Role.DRAFTING):
        if arm.spec.build != bisected.bad:
            continue
        same = replace(arm.spec, build=bisected.good)
        before = next((other for other in groups if other.spec == same), None)
        if before is not None:
            for finding in _of_change(before, arm, is_slower=bisected.quantity.is_ratio):
                yield replace(finding, first_bad=bisected.versions)


def _spec_of(arm: Arm, prompt: str | None) -> RunSpec:
    """Return the specification of an arm's run on a prompt; on the first one without a name."""
    return next(spec for spec in arm.good.specs if prompt in {None, spec.prompt.id})


def _mean_log(arm: Arm, prompt: str) -> float:
    return fmean(math.log(rate) for (name, _), rate in arm.rates.items() if name == prompt)
