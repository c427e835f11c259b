from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from ggufspec import units


@given(value=st.floats())
def test_no_number_makes_a_table_wide(value: float) -> None:
    texts = [
        *(units.format_number(value), units.format_rate(value), units.format_count(value)),
        *(units.format_factor(value), units.format_percent(value), units.format_bytes(value)),
        units.format_duration(abs(value)),
    ]
    assert [text for text in texts if len(text) > 32 or "e+" in text or "e-" in text] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (33e9, "33,000,000,000"),
        (1e300, ">1,000,000,000,000,000,000"),
        (-1e300, "->1,000,000,000,000,000,000"),
        (1e-300, "<0.000000001"),
        (2e-9, "0.000000002"),
    ],
)
def test_numbers_that_nothing_measured_reaches_are_cut(value: float, text: str) -> None:
    assert units.format_number(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (35 << 30, "35 GiB"),
        (1000 << 40, "1000 TiB"),
        (20000 << 40, "20,000 TiB"),
    ],
)
def test_format_bytes(size: int, text: str) -> None:
    assert units.format_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "size"), [("24G", 24 << 30), ("512 MiB", 512 << 20), ("1.5k", 1536), ("7", 7)]
)
def test_parse_bytes(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "12 parsecs", "-1G"])
def test_parse_bytes_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4234, "0.42 s"), (12.34, "12.3 s"), (59.96, "1 min 00 s"), (245, "4 min 05 s"), (7800, "2 h 10 min")],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert units.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (2.01, "2.010"),
        (2.576, "2.576"),
        (87.02, "87.02"),
        (163.16, "163.2"),
        (1234.4, "1234"),
        (999.97, "1000"),
        (9999.4, "9999"),
        (9999.6, "10,000"),
        (10680.0, "10,680"),
        (1234567.8, "1,234,568"),
    ],
)
def test_format_rate(rate: float, text: str) -> None:
    assert units.format_rate(rate) == text


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 4, "0"),
        (0.00001, 4, "0.00001"),
        (0.000023456, 4, "0.00002346"),
        (0.05, 4, "0.05"),
        (0.99999, 4, "1"),
        (99.996, 4, "100"),
        (-3.25, 4, "-3.25"),
        (1068.4, 4, "1068"),
        (9999.7, 4, "10,000"),
        (10680.4, 4, "10,680"),
        (1234.5, 3, "1234"),
        (1e17, 3, "100,000,000,000,000,000"),
    ],
)
def test_numbers_for_people_are_never_in_scientific_notation(value: float, digits: int, text: str) -> None:
    assert units.format_number(value, digits) == text
