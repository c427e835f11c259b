"""Charts hold the numbers of the frames, say what they show, and keep their colours apart."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import altair as alt
import pytest

from ggufspec import proc, publishing, units
from ggufspec.domain import Role, Segment, SegmentCounts
from ggufspec.errors import ChartError
from ggufspec.forecast import Forecast
from ggufspec.report import frames, plot
from ggufspec.report.html import sections
from ggufspec.report.plot import curves, drawing, look
from ggufspec.report.text.chart import curve
from ggufspec.stats import Estimate
from tests.support import crossed, published
from tests.support.pages import contrast
from tests.support.published import IDENTITY, PRIVATE
from tests.support.swept import ROUNDS, running, swept
from tests.support.values import bench, filled, run, whole_bench
from tests.support.walks import traced_run


def _rows(chart: alt.LayerChart | None, column: str) -> list[dict[str, Any]]:
    """The rows inside a chart that have a column, each once."""
    every = (
        row for rows in chart.to_dict()["datasets"].values() for row in rows if row.get(column) is not None
    )
    return list({repr(row): row for row in every}.values())


def _marks(chart: alt.LayerChart | None, kind: str) -> list[dict[str, Any]]:
    """The layers of a chart that are drawn with one kind of mark."""
    return [layer for layer in chart.to_dict()["layer"] if layer["mark"]["type"] == kind]


def _drafting(frame: Any) -> Any:
    return frame[frame.role == Role.DRAFTING.value]


def test_the_curve_shows_the_summary() -> None:
    results = swept("small.gguf", "large.gguf", sizes=(2, 4, 8))
    drawn = [row for row in _rows(plot.curve(results), "tps") if row.get("kind") == "measured"]
    expected = _drafting(frames.summary(results)).astype(object)
    expected = expected.where(expected.notna(), None)
    assert [(row["gamma"], row["tps"], row["tps_lo"], row["tps_hi"]) for row in drawn] == list(
        zip(expected.draft, expected.gen_tps, expected.gen_tps_lo, expected.gen_tps_hi, strict=True)
    )
    assert {row["series"] for row in drawn} == {"small", "large"}


def test_a_curve_has_bounds_and_forecasts() -> None:
    results = swept(sizes=(1, 2, 4))
    alone, *_, best = map(units.format_rate, frames.summary(results).gen_tps)
    texts = [row["text"] for row in _rows(plot.curve(results), "text")]
    assert texts == [f"target alone: {alone}", f"γ = 4: {best}"]
    results = swept(sizes=(2, 4, 8))
    drawn = _rows(plot.curve(results, [_forecast(n_max=6), _forecast(n_max=7, category="code")]), "gamma")
    foretold = [row for row in drawn if row.get("kind") == "forecast"]
    assert [(row["gamma"], row["tps"], row["tps_hi"], row["gain"]) for row in foretold] == [
        (6, 70.0, 80.0, "1.40×")
    ]


def test_the_label_of_the_fastest_is_of_what_was_measured() -> None:
    fast = [_forecast(n_max=size, speed=700.0) for size in (1, 2, 3)]
    (text,) = [
        row["text"]
        for row in _rows(plot.curve(swept(), fast), "text")
        if not row["text"].startswith("target alone")
    ]
    assert text.startswith("γ = 4: ")


def test_few_draft_sizes_are_bars() -> None:
    """Two points are no curve, and methods with one size have no axis of sizes."""
    two, three = swept(sizes=(2, 4)), swept(sizes=(2, 4, 8), name="three")
    marks = [[bool(_marks(plot.curve(each), mark)) for mark in ("bar", "line")] for each in (two, three)]
    assert marks == [[True, False], [False, True]]
    rows = [row for row in _rows(plot.curve(two), "tps") if row.get("kind")]
    assert [row["tps"] for row in rows] == frames.summary(two).gen_tps.tolist()
    assert [row["label"] for row in rows] == ["target alone", "γ=2, drafter", "γ=4, drafter"]


def test_charts_without_a_draft_size_are_drawn() -> None:
    """Running servers do not always tell how much they draft."""
    drawn = plot.drawn(running())
    assert {"curve", "drift"} <= drawn.keys()
    assert [row["label"] for row in drawn["curve"].rows] == ["target alone", "drafting"]
    assert _marks(drawn["curve"].chart, "bar")
    assert "γ" not in "".join(str(chart.chart.description) for chart in drawn.values())
    for chart in drawn.values():
        assert plot.image(chart.chart, "svg").startswith(b"<svg")


def test_users_and_depths_are_named_and_never_joined() -> None:
    results = crossed.crossover()
    rows = plot.curve_rows(results)
    labels = [row["label"] for row in rows]
    assert len(set(labels)) == len(labels)
    assert "γ=2, 4 users, depth 4,096, drafter" in labels
    assert "target alone, 1 user, depth 0" in labels
    assert len({row["series"] for row in rows if row["kind"] == "measured"}) == 6  # users × depths
    wide = crossed.bench([(1, 0), (8, 0)], lambda users, depth, draft: 1.5, sizes=(1, 2, 4))
    chart = plot.curve(wide)
    assert not _marks(chart, "line")
    assert len(_rows(chart, "kind")) == 8
    assert all("depth" not in str(row["label"]) for row in _rows(chart, "kind"))


def test_a_bench_without_drafting_has_little_to_show() -> None:
    alone = bench(run(Role.TARGET))
    assert plot.drawn(alone) == {}
    assert curve(alone, width=80) == ""
    assert plot.pareto(whole_bench()) is None  # nobody knows the memory


def test_one_pair_is_mapped_by_category() -> None:
    results = swept()
    fields = _rows(plot.heatmap(results), "speedup")
    expected = _drafting(frames.categories(results))
    assert {(row["down"], row["across"]): row["speedup"] for row in fields} == dict(
        zip(zip(expected.draft, expected.category, strict=True), expected.speedup, strict=True)
    )


def test_several_drafters_are_mapped_by_their_fastest_size() -> None:
    results = swept("small.gguf", "large.gguf")
    fields = {row["across"]: row for row in _rows(plot.heatmap(results), "speedup")}
    best = _drafting(frames.summary(results)).groupby("draft_model").speedup.max()
    assert {name: row["speedup"] for name, row in fields.items()} == {
        "small": best["small.gguf"],
        "large": best["large.gguf"],
    }
    assert {row["down"] for row in fields.values()} == {"target"}
    assert {row["gamma"] for row in fields.values()} == {4}


def test_positions_are_those_of_the_largest_size() -> None:
    drawn = _rows(plot.positions(swept()), "share")
    tried = len(ROUNDS)
    shares = [sum(each.accepted > place for each in ROUNDS) / tried for place in range(4)]
    assert [row["share"] for row in drawn if row["measure"] == "of all drafts"] == shares
    given = [row["share"] for row in drawn if row["measure"] != "of all drafts"]
    assert given == [shares[0], *(b / a for a, b in pairwise(shares))]
    assert {row["gamma"] for row in drawn} == {4}


def test_the_parts_of_a_round_add_up() -> None:
    results = swept()
    parts = _rows(plot.rounds(results), "share")
    expected = _drafting(frames.summary(results))
    columns = ["draft_ms_per_round", "verify_ms_per_round", "rest_ms_per_round"]
    assert [row["ms"] for row in parts] == [ms for row in expected[columns].to_numpy().tolist() for ms in row]
    assert sum(row["share"] for row in parts) == pytest.approx(len(expected))
    assert plot.rounds(swept(engine="binary")) is None


@pytest.mark.parametrize(("gain", "ahead"), [(1.2, 5), (0.7, 1)])
def test_nothing_beats_the_pareto_front(gain: float, ahead: int) -> None:
    drawn = curves.pareto_rows(swept("small.gguf", "large.gguf", gain=gain))
    for row in drawn:
        assert row["front"] is not any(
            other["memory_mib"] <= row["memory_mib"] and other["tps"] > row["tps"] for other in drawn
        )
    assert sum(row["front"] for row in drawn) == ahead


def test_drift_shows_every_run_once_with_what_disturbed_it() -> None:
    results = swept()
    drawn = [row for row in _rows(plot.drift(results), "relative") if "kind" in row]
    runs = frames.runs(results)
    assert len(drawn) == len(runs)
    assert sum(row["kind"] == curves.ANCHOR for row in drawn) == runs.anchor.sum()
    disturbed = runs[(runs.outcome == "disturbed") & ~runs.anchor].decode_tps
    assert sorted(row["tps"] for row in drawn if row["kind"] == curves.DISTURBED) == sorted(disturbed)
    assert {row["others_cores"] for row in drawn} == {0.8, 0.01}
    assert drawn[-1]["minutes"] == pytest.approx((len(runs) - 1) / 60)
    assert all(row["relative"] == pytest.approx(1, abs=0.03) for row in drawn)


def test_large_benches_are_thinned_but_never_what_matters() -> None:
    rows = [{"kind": curves.ANCHOR if place % 10 == 0 else curves.RUN} for place in range(9000)]
    thinned = list(curves._thinned(rows))
    assert sum(row["kind"] == curves.ANCHOR for row in thinned) == 900
    assert 1000 <= sum(row["kind"] == curves.RUN for row in thinned) <= 2000


def test_colours_are_seen_on_light_and_dark_pages() -> None:
    assert all(contrast(colour, page) >= 3 for colour in look.PALETTE for page in ("#ffffff", "#14181d"))


def test_pictures_need_no_browser_and_pages_no_address() -> None:
    chart = plot.curve(swept(sizes=(2, 4, 8)))
    assert plot.image(chart, "png").startswith(b"\x89PNG")
    picture = ET.fromstring(plot.image(chart, "svg"))
    assert "γ (draft size)" in "".join(picture.itertext())
    points = [node for node in picture.iter() if "mark-symbol role-mark" in node.get("class", "")]
    assert sum(len(node) for node in points) == 3
    assert "http" not in repr(drawing.spec(chart))


def test_charts_say_what_they_show() -> None:
    parts: dict[str, Any] = {
        "by_segment": (SegmentCounts(Segment.PROSE, 20, 10, 5, 15),),
        "segment_s": (0.2,),
    }
    in_parts = (replace(each, sample=replace(each.sample, **parts)) for each in whole_bench().runs)
    benches = (bench(*in_parts), crossed.crossover(), swept(sizes=(1, 2, 4)))
    charts = {name: drawn for results in benches for name, drawn in plot.drawn(results).items()}
    described = {name: str(drawn.chart.description) for name, drawn in charts.items()}
    assert described.keys() == plot.CHARTS.keys()
    assert "the fastest is γ = 4 with 71.25 tokens/s" in described["curve"]
    assert "the highest is 1.80× for 1 user at depth 0, the lowest is 0.70× for" in described["crossover"]
    assert all(text.endswith(".") for text in described.values())


def _forecast(*, n_max: int, category: str | None = None, speed: float = 70.0) -> Forecast:
    return replace(
        filled(Forecast),
        run=traced_run(n_max=n_max, n_predict=32),
        category=category,
        tokens_per_s=Estimate(value=speed, lo=speed - 10, hi=speed + 10),
        speedup=Estimate(value=1.4, lo=1.2, hi=1.6),
    )


# The curve as text: every arm at its place, within the width, and in ASCII where nothing else is shown


def test_every_arm_stands_at_its_speed() -> None:
    lines = curve(whole_bench(), width=60, ascii_only=False).splitlines()
    alone, drafting = (line for line in lines if "●" in line)
    assert alone.startswith("target alone")
    assert drafting.startswith("γ=3")
    assert drafting.endswith("1.50×")
    axis = lines[-1].index("0")
    rule = drafting.index("┊") - axis
    assert alone.index("●") - axis == rule
    assert drafting.index("●") - axis == pytest.approx(1.5 * rule, abs=1)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_keep_to_the_width(width: int) -> None:
    text = curve(swept("small.gguf", "large.gguf"), width=width, ascii_only=False)
    assert max(map(len, text.splitlines()[2:])) <= width
    assert "γ=4, large" in text


def test_a_plain_terminal_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert curve(whole_bench()).isascii()


# Charts are drawn in a process of their own, whose end costs only the charts


_SHELL = 'ulimit -v 8000000; exec "$@"'  # KiB: enough for Python and its libraries, too few for V8


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the program that draws have as little address space as ``ulimit -v`` may leave."""
    program = Path(sys.executable).name
    original = proc.capture

    def capture(argv: list[str], **others: object) -> object:
        assert Path(argv[0]).name == program
        return original(["bash", "-c", _SHELL, "bash", *argv], **others)  # type: ignore[arg-type]

    monkeypatch.setattr(proc, "capture", capture)


def test_bundles_are_written_and_verified_where_charts_cannot_be_drawn(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = published.bench(engine="inprocess")
    drawn = publishing.publish([bench], tmp_path / "drawn", identity=IDENTITY, private=(PRIVATE,))
    assert drawn.undrawn is None
    charts = {file.name for file in (drawn.folder / "charts").iterdir()}
    request.getfixturevalue("limited")

    verified = publishing.verify(drawn.folder)
    assert verified.findings == ()
    (undrawn,) = [sentence for sentence in verified.unchecked if "cannot be drawn here" in sentence]
    assert all(name in undrawn for name in sorted(charts)[:5])

    bare = publishing.publish([bench], tmp_path / "bare", identity=IDENTITY, private=(PRIVATE,))
    assert "Without charts: not drawn: " in publishing.describe_bundle(bare)
    assert not (bare.folder / "charts").exists()
    assert "charts/" not in (bare.folder / "README.md").read_text(encoding="utf-8")
    monkeypatch.undo()
    assert publishing.verify(bare.folder).findings == ()


def test_whole_commands_end_with_little_address_space(tmp_path: Path) -> None:
    """A page is written, and no picture; V8 ends neither command."""
    swept()
    page = tmp_path / "page.html"
    program = ["bash", "-c", _SHELL, "bash", sys.executable, "-m", "ggufspec", "report"]
    pictures = ["-o", "png", "--out", str(tmp_path)]
    for words, code in ((["--out", str(page)], 0), (pictures, ChartError.exit_code)):
        completed, _, said = proc.capture([*program, *words], timeout_s=250)
        assert completed.returncode == code, said
    assert page.exists()
    assert re.search("not drawn: curve.png, .*the program that draws was ended by SIG", said)
    assert "hint: " in said
    assert "ulimit -v" in said


def test_a_chart_that_crashes_costs_only_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deadly = tmp_path / "vega.py"
    deadly.write_text(
        "import json, os, pathlib, sys\n"
        "for job in json.loads(pathlib.Path(sys.argv[1]).read_bytes()):\n"
        "    if 'deadly' in str(job): os.abort()\n"
        "    pathlib.Path(job['file']).write_bytes(b'drawn')\n"
        "    print(json.dumps({'file': job['file'], 'error': None}), flush=True)\n"
    )
    monkeypatch.setattr(drawing, "_PROGRAM", deadly)
    chart = plot.curve(swept())
    bad = chart.copy()
    bad.description = "deadly"
    pictures = plot.draw_pictures({"one": chart, "two": bad, "three": chart}, "svg")
    assert pictures.drawn == {"one": b"drawn", "three": b"drawn"}
    assert pictures.failures == {"two": "the program that draws was ended by SIGABRT"}


def test_a_chart_that_vega_refuses_costs_only_itself() -> None:
    good = plot.curve(swept())
    bad = good.transform_calculate(b="nosuch((")
    pictures = plot.draw_pictures({"one": bad, "two": good}, "svg")
    assert pictures.drawn.keys() == {"two"}
    assert "Unexpected end of input" in pictures.failures["one"]


def test_without_the_library_pictures_fail_and_reports_have_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    chart = plot.curve(swept())
    with pytest.raises(ChartError, match="vl-convert, which is not installed") as caught:
        plot.image(chart, "png")
    assert "pip install 'ggufspec[images]'" in (caught.value.hint or "")
    assert "window.vegaEmbed" in drawing.javascript()
    assert drawing.javascript()[-200:] in sections.html(swept())


def test_nothing_to_draw_starts_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "capture", lambda *_: pytest.fail("a program was started"))
    assert plot.draw_pictures({}, "svg") == plot.Pictures(drawn={}, failures={})
