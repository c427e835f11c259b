"""Format bytes, seconds, rates, counts and other numbers as text; parse bytes and seconds."""

from __future__ import annotations

import math
import re

MOST_BYTES = 1024 << 40
MOST_SECONDS = 500 * 3600  # system calls wait for at most 2^31 ms
_HOURS = 72  # longer durations are given in days
_MOST = 1e18
"""Larger numbers are shown as more than this, so that no cell gets wide; nothing measured reaches it."""
_LEAST = 1e-9
"""Smaller numbers than this are shown as less, for the same reason."""
_LONGEST = 40  # characters of a text that a message quotes
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = r"(?i)\s*(\d+(?:\.\d+)?)\s*([smh]?)(?:in|our|ec)?\s*"
_LEAST_MEMORY = 1 << 20  # bytes; fewer without a unit are a mistake
_QUANTITY = r"(?i)\s*(\d+(?:\.\d+)?)\s*([MGTP])\s*(?:B(?:/s)?|FLOPS)?\s*"
_MOST_PER_S = 1e21  # bytes or operations: a million times what the fastest machines do
_POWERS = {"M": "e6", "G": "e9", "T": "e12", "P": "e15"}
_BYTES = r"(?i)\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1: ``1 thread``, ``10,000 threads``."""
    return f"1 {noun}" if count == 1 else f"{format_count(count)} {noun}s"


def format_number(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits, never in scientific notation: ``0.0523``, ``10,680``.

    Trailing zeros of a fraction are left out. Digits before the point are never rounded away. Numbers that
    nothing measured reaches are shown as more or less than the last one that does.
    """
    if not math.isfinite(value) or not value:
        return f"{value:g}"
    if abs(value) < _LEAST:
        return f"{'-' if value < 0 else ''}<{_LEAST:.9f}"
    magnitude = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of the rounded number
    decimals = digits - 1 - magnitude
    if decimals <= 0:
        return format_count(value)
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def format_bytes(size_bytes: float) -> str:
    """Return a size with three significant digits and a binary unit: ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in _BYTE_UNITS[:-1]:
        if abs(size) < 1023.5:
            return f"{format_number(size, 3)} {unit}"
        size /= 1024
    return f"{format_number(size, 3)} {_BYTE_UNITS[-1]}"


def parse_bytes(text: str) -> int:
    """Return the number of bytes in ``24G``, ``512 MiB`` or ``1024`` (binary units).

    Raises:
        ValueError: the text is not a size, or exceeds MOST_BYTES.
    """
    match = re.fullmatch(_BYTES, text)
    if match is None:
        raise ValueError(f"not a size: {_quote(text)} (expected for example 24G or 512MiB)")
    number, prefix = match.groups()
    size = float(number) * float(1024 ** " kmgt".index(prefix.lower() or " "))
    if size > MOST_BYTES:
        raise ValueError(f"not a size up to {format_bytes(MOST_BYTES)}: {_quote(text)}")
    return round(size)


def parse_memory(value: str | int) -> int:
    """Return the bytes of an amount of memory: ``24G``, or a number of bytes that can be meant.

    Raises:
        ValueError: the text is not a size, or is so few bytes that a unit was forgotten.
    """
    size_bytes = value if isinstance(value, int) else parse_bytes(value)
    has_unit = isinstance(value, str) and not value.strip().isdecimal()
    if size_bytes and not has_unit and size_bytes < _LEAST_MEMORY:
        unit = "G" if size_bytes < 1024 else "M"
        raise ValueError(f"{value} is {counted(size_bytes, 'byte')}; did you mean {size_bytes}{unit}?")
    return size_bytes


def parse_quantity(text: str) -> float:
    """Return bytes or operations per second such as ``936G``, in powers of ten as in data sheets.

    Raises:
        ValueError: the text is not such a quantity.
    """
    match = re.fullmatch(_QUANTITY, text)
    quantity = float(match[1] + _POWERS[match[2].upper()]) if match else 0.0
    if not 0 < quantity <= _MOST_PER_S:
        raise ValueError(f"{_quote(text)} is not a quantity; examples: 936G, 71T")
    return quantity


def parse_duration(text: str) -> float:
    """Return the number of seconds in ``90``, ``10m`` or ``1.5 h``.

    Raises:
        ValueError: the text is not a duration, or exceeds MOST_SECONDS.
    """
    match = re.fullmatch(_DURATION, text)
    if match is None:
        raise ValueError(f"not a duration: {_quote(text)} (expected for example 90s, 10m or 2h)")
    number, unit = match.groups()
    seconds = float(number) * _SECONDS[unit.lower() or "s"]
    if seconds > MOST_SECONDS:
        raise ValueError(f"not a duration up to {MOST_SECONDS // 3600} h: {_quote(text)}")
    return seconds


def format_duration(seconds: float) -> str:
    """Return a duration for people: ``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 10 min``, ``12 days``."""
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < _HOURS:
        return f"{hours} h {minutes:02d} min"
    days = round(seconds / 86400)
    return f"{format_count(days)} days" if days < 2 * 365 else f"{format_count(round(days / 365.25))} years"


def duration_option(seconds: float) -> str:
    """Return a duration as options take it, in the largest unit that loses nothing: ``90s``, ``1h``."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{exact_decimal(seconds)}s"


def exact_decimal(number: float, power: int = 0) -> str:
    """Return a number times a power of ten without an exponent, with all its digits."""
    from decimal import Decimal  # `--help` starts faster without it

    return f"{Decimal(str(number)).scaleb(power).normalize():f}"


def round_up_duration(seconds: float) -> float:
    """Return a duration that people would give: at least so many seconds, in steps of 5 s, 10 s or 1 min."""
    step = 5 if seconds <= 60 else 10 if seconds <= 300 else 60
    return math.ceil(seconds / step) * step


def format_rate(tokens_per_second: float) -> str:
    """Return tokens per second with four significant digits: ``2.010``, ``87.02``, ``1234``, ``10,680``."""
    if not math.isfinite(tokens_per_second):
        return f"{tokens_per_second:g}"
    if abs(tokens_per_second) >= 999.95:
        return format_count(tokens_per_second)
    int_digits = len(str(int(tokens_per_second)))
    return f"{tokens_per_second:.{max(0, min(3, 4 - int_digits))}f}"


def format_percent(fraction: float, digits: int = 1) -> str:
    """Return a fraction as a percentage: ``97.9 %``."""
    return f"{_fixed(100 * fraction, digits)} %"


def format_factor(ratio: float) -> str:
    """Return a speed-up as a factor: ``1.67×``."""
    return f"{_fixed(ratio, 2)}×"


def format_count(value: float) -> str:
    """Return a whole number, with commas if it has five digits or more: ``9999``, ``10,680``."""
    if _MOST < abs(value) < math.inf:
        return f"{'-' if value < 0 else ''}>{_MOST:,.0f}"
    return f"{value:.0f}" if abs(value) < 9999.5 else f"{value:,.0f}"


def _fixed(value: float, decimals: int) -> str:
    """Return a number with so many places; one that nothing measured reaches without any."""
    return f"{value:.{decimals}f}" if abs(value) < _MOST or not math.isfinite(value) else format_count(value)


def _quote(text: str) -> str:
    """Return a text in quotes; the middle of a long text is cut out."""
    return repr(text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[-_LONGEST // 4 :]}")
