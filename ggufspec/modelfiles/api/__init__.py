"""List, fetch, check, suggest and convert models: each is one function of a command's options."""

from __future__ import annotations

from ggufspec.modelfiles.api.checking import CheckedPair, check, name_models
from ggufspec.modelfiles.api.converting import ConvertedHead, convert
from ggufspec.modelfiles.api.fetching import fetch, pin_files
from ggufspec.modelfiles.api.listing import LocalModel, LocalModels, LocalPair, find_models
from ggufspec.modelfiles.api.suggesting import SuggestedDrafter, suggest
