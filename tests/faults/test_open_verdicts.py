"""A property of every text: where a verdict is open, nothing says so or so as if it had been found.

Benches are simulated with true speed-ups, noise, and as few runs as a time limit leaves, and go through the
real code of every command that prints a verdict.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from ggufspec import paths, results, tuning
from ggufspec.analysis import arms, boards, listing, map_crossover
from ggufspec.analysis.boards import BundleState
from ggufspec.choices import ServerFormat
from ggufspec.cli.tuning import print_commands, print_finished
from ggufspec.domain import NO_PROMPT, Launch, Role, RunResult, RunSpec, Serving, SpeedVerdict
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.options import AutoOptions
from ggufspec.publishing import derived
from ggufspec.report.text import configuration, crossovers, details, overview, reasons, tuned as tuned_report
from ggufspec.report.text.verdict import verdicts
from ggufspec.results import CrossoverAxes, ResultSet
from ggufspec.tuning import Tuned, TuningForecast
from ggufspec.tuning.values import Spent
from ggufspec.tuning.verdicts import configuration_of
from tests.support import crossed, fake_server, fakes, shell, values
from tests.support.simulated_tuning import simulate_tuning

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
    placed: bool = False  # whether model files exist, which can be served

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
                    run = replace(run, spec=self._placed(run.spec))
                    made.append(replace(run, doubts=("busy-machine",) if self.busy else ()))
        return made[: max(3, len(made) - self.dropped)]

    def _placed(self, spec: RunSpec) -> RunSpec:
        """Return a specification with the paths of models that exist."""
        if not self.placed:
            return spec
        demo = paths.models_dir() / "demo"
        target = replace(spec.pair.target, path=demo / "target.gguf", content=None)
        draft = spec.pair.draft
        draft = draft and replace(draft, path=demo / "drafter.gguf", content=None)
        return replace(spec, pair=replace(spec.pair, target=target, draft=draft))

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
        yield details.checks(bench, output)
        yield details.variance(bench, output)
    yield reasons.why(bench)
    yield overview.bench_list([listing.summarize(bench)])
    rows = boards.list_rows(bench, bundle="b", sha256="ab", state=BundleState.VERIFIED)
    yield " ".join(row.arm.judgement.verdict for row in rows if row.arm.judgement)


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
    stored = configuration_of(tuned)
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
def test_crossovers_claim_no_more(home: object, gain: float, noise: float, repeats: int, busy: bool) -> None:
    bench = crossed.bench([(1, 0), (8, 0)], lambda users, depth, draft: gain, repeats=repeats, noise=noise)
    if busy:
        runs = [replace(run, doubts=("busy-machine",)) for run in bench.runs]
        bench = values.bench(*runs)
    found = map_crossover(bench, CrossoverAxes(users=(1, 8), depths=(0,)))
    undecided = {cell.users for cell in found.undecided}
    said = crossovers.policy(found)
    assert ("undecided" in said) == bool(undecided)
    if len(undecided) == 2:
        assert CLAIMS.search(said) is None
        assert "pays" not in said
        assert "target alone is what is safe" in said


def test_the_candidate_of_an_open_tuning_is_what_is_measured_again() -> None:
    case = Simulated(gains=(1.1, 1.2), noise=0.5, prompts=2, repeats=3, dropped=0, busy=False, seed=1)
    tuned = _tuned(case)
    assert tuned is not None
    stored = configuration_of(tuned)
    compared: RunSpec = stored.compared
    assert compared.drafting is not None
    assert compared.prompt == NO_PROMPT


# The commands themselves, over the same stored sessions.

COMMANDS = settings(SEARCH, max_examples=10, phases=[Phase.explicit, Phase.generate])  # commands are slow
DRAFTS = re.compile(r"--model-draft|--spec-(?!draft-(?:n-min|p-split))|\bspec-type|-md\b")
"""What makes a server draft."""
EXCUSED = re.compile(
    r"whether .{0,80}?is faster|(?:blue|orange) is \w+|warning .*|another configuration may be faster"
)


def _claims(text: str) -> str | None:
    """Return the first claim of a finding in a text or a page."""
    words = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    claim = CLAIMS.search(EXCUSED.sub("", words))
    return None if claim is None else words[max(0, claim.start() - 80) : claim.end() + 80]


def _printed(*words: str) -> str:
    done = shell.done(*words)
    return done.stdout + done.stderr


def _is_open(bench: ResultSet) -> bool:
    found = _judgements(bench)
    return SpeedVerdict.UNDECIDED in found and SpeedVerdict.FASTER not in found


@COMMANDS
@given(simulated)
def test_no_command_prints_an_open_bench_as_a_finding(home: Path, case: Simulated) -> None:
    bench = case.bench
    if not _is_open(bench):
        return
    name = bench.meta.id
    for words in (
        ("show", name),
        ("show", name, "-o", "md"),
        ("show", name, "--per", "prompt"),
        ("show", name, "--all"),
        ("show", name, "--variance"),
        ("show", name, "--plot"),
        ("show", "--list"),
        ("why", name),
    ):
        assert _claims(_printed(*words)) is None, words


@settings(COMMANDS, max_examples=2)  # a page takes a second
@given(simulated)
def test_pages_of_an_open_bench_claim_nothing(home: Path, case: Simulated) -> None:
    if not _is_open(case.bench):
        return
    name, page = case.bench.meta.id, home / "page.html"
    _printed("report", name, "--out", str(page))
    facts = derived.Facts(
        benches=(name,),
        made_at=case.bench.runs[0].started_at,
        author=None,
        with_texts=False,
        with_parquet=False,
        with_charts=False,
        versions={"ggufspec": "1"},
    )
    files = derived.derive_files([case.bench], facts, draws=False)
    published = [content.decode() for file, content in files.items() if file.endswith((".md", ".html"))]
    assert len(published) > 1
    for text in (page.read_text(encoding="utf-8"), *published):
        assert _claims(text) is None


@COMMANDS
@given(simulated, simulated)
def test_a_comparison_of_open_benches_finds_nothing(home: Path, case: Simulated, other: Simulated) -> None:
    names = (case.bench.meta.id, other.bench.meta.id)
    rows = json.loads(_printed("compare", *names, "-o", "json"))
    if {row["verdict"] for row in rows} <= {"undecided", None}:
        assert _claims(_printed("compare", *names)) is None


class _Steps:
    """The steps of a tuning up to its benches, which are simulated; all that is printed is real."""

    def __init__(self, tuned: Tuned, llama: Path) -> None:
        meta = replace(tuned.results.meta, build=replace(tuned.results.meta.build, path=str(llama)))
        self.tuned = replace(tuned, results=replace(tuned.results, meta=meta))
        self.install = installs.find_install(llama)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        simulate_tuning(monkeypatch, self.tuned, self.install, self.serve)

    def serve(self, tuned: Tuned) -> Tuned:
        spec = tuned.overall.spec
        argv = commands.serving_argv(spec, self.install, slots=1, port=8080)
        return replace(tuned, serving=Serving(context=spec.context), launch=Launch(argv=argv))


@COMMANDS
@given(simulated)
def test_tune_and_what_it_stores_serve_no_open_drafting(home: Path, case: Simulated) -> None:
    llama = home / "llama"
    if not llama.exists():
        fakes.install(llama, **fakes.AT_ONCE)
        fake_server.program(llama / "llama-server")
    tuned = _tuned(replace(case, placed=True))
    if tuned is None or tuned.overall.is_decided:
        return
    with pytest.MonkeyPatch.context() as patched:
        _Steps(tuned, llama).use(patched)
        printed = _printed("tune", "--pair", "demo")
        configured = results.read_configuration(tuned.results.meta.id)
        ending = io.StringIO()
        with contextlib.redirect_stdout(ending):
            print_finished(configured)
            print_commands(configured, AutoOptions(target="demo"))
    for text in (printed, ending.getvalue(), _printed("show", configured.id)):
        assert _claims(text) is None, text
        assert "Undecided: " in text
        served = [line for line in text.splitlines() if "llama-server" in line]
        assert not any(DRAFTS.search(line) for line in served), text
    for form in ServerFormat:
        exported = _printed("serve", "--tuned", configured.id, "--export", form.value)
        assert DRAFTS.search(exported) is None, exported
        assert _claims(exported) is None


@settings(COMMANDS, max_examples=2)
@given(gain=st.floats(0.5, 2.0), noise=st.sampled_from([0.1, 0.6]), repeats=st.integers(1, 3))
def test_open_crossovers_pages_say_what_is_safe(home: Path, gain: float, noise: float, repeats: int) -> None:
    axes = CrossoverAxes(users=(1, 8), depths=(0,))
    bench = crossed.bench([(1, 0), (8, 0)], lambda users, depth, draft: gain, repeats=repeats, noise=noise)
    if len(map_crossover(bench, axes).undecided) < 2:
        return
    results.write_crossover_axes(axes, bench.folder)
    page = home / "page.html"
    _printed("report", bench.meta.id, "--out", str(page))
    for text in (_printed("show", bench.meta.id), page.read_text(encoding="utf-8")):
        assert _claims(text) is None
        assert "target alone" in text
