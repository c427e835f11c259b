"""From a model's name to its bytes: a cached file's path, or an open header, here or on the Hub."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import ModelFileError, NotCachedError
from ggufspec.modelfiles.gguf import HeaderSource, ModelCard, open_parts, parse_complete
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.choice import split_names
from ggufspec.modelfiles.hub.client import Access
from ggufspec.modelfiles.hub.integrity import refuse_damage
from ggufspec.modelfiles.hub.remote import RemoteFile


def resolve(pair: Pair, *, offline: bool, access: Access | None = None) -> Pair:
    """Return the pair with the paths of its files on this machine; nothing is downloaded.

    Args:
        pair: files with a path, or with repository and name.
        offline: only decides what the hint of an error recommends.
        access: where the cache is, if not at its usual place.

    Raises:
        ModelFileError: a local file is missing.
        NotCachedError: a file of the Hub or one of its parts is not on this machine.
    """
    access = access or Access(offline=offline)
    hint = f"ggufspec fetch {pair.name}" + (" (without --offline)" if access.is_offline else "")
    target = _placed(pair.target, access, hint)
    draft = None if pair.draft is None else _placed(pair.draft, access, hint)
    return replace(pair, target=target, draft=draft)


def read_card(model: ModelFile, access: Access | None = None, *, pair: Pair | None = None) -> ModelCard:
    """Read a model's header: from this machine, or from the Hub by HTTP range.

    Args:
        model: a model with a path or a repository.
        access: access to the Hub.
        pair: the pair that it belongs to, for the command that restores a damaged file.

    Raises:
        GgufspecError: the model is not available, its header is damaged, or its files are not complete.
    """
    access = access or Access()
    path = _local_path(model, access)
    if path is not None:
        refuse_damage(replace(model, path=path), pair, read=False)
    return parse_complete(_open(model, access))


def open_headers(model: ModelFile, access: Access | None = None) -> list[HeaderSource]:
    """Open a model for ``gguf.parse_header``: one source for each of its parts.

    Raises:
        GgufspecError: it is neither on this machine nor available on the Hub.
    """
    return [*_open(model, access or Access()).values()]


def open_header(model: ModelFile, access: Access | None = None) -> HeaderSource:
    """Open the file that is passed to llama.cpp: of a split model, the first part."""
    return open_headers(model, access)[0]


def _open(model: ModelFile, access: Access) -> dict[str, HeaderSource]:
    """Open the files of a model, by their names in messages."""
    path = _local_path(model, access)
    if path is not None:
        return open_parts(path)
    assert model.repo is not None
    if access.is_offline:
        raise NotCachedError(
            f"{model.repo}/{model.filename} is not in the cache", "leave out --offline, or fetch it"
        )
    revision = model.revision or "main"
    return {
        f"{model.repo}/{name}": RemoteFile(model.repo, name, revision, access)
        for name in split_names(model.filename)
    }


def _local_path(model: ModelFile, access: Access) -> Path | None:
    """Return a model's path on this machine; None if it is not here."""
    if model.path is not None:
        return model.path
    assert model.repo is not None
    return cache.find_cached_file(model.repo, model.filename, model.revision, access)


def _placed(model: ModelFile, access: Access, hint: str) -> ModelFile:
    if model.path is not None:
        if not model.path.is_file():
            raise ModelFileError(f"there is no file {model.path}", "check the path, or fetch the pair again")
        return model
    assert model.repo is not None
    path = cache.find_cached_file(model.repo, model.filename, model.revision, access)
    if path is None:
        raise NotCachedError(f"{model.repo}/{model.filename} is not on this machine", hint)
    return replace(model, path=path, size_bytes=path.stat().st_size)
