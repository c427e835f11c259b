"""Which models on the Hub, or in the cache, might draft for a target: the same family, but smaller."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ggufspec.domain import ModelFile
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.choice import heads, models, quant_of
from ggufspec.modelfiles.hub.client import Access, Subject, get, listing

LARGEST_RATIO = 0.5
"""A drafter larger than this part of its target cannot pay."""

_SEARCHED = 60
_HEADS = ("eagle3", "dflash")  # architectures of files that hold a head alone
_SIZE = re.compile(r"[-_.](\d+(?:\.\d+)?)([bm])(?=[-_.]|$)", re.IGNORECASE)
_QUANTS = ("Q8_0", "Q4_K_M", "Q4_0")  # small models lose more by quantization, so Q8_0 comes first


@dataclass(frozen=True, kw_only=True)
class DrafterCandidate:
    """A repository, or a cached file, that may hold a drafter."""

    repo: str
    downloads: int | None = None
    n_parameters: float | None = None
    file: ModelFile | None = None  # set where the file is known already: in the cache


class _HubGguf(msgspec.Struct):
    """What the Hub knows of the header of a repository's GGUF files."""

    architecture: str | None = None
    total: float | None = None  # parameters


class _Found(msgspec.Struct):
    """A repository as the Hub's search lists it."""

    id: str
    downloads: int | None = None
    gguf: _HubGguf | None = None


def family(name: str) -> str:
    """Return what the names of a model's smaller relatives contain.

    ``Qwen2.5-Coder-32B-Instruct`` gives ``Qwen2.5-Coder``; a last minor version is left out, because
    Llama 3.3 has no small models, but Llama 3.2 has.
    """
    stem = name.rpartition("/")[2]
    size = _SIZE.search(stem)
    stem = stem[: size.start()] if size else re.sub(r"(?i)[-_.](gguf|it|instruct|chat)\b.*$", "", stem)
    stem = re.sub(r"^Meta-", "", stem)
    return re.sub(r"(?<=\d)\.\d+$", "", stem)


def parameters_in(name: str) -> float | None:
    """Return how many parameters a model's name states: 0.6e9 for ``Qwen3-0.6B``."""
    size = _SIZE.search(name.rpartition("/")[2])
    return float(size[1]) * {"b": 1e9, "m": 1e6}[size[2].lower()] if size else None


def on_hub(target: ModelFile, architecture: str, access: Access, *, most: int) -> list[DrafterCandidate]:
    """Ask the Hub for drafters: heads for the target's size, then smaller GGUF repositories of its family.

    Each kind comes with the most downloaded first.

    Args:
        target: a model of the Hub; its card's base model names the family, else its own name does.
        architecture: the target's; a repository that the Hub knows to be of another, and not a head's, is
            left out.
        access: how the Hub may be asked.
        most: how many of each kind to return.

    Raises:
        GgufspecError: the Hub cannot be asked.
    """
    base = target.repo or target.filename
    if target.repo is not None:
        base = listing(target.repo, None, access).base_model or base
    size = parameters_in(base) or parameters_in(target.filename) or math.inf
    query: dict[str, str | int | list[str]] = {
        "search": family(base),
        "filter": "gguf",
        "sort": "downloads",
        "limit": _SEARCHED,
        "expand": ["downloads", "gguf"],
    }
    smaller, of_heads = [], []
    for found in get("models", list[_Found], Subject(repo=base), access, query):
        header = found.gguf or _HubGguf()
        candidate = DrafterCandidate(
            repo=found.id, downloads=found.downloads, n_parameters=header.total or parameters_in(found.id)
        )
        if header.architecture in _HEADS and parameters_in(candidate.repo) in {None, size}:
            of_heads.append(candidate)
        elif (
            header.architecture in {None, architecture}
            and candidate.n_parameters is not None
            and candidate.n_parameters <= LARGEST_RATIO * size
        ):
            smaller.append(candidate)
    return [
        candidate
        for candidates in (of_heads, smaller)
        for candidate in sorted(candidates, key=lambda candidate: -(candidate.downloads or 0))[:most]
    ]


def in_cache(target: ModelFile, access: Access) -> list[DrafterCandidate]:
    """Return the cached GGUFs that are small enough to draft for the target."""
    return _small_enough(target, cache.cached_files(access))


def in_folder(target: ModelFile) -> list[DrafterCandidate]:
    """Return the GGUFs in the folder of a user's own target that are small enough to draft for it."""
    if target.path is None or target.repo is not None:
        return []
    return _small_enough(
        target, ((None, path.name, path) for path in sorted(target.path.parent.glob("*.gguf")))
    )


def _small_enough(target: ModelFile, files: Iterable[tuple[str | None, str, Path]]) -> list[DrafterCandidate]:
    limit = LARGEST_RATIO * (target.size_bytes or math.inf)
    return [
        DrafterCandidate(
            repo=repo or str(path),
            file=ModelFile(
                filename=name, repo=repo, quant=quant_of(name), size_bytes=path.stat().st_size, path=path
            ),
        )
        for repo, name, path in files
        if path.stat().st_size <= limit
    ]


def draft_file(candidate: DrafterCandidate, target_bytes: int, access: Access) -> ModelFile | None:
    """Return the file of a candidate that suits a drafter best; None if it has none."""
    if candidate.file is not None:
        return candidate.file
    repository = listing(candidate.repo, None, access)
    listed = models(repository.files) or heads(repository.files)
    fitting = [model for model in listed if model.size_bytes <= LARGEST_RATIO * target_bytes]
    usual = (model for quant in _QUANTS for model in fitting if model.quant == quant)
    chosen = next(usual, min(fitting, key=lambda model: model.size_bytes, default=None))
    return None if chosen is None else chosen.at(candidate.repo, repository.commit)


def score(ratio: float, downloads: int | None) -> float:
    """Return how promising a drafter is: popular by orders of magnitude, and small beside its target."""
    return (1.0 - ratio) * (1.0 + math.log10(1 + (downloads or 0)))
