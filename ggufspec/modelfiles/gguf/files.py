"""Is this file a model that llama.cpp could load? If not, say what it is instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ggufspec.errors import ModelFileError
from ggufspec.modelfiles.gguf.card import PROJECTOR_ARCHITECTURE, ModelCard, build_card
from ggufspec.modelfiles.gguf.reader import MAGIC, FileSource, Header, HeaderSource, read_header
from ggufspec.units import counted, format_bytes

_PART = re.compile(r"(?P<prefix>.+)-\d{5}-of-(?P<count>(?!0{5})\d{5})\.gguf", re.IGNORECASE)
_PROJECTOR = "mmproj"  # how llama.cpp's converter begins the names of those for images
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


def parse_complete(sources: Mapping[str, HeaderSource]) -> ModelCard:
    """Read the card of a model whose files must be complete.

    Args:
        sources: each file's name in messages -> its bytes; the first part first.

    Raises:
        ModelFileError: a file is not a GGUF or ends before its last tensor, parts are missing or mixed up,
            or this is not a language model.
    """
    parts = {name: (source, _header(source, name)) for name, source in sources.items()}
    for name, (source, header) in parts.items():
        missing = header.end - source.size
        if missing > 0:
            raise ModelFileError(
                f"{name} is truncated: {format_bytes(missing)} of {format_bytes(header.end)} are missing "
                f"({missing} bytes)",
                _DOWNLOAD_AGAIN,
            )
    card = _card([*parts.values()], next(iter(parts)))
    _check_parts({name: header for name, (_, header) in parts.items()}, card)
    return card


def read_card(path: Path) -> ModelCard:
    """Read the card of a local model with all of its parts, without checking that its data is complete.

    Raises:
        ModelFileError: a file is missing or not a GGUF, or its header is damaged.
    """
    return _card([(source, _header(source, name)) for name, source in open_parts(path).items()], str(path))


def projector_bytes(path: Path | None) -> int:
    """Return the size of the weights of what reads images, from its header; 0 without a file.

    Raises:
        ModelFileError: it is missing or damaged, or no projector.
    """
    if path is None:
        return 0
    (name, source), *_ = open_parts(path).items()
    header = _header(source, name)
    if header.metadata.get("general.architecture") != PROJECTOR_ARCHITECTURE:
        raise ModelFileError(
            f"{path} does not read images: it is no projector",
            "give the mmproj file that belongs to the target",
        )
    return sum(tensor.size_bytes for tensor in header.tensors)


def validate_file(path: Path) -> ModelCard:
    """Check that a local model is there, complete and a language model; return its card.

    Raises:
        ModelFileError: it is not; the message says what it is instead, or how many bytes are missing.
    """
    card = parse_complete(open_parts(path))
    if not card.tensors:
        raise ModelFileError(
            f"{path} holds only a vocabulary, no weights", "give a GGUF that holds the model itself"
        )
    return card


def open_parts(path: Path) -> dict[str, HeaderSource]:
    """Open the files of a local model under their names.

    Raises:
        ModelFileError: one of them is missing or cannot be read.
    """
    return {str(part): FileSource(part) for part in part_paths(path)}


def split_names(filename: str) -> tuple[str, ...]:
    """Return the names of all parts of a split GGUF, or the name itself if it is not split."""
    part = _PART.fullmatch(filename)
    if part is None:
        return (filename,)
    prefix, count = part["prefix"], int(part["count"])
    return tuple(f"{prefix}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1))


def part_paths(path: Path) -> list[Path]:
    """Return the files of a model: itself, or all parts if it is the first of several."""
    names = split_names(path.name)
    return [path.with_name(name) for name in names] if path.name == names[0] else [path]


def models_in(folder: Path) -> list[Path]:
    """Return the models in a folder, by name: of those in several parts the first, and no projectors."""
    try:
        files = sorted(folder.glob("*.gguf"))
    except OSError:  # such as a name that is too long
        return []
    first = (file for file in files if file.name == split_names(file.name)[0])
    return [file for file in first if not file.name.startswith(_PROJECTOR)]


def _check_parts(headers: Mapping[str, Header], card: ModelCard) -> None:
    """Refuse a model some of whose parts are missing, or belong to another model.

    Each part says which one it is, of how many; a model in one file says nothing of the kind.
    """
    if card.split is None:
        return
    count, first = card.split.count, next(iter(headers))
    if count != len(headers):
        raise ModelFileError(
            f"{first} is part 1 of {count} of a model, but its name says {counted(len(headers), 'part')}",
            f"restore the original names of all parts: …-00001-of-{count:05d}.gguf",
        )
    for number, (name, header) in enumerate(headers.items()):
        stated = header.metadata.get("split.no", number), header.metadata.get("split.count", count)
        if stated != (number, count):
            raise ModelFileError(
                f"{name} is not part {number + 1} of {count} of this model, as its header states",
                "put the parts of one model into one folder, with their original names",
            )
    total = card.metadata.get("split.tensors.count", len(card.tensors))
    if total != len(card.tensors):
        raise ModelFileError(
            f"{first} and its other parts have {len(card.tensors)} tensors instead of {total!s:.20}",
            _DOWNLOAD_AGAIN,
        )


def _header(source: HeaderSource, name: str) -> Header:
    start = source.read(0, 64)
    if not start:
        raise ModelFileError(f"{name} is empty", _DOWNLOAD_AGAIN)
    if not start.startswith(MAGIC):
        for pattern, file_kind, hint in _IMPOSTORS:
            if pattern.match(start):
                raise ModelFileError(f"{name} is {file_kind}, not a GGUF", hint)
        raise ModelFileError(f"{name} is not a GGUF", "llama.cpp needs models in GGUF format")
    return read_header(source, name)


def _card(parts: list[tuple[HeaderSource, Header]], name: str) -> ModelCard:
    _, first = parts[0]
    header = Header(
        version=first.version,
        metadata=first.metadata,
        tensors=tuple(tensor for _, header in parts for tensor in header.tensors),
        end=first.end,
    )
    return build_card(header, source=name, size_bytes=sum(part.size for part, _ in parts))
