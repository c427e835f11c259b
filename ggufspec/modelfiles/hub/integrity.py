"""Whether a model on this machine is still the file that was fetched, and the command that restores it."""

from __future__ import annotations

import logging
import shlex
from contextlib import suppress
from pathlib import Path, PurePosixPath

from ggufspec import digests
from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import ModelFileError, NotCachedError
from ggufspec.modelfiles import catalog
from ggufspec.modelfiles.gguf import FileSource, ModelCard, part_paths, validate_file
from ggufspec.modelfiles.gguf.reader import read_header
from ggufspec.modelfiles.hub.cache import origin, remembered_pair
from ggufspec.modelfiles.hub.hashing import is_sha256
from ggufspec.units import format_bytes

_log = logging.getLogger("ggufspec")


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
        damage = _damage(part, _expected_sha256(part, model), read=read)
        if damage is not None:
            remove = shlex.join(["rm", str(part.resolve())])
            raise ModelFileError(f"{part} {damage}", f"restore it: {remove} && {fetch_command(source)}")


def last_pair() -> Pair | None:
    """Return the pair that was fetched last; None where nothing was fetched yet.

    Raises:
        NotCachedError: some of its files are gone.
    """
    pair = remembered_pair()
    for model in () if pair is None else (pair.target, pair.draft):
        if model is not None and not (model.path and model.path.is_file()):
            assert pair is not None
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


def _expected_sha256(part: Path, model: ModelFile) -> str | None:
    blob = part.resolve()
    if blob.parent.name == "blobs" and is_sha256(blob.name):
        return blob.name
    return model.sha256 if model.revision is not None else None  # of a commit; a branch may have moved on


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
