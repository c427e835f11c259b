"""The Hugging Face Hub: references, what is cached, downloads that resume, and headers read from afar."""

from __future__ import annotations

from ggufspec.hub.cache import cached_files, last_fetched, remember_fetched
from ggufspec.hub.choice import SeveralModelsError
from ggufspec.hub.client import Access
from ggufspec.hub.download import check_room, fetch
from ggufspec.hub.integrity import fetch_command, last_pair, validate_model
from ggufspec.hub.references import Reference, of_model, parse
from ggufspec.hub.resolve import open_header, open_headers, read_card, resolve
from ggufspec.hub.survey import Item, Survey, locate, survey, survey_pair
from ggufspec.hub.transfer import Progress, State

__all__ = [
    "Access",
    "Item",
    "Progress",
    "Reference",
    "SeveralModelsError",
    "State",
    "Survey",
    "cached_files",
    "check_room",
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
