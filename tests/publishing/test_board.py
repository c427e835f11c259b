"""A board over bundles of many machines: its rows follow from runs, and what strangers wrote stays text."""

from __future__ import annotations

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
from ggufspec.report import frames
from ggufspec.report.html import board as page, notebook
from ggufspec.report.text import formats
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
    board = boards.make_board([read])
    (shown,) = formats.records(frames.board(board))
    assert (shown["gen_tps"], shown["speedup"]) == (arm.rate.value, arm.gain.ratio.value)
    assert (shown["draft"], shown["verdict"]) == (3, arm.judgement.verdict.value)
    assert (row.pair, row.machine) == ("model-1-Q4_K_M.gguf + drafter-***.gguf", "A Processor, 2 cores")
    assert shown["build"].endswith(", cpu")
    assert (shown["bundle"], shown["bench"], row.state) == ("one", "bench-one", BundleState.UNCHECKED)
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
    speedups = [row.arm.gain.ratio.value for row in boards.make_board(read).rows]
    assert speedups == sorted(speedups, reverse=True)
    assert len(speedups) == 2
    assert publishing.read_bundle(make("c", invent)).rows == ()


def test_what_strangers_wrote_stays_text_and_only_our_own_scripts_run(make: Make, tmp_path: Path) -> None:
    odd = tmp_path / "javascript:alert(1)"
    shutil.copytree(make("one", harm), odd)
    board = boards.make_board([publishing.read_bundle(odd)])
    shown = Page(page.html(board, tmp_path))
    shown.check_harmless(scripts=2)
    assert HARMFUL in shown.words
    assert shown.addresses() == {"data:,", "#main", "./javascript%3Aalert%281%29/report.html"}
    assert "<img" not in notebook.notebook_html(board)


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
    assert "faster" in {row.arm.judgement.verdict for row in rows}
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


def test_a_board_without_drafting_says_so(tmp_path: Path) -> None:
    board = boards.make_board([])
    assert board.best is None
    assert "No bench of these bundles drafts." in Page(page.html(board, tmp_path)).words
    assert "0 configurations" in notebook.notebook_html(board)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda facts: "{}", "one: bundle.json cannot be read"),
        (lambda facts: facts.replace("bench-one", "../../elsewhere"), "the bundle has a file named"),
        (lambda facts: facts.replace("bench-one", "/etc"), "the bundle has a file named"),
    ],
)
def test_a_bundle_that_cannot_be_read_is_named(make: Make, change: Callable[[str], str], said: str) -> None:
    facts = make("one") / "bundle.json"
    facts.write_text(change(facts.read_text()))
    with pytest.raises(ResultsError, match=said):
        publishing.read_bundle(facts.parent)


def test_it_verifies_and_says_what_does_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    published.leave_out_pages(monkeypatch)
    published.bench(name="mine")
    shell.done(
        "publish", "--offline", "--out", "bundle.zip"
    )  # the folder beside it has the name without .zip
    assert not Path("bundle.zip.zip").exists()
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
