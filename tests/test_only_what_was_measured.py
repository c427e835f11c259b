"""A property of every text: where a verdict is open, nothing says so or so as if it had been found.

Benches are simulated with true speed-ups, noise, and as few runs as a time limit leaves, and go through the
real code of every command that prints a verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggufspec import tuning
from ggufspec.analysis import arms, boards, listing, map_crossover
from ggufspec.analysis.boards import BundleState
from ggufspec.domain import NO_PROMPT, Role, RunResult, RunSpec, SpeedVerdict
from ggufspec.report.text import configuration, crossovers, overview, precision, reasons
from ggufspec.report.text import listing as bench_list
from ggufspec.report.text import tuned as tuned_report
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import CrossoverAxes, ResultSet
from ggufspec.tuning import Tuned, TuningForecast, recommending
from ggufspec.tuning.values import Spent
from tests.support import crossed, fakes, values

CLAIMS = re.compile(r"do not draft|fastest|draft with|is faster|is slower|No arm is faster", re.IGNORECASE)
"""What may be printed only of what was found."""

ABSURD = re.compile(r"±(\d+)")
INTERVAL = re.compile(r"\[(\d[\d.,]*)×?, (\d[\d.,]*)×?\]")
SEARCH = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A bench of two drafting arms: how fast they are, how much runs scatter, and how many there are."""

    gains: tuple[float, float]
    noise: float
    prompts: int
    repeats: int
    dropped: int  # runs that the time limit cut off at the end
    busy: bool
    seed: int

    @cached_property
    def runs(self) -> list[RunResult]:
        random = np.random.default_rng(self.seed)
        made = []
        for repeat in range(self.repeats):
            for number in range(self.prompts):
                for draft, gain in ((None, 1.0), (3, self.gains[0]), (8, self.gains[1])):
                    run = values.run(
                        Role.TARGET if draft is None else Role.DRAFTING,
                        prompt=f"p{number}",
                        repeat=repeat,
                        tps=40.0 * gain * math.exp(random.normal(0, self.noise)),
                        draft=draft,
                    )
                    made.append(replace(run, doubts=("busy-machine",) if self.busy else ()))
        return made[: max(3, len(made) - self.dropped)]

    @property
    def planned(self) -> int:
        return 3 * self.prompts * self.repeats

    @cached_property
    def bench(self) -> ResultSet:
        return values.bench(*self.runs, planned_runs=self.planned)


simulated = st.builds(
    Simulated,
    gains=st.tuples(st.floats(0.5, 2.5), st.floats(0.5, 2.5)),
    noise=st.sampled_from([0.001, 0.02, 0.1, 0.5, 1.5]),
    prompts=st.integers(1, 4),
    repeats=st.integers(1, 3),
    dropped=st.integers(0, 30),
    busy=st.booleans(),
    seed=st.integers(0, 10_000),
)


def _texts(bench: ResultSet) -> Iterator[str]:
    groups = arms.group(bench)
    yield " ".join(verdicts(groups))
    for output in ("md", "table"):
        yield overview.overview(bench, output)
        yield precision.checks(bench, output)
        yield precision.variance(bench, output)
    yield reasons.why(bench)
    yield bench_list.table([listing.summarize(bench)])
    rows = boards.list_rows(bench, bundle="b", sha256="ab", state=BundleState.VERIFIED)
    yield " ".join(row.verdict or "" for row in rows)


def _judgements(bench: ResultSet) -> list[SpeedVerdict]:
    return [arm.judgement.verdict for arm in arms.group(bench) if arm.judgement is not None]


@SEARCH
@given(simulated)
def test_an_open_bench_is_never_printed_as_a_finding(home: object, case: Simulated) -> None:
    found = _judgements(case.bench)
    if SpeedVerdict.FASTER in found or (SpeedVerdict.UNDECIDED not in found and found):
        return
    for text in _texts(case.bench):
        claim = CLAIMS.search(re.sub(r"whether this drafting is faster|warning .*", "", text))
        assert claim is None, text
    if found:
        assert "Undecided: " in " ".join(verdicts(arms.group(case.bench)))


@SEARCH
@given(simulated)
def test_no_absurd_figure_is_printed(home: object, case: Simulated) -> None:
    for text in (" ".join(verdicts(arms.group(case.bench))), overview.overview(case.bench, "md")):
        assert all(int(half) <= 300 for half in ABSURD.findall(text)), text
        for lo, hi in INTERVAL.findall(text):
            low, high = (float(end.replace(",", "").rstrip(".")) for end in (lo, hi))
            assert high <= 5.3 * low, text  # both are rounded


def _outlook() -> TuningForecast:
    return TuningForecast(
        prospects=(), unknown=(), prompts=(), n_predict=32, finalists=2, spent=Spent(traces_s=1.0)
    )


def _tuned(case: Simulated) -> Tuned | None:
    bench = case.bench
    if tuning.why_unusable(bench) is not None:
        return None
    return tuning.judge_finalists(_outlook(), tuning.select_arms(bench), bench, measuring_s=1.0)


@SEARCH
@given(simulated)
def test_a_tuning_drafts_and_serves_only_what_was_found_to_be_faster(home: object, case: Simulated) -> None:
    tuned = _tuned(case)
    if tuned is None:
        return
    choice = tuned.overall
    assert choice.drafts == (choice.judgement is not None and choice.judgement.pays)
    stored = recommending.configuration_of(tuned)
    printed = tuned_report.text(tuned, fakes.recorded_install("0.3.36"), "BENCH")
    commands = printed.partition("as an entry of your own catalogue")[0]
    entry = tuned_report.pair_entry(tuned)
    if choice.is_decided:
        return
    for text in (printed, *configuration.lines(stored)):
        assert CLAIMS.search(re.sub(r"warning .*|undecided whether drafting is faster", "", text)) is None
    assert "Undecided: " in printed
    assert "target alone is what is safe" in printed
    assert "--model-draft" not in commands.replace("BENCH", "")
    assert "drafter" not in entry
    assert (stored.spec.drafting, stored.overall.drafts) == (None, False)
    assert stored.compared.drafting is not None or choice.candidate is None


@SEARCH
@given(
    gain=st.floats(0.5, 2.0),
    noise=st.sampled_from([0.0, 0.01, 0.1, 0.6]),
    repeats=st.integers(1, 3),
    busy=st.booleans(),
)
def test_a_crossover_says_what_to_do_only_where_that_was_found(
    home: object, gain: float, noise: float, repeats: int, busy: bool
) -> None:
    bench = crossed.bench([(1, 0), (8, 0)], lambda users, depth, draft: gain, repeats=repeats, noise=noise)
    if busy:
        runs = [replace(run, doubts=("busy-machine",)) for run in bench.runs]
        bench = values.bench(*runs)
    found = map_crossover(bench, CrossoverAxes(users=(1, 8), depths=(0,)))
    undecided = {cell.users for cell in found.undecided}
    said = crossovers.policy(found) + " ".join(crossovers.limits(found))
    assert ("undecided" in said) == bool(undecided)
    if len(undecided) == 2:
        assert CLAIMS.search(said) is None
        assert "pays" not in said
        assert "target alone is what is safe" in said


def test_the_candidate_of_an_open_tuning_is_what_is_measured_again() -> None:
    case = Simulated(gains=(1.1, 1.2), noise=0.5, prompts=2, repeats=3, dropped=0, busy=False, seed=1)
    tuned = _tuned(case)
    assert tuned is not None
    stored = recommending.configuration_of(tuned)
    compared: RunSpec = stored.compared
    assert compared.drafting is not None
    assert compared.prompt == NO_PROMPT
