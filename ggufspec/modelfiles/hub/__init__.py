"""The Hugging Face Hub: references, cached files, downloads that resume, headers by range, uploads."""

from __future__ import annotations

from ggufspec.modelfiles.hub.cache import (
    CachedRepo,
    cached_files,
    cached_repos,
    delete_repo,
    last_fetched,
    remember_fetched,
)
from ggufspec.modelfiles.hub.choice import RemoteModel, SeveralModelsError
from ggufspec.modelfiles.hub.client import Access, is_public
from ggufspec.modelfiles.hub.download import add_paths, check_room, fetch
from ggufspec.modelfiles.hub.integrity import fetch_command, last_pair, validate_model
from ggufspec.modelfiles.hub.references import Reference, names_model, of_model, parse_reference
from ggufspec.modelfiles.hub.resolve import open_header, open_headers, read_card, resolve
from ggufspec.modelfiles.hub.search import DrafterCandidate
from ggufspec.modelfiles.hub.survey import (
    FetchItem,
    Survey,
    find_heads,
    list_models,
    locate,
    survey_fetch,
    survey_model,
    survey_pair,
)
from ggufspec.modelfiles.hub.transfer import TransferProgress, TransferState
from ggufspec.modelfiles.hub.upload import check_dataset, dataset_address, upload_dataset

__all__ = [
    "Access",
    "CachedRepo",
    "DrafterCandidate",
    "FetchItem",
    "Reference",
    "RemoteModel",
    "SeveralModelsError",
    "Survey",
    "TransferProgress",
    "TransferState",
    "add_paths",
    "cached_files",
    "cached_repos",
    "check_dataset",
    "check_room",
    "dataset_address",
    "delete_repo",
    "fetch",
    "fetch_command",
    "find_heads",
    "is_public",
    "last_fetched",
    "last_pair",
    "list_models",
    "locate",
    "names_model",
    "of_model",
    "open_header",
    "open_headers",
    "parse_reference",
    "read_card",
    "remember_fetched",
    "resolve",
    "survey_fetch",
    "survey_model",
    "survey_pair",
    "upload_dataset",
    "validate_model",
]
