"""Does a finding still show, and by which options alone?"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from ggufspec.choices import FindingKind
from ggufspec.domain import Program, RunSpec, Status
from ggufspec.engines import reduced
from ggufspec.llama.install import Install
from ggufspec.measure import audit
from ggufspec.publishing.upstream.showing import HARDLY_ACCEPTED, UpstreamFinding
from ggufspec.tuning.bisect import VersionDifference

_LONGEST_S = 600.0  # of a run, and of a load
_LOOKS = (3, 5, 8)  # pairs of runs after which two speeds are compared
_TAIL = 0.025
_SAMPLING = frozenset({"--temp", "temperature"})
_DRAFTER = frozenset({"--model-draft", "-md", "--spec-type"})
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+")

KEPT = {
    FindingKind.CRASH: frozenset[str](),
    FindingKind.TEXT: _SAMPLING,
    FindingKind.OFF: _SAMPLING | _DRAFTER,
    FindingKind.SLOWER: _SAMPLING,
    FindingKind.ACCEPTANCE: _SAMPLING | _DRAFTER,
}
"""Options without which a finding would be another one: texts that are drawn, or drafts nobody asked for."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The runs that show a finding, in turn by each llama.cpp or, for a text, by the target alone first."""

    runs: tuple[reduced.ReducedRun, ...]
    says: str


@dataclass(frozen=True, kw_only=True)
class Reproducer:
    """Runs what shows a finding, by commands of llama.cpp alone."""

    finding: UpstreamFinding
    installs: tuple[Install, ...]  # as ``finding.builds``
    _alone: dict[frozenset[str], reduced.ReducedRun] = field(default_factory=dict, compare=False)

    @property
    def program(self) -> Program:
        """The program that shows it."""
        return reduced.program_of(self.finding.engine, self.finding.spec, self.installs[-1])

    def look(self, dropped: Set[str] = frozenset(), like: Evidence | None = None) -> Evidence | None:
        """Run the commands without some options.

        Args:
            dropped: the options.
            like: what it must show the same as, where texts or messages could be of another fault.

        Returns:
            What shows the finding; None where it does not show.
        """
        match self.finding.kind:
            case FindingKind.CRASH:
                run = self._run(self.finding.spec, dropped)
                said = _NUMBER.sub("#", run.error or "")
                is_same = like is None or said == _NUMBER.sub("#", like.runs[0].error or "")
                shows = run.sample.status is Status.CRASHED and is_same
                return Evidence(runs=(run,), says=f"it crashes: {run.error}") if shows else None
            case FindingKind.TEXT:
                return self._look_at_texts(dropped, like)
            case FindingKind.OFF:
                run = self._run(self.finding.spec, dropped)
                ended = run.is_good or run.sample.status is Status.DRAFTING_INACTIVE
                if not ended or run.sample.n_drafted:
                    return None
                return Evidence(runs=(run,), says="it is started to draft, and drafts nothing")
            case FindingKind.SLOWER:
                return self._look_at_speeds(dropped)
            case FindingKind.ACCEPTANCE:
                return self._look_at_acceptance(dropped)

    def _run(self, spec: RunSpec, dropped: Set[str], install: Install | None = None) -> reduced.ReducedRun:
        install = install or self.installs[-1]
        program = reduced.program_of(self.finding.engine, spec, install)
        return reduced.run_reduced(spec, install, program=program, dropped=dropped, timeout_s=_LONGEST_S)

    def _look_at_texts(self, dropped: Set[str], like: Evidence | None) -> Evidence | None:
        baseline = self.finding.spec.baseline
        changes = frozenset(dropped) if like is None else frozenset(dropped & like.runs[0].names)
        if changes not in self._alone:  # most options that are dropped are not the target's
            self._alone[changes] = self._run(baseline, dropped)
        runs = (self._alone[changes], self._run(self.finding.spec, dropped))
        own, drafted = (run.sample.text for run in runs)
        if own is None or drafted is None or not all(run.is_good for run in runs):
            return None
        at = audit.compare(drafted, own)
        if at is None or (like is not None and [run.sample.text for run in like.runs] != [own, drafted]):
            return None
        return Evidence(runs=runs, says=f"the text with drafting differs from character {at + 1} on")

    def _look_at_acceptance(self, dropped: Set[str]) -> Evidence | None:
        runs = tuple(self._run(self.finding.spec, dropped, install) for install in self.installs)
        rates = [run.sample.accept_rate for run in runs]
        if None in rates or not all(run.is_good for run in runs):
            return None
        *before, now = (rate for rate in rates if rate is not None)
        shows = before[0] - now > self.finding.size / 2 if before else now < HARDLY_ACCEPTED
        return Evidence(runs=runs, says=f"{now:.1%} of the drafted tokens are accepted") if shows else None

    def _look_at_speeds(self, dropped: Set[str]) -> Evidence | None:
        """Run both llama.cpps in turn until it is clear that half the difference shows, or does not."""
        runs: list[reduced.ReducedRun] = []
        logs: list[float] = []
        half = self.finding.size / 2
        for number in range(_LOOKS[-1]):
            pair = [self._run(self.finding.spec, dropped, install) for install in self.installs]
            before, after = (run.sample.decode_tps for run in pair)
            if not before or not after or not all(run.is_good for run in pair):
                return None
            runs += pair
            logs.append(math.log(before / after))
            if number + 1 in _LOOKS:
                seen = VersionDifference.of(0, 1, logs, _TAIL)
                if seen.hi < half:
                    return None
                if seen.lo > half or (number + 1 == _LOOKS[-1] and seen.lo > 0 and seen.value > half):
                    lo, hi = (math.exp(-end) for end in (seen.hi, seen.lo))
                    ratio = f"{math.exp(-seen.value):.2f}× [{lo:.2f}×, {hi:.2f}×]"
                    return Evidence(
                        runs=tuple(runs), says=f"it is {ratio} as fast in {len(logs)} pairs of runs"
                    )
        return None


def reduce_options(
    groups: Sequence[Sequence[str]], shows: Callable[[frozenset[str]], bool]
) -> frozenset[str]:
    """Return the options that a finding shows without: of those left, none can be dropped alone.

    Many are dropped at once first, then fewer, as most of them change nothing (Zeller and Hildebrandt 2002).

    Args:
        groups: the options that may be dropped; those of a group are tried together first.
        shows: whether it shows without some of them.
    """
    shows = functools.cache(shows)  # a last round often asks again what the one before it found
    dropped, left = frozenset[str](), list[str]()
    for group in groups:
        if group and shows(dropped | {*group}):
            dropped |= {*group}
        else:
            left += group
    size = max(1, len(left) // 2)
    while left:
        start, before = 0, len(left)
        while start < len(left):
            part = frozenset(left[start : start + size])
            if shows(dropped | part):
                dropped |= part
                del left[start : start + size]
            else:
                start += size
        if size == 1 and len(left) == before:
            break
        size = max(1, size // 2)
    return dropped
