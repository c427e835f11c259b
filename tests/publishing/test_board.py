"""A board over bundles of many machines: its rows follow from runs, and what strangers wrote stays text."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from interval_paths import stored
from interval_paths.stored import SimulatedArm

from ggufspec import publishing, results
from ggufspec.analysis import BundleState, arms, boards
from ggufspec.domain import Drafting, RunResult
from ggufspec.errors import ResultsError
from ggufspec.report.html import board as page, notebook
from ggufspec.results import archive
from tests.support import published, shell
from tests.support.pages import Page
from tests.support.published import IDENTITY, PRIVATE
from tests.support.swept import HARMFUL

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that publishes a bench, without its tables and charts, which take longest."""

    def published_bundle(name: str, change: Callable[[RunResult], RunResult] = lambda run: run) -> Path:
        with monkeypatch.context() as patch:
            published.leave_out_pages(patch)
            bench = published.bench(name=f"bench-{name}")
            folder = tmp_path / name
            publishing.publish([bench], folder, identity=IDENTITY, private=(PRIVATE,))
        copied = results.load(folder / "benches" / f"bench-{name}")
        results.write_bench(copied.folder, copied.meta, [change(run) for run in copied.runs])
        archive.write_hashes(folder)
        return folder

    return published_bundle


def harm(run: RunResult) -> RunResult:
    """Give a run's models names that leave an attribute, a script and a template."""
    pair = run.spec.pair
    draft = None if pair.draft is None else replace(pair.draft, filename=HARMFUL)
    pair = replace(pair, target=replace(pair.target, filename=HARMFUL), draft=draft)
    return replace(run, spec=replace(run.spec, pair=pair))


def test_a_row_has_what_the_bench_says(make: Make) -> None:
    bundle = make("one")
    read = publishing.read_bundle(bundle)
    (row,) = read.rows
    (arm,) = [arm for arm in arms.group(results.load(bundle / "benches" / "bench-one")) if arm.gain]
    assert row.speedup == arm.gain.ratio
    assert (row.tps.value, row.gamma, row.verdict) == (arm.rate.value, 3, arm.judgement.verdict.value)
    assert (row.pair, row.machine) == ("model-1-Q4_K_M.gguf + drafter-***.gguf", "A Processor, 2 cores")
    assert row.build.endswith(", cpu")
    assert (row.bundle, row.bench, row.state) == ("one", "bench-one", BundleState.UNCHECKED)
    assert read.sha256 == archive.hash_file(bundle / "verify.txt")


def test_a_zip_and_its_folder_are_one_bundle(make: Make, tmp_path: Path) -> None:
    folder = make("one")
    packed = tmp_path / "again.zip"
    archive.write_zip(folder, packed)
    read = [publishing.read_bundle(folder), publishing.read_bundle(packed)]
    assert read[1].report == packed
    assert boards.make_board(read).bundles == (read[0],)


def test_rows_begin_with_the_largest_speedup_and_synthetic_ones_are_left_out(make: Make) -> None:
    def slow(run: RunResult) -> RunResult:
        gen_s = run.sample.gen_s
        is_slow = run.spec.drafting is not None and gen_s is not None
        return replace(run, sample=replace(run.sample, gen_s=3 * gen_s)) if is_slow and gen_s else run

    def invent(run: RunResult) -> RunResult:
        if run.spec.drafting is None:
            return run
        drafting = Drafting(n_max=run.spec.drafting.n_max, synthetic=(0.5,))
        return replace(run, spec=replace(run.spec, drafting=drafting))

    read = [publishing.read_bundle(make(name, change)) for name, change in {"a": slow, "b": harm}.items()]
    speedups = [row.speedup.value for row in boards.make_board(read).rows if row.speedup is not None]
    assert speedups == sorted(speedups, reverse=True)
    assert len(speedups) == 2
    assert publishing.read_bundle(make("c", invent)).rows == ()


def test_what_strangers_wrote_stays_text(make: Make, tmp_path: Path) -> None:
    odd = tmp_path / "javascript:alert(1)"
    shutil.copytree(make("one", harm), odd)
    board = boards.make_board([publishing.read_bundle(odd)])
    shown = Page(page.html(board, tmp_path))
    assert not {tag for tag, _ in shown.elements} & {"img", "iframe", "object", "embed", "form", "svg"}
    assert not [name for _, about in shown.elements for name in about if name.startswith("on")]
    assert HARMFUL in shown.words
    assert {about["href"] for tag, about in shown.elements if tag == "a"} == {
        "#main",
        "./javascript%3Aalert%281%29/report.html",
    }
    assert "<img" not in notebook.notebook_html(board)


def test_only_our_own_scripts_run_and_nothing_is_fetched(make: Make, tmp_path: Path) -> None:
    shown = Page(page.html(boards.make_board([publishing.read_bundle(make("one"))]), tmp_path))
    kept = {"script": set[str](), "style": set[str]()}
    for tag, about, data in shown.sources:
        assert not about
        kept[tag].add(f"'sha256-{base64.b64encode(hashlib.sha256(data.encode()).digest()).decode()}'")
    rules = dict(rule.split(" ", 1) for rule in shown.policy().split("; "))
    assert rules["default-src"] == "'none'"
    assert set(rules["script-src"].split()) == kept["script"]
    assert set(rules["style-src"].split()) == kept["style"]
    assert len(kept["script"]) == 2
    assert not [about for _, about in shown.elements if "src" in about]


def test_columns_with_several_values_are_filters(make: Make, tmp_path: Path) -> None:
    board = boards.make_board([publishing.read_bundle(make("a")), publishing.read_bundle(make("b", harm))])
    shown = Page(page.html(board, tmp_path))
    options = [about["value"] for tag, about in shown.elements if tag == "option"]
    assert options == ["", *sorted((f"{HARMFUL} + {HARMFUL}", "model-1-Q4_K_M.gguf + drafter-***.gguf"))]


def test_the_luckiest_of_many_equal_arms_is_no_largest_speedup() -> None:
    """Ten arms as fast as the target alone, of which one is significantly faster by itself, by chance."""
    random = np.random.default_rng(4)
    equal = [
        SimulatedArm(
            spec=stored.drafting(size) if size else stored.target_alone(),
            tps=50 * np.exp(random.normal(0, 0.05, (8, 3))),
        )
        for size in range(11)
    ]
    bench = stored.bench(equal, engine="binary")
    rows = [*boards.list_rows(bench, bundle="one", sha256="ab", state=BundleState.VERIFIED)]
    assert "faster" in {row.verdict for row in rows}
    bundle = boards.PublishedBundle(
        name="one",
        report=Path("one"),
        sha256="ab",
        made_at="",
        version="",
        state=BundleState.VERIFIED,
        findings=(),
        rows=tuple(rows),
    )
    assert boards.make_board([bundle]).best is None


def test_a_board_without_drafting_says_so(make: Make, tmp_path: Path) -> None:
    board = boards.make_board([])
    assert board.best is None
    assert "No bench of these bundles drafts." in Page(page.html(board, tmp_path)).words
    assert "0 configurations" in notebook.notebook_html(board)


def test_a_bundle_that_cannot_be_read_is_named(make: Make, tmp_path: Path) -> None:
    bundle = make("one")
    (bundle / "bundle.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"one: bundle.json cannot be read"):
        publishing.read_bundle(bundle)
    with pytest.raises(ResultsError, match="there is no bundle"):
        publishing.read_bundle(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["../../elsewhere", "/etc"])
def test_the_name_of_a_bench_does_not_lead_out_of_the_bundle(make: Make, name: str) -> None:
    bundle = make("one")
    facts = bundle / "bundle.json"
    facts.write_text(facts.read_text().replace("bench-one", name))
    with pytest.raises(ResultsError, match="the bundle has a file named"):
        publishing.read_bundle(bundle)


def test_it_verifies_and_says_what_does_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    published.leave_out_pages(monkeypatch)
    published.bench(name="mine")
    done = shell.done("publish", "--offline", "--out", "bundle")
    shutil.copytree("bundle", "changed")
    methods = tmp_path / "changed" / "methods.md"
    methods.write_text(methods.read_text() + "More.\n")
    archive.write_hashes(tmp_path / "changed")
    done = shell.done("board", "bundle", "bundle.zip", "changed", "--verify")
    assert "note: bundle.zip is left out: another bundle here has the same SHA-256\n" in done.stderr
    assert "warning: changed does not verify: methods.md does not follow from the runs\n" in done.stderr
    assert "1 bundle must not be relied on" in done.stdout
    shown = Page((tmp_path / "board.html").read_text())
    links = [about["href"] for tag, about in shown.elements if tag == "a"]
    assert links.count("./bundle/report.html") == links.count("./changed/report.html") == 2
    assert "does not verify" in shown.words
    assert "methods.md does not follow from the runs" in shown.words
    unchecked = shell.here("board", "changed", "--out", "other.html")
    assert "Bundles were not verified" in unchecked.stdout
