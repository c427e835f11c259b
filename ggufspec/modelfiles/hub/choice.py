"""Which of a repository's files are one model: quants, split files, and side files that are not models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ggufspec.domain import ModelFile
from ggufspec.errors import RemoteFileNotFoundError
from ggufspec.modelfiles.gguf import split_names
from ggufspec.units import format_bytes

_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|FP16|F32|FP32|MXFP4(?:_MOE)?|NVFP4))"
    r"(?=[-./]|$)",
    re.IGNORECASE,
)
# What the names of files with heads contain, in the order in which llama.cpp prefers them (common/arg.cpp).
_HEADS = ("mtp-", "dspark-", "dflash-", "eagle3-")
# Projectors, importance matrices and heads: beside a model, never the model
# (llama.cpp's common/download.cpp, gguf_filename_is_model).
_SIDE_FILES = ("mmproj", "imatrix", *_HEADS)
_DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")  # what llama.cpp's -hf takes when no quant is named
_LISTED = 30
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class RepoFile:
    """One file as the Hub lists it; ``digest`` is its SHA-256, or its git blob id if it is not in LFS."""

    path: str
    size_bytes: int
    digest: str

    @property
    def sha256(self) -> str | None:
        """Its SHA-256; None if it is not in LFS."""
        return self.digest if is_sha256(self.digest) else None


def is_sha256(digest: str) -> bool:
    """Return whether a digest is a SHA-256: the listed digest of a file that is kept in LFS."""
    return _SHA256.fullmatch(digest) is not None


@dataclass(frozen=True, kw_only=True)
class RemoteModel:
    """One model of a repository: a file, or all parts of a split file, the first part first."""

    files: tuple[RepoFile, ...]
    quant: str | None

    @property
    def filename(self) -> str:
        """The file that is passed to llama.cpp."""
        return self.files[0].path

    @property
    def size_bytes(self) -> int:
        """All parts together."""
        return sum(file.size_bytes for file in self.files)

    def at(self, repo: str, commit: str) -> ModelFile:
        """Return the model as a file of a repository."""
        return ModelFile(
            filename=self.filename,
            repo=repo,
            revision=commit,
            quant=self.quant,
            size_bytes=self.size_bytes,
            sha256=self.files[0].sha256 if len(self.files) == 1 else None,
        )


def quant_of(filename: str) -> str | None:
    """Return the quant that a file's name states: ``Q4_K_M``, ``UD-Q4_K_XL``, ``BF16``."""
    quants = _QUANT.findall(re.sub(r"(-\d{5}-of-\d{5})?\.gguf$", "", filename))
    return quants[-1].upper() if quants else None


def models(files: Iterable[RepoFile]) -> list[RemoteModel]:
    """Return the models among a repository's files; side files and incomplete splits are left out."""
    complete = _complete(files)
    return [model for model in complete if not any(side in _name(model) for side in _SIDE_FILES)]


def heads(files: Iterable[RepoFile]) -> list[RemoteModel]:
    """Return the files with heads that a repository keeps beside a model, by their names."""
    return [model for model in _complete(files) if any(mark in _name(model) for mark in _HEADS)]


def sidecars(files: Iterable[RepoFile], model: RemoteModel) -> list[RemoteModel]:
    """Return the heads that llama.cpp's -hf would use with a model of the same repository, one of each kind.

    It looks in the model's folder and those above it, and takes the deepest; then the model's own quant, and
    then the one with the nearest number of bits (common/download.cpp, find_best_sibling).
    """
    folders = _folders(model)
    listed = [head for head in heads(files) if folders[: len(_folders(head))] == _folders(head)]

    def distance(head: RemoteModel) -> tuple[int, bool, int]:
        bits = abs(_bits(head.quant) - _bits(model.quant))
        return -len(_folders(head)), head.quant != model.quant, bits

    by_mark = ([head for head in listed if mark in _name(head)] for mark in _HEADS)
    return [min(alike, key=distance) for alike in by_mark if alike]


def _complete(files: Iterable[RepoFile]) -> list[RemoteModel]:
    """Return each GGUF of which all parts are there."""
    by_path = {file.path: file for file in files if file.path.lower().endswith(".gguf")}
    parts = ((path, split_names(path)) for path in sorted(by_path))
    return [
        RemoteModel(files=tuple(by_path[name] for name in names), quant=quant_of(path))
        for path, names in parts
        if path == names[0] and by_path.keys() >= set(names)
    ]


def _name(model: RemoteModel) -> str:
    return model.filename.rpartition("/")[2]


def _folders(model: RemoteModel) -> list[str]:
    return model.filename.split("/")[:-1]


def _bits(quant: str | None) -> int:
    number = re.search(r"\d+", quant or "")
    return int(number[0]) if number else 0


def choose_files(
    files: Sequence[RepoFile],
    *,
    repo: str,
    filename: str | None = None,
    quant: str | None = None,
    use_default: bool = True,
) -> RemoteModel:
    """Return the one model that a reference means; in a repository of heads alone, the head.

    Args:
        files: the repository's files.
        repo: its name, for messages.
        filename: an exact file; any part of a split file means all of it.
        quant: a quant, in any case; or None for llama.cpp's defaults.
        use_default: where nothing is named, take the quant that llama.cpp takes.

    Raises:
        RemoteFileNotFoundError: no model fits, or several do; the hint lists those that exist.
    """
    candidates = models(files) or heads(files)
    if filename is not None:
        return _named(files, candidates, repo, filename)
    nothing = "has no GGUF model" if quant is None else f"has no quant {quant}"
    if quant is None and use_default:
        quant = next((default for default in _DEFAULT_QUANTS if _of_quant(candidates, default)), None)
    fitting = candidates if quant is None else _of_quant(candidates, quant)
    if not fitting:
        raise RemoteFileNotFoundError(f"{repo} {nothing}", _listing(candidates))
    if len(fitting) > 1:
        usual = (model for default in _DEFAULT_QUANTS for model in fitting if model.quant == default)
        example = next(usual, fitting[0])
        is_alone = example.quant and [model.quant for model in fitting].count(example.quant) == 1
        reference = f"{repo}:{example.quant}" if is_alone else f"{repo}/{example.filename}"
        raise RemoteFileNotFoundError(
            f"{repo} has {len(fitting)} models" + (f" that match {quant}" if quant else ""),
            f"name one, such as {reference}: {_listing(fitting)}",
        )
    return fitting[0]


def _named(files: Sequence[RepoFile], candidates: list[RemoteModel], repo: str, filename: str) -> RemoteModel:
    by_path = {file.path: file for file in files}
    names = split_names(filename)
    missing = [name for name in names if name not in by_path]
    if len(missing) == len(names):
        raise RemoteFileNotFoundError(f"{repo} has no file {filename}", _listing(candidates))
    if missing:
        raise RemoteFileNotFoundError(
            f"{repo} has {len(names) - len(missing)} of the {len(names)} parts of {filename}",
            f"missing: {missing[0]}; choose another file, or ask its owner",
        )
    return RemoteModel(files=tuple(by_path[name] for name in names), quant=quant_of(filename))


def _of_quant(candidates: list[RemoteModel], quant: str) -> list[RemoteModel]:
    exact = [model for model in candidates if model.quant == quant.upper()]
    # llama.cpp looks for the tag anywhere before a dot or a dash: UD-Q4_K_XL also answers to Q4_K_XL.
    loose = re.compile(rf"(?<![A-Za-z0-9]){re.escape(quant)}[.-]", re.IGNORECASE)
    return exact or [model for model in candidates if loose.search(model.filename)]


def _listing(candidates: Sequence[RemoteModel]) -> str:
    if not candidates:
        return "it has no GGUF models; look for a repository whose name ends with -GGUF"
    shown = [f"{model.filename} ({format_bytes(model.size_bytes)})" for model in candidates[:_LISTED]]
    more = len(candidates) - len(shown)
    return "it has " + ", ".join(shown) + (f" and {more} more" if more else "")
