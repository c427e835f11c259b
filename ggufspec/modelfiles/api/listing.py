"""The models on this machine: what is here, wherever programs keep it, and what can draft for what.

Only headers are read. Ollama keeps its models without names, as ``blobs/sha256-…``; its manifests say which
is which. Projectors of images, and files that are no complete model, are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ggufspec import paths
from ggufspec.domain import Method
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import gguf, hub
from ggufspec.modelfiles.api.checking import CheckRules, find_rules
from ggufspec.modelfiles.compat import judging, mtp_bytes, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import settings
from ggufspec.steps import Sink

_LM_STUDIO = ("~/.lmstudio/models", "~/.cache/lm-studio/models")
_OLLAMA = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")  # the second: of its service on Linux
_LLAMA_CACHE = ("~/.cache/llama.cpp", "~/Library/Caches/llama.cpp")  # b9300 and older, without LLAMA_CACHE
_OLLAMA_MODEL = "application/vnd.ollama.image.model"  # media type of the layer that is a GGUF
_SMALLER = 0.6  # of the target's bytes: a larger draft model takes about as long as the target


class LocalFile(NamedTuple):
    """A file that may be a model; the fields are those of ``LocalModel``."""

    place: str
    name: str
    path: Path


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A model on this machine.

    Attributes:
        path: of its file, or of its first part.
        name: what its program calls it.
        place: which program keeps it, or the folder that was named.
        card: its header.
    """

    path: Path
    name: str
    place: str
    card: ModelCard

    @property
    def head(self) -> Method | None:
        """How it drafts as a head, or with layers of its own; None for a model without one."""
        head = read_head(self.card)
        return None if head is None else head.method


@dataclass(frozen=True, kw_only=True)
class LocalPair:
    """A target, and what can draft for it by the rules of llama.cpp: a file, or layers of the target."""

    target: LocalModel
    drafter: LocalModel
    method: Method
    ratio: float  # of the drafter's bytes to the target's
    speedup: float | None = None  # by the newest bench that measured it; None where none did
    bench: str | None = None  # that bench


@dataclass(frozen=True, kw_only=True)
class LocalModels:
    """The models on this machine, and the pairs that they make."""

    models: tuple[LocalModel, ...]
    pairs: tuple[LocalPair, ...]


def find_models(folders: Sequence[Path], sink: Sink) -> LocalModels:
    """Return the models on this machine, and what can draft for what.

    Args:
        folders: where to look first; those of the settings follow.
        sink: gets the progress.
    """
    files: dict[Path, LocalFile] = {}
    for file in _list_files(folders):  # each once
        with suppress(OSError):
            files.setdefault(file.path.resolve(strict=True), file)
    read = map(_read_model, sink.each([*files.values()], lambda file: file.name))
    found = tuple(model for model in read if model is not None)
    return LocalModels(models=found, pairs=tuple(_find_pairs(found, find_rules())))


def _read_model(file: LocalFile) -> LocalModel | None:
    """Return the model in a file; None for a projector, a later part of a model, or a damaged file."""
    try:
        return LocalModel(**file._asdict(), card=gguf.read_card(file.path))
    except (OSError, GgufspecError):
        return None


def _find_pairs(models: Sequence[LocalModel], rules: CheckRules) -> Iterator[LocalPair]:
    """Yield which of the models can draft for which, the smallest drafter of a target first.

    Args:
        models: on this machine.
        rules: of the llama.cpp in use.
    """
    for target in models:
        if judging.is_head(target.card):
            continue
        own = mtp_bytes(target.card)
        if own:
            yield LocalPair(
                target=target, drafter=target, method=Method.DRAFT_MTP, ratio=own / target.card.size_bytes
            )
        fitting = (model for model in models if _may_draft(model.card, target.card))
        for drafter in sorted(fitting, key=lambda model: model.card.size_bytes):
            if rules.judge(target.card, drafter.card).outcome is judging.CompatOutcome.ACCEPTED:
                yield LocalPair(
                    target=target,
                    drafter=drafter,
                    method=usable_methods(read_head(drafter.card))[0],
                    ratio=drafter.card.size_bytes / target.card.size_bytes,
                )


def _may_draft(drafter: ModelCard, target: ModelCard) -> bool:
    """Whether a drafter is worth the comparison of vocabularies, which takes long."""
    return judging.is_head(drafter) or (
        drafter.size_bytes <= _SMALLER * target.size_bytes
        and drafter.tokenizer_model == target.tokenizer_model
    )


def _list_files(folders: Sequence[Path]) -> Iterator[LocalFile]:
    setting = settings.one("folders")
    texts = filter(None, str(setting.value or "").split(os.pathsep))
    named = (paths.expanded(text, setting.where or setting.key) for text in texts)
    for folder in (*folders, *named):
        yield from _in_folder(folder, str(folder))
    for repo, name, path in hub.cached_files(hub.Access()):
        yield LocalFile("Hub", f"{repo}/{name}", path)
    for folder in _folders("LLAMA_CACHE", _LLAMA_CACHE):
        yield from _in_folder(folder, "llama.cpp")
    for folder in _folders("", _LM_STUDIO):
        yield from _in_folder(folder, "LM Studio")
    for folder in _folders("OLLAMA_MODELS", _OLLAMA):
        yield from _in_ollama(folder)


def _folders(variable: str, usual: Sequence[str]) -> Iterator[Path]:
    """Yield the folder that a variable names, or else the usual ones."""
    named = os.environ.get(variable)
    return filter(None, map(paths.at_home, (named,) if named else usual))


def _in_folder(folder: Path, place: str) -> Iterator[LocalFile]:
    for path in sorted(folder.rglob("*.gguf")) if folder.is_dir() else ():
        yield LocalFile(place, path.relative_to(folder).as_posix(), path)


def _in_ollama(folder: Path) -> Iterator[LocalFile]:
    """Yield the models of Ollama's manifests: HOST/NAMESPACE/NAME/TAG, less what is usual."""
    manifests = folder / "manifests"
    for file in sorted(manifests.rglob("*")) if manifests.is_dir() else ():
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            layers = json.loads(file.read_text(encoding="utf-8"))["layers"]
            (digest,) = (layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_MODEL)
            *parents, name, tag = file.relative_to(manifests).parts
            path = "/".join(parents).removeprefix("registry.ollama.ai/").removeprefix("library")
            full = f"{path}/{name}:{tag}".removeprefix("/")
            yield LocalFile("Ollama", full, folder / "blobs" / str(digest).replace(":", "-"))
