"""The types that parse the options of ``whatif``."""

from __future__ import annotations

import re
from typing import Any

import click

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([MGTP])\s*(?:B(?:/s)?|FLOPS)?\s*", re.IGNORECASE)
_MOST = 1e6
_MOST_PER_S = 1e21  # bytes or operations: a million times what the fastest machines do
_POWERS = {"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


class Quantity(click.ParamType[float]):
    """Bytes or operations per second such as ``936G``, in powers of ten as in data sheets."""

    name = "quantity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        match = _QUANTITY.fullmatch(str(value))
        quantity = float(match[1]) * _POWERS[match[2].upper()] if match else 0.0
        if not 0 < quantity <= _MOST_PER_S:
            self.fail(f"{value!r} is not a quantity; examples: 936G, 71T", param, ctx)
        return quantity


class Numbers(click.ParamType[tuple[float, ...]]):
    """Positive numbers, separated by commas."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return the numbers in their order."""
        try:
            numbers = tuple(float(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(1 / _MOST <= number <= _MOST for number in numbers):  # NaN fails, too
            self.fail(f"{value!r} is not a list of positive numbers; example: 1,1.1,1.25", param, ctx)
        return numbers
