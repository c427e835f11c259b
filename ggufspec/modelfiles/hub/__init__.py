"""The Hugging Face Hub: references, what is cached, downloads that resume, and headers read from afar."""

from __future__ import annotations

from ggufspec.modelfiles.hub.cache import (
    CachedRepo,
    cached_files,
    cached_repos,
    delete_repo,
    last_fetched,
    remember_fetched,
)
from ggufspec.modelfiles.hub.choice import SeveralModelsError
from ggufspec.modelfiles.hub.client import Access
from ggufspec.modelfiles.hub.download import check_room, fetch
from ggufspec.modelfiles.hub.integrity import fetch_command, last_pair, validate_model
from ggufspec.modelfiles.hub.references import Reference, of_model, parse
from ggufspec.modelfiles.hub.resolve import open_header, open_headers, read_card, resolve
from ggufspec.modelfiles.hub.search import Candidate
from ggufspec.modelfiles.hub.survey import Item, Survey, locate, survey, survey_pair
from ggufspec.modelfiles.hub.transfer import Progress, State

__all__ = [
    "Access",
    "CachedRepo",
    "Candidate",
    "Item",
    "Progress",
    "Reference",
    "SeveralModelsError",
    "State",
    "Survey",
    "cached_files",
    "cached_repos",
    "check_room",
    "delete_repo",
    "fetch",
    "fetch_command",
    "last_fetched",
    "last_pair",
    "locate",
    "of_model",
    "open_header",
    "open_headers",
    "parse",
    "read_card",
    "remember_fetched",
    "resolve",
    "survey",
    "survey_pair",
    "validate_model",
]
