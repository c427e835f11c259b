"""GGUF files: the header of a model, on this machine or on the Hub, as a ModelCard."""

from ggufspec.modelfiles.gguf.card import ModelCard, Vocabulary
from ggufspec.modelfiles.gguf.files import (
    models_in,
    open_parts,
    parse_complete,
    part_paths,
    projector_bytes,
    read_card,
    split_names,
    validate_file,
)
from ggufspec.modelfiles.gguf.reader import (
    IK_TYPES,
    TYPES_BY_NAME,
    FileSource,
    HeaderSource,
    StringArray,
    Tensor,
    check_path,
)
