from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec import units
from ggufspec.units import format_bytes, format_duration, format_number, format_rate, parse_bytes


@given(value=st.floats())
def test_no_number_makes_a_table_wide(value: float) -> None:
    texts = [
        *(units.format_number(value), units.format_rate(value), units.format_count(value)),
        *(units.format_factor(value), units.format_percent(value), units.format_bytes(value)),
        units.format_duration(abs(value)),
    ]
    assert [text for text in texts if len(text) > 32 or "e+" in text or "e-" in text] == []


SHOWN: tuple[tuple[Callable[[Any], object], dict[Any, object]], ...] = (
    (format_number, {0.0: "0", 0.00001: "0.00001", 0.000023456: "0.00002346", 0.05: "0.05", 0.99999: "1"}),
    (format_number, {99.996: "100", -3.25: "-3.25", 1068.4: "1068", 9999.7: "10,000", 10680.4: "10,680"}),
    (format_number, {33e9: "33,000,000,000", 2e-9: "0.000000002", 1e-300: "<0.000000001"}),
    (format_number, {1e300: ">1,000,000,000,000,000,000", -1e300: "->1,000,000,000,000,000,000"}),
    (partial(format_number, digits=3), {1234.5: "1234", 1e17: "100,000,000,000,000,000"}),
    (format_bytes, {0: "0 B", 999: "999 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB"}),
    (format_bytes, {35 << 30: "35 GiB", 1000 << 40: "1000 TiB", 20000 << 40: "20,000 TiB"}),
    (parse_bytes, {"24G": 24 << 30, "512 MiB": 512 << 20, "1.5k": 1536, "7": 7}),
    (format_duration, {0.4234: "0.42 s", 12.34: "12.3 s", 59.96: "1 min 00 s", 245: "4 min 05 s"}),
    (format_duration, {7800: "2 h 10 min", 12 * 86400: "12 days", 9e10: "2852 years"}),
    (format_rate, {2.01: "2.010", 2.576: "2.576", 87.02: "87.02", 163.16: "163.2", 999.97: "1000"}),
    (format_rate, {1234.4: "1234", 9999.4: "9999", 9999.6: "10,000", 10680.0: "10,680"}),
    (format_rate, {1234567.8: "1,234,568"}),
)


@pytest.mark.parametrize(("function", "cases"), SHOWN)
def test_numbers_and_their_texts(function: Callable[[Any], object], cases: dict[Any, object]) -> None:
    assert {given: function(given) for given in cases} == cases


@pytest.mark.parametrize("text", ["", "G", "12 parsecs", "-1G"])
def test_parse_bytes_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        units.parse_bytes(text)
