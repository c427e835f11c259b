"""The curve as text: every arm at its place, within the width, and in ASCII where nothing else is shown."""

from __future__ import annotations

import pytest

from ggufspec.domain import Role
from ggufspec.report.text.chart import curve
from tests.support.swept import swept
from tests.support.values import bench, run, whole_bench


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
    assert "γ=4 large.gguf" in text


def test_a_plain_terminal_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert curve(whole_bench()).isascii()


def test_nothing_is_drawn_where_nothing_drafts() -> None:
    assert curve(bench(run(Role.TARGET)), width=80) == ""
