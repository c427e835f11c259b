"""Where a log comes from: a path, a text, bytes or an open file."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Protocol, overload

from ggufspec.domain import Sample
from ggufspec.errors import LogError
from ggufspec.llama.logs.reading import read

_FILE_NAMES = (".log", ".txt", ".md", ".json", ".jsonl", ".ipynb", ".out", ".err")
_LONGEST_PATH = 4096  # Linux's PATH_MAX; a longer text is no path


class OpenFile(Protocol):
    """An open file, in text or binary mode."""

    def read(self) -> str | bytes:
        """Return the rest of the file."""


Source = str | bytes | os.PathLike[str] | OpenFile


@overload
def parse(source: Source) -> Sample: ...
@overload
def parse(source: list[Source] | tuple[Source, ...]) -> list[Sample]: ...
def parse(source: Source | list[Source] | tuple[Source, ...]) -> Sample | list[Sample]:
    """Read the figures of runs from logs of llama.cpp of any era, as files or as pasted text.

    Quoting, indentation, Markdown, HTML, colours and other programs' prefixes do no harm. A warning says from
    which lines the figures are where that is not certain. A server's figures are totals of its requests.

    Args:
        source: a path, a text, bytes or an open file with the log of one run; or a list of them, each with
            any number of runs. A text of one line is a path if such a file exists, or if it ends as the
            names of logs do.

    Returns:
        The sample of the one run; for a list, a sample of each run, in order. A failed run has its status and
        no figures.

    Raises:
        LogError: a log cannot be read, has no output of llama.cpp, or, outside of a list, has several runs.
    """
    if isinstance(source, list | tuple):
        return [sample for part in source for sample in _samples(part)]
    samples = _samples(source)
    if len(samples) > 1:
        raise LogError(f"the log has {len(samples)} runs", "pass a list to get all of them: parse([log])")
    return samples[0]


def _samples(source: Source) -> list[Sample]:
    raw, name = _load(source)
    reading = read(raw, name)
    if reading.problem is not None and not reading.runs:
        raise LogError(f"{name}: {reading.problem.message}", reading.problem.hint)
    for note in reading.notes:
        warnings.warn(f"{name}: {note}", stacklevel=3)
    return [run.sample for run in reading.runs]


def _load(source: Source) -> tuple[bytes, str]:
    """Return the bytes of a log, and what messages call it.

    Raises:
        LogError: it cannot be read, or is of another type.
    """
    if isinstance(source, bytes):
        return source, "the text"
    if isinstance(source, str):
        return (source.encode(errors="replace"), "the text") if _is_text(source) else _load_file(Path(source))
    if isinstance(source, os.PathLike):
        return _load_file(Path(source))
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "the file"))
        try:
            content = source.read()
        except (OSError, ValueError) as error:
            raise LogError(f"cannot read {name}: {error}", "pass a file that is open for reading") from error
        if isinstance(content, str | bytes):
            return content if isinstance(content, bytes) else content.encode(errors="replace"), name
    hint = "pass a path, a text, bytes, an open file, or a list of them"
    raise LogError(f"an object of type {type(source).__name__} is not a log", hint)


def _load_file(path: Path) -> tuple[bytes, str]:
    try:
        return path.read_bytes(), str(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise LogError(f"cannot read {path}: {reason}", "pass the path of a log, or its text") from error


def _is_text(source: str) -> bool:
    """Whether a string is a log itself, not the path of one."""
    if not source.strip() or "\n" in source or "\r" in source or len(source) > _LONGEST_PATH:
        return True
    try:
        is_file = Path(source).exists()
    except (OSError, ValueError):
        return True
    return not is_file and not (source.endswith(_FILE_NAMES) and "  " not in source)
