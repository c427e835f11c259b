"""Charts are drawn in a process of their own, whose end costs only the charts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import proc, publishing
from ggufspec.cli import reading
from ggufspec.errors import ChartError
from ggufspec.report import plot
from ggufspec.report.html import sections
from ggufspec.report.plot import drawing
from tests.support import published
from tests.support.published import IDENTITY, PRIVATE
from tests.support.swept import swept

command = reading.report("report")

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


@pytest.mark.usefixtures("limited")
def test_a_picture_that_cannot_be_drawn_is_an_error_of_one_line() -> None:
    chart = plot.curve(swept())
    assert chart is not None
    with pytest.raises(ChartError) as caught:
        plot.image(chart, "svg")
    assert caught.value.message.startswith("not drawn: the chart: the program that draws was ended by SIG")
    assert "ulimit -v" in str(caught.value.hint)


@pytest.mark.usefixtures("limited")
def test_pictures_that_cannot_be_drawn_end_the_command_that_only_writes_pictures(tmp_path: Path) -> None:
    swept()
    refused = CliRunner().invoke(command, ["-o", "svg", "--out", str(tmp_path / "pictures")])
    assert isinstance(refused.exception, ChartError)
    assert refused.exception.exit_code == ChartError.exit_code


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
    program = [sys.executable, "-m", "ggufspec", "report"]
    pictures = ["-o", "png", "--out", str(tmp_path)]
    for argv, code in ((["--out", str(page)], 0), (pictures, ChartError.exit_code)):
        completed, _, said = proc.capture(["bash", "-c", _SHELL, "bash", *program, *argv], timeout_s=250)
        assert completed.returncode == code, said
    assert page.exists()
    assert "not drawn: curve.png, " in said
    assert "hint: " in said


def test_a_chart_that_ends_the_program_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_without_the_library_pictures_are_refused_in_one_line_and_the_report_has_its_charts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    chart = plot.curve(swept())
    assert chart is not None
    with pytest.raises(ChartError, match="vl-convert, which is not installed") as caught:
        plot.image(chart, "png")
    assert "pip install 'ggufspec[images]'" in (caught.value.hint or "")
    assert "window.vegaEmbed" in drawing.javascript()
    assert drawing.javascript()[-200:] in sections.html(swept())


def test_nothing_to_draw_starts_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "capture", lambda *_: pytest.fail("a program was started"))
    assert plot.draw_pictures({}, "svg") == plot.Pictures(drawn={}, failures={})
