"""Values of an axis on the command line: a number, a list, or a range in llama-bench's notation."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import click

from ggufspec.choices import Chain, Method

if TYPE_CHECKING:
    from ggufspec.domain import NgramSettings, ServiceLevel

_RANGE = re.compile(r"(?P<first>[\d.]+)-(?P<last>[\d.]+)(?:(?P<operator>[+*])(?P<step>[\d.]+))?")
_LIMIT = re.compile(r"(?P<name>ttft|itl)=(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s)")
_THOUSANDS = re.compile(r"(?P<number>\d+)k")
_MOST = 1000  # values of one axis
_LONGEST_DRAFT = 64  # tokens
_LONGEST_NGRAM = 1024  # tokens, the most that llama.cpp accepts
_NGRAM = {"size-n": 1, "size-m": 1, "min-hits": 1, "n-min": 0}  # settings, with the least value of each
_QUANTS = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0"),
    *("IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "F16", "BF16"),
)

Value = int | float | str


class Axis(click.ParamType[tuple[Value, ...]]):
    """One or several values: ``3``, ``3,5,8``, ``1-8``, ``0-80+20``, ``1-16*2``, or words such as ``all``.

    Args:
        name: what the values are, as error messages name them.
        number: int or float; None where only words are accepted.
        words: accepted words.
        least: the smallest number.
        most: the largest number.
    """

    def __init__(
        self,
        name: str,
        *,
        number: type[int] | type[float] | None = int,
        words: tuple[str, ...] = (),
        least: float = 0,
        most: float = 9999,
    ) -> None:
        self.name = name
        self._number, self._words, self._least, self._most = number, words, least, most
        self.is_single = False

    def single(self) -> Self:
        """Return the same axis for exactly one value."""
        axis = copy.copy(self)
        axis.is_single = True
        return axis

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Value, ...]:
        """Return the distinct values in the given order."""
        if isinstance(value, tuple):
            return value
        parts = (part.strip() for part in str(value).split(","))
        values = tuple(dict.fromkeys(number for part in parts for number in self._parse(part, param, ctx)))
        if self.is_single and len(values) != 1:
            self.fail(f"{value!r} is more than one value; `ggufspec sweep` accepts several", param, ctx)
        return values

    def _parse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Iterator[Value]:
        if text in self._words:
            yield text
            return
        if self._number is None:
            self.fail(f"{text!r} is not one of {', '.join(self._words)}", param, ctx)
        match = _RANGE.fullmatch(text)
        try:
            first = self._number(match["first"] if match else text)
            last = self._number(match["last"]) if match else first
            step = self._number(match["step"] or 1) if match else self._number(1)
        except ValueError:
            words = "".join(f"; {word}" for word in self._words)
            examples = "0.4; 0,0.4,0.8" if self._number is float else f"3; 3,5,8; 1-8; 0-80+20{words}"
            self.fail(f"{text!r} is not a number, a list or a range; examples: {examples}", param, ctx)
        if not self._least <= first <= last <= self._most:
            self.fail(
                f"{text!r} is out of range: {self.name} are from {self._least:g} to {self._most:g}, "
                "and a range starts with its lower end",
                param,
                ctx,
            )
        multiplies = bool(match and match["operator"] == "*")
        if multiplies and first == 0:
            self.fail(f"the range {text!r} multiplies and cannot start at 0", param, ctx)
        if step <= multiplies:
            self.fail(f"the step in {text!r} must be greater than {int(multiplies)}", param, ctx)
        number = 0
        while first <= last:
            yield first
            first = self._number(round(first * step if multiplies else first + step, 9))
            number += 1
            if number > _MOST:
                self.fail(f"{text!r} has more than {_MOST} values", param, ctx)


class Depths(Axis):
    """Tokens of context, also in units of 1024: ``0,16k``. A range doubles: ``0-32k`` is 0, 4096, …, 32768.

    Between its ends, a range without a step has a half, a quarter and an eighth of the upper one.
    """

    def __init__(self) -> None:
        super().__init__("tokens", most=1 << 24)

    def _parse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Iterator[Value]:
        plain = _THOUSANDS.sub(lambda match: str(int(match["number"]) * 1024), text)
        match = _RANGE.fullmatch(plain)
        if match is None or match["operator"] or match["first"] == match["last"]:
            yield from super()._parse(plain, param, ctx)
            return
        first = int(next(super()._parse(match["first"], param, ctx)))
        last = int(next(super()._parse(match["last"], param, ctx)))
        if first > last:
            self.fail(f"{text!r} is out of range: a range starts with its lower end", param, ctx)
        between = (last // part for part in (8, 4, 2))
        yield from (first, *(number for number in between if number > first), last)


class Methods(Axis):
    """One or several drafting methods, or chains of them such as ``ngram-mod+draft-mtp``."""

    def __init__(self) -> None:
        super().__init__("methods", number=None, words=tuple(Method))

    def _parse(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Iterator[Value]:
        try:
            yield str(Chain.parse(text))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Quants(click.ParamType[tuple[str, ...]]):
    """Quantizations that llama-quantize makes without an importance matrix: ``Q8_0,Q4_0``."""

    name = "types"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names in llama.cpp's spelling, each once."""
        if isinstance(value, tuple):
            return value
        kinds = tuple(dict.fromkeys(part.strip().upper() for part in str(value).split(",")))
        unknown = next((kind for kind in kinds if kind not in _QUANTS), None)
        if unknown is not None:
            self.fail(f"{unknown!r} is not one of {', '.join(_QUANTS)}", param, ctx)
        return kinds


class Ngram(click.ParamType["NgramSettings"]):
    """Settings of n-gram methods: ``size-n=12,size-m=48,min-hits=1``."""

    name = "settings"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NgramSettings:
        """Return the settings; those that are not given are None."""
        from ggufspec.domain import NgramSettings

        if isinstance(value, NgramSettings):
            return value
        settings: dict[str, int] = {}
        for part in str(value).split(","):
            name, _, number = (word.strip() for word in part.partition("="))
            least = _NGRAM.get(name, _LONGEST_NGRAM + 1)
            if not number.isdecimal() or not least <= int(number) <= _LONGEST_NGRAM:
                self.fail(
                    f"{part!r} is not a setting of n-grams from 1 to {_LONGEST_NGRAM}; "
                    "example: size-n=12,size-m=48,min-hits=1,n-min=0",
                    param,
                    ctx,
                )
            settings[name.replace("-", "_")] = int(number)
        return NgramSettings(**settings)


class Shares(click.ParamType[tuple[float, ...]]):
    """An acceptance: each token's probability, a rate at a draft size (0.708@3), or shares by position."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Return each token's probability alone, or the share of rounds that accept each position."""
        if isinstance(value, tuple):
            return value
        from ggufspec.forecast.whatif import Positions, Steady

        rate, separator, size = str(value).partition("@")
        try:
            if separator:
                return (Steady.from_rate(float(rate), _draft_size(size)).alpha,)
            return Positions(tuple(float(part) for part in rate.split(","))).shares
        except ValueError:
            examples = "0.7, 0.708@3 (the acceptance rate at γ 3), 0.9,0.8,0.7 (by position)"
            self.fail(f"{value!r} is not an acceptance from 0 to 1; examples: {examples}", param, ctx)


class Limits(click.ParamType["ServiceLevel"]):
    """Limits for requests: ``ttft=500ms,itl=50ms``, the time to the first token and between tokens."""

    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ServiceLevel:
        """Return the limits in seconds."""
        from ggufspec.domain import ServiceLevel

        if isinstance(value, ServiceLevel):
            return value
        limits: dict[str, float] = {}
        for part in str(value).split(","):
            match = _LIMIT.fullmatch(part.strip())
            if match is None or match["name"] in limits or not float(match["number"]):
                self.fail(
                    f"{value!r} is not a list of limits; examples: ttft=500ms,itl=50ms; ttft=2s", param, ctx
                )
            limits[match["name"]] = float(match["number"]) / (1000 if match["unit"] == "ms" else 1)
        return ServiceLevel(ttft_s=limits.get("ttft"), token_s=limits.get("itl"))


def _draft_size(text: str) -> int:
    """Return a draft size γ.

    Raises:
        ValueError: it is not a number, or larger than any draft.
    """
    size = int(text)
    if size > _LONGEST_DRAFT:
        raise ValueError(f"a draft has at most {_LONGEST_DRAFT} tokens, not {size}")
    return size


def join_values(
    ctx: click.Context, param: click.Parameter, values: tuple[tuple[Value, ...], ...]
) -> tuple[Value, ...] | None:
    """Return the distinct values of a repeated option; None where it was not given."""
    return tuple(dict.fromkeys(value for given in values for value in given)) or None
