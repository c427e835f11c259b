"""The typed options of ``whatif``, and the types that parse them."""

from __future__ import annotations

import re
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class WhatIfOptions:
    """What to forecast, and from what; None where an option was not given.

    Rates are in tokens/s, ``bandwidth`` in bytes/s, ``flops`` in operations/s, ``overhead`` in milliseconds.
    """

    accept: str | None
    alpha: str | None
    draft: tuple[int, ...]
    target_tps: float | None
    drafter_tps: float | None
    verify_cost: tuple[float, ...] | None
    verify_ratio: float | None
    observed: float | None
    pair: str | None
    target: str | None
    draft_model: str | None
    profile: str | None
    machine: str | None
    bandwidth: float | None
    flops: float | None
    ctx: int
    overhead: float
    program: str
    offline: bool

    @property
    def names_models(self) -> bool:
        """Whether costs are to be computed from models and a machine."""
        return any((self.machine, self.bandwidth, self.flops, self.pair, self.target))
