"""Which of a repository's files are one model: quants, split files, and side files that are not models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ggufspec.errors import RemoteFileNotFoundError
from ggufspec.units import format_bytes

_SPLIT = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F16|FP16|F32|FP32|MXFP4(?:_MOE)?|NVFP4))"
    r"(?=[-./]|$)",
    re.IGNORECASE,
)
# Projectors, importance matrices and drafting heads: beside a model, never the model
# (llama.cpp's common/download.cpp, gguf_filename_is_model).
_SIDE_FILES = ("mmproj", "imatrix", "mtp-", "eagle3-", "dflash-", "dspark-")
_DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")  # what llama.cpp's -hf takes when no quant is named
_LISTED = 30


@dataclass(frozen=True, kw_only=True)
class RepoFile:
    """One file as the Hub lists it; ``digest`` is its SHA-256, or its git blob id if it is not in LFS."""

    path: str
    size_bytes: int
    digest: str


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


class SeveralModelsError(RemoteFileNotFoundError):
    """A repository, or a quant of it, matches several models; with ``example`` appended it matches one."""

    def __init__(self, repo: str, quant: str | None, fitting: Sequence[RemoteModel]) -> None:
        quant_note = f" that match {quant}" if quant else ""
        super().__init__(f"{repo} has {len(fitting)} models{quant_note}", f"name one: {_listing(fitting)}")
        self.repo = repo
        self.quant = quant
        usual = (model for default in _DEFAULT_QUANTS for model in fitting if model.quant == default)
        chosen = next(usual, fitting[0])
        alone = chosen.quant is not None and [model.quant for model in fitting].count(chosen.quant) == 1
        self.example = f":{chosen.quant}" if alone else f"/{chosen.filename}"


def quant_of(filename: str) -> str | None:
    """Return the quant that a file's name states: ``Q4_K_M``, ``UD-Q4_K_XL``, ``BF16``."""
    split = _SPLIT.fullmatch(filename)
    stem = split["prefix"] if split else filename.removesuffix(".gguf")
    quants = _QUANT.findall(stem)
    return quants[-1].upper() if quants else None


def split_names(filename: str) -> tuple[str, ...]:
    """Return the names of all parts of a split GGUF, or the name itself if it is not split."""
    split = _SPLIT.fullmatch(filename)
    if split is None:
        return (filename,)
    count = int(split["count"])
    return tuple(f"{split['prefix']}-{index:05d}-of-{count:05d}.gguf" for index in range(1, count + 1))


def models(files: Iterable[RepoFile]) -> list[RemoteModel]:
    """Return the models among a repository's files; side files and incomplete splits are left out."""
    by_path = {file.path: file for file in files if file.path.lower().endswith(".gguf")}
    complete = []
    for path in sorted(by_path):
        names = split_names(path)
        name = path.rpartition("/")[2]
        is_model = path == names[0] and not any(side in name for side in _SIDE_FILES)
        if is_model and by_path.keys() >= set(names):
            complete.append(RemoteModel(files=tuple(by_path[n] for n in names), quant=quant_of(path)))
    return complete


def choose_files(
    files: Sequence[RepoFile],
    *,
    repo: str,
    filename: str | None = None,
    quant: str | None = None,
    use_default: bool = True,
) -> RemoteModel:
    """Return the one model that a reference means.

    Args:
        files: the repository's files.
        repo: its name, for messages.
        filename: an exact file; any part of a split file means all of it.
        quant: a quant, in any case; or None for llama.cpp's defaults.
        use_default: where nothing is named, take the quant that llama.cpp takes.

    Raises:
        RemoteFileNotFoundError: no model fits; the hint lists those that exist.
        SeveralModelsError: more than one model fits.
    """
    candidates = models(files)
    if filename is not None:
        return _named(files, candidates, repo, filename)
    nothing = "has no GGUF model" if quant is None else f"has no quant {quant}"
    if quant is None and use_default:
        quant = next((default for default in _DEFAULT_QUANTS if _of_quant(candidates, default)), None)
    fitting = candidates if quant is None else _of_quant(candidates, quant)
    if not fitting:
        raise RemoteFileNotFoundError(f"{repo} {nothing}", _listing(candidates))
    if len(fitting) > 1:
        raise SeveralModelsError(repo, quant, fitting)
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
