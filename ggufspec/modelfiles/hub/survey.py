"""What a fetch would download: the files of a pair, their sizes, what is cached, and the free disk space.

Of a checkpoint in Hugging Face's format, it finds the files of the repository that a conversion needs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from ggufspec import errors, paths
from ggufspec.domain import ModelFile, Pair
from ggufspec.modelfiles import catalog, gguf
from ggufspec.modelfiles.catalog import is_inside
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.choice import RemoteModel, RepoFile, choose_files, models, quant_of, sidecars
from ggufspec.modelfiles.hub.client import MODEL, Access, Listing, file_size, listing
from ggufspec.modelfiles.hub.references import Reference, of_model, parse_reference
from ggufspec.units import counted

_MOST_NAMED = 5  # files of a folder in a hint
CONFIG = "config.json"
WEIGHTS = ".safetensors"
_TEXTS = (".json", ".jinja", ".model", ".tiktoken", ".txt")
"""Endings of configurations and tokenizers. Python code of a repository is never fetched."""


@dataclass(frozen=True, kw_only=True)
class FetchItem:
    """One file to fetch: its source, its path, and how much of it is already on this machine."""

    repo: str
    commit: str
    revision: str  # as requested: a branch, a tag or a commit
    file: RepoFile
    path: Path
    blob: Path  # where its bytes are kept: in the shared cache apart from ``path``, else the same
    here_bytes: int
    kind: str = MODEL

    @property
    def is_here(self) -> bool:
        """Whether nothing has to be downloaded."""
        return self.here_bytes == self.file.size_bytes and (self.blob.exists() or self.path.exists())

    @property
    def is_gguf(self) -> bool:
        """Whether the file must be a GGUF, by its name."""
        return self.file.path.lower().endswith(".gguf")

    @property
    def partial(self) -> Path:
        """Where a download is kept until it is complete and verified; older clients used the same name."""
        return self.blob.with_name(self.blob.name + ".incomplete")


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Everything that is known before a download starts.

    ``heads`` are those that llama.cpp would find beside a target that has no drafter yet. ``terms`` say of
    each repository what its licence is, as stated there, and whether it is gated.
    """

    pair: Pair
    items: tuple[FetchItem, ...]
    folder: Path
    free_bytes: int
    heads: tuple[ModelFile, ...] = ()
    terms: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def missing_bytes(self) -> int:
        """How much has to be downloaded, and the disk space for it."""
        return sum(item.file.size_bytes - item.here_bytes for item in self.items)


def survey_fetch(name: str, target: Reference, draft: Reference | None, access: Access) -> Survey:
    """Find out, from the Hub or offline from the cache, which files a pair is made of.

    Raises:
        GgufspecError: a repository, revision, file or quant is not there, or needs permission.
    """
    listings: dict[tuple[str, str | None], Listing] = {}
    folder = (access.local_dir or access.cache_dir).absolute()
    if not paths.is_unicode(folder):
        raise errors.GgufspecError(
            f"the path {paths.shown(folder)} is not valid UTF-8",
            "choose another folder with --local-dir or HF_HOME",
        )
    target_file, items = _look_up(target, access, listings)
    draft_file, more = (None, []) if draft is None else _look_up(draft, access, listings)
    beside = listings.values() if draft is None else ()
    return Survey(
        pair=Pair(name=name, target=target_file, draft=draft_file),
        items=tuple(dict.fromkeys(items + more)),  # target and drafter may be the same file
        folder=folder,
        free_bytes=paths.free_bytes(folder),
        heads=tuple(head for repository in beside for head in _heads(repository, target_file)),
        terms={
            listing.repo: f"{listing.licence or 'no licence is stated'}{', gated' if listing.gated else ''}"
            for listing in listings.values()
        },
    )


def find_heads(target: ModelFile, access: Access) -> tuple[ModelFile, ...]:
    """Return the heads in the repository of a target, as llama.cpp's -hf finds them; none for a local file.

    Raises:
        GgufspecError: the Hub cannot be asked.
    """
    if target.repo is None:
        return ()
    return _heads(list_files(target.repo, target.revision, access), target)


def find_heads_in_folder(target: Path) -> tuple[ModelFile, ...]:
    """Return the heads in the folder of a file, chosen by their names as in a repository."""
    files = [
        RepoFile(path=path.name, size_bytes=path.stat().st_size, digest="")
        for path in sorted({target, *target.parent.glob("*.gguf")})
        if path.is_file()
    ]
    return tuple(
        ModelFile(
            filename=head.filename,
            path=target.with_name(head.filename),
            quant=head.quant,
            size_bytes=head.size_bytes,
        )
        for head in _beside(files, str(target.parent), target.name)
    )


def survey_pair(pair: Pair, access: Access) -> Survey:
    """Survey a pair whose files are named already, such as a catalogue's."""
    draft = None if pair.draft is None else of_model(pair.draft)
    return survey_fetch(pair.name, of_model(pair.target), draft, access)


def survey_model(text: str, access: Access) -> Survey:
    """Survey one model as the user named it; the pair has no drafter.

    A file or a quant that the cache has is taken from there, without asking the Hub. Which file a repository
    without a quant means depends on all of its files, so the Hub is asked.

    Raises:
        GgufspecError: the text is not a reference, or the model is not found.
    """
    reference = parse_reference(text, catalog.load_catalogue(), endpoint=access.endpoint)
    return survey_fetch(reference.text, reference, None, _prefer_cache(reference, access))


def list_models(repo: str, access: Access) -> tuple[RemoteModel, ...]:
    """Return the models of a repository, from the Hub or offline from the cache.

    Raises:
        GgufspecError: the repository is not available.
    """
    return tuple(models(list_files(repo, None, access).files))


def locate(reference: Reference, access: Access) -> ModelFile:
    """Return the one file that a reference means; its path is set if it is on this machine.

    As for ``survey_model``, the Hub is not asked for a file or a quant that the cache has.

    Raises:
        GgufspecError: it is not found, or several files fit.
    """
    model, items = _look_up(reference, _prefer_cache(reference, access), {})
    is_cached = bool(items) and all(item.path.exists() for item in items)
    return replace(model, path=items[0].path) if is_cached else model


def _prefer_cache(reference: Reference, access: Access) -> Access:
    """Return an access that asks nobody if the cache has what a reference names; else the given one."""
    if reference.filename is not None or reference.quant is not None:
        offline = replace(access, offline=True)
        with suppress(errors.GgufspecError):
            _, items = _look_up(reference, offline, {})
            if items and all(item.is_here for item in items):
                return offline
    return access


def _look_up(
    reference: Reference, access: Access, listings: dict[tuple[str, str | None], Listing]
) -> tuple[ModelFile, list[FetchItem]]:
    if reference.repo is None:
        return _local(reference), []
    key = (reference.repo, reference.revision)
    if key not in listings:
        listings[key] = list_files(*key, access)
    repository = listings[key]
    chosen = choose_files(
        repository.files,
        repo=repository.repo,
        filename=reference.filename,
        quant=reference.quant,
        use_default=reference.use_default,
    )
    if repository.gated and not access.is_offline:
        file_size(repository.repo, chosen.filename, repository.commit, access)  # needs the permission
    items = [make_item(repository, file, reference.revision or "main", access) for file in chosen.files]
    return chosen.at(repository.repo, repository.commit), items


def _heads(repository: Listing, target: ModelFile) -> tuple[ModelFile, ...]:
    heads = _beside(repository.files, repository.repo, target.filename)
    return tuple(head.at(repository.repo, repository.commit) for head in heads)


def _beside(files: Sequence[RepoFile], repo: str, filename: str) -> Iterator[RemoteModel]:
    """Yield the heads beside a model."""
    model = choose_files(files, repo=repo, filename=filename)
    return (head for head in sidecars(files, model) if head.filename != filename)


def _local(reference: Reference) -> ModelFile:
    path = reference.path
    if path is not None and path.is_dir():
        listed, quant = gguf.models_in(path), reference.quant
        fitting = [file for file in listed if quant is None or _has_quant(file, quant)]
        if len(fitting) == 1:
            return _local(replace(reference, path=fitting[0], quant=None))
        named = ", ".join(file.name for file in (fitting or listed)[:_MOST_NAMED])
        lists = f"`ggufspec models {shlex.quote(str(path))}` lists what can draft for what"
        hint = f"name one of them, or FOLDER:QUANT: {named}; {lists}" if listed else "name a .gguf file"
        of_quant = f" of quant {quant}" if quant else ""
        raise errors.ModelFileError(
            f"{path} is a folder with {counted(len(fitting), 'model')}{of_quant}", hint
        )
    if path is not None and path.exists() and not path.is_file():
        raise errors.ModelFileError(f"{path} is not a regular file", "name a .gguf file")
    if path is None or not path.is_file():
        close = paths.beside(path) if path else None
        hint = f"did you mean {close}?" if close else "check the path"
        raise errors.ModelFileError(f"there is no file {path or reference.text}", hint)
    gguf.check_path(path)
    return ModelFile(filename=path.name, path=path, size_bytes=path.stat().st_size)


def _has_quant(file: Path, quant: str) -> bool:
    """Whether a model has a quant, by its name, or else by its header."""
    own = quant_of(file.name) or gguf.read_card(file).quant or ""
    return own.upper() == quant.upper()


def list_files(repo: str, revision: str | None, access: Access, kind: str = MODEL) -> Listing:
    """Return what a repository holds, of models or of a dataset, from the Hub or offline from the cache.

    Raises:
        GgufspecError: the repository is not available.
    """
    return (cache.listed_offline if access.is_offline else listing)(repo, revision, access, kind)


def make_item(repository: Listing, file: RepoFile, revision: str, access: Access) -> FetchItem:
    """Return where a file comes from and goes to.

    Raises:
        CorruptDownloadError: its name points outside the folder.
    """
    if not is_inside(file.path) or re.search(r"[^0-9a-f]", file.digest):
        raise errors.CorruptDownloadError(
            f"{repository.repo} lists a file whose name points outside the target folder: {file.path!r}",
            "do not use this repository",
        )
    if access.local_dir is None:
        folder = cache.repo_dir(repository.repo, access, repository.kind)
        path, blob = folder / "snapshots" / repository.commit / file.path, folder / "blobs" / file.digest
    else:
        path = blob = access.local_dir.absolute() / file.path
    item = FetchItem(
        repo=repository.repo,
        commit=repository.commit,
        revision=revision,
        file=file,
        path=path,
        blob=blob,
        here_bytes=0,
        kind=repository.kind,
    )
    if path.exists() or blob.exists():
        return replace(item, here_bytes=file.size_bytes)
    partial = item.partial.stat().st_size if item.partial.is_file() else 0
    return replace(item, here_bytes=partial if partial <= file.size_bytes else 0)


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


def survey_checkpoint(text: str, access: Access, *, weights: bool) -> CheckpointSurvey:
    """Find out which files of a repository a conversion needs.

    Args:
        text: ``user/repo``, ``user/repo@revision``, ``hf://…`` or the repository's URL.
        access: access to the Hub.
        weights: whether the tensors are needed, too.

    Raises:
        BadReferenceError: the text names no repository.
        RemoteFileNotFoundError: it is not in Hugging Face's format.
        GgufspecError: the Hub cannot be asked.
    """
    reference = parse_reference(text, {}, endpoint=access.endpoint)
    if reference.repo is None or reference.filename or reference.quant:
        raise errors.BadReferenceError(
            f"{text!r} is not a repository or a folder in Hugging Face's format",
            "name the model as it was published, not a GGUF of it: user/repo or a folder with config.json",
        )
    repository = list_files(reference.repo, reference.revision, access)
    if CONFIG not in {file.path for file in repository.files}:
        raise errors.RemoteFileNotFoundError(
            f"{repository.repo} has no {CONFIG}",
            "name the repository in Hugging Face's format, not one of GGUF files",
        )
    chosen = [file for file in repository.files if _is_needed(file, weights=weights)]
    chosen.sort(key=lambda file: (file.path.endswith(WEIGHTS), file.path))
    folder = access.cache_dir.absolute()
    return CheckpointSurvey(
        repo=repository.repo,
        items=tuple(make_item(repository, file, reference.revision or "main", access) for file in chosen),
        place=cache.repo_dir(repository.repo, access).absolute() / "snapshots" / repository.commit,
        folder=folder,
        free_bytes=paths.free_bytes(folder),
    )


def _is_needed(file: RepoFile, *, weights: bool) -> bool:
    path = PurePosixPath(file.path)
    return len(path.parts) == 1 and (path.suffix in _TEXTS or (weights and path.suffix == WEIGHTS))
