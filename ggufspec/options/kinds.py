"""Kinds of values: how an option's text becomes a value, and how the value is written as text again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ggufspec.choices import ON_HUB, SUITES, Method
from ggufspec.errors import GgufspecError
from ggufspec.units import duration_option, exact_decimal, parse_duration, parse_memory, parse_quantity

if TYPE_CHECKING:
    from pathlib import Path

MOST_LAYERS = 9999
_MOST = 2**31 - 1  # the largest integer that llama.cpp accepts
_MOST_VALUES = 1000  # of one axis
_LEAST_FRACTION = 0.0001
_SMALLEST, _LARGEST = 1e-9, 1e12  # besides 0; others overflow in computations
_LONGEST_S = 20 * 86400  # within the limits of all waiting functions
_LONGEST_DRAFT = 64  # tokens
_LONGEST_NGRAM = 1024  # tokens, the most that llama.cpp accepts
_NGRAM = {"size-n": 1, "size-m": 1, "min-hits": 1, "n-min": 0}  # settings, with the least value of each
# Patterns are texts: compiling them takes longer than ``--help`` has, and re keeps those that are used.
_RANGE = r"(?P<first>[\d.]+)-(?P<last>[\d.]+)(?:(?P<operator>[+*])(?P<step>[\d.]+))?"
_LIMIT = r"(?P<name>ttft|itl)=(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s)"
_THOUSANDS = r"(?P<number>\d+)k"
_LATENCY = r"(?P<number>\d{1,9}(?:\.\d{1,20})?)(?P<unit>us|ms|s)"
_MILLISECONDS = {"us": "e-3", "ms": "", "s": "e3"}  # as a power of ten, so that nothing is lost by rounding
_ADDRESS = r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}):(?P<port>\d{1,5})"
_WORKERS = "examples: 192.168.0.7:50052; a:50052,b:50052; none"
_MOST_RATIO = 1e6  # of two times
_MEANT = {
    **dict.fromkeys(("1", "true", "enabled"), "on"),
    **dict.fromkeys(("0", "false", "disabled"), "off"),
}  # llama.cpp's other words of switches
_BETWEEN_VALUES = "|"  # of arguments that are passed on

NO_WORKERS = "none"
"""The word for no workers, as a value of ``--rpc``."""


class Kind:
    """A kind of values. ``parse`` raises ValueError with a sentence that says what is accepted.

    ``placeholder`` stands for a value in the help, ``words`` are the only values where there are few, and
    ``stored_as`` is the type of a value in the settings file.
    """

    placeholder = "TEXT"
    words: tuple[str, ...] = ()
    stored_as: type[str] | type[int] | type[bool] = str

    @property
    def bounds(self) -> str | None:
        """The range of the values, as the help shows it."""
        return None

    def parse(self, text: str) -> Any:
        """Return the value that a text stands for."""
        return text

    def format(self, value: Any) -> str:
        """Return a text that ``parse`` reads as this value."""
        return str(value)

    def meant(self, value: Any) -> Any:
        """Return the value that a call from Python means: of most kinds the value itself, not a text."""
        return value

    def check(self, value: Any) -> None:
        """Raise ValueError where a value is none that ``parse`` returns, for a call from Python."""

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the value that several parts of it make together."""
        return parts[-1]


TEXT = Kind()
"""Any text."""


class Flag(Kind):
    """Yes or no; there is no text."""

    placeholder = ""
    stored_as = bool


class Word(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = tuple(map(str, words))
        self.placeholder = f"[{'|'.join(self.words)}]"

    def parse(self, text: str) -> str:
        """Return the word."""
        if text not in self.words:
            raise ValueError(f"{text!r} is not one of {', '.join(map(repr, self.words))}.")
        return text

    def check(self, value: Any) -> None:
        """Refuse another word; an empty one stands for the default."""
        if value:
            self.parse(value)


class SuiteName(Word):
    """A built-in prompt suite, or a dataset on the Hub."""

    def __init__(self) -> None:
        super().__init__(*SUITES)
        self.placeholder = "NAME"

    def parse(self, text: str) -> str:
        """Return the name of a built-in suite, or one that begins as those of datasets do."""
        if text not in self.words and re.search(r"[./]", text) and not text.startswith(ON_HUB):
            raise ValueError(f"{text!r} is not a built-in suite; --prompt-file reads one from a file.")
        return text if text.startswith(ON_HUB) else super().parse(text)


class Number(Kind):
    """A finite number from ``least`` to ``most``; ``is_open`` leaves out the former itself."""

    placeholder = "X"

    def __init__(
        self, least: float | None = None, most: float | None = None, *, is_open: bool = False
    ) -> None:
        self.least, self.most, self._is_open = least, most, is_open

    @property
    def bounds(self) -> str | None:
        """The range, such as ``0<=x<=1`` or ``x>=1``."""
        sign = "<" if self._is_open else "<="
        match self.least, self.most:
            case None, None:
                return None
            case least, None:
                return f"x{sign.replace('<', '>')}{least}"
            case None, most:
                return f"x<={most}"
            case least, most:
                return f"{least}{sign}x<={most}"

    def parse(self, text: str) -> Any:
        """Return the number."""
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a number") from None
        if not math.isfinite(number):
            raise ValueError(f"{text!r} is not a finite number")
        self._check(number)
        if number and not _SMALLEST <= abs(number) <= _LARGEST:
            raise ValueError(f"{text!r} is neither 0 nor between {_SMALLEST:g} and {_LARGEST:g}")
        return number

    def check(self, value: Any) -> None:
        """Refuse a number out of range."""
        if value is not None:
            self._check(value)

    def _check(self, number: float) -> None:
        is_low = self.least is not None and (number < self.least or (self._is_open and number == self.least))
        if is_low or (self.most is not None and number > self.most):
            raise ValueError(f"{number} is not in the range {self.bounds}.")


class Count(Number):
    """A whole number, up to the largest that llama.cpp accepts."""

    placeholder = "N"

    def parse(self, text: str) -> int:
        """Return the number."""
        try:
            number = int(text)
        except ValueError:  # also for thousands of digits
            raise ValueError(f"{text!r} is not a whole number") from None
        self._check(number)
        if number > _MOST:
            raise ValueError(f"{text} is more than {_MOST:,}")
        return number


class Fraction(Kind):
    """A percentage or fraction such as ``2%`` or ``0.02``."""

    placeholder = "PERCENTAGE"

    def parse(self, text: str) -> float:
        """Return the fraction."""
        text = text.strip()
        try:
            fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            fraction = 0.0
        if not _LEAST_FRACTION <= fraction < 1:
            raise ValueError(f"{text!r} is not a percentage between 0.01% and 100%; examples: 2%, 0.02")
        return fraction


class Duration(Kind):
    """A time such as ``10m``, in seconds."""

    placeholder = "TIME"

    def parse(self, text: str) -> float:
        """Return the seconds."""
        seconds = parse_duration(text)
        if not 1 <= seconds <= _LONGEST_S:
            raise ValueError(f"{text!r} is not between 1 second and {_LONGEST_S // 3600} hours")
        return seconds

    def check(self, value: Any) -> None:
        """Refuse what is no time that passes."""
        if value is not None and value <= 0:
            raise ValueError(f"{value} is not a number of seconds above 0")

    def format(self, value: float) -> str:
        """Return the seconds, in the largest unit that loses nothing."""
        return duration_option(value)


class Latency(Kind):
    """A short time such as ``2ms``, ``0.5ms``, ``200us`` or ``0.02s``, in milliseconds."""

    placeholder = "TIME"

    def parse(self, text: str) -> float:
        """Return the milliseconds."""
        match = re.fullmatch(_LATENCY, text)
        if match is None:
            raise ValueError(f"{text!r} is not a time; examples: 2ms, 200us, 0.02s")
        return float(f"{match['number']}{_MILLISECONDS[match['unit']]}")

    def format(self, value: float) -> str:
        """Return the milliseconds."""
        return f"{exact_decimal(value)}ms"


class Size(Kind):
    """An amount of memory such as ``24G``, in bytes."""

    placeholder = "SIZE"

    def parse(self, text: str) -> int:
        """Return the bytes."""
        return parse_memory(text)

    def format(self, value: int) -> str:
        """Return the bytes, with a unit: few bytes without one are taken for a mistake."""
        for unit, size in (("G", 1 << 30), ("M", 1 << 20)):
            if value and value % size == 0:
                return f"{value // size}{unit}"
        return f"{value}B"

    def meant(self, value: Any) -> Any:
        """Return an amount in bytes; a call from Python may give it as text, such as ``24G``."""
        if isinstance(value, str):
            return self.parse(value)
        return parse_memory(value) if isinstance(value, int) else value


class Sizes(Size):
    """An amount of memory, or one for each GPU: ``24G``, ``24G,12G``."""

    placeholder = "SIZES"

    def parse(self, text: str) -> Any:
        """Return the bytes of each."""
        return tuple(map(parse_memory, text.split(",")))

    def format(self, value: Any) -> str:
        """Return the amounts, separated by commas."""
        return ",".join(map(super().format, value))

    def meant(self, value: Any) -> Any:
        """Return the bytes of a text, and of texts among several."""
        if not isinstance(value, list | tuple):
            return super().meant(value)
        return tuple(parse_memory(part) if isinstance(part, str | int) else part for part in value)


class AcceptanceText(Kind):
    """An acceptance, which ``domain.parse_acceptances`` reads; Python may give numbers."""

    def format(self, value: Any) -> str:
        """Return numbers by position separated by commas."""
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


class PerSecond(Kind):
    """Bytes or operations per second such as ``936G``, in powers of ten as in data sheets."""

    placeholder = "QUANTITY"

    def parse(self, text: str) -> float:
        """Return the number."""
        return parse_quantity(text)

    def format(self, value: float) -> str:
        """Return the number in millions."""
        return f"{exact_decimal(value, -6)}M"


class Joined(Kind):
    """Several values that are one, with commas between them."""

    def format(self, value: Sequence[Any]) -> str:
        """Return the values, separated by commas."""
        return ",".join(map(str, value))


class Numbers(Joined):
    """Positive numbers, separated by commas."""

    placeholder = "NUMBERS"

    def parse(self, text: str) -> tuple[float, ...]:
        """Return the numbers in their order."""
        numbers = _numbers(text)
        if not numbers or not all(1 / _MOST_RATIO <= number <= _MOST_RATIO for number in numbers):
            raise ValueError(f"{text!r} is not a list of positive numbers; example: 1,1.1,1.25")
        return numbers


class Splits(Kind):
    """Proportions of devices such as ``3,1``; several splits as in llama-bench: ``3/1,1/1``."""

    placeholder = "PROPORTIONS"

    def parse(self, text: str) -> tuple[tuple[float, ...], ...]:
        """Return the numbers of each split."""
        splits = [part.replace("/", ",") for part in text.split(",")] if "/" in text else [text]
        values = tuple(dict.fromkeys(map(_numbers, splits)))
        for numbers in values:
            if not numbers or not all(0 <= number < 1e9 for number in numbers) or not any(numbers):
                raise ValueError(f"{text!r} is not a list of proportions; examples: 3,1; 3/1,1/1")
        return values

    def format(self, value: Sequence[Sequence[float]]) -> str:
        """Return the proportions of one split, or of several."""
        return ",".join(("," if len(value) == 1 else "/").join(map(str, split)) for split in value)

    def meant(self, value: Any) -> Any:
        """Return several splits; numbers are one."""
        is_one = isinstance(value, Sequence) and value and not isinstance(value[0], Sequence)
        return (tuple(value),) if is_one else value


class FilePath(Kind):
    """A path of a file, of a folder, or of either.

    Args:
        placeholder: ``FILE``, ``FOLDER``, or ``PATH`` for either.
        exists: refuse a file that does not exist.
        dash: accept ``-`` for a standard stream.
    """

    def __init__(self, placeholder: str = "FILE", *, exists: bool = False, dash: bool = False) -> None:
        self.placeholder = placeholder
        self.exists, self._dash = exists, dash

    def parse(self, text: str) -> Path:
        """Return the path."""
        from pathlib import Path

        path = Path(text)
        if self._dash and text == "-":
            return path
        if self.placeholder == "FILE" and path.is_dir():
            raise ValueError(f"File {text!r} is a directory.")
        if self.placeholder == "FOLDER" and path.is_file():
            raise ValueError(f"Directory {text!r} is a file.")
        if self.exists and not path.exists():
            from ggufspec import paths

            close = paths.beside(path)
            meant = "" if close is None else f" Did you mean {str(close)!r}?"
            raise ValueError(f"File {text!r} does not exist.{meant}")
        return path


class TextOfFile(Kind):
    """What a file says, without the line break at its end, as llama.cpp reads it."""

    placeholder = "FILE"

    def parse(self, text: str) -> str:
        """Return the text of the file."""
        from pathlib import Path

        from ggufspec import userfiles

        try:
            return userfiles.read_text(Path(text)).removesuffix("\n")
        except OSError as error:
            raise ValueError(f"cannot read {text}: {error.strerror}") from error


class DeviceList(Joined):
    """Devices as ``llama-server --list-devices`` names them: ``CUDA0,CUDA1``, or ``none``."""

    placeholder = "DEVICES"

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the names."""
        names = tuple(name.strip() for name in text.split(","))
        if not all(names) or len(set(names)) < len(names) or ("none" in names and len(names) > 1):
            raise ValueError(f"{text!r} is not a list of devices; examples: CUDA0, CUDA0,CUDA1, none")
        return names


class WorkerList(Kind):
    """Workers on other machines: ``a:50052,b:50052``, or ``none``."""

    placeholder = "HOST:PORT,…"

    def parse(self, text: str) -> str:
        """Return the addresses as one text without spaces."""
        try:
            return ",".join(parse_workers(text)) or NO_WORKERS
        except GgufspecError as error:
            raise ValueError(f"{error.message}; {error.hint}") from error


class Quants(Joined):
    """Quantizations that llama-quantize makes without an importance matrix: ``Q8_0,Q4_0``."""

    placeholder = "TYPES"
    _KNOWN = (
        *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0"),
        *("IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K", "F16", "BF16"),
    )

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the names in llama.cpp's spelling, each once."""
        quants = tuple(dict.fromkeys(part.strip().upper() for part in text.split(",")))
        unknown = next((quant for quant in quants if quant not in self._KNOWN), None)
        if unknown is not None:
            raise ValueError(f"{unknown!r} is not one of {', '.join(self._KNOWN)}")
        return quants


class NgramList(Kind):
    """Settings of n-gram methods: ``size-n=12,size-m=48,min-hits=1``."""

    placeholder = "SETTINGS"

    def parse(self, text: str) -> Any:
        """Return the settings; those that are not given are None."""
        from ggufspec.domain import NgramSettings

        settings: dict[str, int] = {}
        for part in text.split(","):
            name, _, number = (word.strip() for word in part.partition("="))
            least = _NGRAM.get(name, _LONGEST_NGRAM + 1)
            if not number.isdecimal() or not least <= int(number) <= _LONGEST_NGRAM:
                raise ValueError(
                    f"{part!r} is not a setting of n-grams from 1 to {_LONGEST_NGRAM}; "
                    "example: size-n=12,size-m=48,min-hits=1,n-min=0"
                )
            settings[name.replace("-", "_")] = int(number)
        return NgramSettings(**settings)


class NgramSetting(NgramList):
    """One setting of n-gram methods, as the flags of llama.cpp have it: a number alone."""

    placeholder = "N"

    def __init__(self, name: str) -> None:
        self.name = name

    def parse(self, text: str) -> Any:
        """Return settings with this one."""
        return super().parse(f"{self.name}={text}")

    def join(self, parts: Sequence[Any]) -> Any:
        """Return the settings that several flags have together."""
        from ggufspec.domain import NgramSettings

        named = (pair for part in parts for pair in vars(part).items() if pair[1] is not None)
        return NgramSettings(**dict(named))


class Shares(Joined):
    """An acceptance: each token's probability, a rate at a draft size (0.708@3), or shares by position."""

    placeholder = "RATE"

    def parse(self, text: str) -> tuple[float, ...]:
        """Return each token's probability alone, or the share of rounds that accept each position."""
        from ggufspec.domain import Positions, Steady

        rate, separator, size = text.partition("@")
        try:
            if separator:
                return (Steady.from_rate(float(rate), _draft_size(size)).alpha,)
            return Positions(tuple(float(part) for part in rate.split(","))).shares
        except ValueError:
            examples = "0.7, 0.708@3 (the acceptance rate at γ 3), 0.9,0.8,0.7 (by position)"
            raise ValueError(f"{text!r} is not an acceptance from 0 to 1; examples: {examples}") from None


class LatencyLimits(Kind):
    """Limits for requests: ``ttft=500ms,itl=50ms``, the time to the first token and between tokens."""

    placeholder = "LIMITS"

    def parse(self, text: str) -> Any:
        """Return the limits in seconds."""
        from ggufspec.domain import ServiceLevel

        limits: dict[str, float] = {}
        for part in text.split(","):
            match = re.fullmatch(_LIMIT, part.strip())
            if match is None or match["name"] in limits or not float(match["number"]):
                raise ValueError(f"{text!r} is not a list of limits; examples: ttft=500ms,itl=50ms; ttft=2s")
            limits[match["name"]] = float(match["number"]) / (1000 if match["unit"] == "ms" else 1)
        return ServiceLevel(ttft_s=limits.get("ttft"), token_s=limits.get("itl"))

    def format(self, value: Any) -> str:
        """Return the limits in seconds."""
        limits = {"ttft": value.ttft_s, "itl": value.token_s}
        return ",".join(
            f"{name}={exact_decimal(limit)}s" for name, limit in limits.items() if limit is not None
        )


class PassedOn(Kind):
    """Arguments for llama.cpp in quotes, as in a shell; `` | `` separates values of an axis."""

    placeholder = "ARGS"

    def parse(self, text: str) -> tuple[tuple[str, ...], ...]:
        """Return the arguments of each value; ``--`` may stand before them."""
        import shlex

        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"the arguments {text!r} cannot be read: {error}; close the quotes") from error
        values: list[list[str]] = [[]]
        for word in words[1:] if words[:1] == ["--"] else words:
            if word == _BETWEEN_VALUES:
                values.append([])
            else:
                values[-1].append(word)
        return tuple(map(tuple, values))

    def format(self, value: Sequence[Sequence[str]]) -> str:
        """Return the arguments of all values; ``--`` stands before them, as one of them may be it."""
        import shlex

        return f"-- {f' {_BETWEEN_VALUES} '.join(map(shlex.join, value))}".rstrip()


class Axis(Joined):
    """One or several values: ``3``, ``3,5,8``, ``1-8``, ``0-80+20``, ``1-16*2``, or words such as ``all``.

    Args:
        name: what the values are, as error messages name them.
        number: int or float; None where only words are accepted.
        words: accepted words.
        least: the smallest number.
        most: the largest number.
        placeholder: what stands for the values in the help; by default their name.
    """

    def __init__(
        self,
        name: str,
        *,
        number: type[int] | type[float] | None = int,
        words: Sequence[str] = (),
        least: float = 0,
        most: float = MOST_LAYERS,
        placeholder: str | None = None,
    ) -> None:
        self.name = name
        self.placeholder = placeholder or name.upper()
        self._number, self._words, self._least, self._most = number, tuple(words), least, most
        self.stored_as = int if number is int and not words else str

    def parse(self, text: str) -> tuple[Any, ...]:
        """Return the distinct values in the given order."""
        return tuple(dict.fromkeys(value for part in text.split(",") for value in self._values(part.strip())))

    @property
    def _limits(self) -> str:
        return f"{self.name} are from {exact_decimal(self._least)} to {exact_decimal(self._most)}"

    def check(self, value: Any) -> None:
        """Refuse a number out of range, and an unknown word."""
        for one in value or ():
            if isinstance(one, str):
                self.parse(one)
            elif self._number is not None and not self._least <= one <= self._most:
                raise ValueError(f"{one} is out of range: {self._limits}")

    def _values(self, text: str) -> Iterator[Any]:
        if text in self._words:
            yield text
            return
        if self._number is None:
            raise ValueError(f"{text!r} is not one of {', '.join(self._words)}")
        match = re.fullmatch(_RANGE, text)
        try:
            first = self._number(match["first"] if match else text)
            last = self._number(match["last"]) if match else first
            step = self._number(match["step"] or 1) if match else self._number(1)
        except ValueError:
            words = "".join(f"; {word}" for word in self._words)
            examples = "0.4; 0,0.4,0.8" if self._number is float else f"3; 3,5,8; 1-8; 0-80+20{words}"
            raise ValueError(f"{text!r} is not a number, a list or a range; examples: {examples}") from None
        if not self._least <= first <= last <= self._most:
            raise ValueError(
                f"{text!r} is out of range: {self._limits}, and a range starts with its lower end"
            )
        multiplies = bool(match and match["operator"] == "*")
        if multiplies and first == 0:
            raise ValueError(f"the range {text!r} multiplies and cannot start at 0")
        if step <= multiplies:
            raise ValueError(f"the step in {text!r} must be greater than {int(multiplies)}")
        count = 0
        while first <= last:
            yield first
            first = self._number(round(first * step if multiplies else first + step, 9))
            count += 1
            if count > _MOST_VALUES:
                raise ValueError(f"{text!r} has more than {_MOST_VALUES} values")


class Depths(Axis):
    """Tokens of context, also in units of 1024: ``0,16k``. A range doubles: ``0-32k`` is 0, 4096, …, 32768.

    Between its ends, a range without a step has a half, a quarter and an eighth of the upper one.
    """

    def __init__(self) -> None:
        super().__init__("tokens", most=1 << 24)

    def _values(self, text: str) -> Iterator[Any]:
        plain = re.sub(_THOUSANDS, lambda match: str(int(match["number"]) * 1024), text)
        match = re.fullmatch(_RANGE, plain)
        if match is None or match["operator"] or match["first"] == match["last"]:
            yield from super()._values(plain)
            return
        first = int(next(super()._values(match["first"])))
        last = int(next(super()._values(match["last"])))
        if first > last:
            raise ValueError(f"{text!r} is out of range: a range starts with its lower end")
        between = (last // part for part in (8, 4, 2))
        yield from (first, *(number for number in between if number > first), last)


class Methods(Axis):
    """One or several drafting methods, or chains of them such as ``ngram-mod+draft-mtp``."""

    def __init__(self) -> None:
        super().__init__("method", number=None, words=tuple(Method))

    def _values(self, text: str) -> Iterator[str]:
        from ggufspec.domain import Chain

        yield str(Chain.parse(text))


class SpecTypes(Methods):
    """The drafting methods of ``--spec-type``: one, or a chain of them, separated by commas."""

    _OF_MODEL = ("draft", "draft-simple")  # the names of b9109 to b9130, and from b9131 on

    def parse(self, text: str) -> tuple[str, ...]:
        """Return the method or the chain."""
        names = [name.strip() for name in text.split(",")]
        if names == ["none"]:
            raise ValueError("nothing drafts with 'none': leave the drafter and the method out")
        methods = (str(Method.DRAFT_MODEL) if name in self._OF_MODEL else name for name in names)
        return tuple(self._values("+".join(methods)))


class Switches(Axis):
    """``on`` or ``off``, and further words of its own; also as llama.cpp writes them otherwise."""

    def __init__(self, *words: str) -> None:
        super().__init__("settings", number=None, words=("on", "off", *words))

    def _values(self, text: str) -> Iterator[Any]:
        yield from super()._values(_MEANT.get(text, text))


def parse_workers(text: str) -> tuple[str, ...]:
    """Return the addresses in a text such as ``a:50052,b:50052``; none for ``none``.

    Raises:
        GgufspecError: it is not a list of addresses, or has one of them twice.
    """
    if text.strip() == NO_WORKERS:
        return ()
    addresses = tuple(part.strip() for part in text.split(","))
    for address in addresses:
        split_address(address)
    if len(set(addresses)) < len(addresses):
        raise GgufspecError(f"{text!r} names a worker twice", _WORKERS)
    return addresses


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of an address. llama.cpp takes names and IPv4 addresses.

    Raises:
        GgufspecError: it is not HOST:PORT.
    """
    match = re.fullmatch(_ADDRESS, address)
    if match is None and (address.startswith("[") or "::" in address):
        raise GgufspecError(f"llama.cpp reaches no worker at the IPv6 address {address!r}", _WORKERS)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise GgufspecError(f"{address!r} is not the address of a worker", _WORKERS)
    return match["host"], int(match["port"])


def _numbers(text: str) -> tuple[float, ...]:
    """Return the numbers between commas; none where one of them is no number."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        return ()


def _draft_size(text: str) -> int:
    """Return a draft size γ.

    Raises:
        ValueError: it is not a number, or larger than any draft.
    """
    size = int(text)
    if size > _LONGEST_DRAFT:
        raise ValueError(f"a draft has at most {_LONGEST_DRAFT} tokens, not {size}")
    return size
