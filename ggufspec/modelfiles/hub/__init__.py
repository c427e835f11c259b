"""The Hugging Face Hub: references, cached files, downloads that resume, headers by range, uploads."""

from __future__ import annotations

from ggufspec.errors import GgufspecError

try:
    import huggingface_hub.constants  # reads the Hub's variables, so they are checked first
except ValueError:  # its message may hold a password
    raise GgufspecError(
        "a variable of the Hugging Face Hub has a value that cannot be read",
        "check HF_ENDPOINT, and each HF_HUB_* that is set",
    ) from None

from ggufspec.modelfiles.hub.cache import (
    cached_files,
    cached_repos,
    delete_repo,
    last_pair,
    remember_fetched,
    validate_model,
)
from ggufspec.modelfiles.hub.choice import RemoteModel, SeveralModelsError
from ggufspec.modelfiles.hub.client import Access, is_public
from ggufspec.modelfiles.hub.datasets import (
    DatasetFile,
    DatasetReference,
    check_dataset,
    dataset_address,
    fetch_dataset_files,
    list_dataset,
    parse_dataset,
    upload_dataset,
)
from ggufspec.modelfiles.hub.download import (
    ASK_ABOVE_BYTES,
    add_paths,
    ask_to_download,
    check_room,
    download,
    fetch,
    fetch_files,
)
from ggufspec.modelfiles.hub.references import Reference, names_model, of_model, parse_reference
from ggufspec.modelfiles.hub.resolve import open_headers, read_card, resolve
from ggufspec.modelfiles.hub.search import DrafterCandidate
from ggufspec.modelfiles.hub.survey import (
    CheckpointSurvey,
    FetchItem,
    Survey,
    find_heads,
    find_heads_in_folder,
    list_models,
    locate,
    survey_checkpoint,
    survey_fetch,
    survey_model,
    survey_pair,
)
from ggufspec.modelfiles.hub.transfer import TransferProgress, TransferState

__all__ = [
    "ASK_ABOVE_BYTES",
    "Access",
    "CheckpointSurvey",
    "DatasetFile",
    "DatasetReference",
    "DrafterCandidate",
    "FetchItem",
    "Reference",
    "RemoteModel",
    "SeveralModelsError",
    "Survey",
    "TransferProgress",
    "TransferState",
    "add_paths",
    "ask_to_download",
    "cached_files",
    "cached_repos",
    "check_dataset",
    "check_room",
    "dataset_address",
    "delete_repo",
    "download",
    "fetch",
    "fetch_dataset_files",
    "fetch_files",
    "find_heads",
    "find_heads_in_folder",
    "is_public",
    "last_pair",
    "list_dataset",
    "list_models",
    "locate",
    "names_model",
    "of_model",
    "open_headers",
    "parse_dataset",
    "parse_reference",
    "read_card",
    "remember_fetched",
    "resolve",
    "survey_checkpoint",
    "survey_fetch",
    "survey_model",
    "survey_pair",
    "upload_dataset",
    "validate_model",
]
