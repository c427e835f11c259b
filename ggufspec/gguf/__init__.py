"""GGUF files: the header of a model, here or far away, as a ModelCard."""

from ggufspec.gguf.card import ModelCard, Split, Vocabulary
from ggufspec.gguf.files import (
    open_parts,
    parse_complete,
    parse_header,
    part_paths,
    read_card,
    validate_file,
)
from ggufspec.gguf.reader import Tensor
from ggufspec.gguf.source import FileSource, Source, check_path
from ggufspec.gguf.types import TYPES_BY_NAME, GgmlType
from ggufspec.gguf.values import NumberArray, StringArray

__all__ = [
    "TYPES_BY_NAME",
    "FileSource",
    "GgmlType",
    "ModelCard",
    "NumberArray",
    "Source",
    "Split",
    "StringArray",
    "Tensor",
    "Vocabulary",
    "check_path",
    "open_parts",
    "parse_complete",
    "parse_header",
    "part_paths",
    "read_card",
    "validate_file",
]
