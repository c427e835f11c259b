"""Bytes, seconds, rates and counts to text, and the first two back."""

from __future__ import annotations

import re

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)(?:in|our|ec)?\s*", re.IGNORECASE)
_MOST_BYTES = 1 << 60
_BYTES = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, which takes an s unless it is one: ``1 thread``, ``2 threads``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_bytes(size_bytes: float) -> str:
    """Return a size with three significant digits and a binary unit: ``1.5 GiB``."""
    size = float(size_bytes)
    for unit in _BYTE_UNITS[:-1]:
        if abs(size) < 1023.5:
            return f"{size:.3g} {unit}" if size < 999.5 else f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.3g} {_BYTE_UNITS[-1]}"


def parse_bytes(text: str) -> int:
    """Return the bytes that ``24G``, ``512 MiB`` or ``1024`` stand for (binary units).

    Raises:
        ValueError: the text is not a size, or more than any machine has.
    """
    match = _BYTES.fullmatch(text)
    if match is None:
        raise ValueError(f"not a size: {text!r} (expected for example 24G or 512MiB)")
    number, prefix = match.groups()
    size = float(number) * float(1024 ** " kmgt".index(prefix.lower() or " "))
    if size > _MOST_BYTES:
        raise ValueError(f"not a size: {text!r} (at most {_MOST_BYTES >> 40}T)")
    return round(size)


def parse_duration(text: str) -> float:
    """Return the seconds that ``90``, ``10m`` or ``1.5 h`` stand for.

    Raises:
        ValueError: the text is no duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"not a duration: {text!r} (expected for example 90s, 10m or 2h)")
    number, unit = match.groups()
    return float(number) * _SECONDS[unit.lower() or "s"]


def format_duration(seconds: float) -> str:
    """Return a duration as people say it: ``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_rate(tokens_per_second: float) -> str:
    """Return tokens per second with four significant digits: ``2.010``, ``87.02``, ``1234``."""
    if tokens_per_second >= 999.95:
        return f"{tokens_per_second:.0f}"
    whole = len(str(int(tokens_per_second)))
    return f"{tokens_per_second:.{max(0, min(3, 4 - whole))}f}"
