"""Checkpoints in Hugging Face's format: which files of a repository a conversion needs, and where they go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from ggufspec.errors import BadReferenceError, RemoteFileNotFoundError
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.modelfiles.hub.client import Access
from ggufspec.modelfiles.hub.references import parse_reference
from ggufspec.modelfiles.hub.survey import FetchItem, free_bytes, list_files, make_item

CONFIG = "config.json"
WEIGHTS = ".safetensors"
_TEXTS = (".json", ".jinja", ".model", ".tiktoken", ".txt")
"""Endings of configurations and tokenizers. Python code of a repository is never fetched."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSurvey:
    """The files of a repository that a conversion needs, before a download starts.

    Attributes:
        repo: ``user/repo``.
        items: what is fetched, weights last.
        place: the folder in which they are once they are fetched.
        folder: the cache, for messages.
        free_bytes: the free disk space there.
    """

    repo: str
    items: tuple[FetchItem, ...]
    place: Path
    folder: Path
    free_bytes: int

    @cached_property
    def missing_bytes(self) -> int:
        """How much of the weights has to be downloaded, and the disk space for it."""
        return sum(item.file.size_bytes - item.here_bytes for item in self.items if item not in self.texts)

    @cached_property
    def texts(self) -> tuple[FetchItem, ...]:
        """Everything but weights: a few megabytes."""
        return tuple(item for item in self.items if not item.file.path.endswith(WEIGHTS))


def survey_checkpoint(
    text: str, access: Access, *, revision: str | None = None, weights: bool
) -> CheckpointSurvey:
    """Find out which files of a repository a conversion needs.

    Args:
        text: ``user/repo``, ``user/repo@revision``, ``hf://…`` or the repository's URL.
        access: access to the Hub.
        revision: a branch, tag or commit, unless the text names one.
        weights: whether the tensors are needed, too.

    Raises:
        BadReferenceError: the text names no repository.
        RemoteFileNotFoundError: it is not in Hugging Face's format.
        GgufspecError: the Hub cannot be asked.
    """
    reference = parse_reference(text, {}, endpoint=access.endpoint)
    if reference.repo is None or reference.filename or reference.quant:
        raise BadReferenceError(
            f"{text!r} is not a repository or a folder in Hugging Face's format",
            "name the model as it was published, not a GGUF of it: user/repo or a folder with config.json",
        )
    revision = reference.revision or revision
    repository = list_files(reference.repo, revision, access)
    if CONFIG not in {file.path for file in repository.files}:
        raise RemoteFileNotFoundError(
            f"{repository.repo} has no {CONFIG}",
            "name the repository in Hugging Face's format, not one of GGUF files",
        )
    chosen = [file for file in repository.files if _is_needed(file, weights=weights)]
    chosen.sort(key=lambda file: (file.path.endswith(WEIGHTS), file.path))
    folder = access.cache_dir.absolute()
    return CheckpointSurvey(
        repo=repository.repo,
        items=tuple(make_item(repository, file, revision or "main", access) for file in chosen),
        place=cache.repo_dir(repository.repo, access).absolute() / "snapshots" / repository.commit,
        folder=folder,
        free_bytes=free_bytes(folder),
    )


def _is_needed(file: RepoFile, *, weights: bool) -> bool:
    path = PurePosixPath(file.path)
    return len(path.parts) == 1 and (path.suffix in _TEXTS or (weights and path.suffix == WEIGHTS))
