"""A head in Hugging Face's format, before it is converted: what its configuration says, and its damage.

The names of architectures and keys are those of llama.cpp's converter (conversion/llama.py and qwen.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggufspec.choices import Method
from ggufspec.errors import ModelFileError

_CONFIG = "config.json"
_NAMED = {
    "eagle3": Method.DRAFT_EAGLE3,
    "dspark": Method.DRAFT_DSPARK,  # their configurations have dflash_config, too
    "dflash": Method.DRAFT_DFLASH,
}
"""What the architecture's name contains, in lower case."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_LENGTH_BYTES = 8  # of the number before a safetensors header (its format description, section "Format")
_LONGEST_HEADER_BYTES = 100_000_000  # the limit of the format's own reader


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A head in Hugging Face's format.

    Attributes:
        folder: holds config.json and the weights.
        architecture: as the configuration names it.
        method: how the head drafts.
        size_bytes: of all files of weights.
    """

    folder: Path
    architecture: str
    method: Method
    size_bytes: int


def read_architecture(folder: Path) -> tuple[str, Method]:
    """Return the architecture of the head in a folder, and how it drafts; only config.json is read.

    Raises:
        ModelFileError: there is no readable configuration, or it is not that of a head.
    """
    config = _read_config(folder)
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None
    if architecture is None:
        raise ModelFileError(f"{folder / _CONFIG} names no architecture", "check the folder")
    method = _method(architecture, config)
    if method is None:
        raise ModelFileError(
            f"{folder} is not an EAGLE-3, DFlash or DSpark head: its architecture is {architecture}",
            "name the repository of the head first, and its target with --target",
        )
    return architecture, method


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return what a folder holds; the headers of its weights are read, not the weights.

    Raises:
        ModelFileError: it is not a head, has no weights in safetensors, or a file is cut short.
    """
    architecture, method = read_architecture(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelFileError(
            f"{folder} has no weights in safetensors",
            "choose a repository with *.safetensors; other formats may run code when they are read",
        )
    for file in files:
        _check_weights(file)
    return Checkpoint(
        folder=folder,
        architecture=architecture,
        method=method,
        size_bytes=sum(file.stat().st_size for file in files),
    )


def check_target(folder: Path) -> None:
    """Refuse a folder that lacks what a conversion reads of the target: its configuration and tokenizer.

    Raises:
        ModelFileError: one of them is missing or cannot be read.
    """
    _read_config(folder)
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise ModelFileError(
            f"{folder} has no tokenizer",
            f"it needs one of {', '.join(_TOKENIZERS)}, as the model was published",
        )


def _method(architecture: str, config: Mapping[str, Any]) -> Method | None:
    method = next((method for name, method in _NAMED.items() if name in architecture.lower()), None)
    if method is None and "dflash_config" in config:
        return Method.DRAFT_DFLASH
    is_eagle3 = "draft_vocab_size" in config and config.get("num_hidden_layers") == 1
    return Method.DRAFT_EAGLE3 if method is None and is_eagle3 else method


def _read_config(folder: Path) -> Mapping[str, Any]:
    file = folder / _CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(
            f"{file} cannot be read: {error.strerror}", "name a folder in Hugging Face's format"
        ) from error
    except ValueError as error:
        raise ModelFileError(f"{file} is not valid JSON", "fetch it again") from error
    if not isinstance(config, dict):
        raise ModelFileError(f"{file} is not a configuration", "fetch it again")
    return config


def _check_weights(file: Path) -> None:
    """Refuse a file that is not complete; only its header is read.

    Raises:
        ModelFileError: it is not such a file, or its end is missing.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        text = stream.read(min(length, _LONGEST_HEADER_BYTES))
    try:
        header = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        missing = _LENGTH_BYTES + length + max(ends, default=0) - size
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ModelFileError(f"{file} is not a safetensors file", "fetch it again") from error
    if missing > 0:
        raise ModelFileError(f"{file} is cut short: {missing} bytes are missing", "fetch it again")
