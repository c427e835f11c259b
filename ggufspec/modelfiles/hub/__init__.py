"""The Hugging Face Hub: references, cached files, downloads that resume, headers by range, uploads."""

from __future__ import annotations

from ggufspec.modelfiles.hub.cache import (
    cached_files,
    cached_repos,
    delete_repo,
    last_pair,
    remember_fetched,
    validate_model,
)
from ggufspec.modelfiles.hub.choice import RemoteModel, RepoFile
from ggufspec.modelfiles.hub.client import DATASET, Access, is_public
from ggufspec.modelfiles.hub.datasets import (
    DatasetReference,
    check_dataset,
    dataset_address,
    fetch_dataset_files,
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
    list_files,
    list_models,
    locate,
    survey_checkpoint,
    survey_fetch,
    survey_model,
    survey_pair,
)
from ggufspec.modelfiles.hub.transfer import TransferProgress, TransferState
