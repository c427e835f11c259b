"""A declared field is a column of frames, of JSON and of tables for people."""

from __future__ import annotations

from types import SimpleNamespace

from ggufspec import units
from ggufspec.domain import Estimate
from ggufspec.report.columns import Row, TableLayout, column, shown
from ggufspec.report.text import tables


class SizeRow(Row):
    """How large a file is."""

    size: int | None = column("bytes", of="size_bytes", help="Of the file.")
    name: str = shown("file", of=lambda file: file.path.upper())


class SpeedOfFileRow(Row):
    """How fast a file is read."""

    file: SizeRow
    rate: Estimate | None = column("tokens/s", units.format_rate, of="speed.rate")
    note: str | None
    others: list[SizeRow]


FAST = SimpleNamespace(
    file=SimpleNamespace(size_bytes=3, path="a"),
    speed=SimpleNamespace(rate=Estimate(value=74.0, lo=73.1, hi=74.9)),
    note="ok",
    others=(SimpleNamespace(size_bytes=4, path="b"),),
)
ABSENT = {"file": None, "speed": None, "note": "slow", "others": ()}


def test_an_estimate_is_three_columns_and_a_row_within_is_all_of_its_columns() -> None:
    assert SpeedOfFileRow.names() == ("size", "rate", "rate_lo", "rate_hi", "note", "others")
    values = SpeedOfFileRow.record(FAST)
    assert [values[name] for name in ("size", "rate", "rate_lo", "rate_hi")] == [3, 74.0, 73.1, 74.9]
    assert SpeedOfFileRow.description == "How fast a file is read.\n\nHow large a file is."


def test_what_is_absent_on_the_way_to_a_value_is_none_and_no_text() -> None:
    values = SpeedOfFileRow.record(ABSENT)
    assert [values[name] for name in ("size", "rate", "rate_lo", "rate_hi")] == [None] * 4
    assert SpeedOfFileRow.columns["name"].text(ABSENT) == ""


def test_json_has_objects_within_and_nothing_that_only_people_see() -> None:
    assert SpeedOfFileRow.to_json(FAST) == {
        "size": 3,
        "rate": {"value": 74.0, "lo": 73.1, "hi": 74.9, "assumed_spread": None},
        "note": "ok",
        "others": [{"size": 4}],
    }


def test_a_table_has_the_named_columns_that_tell_something() -> None:
    layout = TableLayout(row=SpeedOfFileRow, names=("name", "rate", "note", "size"), if_varied=("size",))
    filled = layout.fill([FAST, ABSENT])
    assert [shown.head for shown in filled.columns] == ["file", "tokens/s", "note"]
    assert [cell.text for cell in filled.rows[0]] == ["A", "74.00 [73.10, 74.90]", "ok"]
    assert [cell.key for cell in filled.rows[1]] == [None, None, "slow"]
    assert tables.render(filled, "md").splitlines()[2] == "| A      | 74.00 [73.10, 74.90] | ok     |"
    same = layout.fill([FAST, FAST])
    assert [shown.head for shown in same.columns] == ["file", "tokens/s"]  # ok alone says nothing


def test_a_setting_without_a_text_is_its_default_which_differs_from_a_text_in_rows_of_one_kind() -> None:
    layout = TableLayout(
        row=SpeedOfFileRow,
        names=("name", "note"),
        if_varied=("note",),
        blank_is_default=("note",),
        kind="name",
    )
    (other,) = FAST.others
    blank, elsewhere = (
        SimpleNamespace(file=file, speed=FAST.speed, note="", others=()) for file in (FAST.file, other)
    )
    for items, heads in (((FAST, blank), ["file", "note"]), ((FAST, elsewhere), ["file"])):
        slow = [SimpleNamespace(**{**vars(item), "note": item.note and "slow"}) for item in items]
        assert [column.head for column in layout.fill(slow).columns] == heads
