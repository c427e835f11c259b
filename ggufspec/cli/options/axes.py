"""Values of an axis on the command line: one, a list, a range as llama-bench spells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

_RANGE = re.compile(r"(?P<first>[\d.]+)-(?P<last>[\d.]+)(?:(?P<how>[+*])(?P<step>[\d.]+))?")
_MOST = 1000  # values of one axis
_LONGEST_DRAFT = 64  # tokens

Value = int | float | str


class Axis(click.ParamType[tuple[Value, ...]]):
    """One or several values: ``3``, ``3,5,8``, ``1-8``, ``0-80+20``, ``1-16*2``, or words such as ``all``.

    Args:
        name: what the values are, for the message about a wrong one.
        kind: int or float; None where only words count.
        words: texts that stand for themselves.
        least: the smallest number.
        most: the largest one.
        single: whether just one value is accepted.
    """

    def __init__(
        self,
        name: str,
        *,
        kind: type[int] | type[float] | None = int,
        words: tuple[str, ...] = (),
        least: float = 0,
        most: float = 9999,
        single: bool = False,
    ) -> None:
        self.name = name
        self._kind, self._words, self._least, self._most, self._single = kind, words, least, most, single

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Value, ...]:
        """Return the values in the order in which they were given, each once."""
        if isinstance(value, tuple):
            return value
        parts = (part.strip() for part in str(value).split(","))
        found = tuple(dict.fromkeys(each for part in parts for each in self._part(part, param, ctx)))
        if self._single and len(found) != 1:
            self.fail(f"give one value here, not {value!r}; `ggufspec sweep` takes several", param, ctx)
        return found

    def _part(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Iterator[Value]:
        if text in self._words:
            yield text
            return
        if self._kind is None:
            self.fail(f"{text!r} is not one of {', '.join(self._words)}", param, ctx)
        match = _RANGE.fullmatch(text)
        try:
            first = self._kind(match["first"] if match else text)
            last = self._kind(match["last"]) if match else first
            step = self._kind(match["step"] or 1) if match else self._kind(1)
        except ValueError:
            also = "".join(f", {word}" for word in self._words)
            example = "0.4 or 0,0.4,0.8" if self._kind is float else f"3 or 3,5,8 or 1-8 or 0-80+20{also}"
            self.fail(f"{text!r} is not a number of {self.name}; give for example {example}", param, ctx)
        if not self._least <= first <= last <= self._most:
            self.fail(
                f"{self.name} go from {self._least:g} to {self._most:g}, lower ones first, not {text!r}",
                param,
                ctx,
            )
        multiplies = bool(match and match["how"] == "*")
        if multiplies and first == 0:
            self.fail(f"the range {text!r} multiplies and cannot begin at 0", param, ctx)
        if step <= multiplies:
            self.fail(f"the step in {text!r} must be greater than {int(multiplies)}", param, ctx)
        number = 0
        while first <= last:
            yield first
            first = self._kind(round(first * step if multiplies else first + step, 9))
            number += 1
            if number > _MOST:
                self.fail(f"{text!r} has more than {_MOST} values", param, ctx)


class Shares(click.ParamType[tuple[float, ...]]):
    """An acceptance: each token's chance, one that gives 70.8 % at γ 3 (0.708@3), or shares by position."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return each token's chance alone, or the share of rounds that accept each position."""
        if isinstance(value, tuple):
            return value
        from ggufspec.forecast.whatif import Positions, Steady

        rate, at, size = str(value).partition("@")
        try:
            if at:
                return (Steady.from_rate(float(rate), _draft_size(size)).alpha,)
            return Positions(tuple(float(part) for part in rate.split(","))).shares
        except ValueError:
            example = "0.7, 0.708@3 (accepted of all drafted tokens at γ 3) or 0.9,0.8,0.7"
            self.fail(f"{value!r} is not an acceptance from 0 to 1; give for example {example}", param, ctx)


def _draft_size(text: str) -> int:
    """Return a draft size γ.

    Raises:
        ValueError: it is not a number, or larger than any draft.
    """
    size = int(text)
    if size > _LONGEST_DRAFT:
        raise ValueError(f"a draft has at most {_LONGEST_DRAFT} tokens, not {size}")
    return size


def flat(
    ctx: click.Context, param: click.Parameter, values: tuple[tuple[Value, ...], ...]
) -> tuple[Value, ...] | None:
    """Join what a repeated option was given; None for an option that was not."""
    return tuple(dict.fromkeys(value for each in values for value in each)) or None
