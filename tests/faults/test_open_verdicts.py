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
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from ggufspec import paths, results, tuning
from ggufspec.analysis import arms, boards, map_crossover
from ggufspec.analysis.boards import BundleState
from ggufspec.choices import ServerFormat
from ggufspec.cli.tuning import print_commands, print_finished
from ggufspec.domain import NO_PROMPT, Launch, RunSpec, Serving, SpeedVerdict
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.options import AutoOptions
from ggufspec.publishing import derived
from ggufspec.report.text import tuned as tuned_report
from ggufspec.results import CrossoverAxes, ResultSet
from ggufspec.tuning import Tuned
from ggufspec.tuning.verdicts import configuration_of
from tests.support import crossed, fake_server, fakes, published, shell, tunings, values
from tests.support.simulated_tuning import simulate_tuning

CLAIMS = re.compile(r"do not draft|fastest|draft with|is faster|is slower|No arm is faster", re.IGNORECASE)
"""What may be printed only of what was found."""
EXCUSED = re.compile(
    r"whether .{0,80}?is faster|(?:blue|orange) is \w+|warning .*|another configuration may be faster"
)
DRAFTS = re.compile(r"--model-draft|--spec-(?!draft-(?:n-min|p-split))|\bspec-type|-md\b")
"""What makes a server draft."""
HALF_WIDTH = re.compile(r"±(\d+)")
INTERVAL = re.compile(r"\[(\d[\d.,]*)×?, (\d[\d.,]*)×?\]")
SEARCH = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],  # commands are slow
)


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
    def bench(self) -> ResultSet:
        random = np.random.default_rng(self.seed)
        speeds = {
            draft: lambda *_, gain=gain: 40.0 * gain * math.exp(random.normal(0, self.noise))
            for draft, gain in ((None, 1.0), (3, self.gains[0]), (8, self.gains[1]))
        }
        made = [
            replace(run, spec=self._placed(run.spec), doubts=("busy-machine",) if self.busy else ())
            for run in values.grid(speeds, prompts=self.prompts, repeats=self.repeats)
        ]
        return values.bench(*made[: max(3, len(made) - self.dropped)], planned_runs=len(made))

    def _placed(self, spec: RunSpec) -> RunSpec:
        """Return a specification with the paths of models that exist."""
        if not self.placed:
            return spec
        demo = paths.models_dir() / "demo"
        target = replace(spec.pair.target, path=demo / "target.gguf", content=None)
        draft = spec.pair.draft
        draft = draft and replace(draft, path=demo / "drafter.gguf", content=None)
        return replace(spec, pair=replace(spec.pair, target=target, draft=draft))


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


def _verdicts(bench: ResultSet) -> set[SpeedVerdict]:
    return {arm.judgement.verdict for arm in arms.group(bench) if arm.judgement is not None}


def _claims(text: str) -> str | None:
    """Return the first claim of a finding in a text or a page."""
    words = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    claim = CLAIMS.search(EXCUSED.sub("", words))
    return None if claim is None else words[max(0, claim.start() - 80) : claim.end() + 80]


def _printed(*words: str) -> str:
    done = shell.done(*words)
    return done.stdout + done.stderr


@SEARCH
@given(simulated)
def test_no_command_prints_an_open_bench_as_a_finding(home: Path, case: Simulated) -> None:
    name, found = case.bench.meta.id, _verdicts(case.bench)
    shown = _printed("show", name, "-o", "md")
    _refuse_absurd_figures(shown)
    if SpeedVerdict.FASTER in found or (found and SpeedVerdict.UNDECIDED not in found):
        return
    assert ("Undecided: " in shown) == bool(found)
    for words in (
        ("show", name),
        ("show", name, "--per", "prompt"),
        ("show", name, "--all"),
        ("show", name, "--variance"),
        ("show", name, "--plot"),
        ("show", "--list"),
        ("why", name),
    ):
        assert _claims(_printed(*words)) is None, words
    assert _claims(shown) is None
    rows = boards.list_rows(case.bench, bundle="b", sha256="ab", state=BundleState.VERIFIED)
    assert _claims(" ".join(row.arm.judgement.verdict for row in rows if row.arm.judgement)) is None


def _refuse_absurd_figures(text: str) -> None:
    assert all(int(half) <= 300 for half in HALF_WIDTH.findall(text)), text
    for lo, hi in INTERVAL.findall(text):
        low, high = (float(end.replace(",", "").rstrip(".")) for end in (lo, hi))
        assert high <= 5.3 * low, text  # both are rounded


@settings(SEARCH, max_examples=2)  # a page takes a second
@given(simulated)
def test_pages_of_an_open_bench_claim_nothing(home: Path, case: Simulated) -> None:
    found = _verdicts(case.bench)
    if SpeedVerdict.UNDECIDED not in found or SpeedVerdict.FASTER in found:
        return
    name, page = case.bench.meta.id, home / "page.html"
    _printed("report", name, "--out", str(page))
    files = derived.derive_files([case.bench], published.facts(name), draws=False)
    texts = [content.decode() for file, content in files.items() if file.endswith((".md", ".html"))]
    assert len(texts) > 1
    for text in (page.read_text(encoding="utf-8"), *texts):
        assert _claims(text) is None


@SEARCH
@given(simulated, simulated)
def test_a_comparison_of_open_benches_finds_nothing(home: Path, case: Simulated, other: Simulated) -> None:
    names = (case.bench.meta.id, other.bench.meta.id)
    rows = json.loads(_printed("compare", *names, "-o", "json"))
    if {row["verdict"] for row in rows} <= {"undecided", None}:
        assert _claims(_printed("compare", *names)) is None


@SEARCH
@given(simulated)
def test_a_tuning_drafts_and_serves_only_what_was_found_to_be_faster(home: Path, case: Simulated) -> None:
    bench = replace(case, placed=True).bench
    if tuning.why_unusable(bench) is not None:
        return
    tuned = tuning.judge_finalists(
        tunings.outlook(prompts=()), tuning.select_arms(bench), bench, measuring_s=1.0
    )
    choice, stored = tuned.overall, configuration_of(tuned)
    assert choice.drafts == (choice.judgement is not None and choice.judgement.pays)
    if choice.is_decided:
        return
    assert (stored.spec.drafting, stored.overall.drafts) == (None, False)
    assert (stored.compared.drafting is not None, stored.compared.prompt) == (True, NO_PROMPT)
    assert "drafter" not in tuned_report.pair_entry(tuned)
    with pytest.MonkeyPatch.context() as patched:
        _simulate(tuned, _llama(home / "llama"), patched)
        printed = _printed("tune", "--pair", "demo")
        configured = results.read_configuration(tuned.results.meta.id)
        ending = io.StringIO()
        with contextlib.redirect_stdout(ending):
            print_finished(configured)
            print_commands(configured, AutoOptions(target="demo"))
    for text in (printed, ending.getvalue(), _printed("show", configured.id)):
        assert _claims(text) is None, text
        assert "Undecided: " in text
        assert "target alone is what is safe" in text
        served = [line for line in text.splitlines() if "llama-server" in line]
        assert not any(DRAFTS.search(line) for line in served), text
    for form in ServerFormat:
        exported = _printed("serve", "--tuned", configured.id, "--export", form.value)
        assert DRAFTS.search(exported) is None, exported
        assert _claims(exported) is None


def _llama(folder: Path) -> Path:
    if not folder.exists():
        fakes.install(folder, **fakes.AT_ONCE)
        fake_server.program(folder / "llama-server")
    return folder


def _simulate(tuned: Tuned, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the steps of a tuning up to its benches come to this result; all that is printed is real."""
    install = installs.find_install(llama)
    meta = replace(tuned.results.meta, build=replace(tuned.results.meta.build, path=str(llama)))

    def serve(tuned: Tuned) -> Tuned:
        spec = tuned.overall.spec
        argv = commands.serving_argv(spec, install, slots=1, port=8080)
        return replace(tuned, serving=Serving(context=spec.context), launch=Launch(argv=argv))

    tuned = replace(tuned, results=replace(tuned.results, meta=meta))
    simulate_tuning(monkeypatch, tuned, install, serve)


@settings(SEARCH, max_examples=6)
@given(
    gain=st.floats(0.5, 2.0),
    noise=st.sampled_from([0.0, 0.01, 0.1, 0.6]),
    repeats=st.integers(1, 3),
    busy=st.booleans(),
)
def test_crossovers_claim_no_more(home: Path, gain: float, noise: float, repeats: int, busy: bool) -> None:
    axes = CrossoverAxes(users=(1, 8), depths=(0,))
    bench = crossed.bench([(1, 0), (8, 0)], lambda users, depth, draft: gain, repeats=repeats, noise=noise)
    if busy:
        bench = values.bench(*(replace(run, doubts=("busy-machine",)) for run in bench.runs))
    results.write_crossover_axes(axes, bench.folder)
    undecided, page = map_crossover(bench, axes).undecided, home / "page.html"
    shown = _printed("show", bench.meta.id)
    assert ("undecided" in shown) == bool(undecided)
    if len(undecided) == 2:
        _printed("report", bench.meta.id, "--out", str(page))
        for text in (shown, page.read_text(encoding="utf-8")):
            assert _claims(text) is None
            assert "pays" not in shown
            assert "target alone is what is safe" in text
