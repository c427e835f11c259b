"""Is this file a model that llama.cpp could load? If not, say what it is instead."""

from __future__ import annotations

import re
from pathlib import Path

from ggufspec.errors import ModelFileError
from ggufspec.gguf.card import ModelCard, build_card
from ggufspec.gguf.reader import MAGIC, Header, read_header
from ggufspec.gguf.source import FileSource, Source
from ggufspec.units import format_bytes

_FIRST_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")
_DOWNLOAD_AGAIN = "download the file again"
_IMPOSTORS = (
    (re.compile(rb"\s*<(!doctype html|html|\?xml)", re.IGNORECASE), "a web page", _DOWNLOAD_AGAIN),
    (
        re.compile(rb"version https://git-lfs"),
        "a git-lfs pointer",
        "run `git lfs pull`, or download the model itself",
    ),
    (re.compile(rb"PK\x03\x04"), "a zip archive", "convert the model to GGUF first"),
    (re.compile(rb".{7}\x00\{\"", re.DOTALL), "a safetensors file", "convert the model to GGUF first"),
    (re.compile(rb"lmgg|fmgg|tjgg"), "a model in a format older than GGUF", "get a GGUF of this model"),
    (re.compile(rb"\x00{16}"), "an unfinished download", _DOWNLOAD_AGAIN),
)


def parse_header(*sources: Source, name: str) -> ModelCard:
    """Read the card of a model that may be far away.

    Args:
        sources: the bytes of the model's file, or of its parts in order; without the later ones the card
            lacks their tensors.
        name: what to call the model in messages.

    Raises:
        ModelFileError: this is no GGUF, or no language model, or its header is damaged.
    """
    return _card([(each, _header(each, name)) for each in sources], name)


def read_card(path: Path) -> ModelCard:
    """Read the card of a local model with all of its parts, without asking whether its data is complete.

    Raises:
        ModelFileError: a file is missing, is no GGUF, or its header is damaged.
    """
    return _card(_parts(path), str(path))


def validate_file(path: Path) -> ModelCard:
    """Check that a local model is there, whole and a language model; return its card.

    Raises:
        ModelFileError: it is not; the message says what it is instead, or how many bytes are missing.
    """
    parts = _parts(path)
    for part, (source, header) in zip(part_paths(path), parts, strict=True):
        missing = header.end - source.size
        if missing > 0:
            raise ModelFileError(
                f"{part} is truncated: {format_bytes(missing)} of {format_bytes(header.end)} are missing "
                f"({missing} bytes)",
                _DOWNLOAD_AGAIN,
            )
    card = _card(parts, str(path))
    if not card.tensors:
        raise ModelFileError(
            f"{path} holds only a vocabulary, no weights", "give a GGUF that holds the model itself"
        )
    return card


def part_paths(path: Path) -> list[Path]:
    """Return the files of a model: itself, or all parts if it is the first of several."""
    match = _FIRST_PART.search(path.name)
    if match is None:
        return [path]
    stem = path.name[: match.start()]
    count = match.group(1)
    return [path.with_name(f"{stem}-{no:05d}-of-{count}.gguf") for no in range(1, int(count) + 1)]


def _parts(path: Path) -> list[tuple[Source, Header]]:
    sources = [(part, FileSource(part)) for part in part_paths(path)]
    return [(source, _header(source, str(part))) for part, source in sources]


def _header(source: Source, name: str) -> Header:
    start = source.read(0, 64)
    if not start:
        raise ModelFileError(f"{name} is empty", _DOWNLOAD_AGAIN)
    if not start.startswith(MAGIC):
        for pattern, what, hint in _IMPOSTORS:
            if pattern.match(start):
                raise ModelFileError(f"{name} is {what}, not a GGUF", hint)
        raise ModelFileError(f"{name} is not a GGUF", "llama.cpp needs models in GGUF format.")
    return read_header(source, name)


def _card(parts: list[tuple[Source, Header]], name: str) -> ModelCard:
    _, first = parts[0]
    whole = Header(
        version=first.version,
        metadata=first.metadata,
        tensors=tuple(tensor for _, header in parts for tensor in header.tensors),
        end=first.end,
    )
    return build_card(whole, source=name, size_bytes=sum(part.size for part, _ in parts))
