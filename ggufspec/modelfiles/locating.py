"""The models of a tuned configuration, where they lie on this machine."""

from __future__ import annotations

from pathlib import Path

from ggufspec import digests
from ggufspec.domain import ModelFile, Pair, RunSpec
from ggufspec.errors import ModelFileError
from ggufspec.modelfiles import gguf, hub


def locate_pair(spec: RunSpec) -> Pair:
    """Return the pair of a configuration with the models' paths on this machine.

    Raises:
        ModelFileError: a model is not here, or another file is in its place.
        NotCachedError: a model of the Hub is not in the cache.
    """
    draft = None if spec.drafter is None else _locate(spec.drafter)
    return Pair(name=spec.pair.name, target=_locate(spec.pair.target), draft=draft)


def _locate(model: ModelFile) -> ModelFile:
    """Return a model with its path: the one that was tuned, otherwise that in the cache of the Hub."""
    if model.path is not None and model.path.is_file():
        _refuse_other(model, model.path)
        return model
    if model.repo is None:
        raise ModelFileError(
            f"there is no file {model.path}, which the tuned configuration names",
            "put the file back, or tune again",
        )
    remote = ModelFile(filename=model.filename, repo=model.repo, revision=model.revision)
    placed = hub.resolve(Pair(name=model.repo, target=remote), offline=True).target
    assert placed.path is not None
    _refuse_other(model, placed.path)
    return placed


def _refuse_other(model: ModelFile, path: Path) -> None:
    """Raise where a file is not the one that was tuned, as far as that is known without reading it."""
    size = sum(part.stat().st_size for part in gguf.part_paths(path) if part.is_file())
    digest = digests.remembered(path) if model.sha256 is not None else None
    if model.size_bytes in {None, size} and (digest is None or digest.sha256 == model.sha256):
        return
    raise changed_file(path)


def changed_file(path: Path) -> ModelFileError:
    """Return the error for a file in the place of the one that was tuned."""
    return ModelFileError(
        f"{path} is not the file that was tuned: its size or checksum differs",
        "put that file back, or tune again",
    )
