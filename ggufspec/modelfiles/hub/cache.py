"""Models on this machine: the cache that all Hub tools share, and what was verified or damaged in it.

A model that is no longer the file that was fetched is refused, with the command that restores it.
"""

from __future__ import annotations

import logging
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import huggingface_hub
import msgspec

from ggufspec import digests, paths, userfiles
from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import GgufspecError, ModelFileError, NotCachedError
from ggufspec.modelfiles import catalog
from ggufspec.modelfiles.gguf import FileSource, ModelCard, part_paths, split_names, validate_file
from ggufspec.modelfiles.gguf.reader import read_header
from ggufspec.modelfiles.hub.choice import RepoFile, is_sha256
from ggufspec.modelfiles.hub.client import MODEL, Access, Listing
from ggufspec.units import format_bytes

_log = logging.getLogger("ggufspec")


def repo_dir(repo: str, access: Access, kind: str = MODEL) -> Path:
    """Return the cache folder of a repository."""
    from huggingface_hub.file_download import repo_folder_name  # slow to import

    return access.cache_dir / repo_folder_name(repo_id=repo, repo_type=kind)


def _repo_name(folder: Path) -> str:
    """Return the repository of a folder in the cache."""
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def find_cached_file(repo: str, filename: str, revision: str | None, access: Access) -> Path | None:
    """Return the path of a cached file; None if it or any of its parts is missing.

    Files are renamed into the cache once they are complete, so a file that is found there was complete.
    """
    parts = [
        huggingface_hub.try_to_load_from_cache(repo, name, cache_dir=access.cache_dir, revision=revision)
        for name in split_names(filename)
    ]
    return Path(str(parts[0])) if all(isinstance(path, str) for path in parts) else None


def cached_files(access: Access) -> Iterator[tuple[str, str, Path]]:
    """Yield repository, file name and path of every GGUF in the cache."""
    for snapshot in sorted(access.cache_dir.glob("models--*/snapshots/*")):
        repo = _repo_name(snapshot.parent.parent)
        for path in sorted(snapshot.rglob("*.gguf")):
            if path.is_file():
                yield repo, path.relative_to(snapshot).as_posix(), path


def listed_offline(repo: str, revision: str | None, access: Access, kind: str) -> Listing:
    """Return a repository's commit and files as far as they are cached.

    Raises:
        NotCachedError: nothing is.
    """
    folder = repo_dir(repo, access, kind)
    ref = folder / "refs" / (revision or "main")
    commit = ref.read_text().strip() if ref.is_file() else revision
    snapshot = folder / "snapshots" / (commit or "")
    if commit is None or not snapshot.is_dir():
        raise NotCachedError(f"{repo} is not in the cache", "run the same command once without --offline")
    files = tuple(
        RepoFile(
            path=path.relative_to(snapshot).as_posix(),
            size_bytes=path.stat().st_size,
            digest=path.resolve().name,  # the cache names its blobs by their digest
        )
        for path in sorted(snapshot.rglob("*"))
        if path.is_file()
    )
    return Listing(repo=repo, commit=commit, kind=kind, gated=False, files=files)


def remember_fetched(pair: Pair) -> None:
    """Record the pair that was fetched last: the default of a bench.

    Raises:
        GgufspecError: it cannot be written; the files of the pair are there nevertheless.
    """
    file = _last_pair_file()
    try:
        paths.write_atomically(file, msgspec.json.encode(pair, enc_hook=str).decode())
    except OSError as error:
        reason, hint = paths.explain(error, file, "GGUFSPEC_DATA")
        message = (
            f"the files are there, but {file}, which makes them the default, cannot be written: {reason}"
        )
        raise userfiles.writing_error(error, message, hint) from error


def origin(path: Path) -> ModelFile | None:
    """Return which file of the Hub a path in its cache stands for; None for any other path."""
    parts = path.absolute().parts
    for at, name in enumerate(parts[:-3]):
        if name.startswith("models--") and parts[at + 1] == "snapshots":
            return ModelFile(
                filename="/".join(parts[at + 3 :]), repo=_repo_name(Path(name)), revision=parts[at + 2]
            )
    return None


def _last_pair_file() -> Path:
    return paths.data_dir() / "last_pair.json"


class CachedRepo(NamedTuple):
    """A repository with GGUF files, or with downloads that were not finished."""

    repo: str
    folder: Path
    is_unfinished: bool


def cached_repos(access: Access) -> Iterator[CachedRepo]:
    """Yield the repositories in the cache that hold models, whichever program fetched them."""
    for folder in sorted(access.cache_dir.glob("models--*")):
        is_unfinished = any(folder.glob("blobs/*.incomplete"))
        if folder.is_dir() and (is_unfinished or any((folder / "snapshots").rglob("*.gguf"))):
            yield CachedRepo(_repo_name(folder), folder, is_unfinished)


def delete_repo(repo: str, access: Access) -> None:
    """Remove everything that the cache holds of a repository.

    Raises:
        GgufspecError: its folder is a link to somewhere else.
    """
    folder = repo_dir(repo, access)
    if folder.is_symlink() or folder.parent != access.cache_dir:
        raise GgufspecError(f"{folder} is a link to another place", "remove it by hand")
    shutil.rmtree(folder)
    shutil.rmtree(access.cache_dir / ".locks" / folder.name, ignore_errors=True)


def validate_model(model: ModelFile, pair: Pair | None = None) -> ModelCard:
    """Check that a local model is complete and, where it came from the Hub, undamaged; return its card.

    The cache names its files by their SHA-256. Reading one takes about a second for every 1 to 2 GB, once:
    digests are remembered.

    Args:
        model: a model with a path.
        pair: the pair that it was fetched with, for the command that restores it.

    Raises:
        ModelFileError: it is missing, truncated, damaged, or not a language model.
    """
    assert model.path is not None
    refuse_damage(model, pair, read=True)
    return validate_file(model.path)


def refuse_damage(model: ModelFile, pair: Pair | None = None, *, read: bool) -> None:
    """Refuse a model of the Hub that has changed since it was downloaded; other models are not checked.

    Args:
        model: a model with a path.
        pair: the pair that it was fetched with, for the command that restores it.
        read: read files whose digest is not known; otherwise only their sizes are checked.

    Raises:
        ModelFileError: it has changed; the hint is the command that restores it.
    """
    assert model.path is not None
    source = pair if pair is not None and model.repo is not None else _source(model.path)
    if source is None:
        return
    for part in part_paths(model.path):
        if not part.is_file():
            raise ModelFileError(f"there is no file {part}", f"restore it: {fetch_command(source)}")
        blob = part.resolve()
        # of a commit; a branch may have moved on
        expected = model.sha256 if model.revision is not None else None
        if blob.parent.name == "blobs" and is_sha256(blob.name):
            expected = blob.name
        damage = _damage(part, expected, read=read)
        if damage is not None:
            remove = shlex.join(["rm", str(part.resolve())])
            raise ModelFileError(f"{part} {damage}", f"restore it: {remove} && {fetch_command(source)}")


def last_pair() -> Pair | None:
    """Return the pair that was fetched last; None where nothing was fetched yet.

    Raises:
        NotCachedError: some of its files are gone.
    """
    try:
        content = _last_pair_file().read_bytes()
        pair = msgspec.json.decode(content, type=Pair, dec_hook=lambda kind, text: kind(text))
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None
    for model in pair.models:
        if not (model.path and model.path.is_file()):
            raise NotCachedError(
                f"{model.path} is gone; it belongs to the pair that was fetched last, {pair.name}",
                f"restore it: {fetch_command(pair)}; or name another pair, such as --pair demo",
            )
    return pair


def fetch_command(pair: Pair) -> str:
    """Return the command that fetches these very files."""
    if catalog.entry_of(pair) is not None:
        return shlex.join(["ggufspec", "fetch", pair.name, *_folder_option(pair.target)])
    words = ["--target", _reference(pair.target)]
    words += [] if pair.draft is None else ["--draft-model", _reference(pair.draft)]
    return shlex.join(["ggufspec", "fetch", *words, *_folder_option(pair.target)])


def _damage(part: Path, expected_sha256: str | None, *, read: bool) -> str | None:
    """Return how a file differs from the one that was downloaded; None if it does not."""
    with suppress(ModelFileError):  # a header that cannot be read is a difference that the digest shows
        source = FileSource(part)
        missing = read_header(source, str(part)).end - source.size
        if missing > 0:
            return f"is truncated: {format_bytes(missing)} are missing"
    if expected_sha256 is None:
        return None
    digest = digests.remembered(part)
    if digest is None and read:
        _log.info("computing the SHA-256 of %s", part)
        try:
            digest = digests.of_file(part)
        except OSError as error:
            return f"cannot be read: {error.strerror}"
    if digest is not None and digest.sha256 != expected_sha256:
        return "is damaged: its SHA-256 has changed since the download"
    return None


def _source(path: Path) -> Pair | None:
    """Return the Hub's model at a path of its cache; None for any other path."""
    model = origin(path)
    return None if model is None else Pair(name="", target=model)


def _reference(model: ModelFile) -> str:
    if model.repo is None:
        return str(model.path)
    return f"{model.repo}{f'@{model.revision}' if model.revision else ''}/{model.filename}"


def _folder_option(model: ModelFile) -> list[str]:
    """Return the option that fetches a file into the folder where it is, if that is not the usual cache."""
    if model.repo is None or model.path is None or origin(model.path) is not None:
        return []
    depth = len(PurePosixPath(model.filename).parts)
    return ["--local-dir", str(model.path.absolute().parents[depth - 1])]
