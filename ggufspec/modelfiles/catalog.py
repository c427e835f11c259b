"""Named pairs: the catalogue of the package, and the user's own.

A wrong entry of the user's is reported once, and the other pairs can be used. What a command reads of that
entry is an error.
"""

from __future__ import annotations

import difflib
import logging
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from ggufspec import paths, userfiles
from ggufspec.domain import Chain, Method, ModelFile, Pair
from ggufspec.errors import CatalogError, UnsupportedMethodError
from ggufspec.harmless import one_line

DEFAULT = "llama-3-70b"
"""The Llama-3 notebook's pair: the default of ``ggufspec fetch``."""
EMBEDDED = "demo"
"""The pair that commands use where nothing is named and nothing was fetched."""

_REPO = re.compile(r"(?!.*(?:\.\.|--))[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}(?<![.-])")
_NO_METHOD = "none"
_LONGEST_DRAFT = 64  # tokens
_HINT = "see models/pairs.toml for the form"
_LOG = logging.getLogger("ggufspec")  # Python prints warnings without -v, too


_Text = Annotated[str, msgspec.Meta(pattern=r"^[^\0]+\Z")]


class _ModelTable(msgspec.Struct, forbid_unknown_fields=True):
    """A model as a catalogue has it: a file of a repository, or a path from the catalogue's folder."""

    repo: _Text | None = None
    file: _Text | None = None
    path: _Text | None = None
    quant: _Text | None = None
    revision: _Text | None = None
    sha256: _Text | None = None


class _PairTable(msgspec.Struct, forbid_unknown_fields=True):
    """A pair as a catalogue has it."""

    target: _ModelTable
    drafter: _ModelTable | None = None
    method: _Text | None = None
    gamma: Annotated[int, msgspec.Meta(ge=1, le=_LONGEST_DRAFT)] | None = None
    p_min: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    licence: _Text = "not stated"
    source: _Text = "the user's own"
    evidence: _Text | None = None
    note: _Text | None = None


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """One line of a catalogue: a pair and what is known about it.

    ``gamma`` (the draft size γ in tokens) and ``p_min`` are used where a command is given no others.
    """

    pair: Pair
    licence: str
    source: str  # who recommends this pair, or where it was measured
    evidence: str | None  # the public material that shows repository and file name
    method: str  # the drafting method as llama.cpp names it, or several joined by +
    note: str | None
    catalogue: Path
    gamma: int | None = None
    p_min: float | None = None

    @property
    def verified(self) -> bool:
        """Whether it was checked that the repository and files exist."""
        return self.evidence is not None

    @property
    def supported(self) -> bool:
        """Whether ggufspec can measure the method."""
        return self.method == _NO_METHOD or self.chain is not None

    @property
    def chain(self) -> Chain | None:
        """The drafting methods; None for a pair that does not draft, or by none that can be measured."""
        try:
            return Chain.parse(self.method)
        except ValueError:
            return None


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """The pairs by name, and the sentences that say why others cannot be used.

    Attributes:
        entries: the pairs that can be used.
        wrong: name -> why the entry of that name cannot be used.
        unreadable: why the user's whole file cannot be used; None if it can.
    """

    entries: Mapping[str, CatalogueEntry]
    wrong: Mapping[str, str]
    unreadable: str | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each entry, and for the file, that cannot be used."""
        return (*self.wrong.values(), *filter(None, [self.unreadable]))


def user_file() -> Path:
    """Return the path of the user's own catalogue, which may not exist."""
    return paths.config_dir() / "pairs.toml"


def read() -> Catalogue:
    """Return both catalogues; the user's entries replace ours of the same name, wrong ones too."""
    ours = _read(paths.models_dir() / "pairs.toml")
    users = _read(user_file())
    kept = {name: entry for name, entry in ours.entries.items() if name not in users.wrong}
    return Catalogue(
        entries={**kept, **users.entries},
        wrong={**ours.wrong, **users.wrong},
        unreadable=ours.unreadable or users.unreadable,
    )


def entries() -> Mapping[str, CatalogueEntry]:
    """Return every entry by name, and log a warning for each that cannot be used, once."""
    catalogue = read()
    for sentence in catalogue.problems:
        _warn(sentence)
    return catalogue.entries


@cache
def _warn(sentence: str) -> None:
    _LOG.warning("warning: %s", sentence)


def load_catalogue() -> Mapping[str, Pair]:
    """Return every pair by name."""
    return {name: entry.pair for name, entry in entries().items()}


def is_embedded(name: str) -> bool:
    """Whether a pair's models travel with the package; they know one village, and have their own prompts."""
    entry = entries().get(name)
    return entry is not None and entry.catalogue.parent == paths.models_dir() and not entry.pair.target.repo


def find_pair(name: str) -> Pair:
    """Return the pair of that name.

    Raises:
        CatalogError: no catalogue has it, or its entry is wrong; the hint names the closest ones.
    """
    catalogue = read()
    if name in catalogue.wrong:
        raise CatalogError(catalogue.wrong[name], _HINT)
    pairs = load_catalogue()
    if name in pairs:
        return pairs[name]
    if "/" in name:
        raise CatalogError(
            f"no pair is called {name!r}",
            f"no pair has a slash in its name; `ggufspec fetch {shlex.quote(name)}` gets a model of the Hub, "
            "and --target a file",
        )
    lower = {pair_name.lower(): pair_name for pair_name in pairs}
    close = map(lower.get, difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5))
    hint = f"close names: {names}; " if (names := ", ".join(filter(None, close))) else ""
    unreadable = f"{catalogue.unreadable}; " if catalogue.unreadable else ""
    raise CatalogError(
        f"no pair is called {name!r}",
        f"{unreadable}{hint}ggufspec pairs lists them all, or name files with --target",
    )


def entry_of(pair: Pair) -> CatalogueEntry | None:
    """Return the entry that a pair was made from, if any; other pairs can have the same name."""
    entry, target = entries().get(pair.name), pair.target
    if entry is None:
        return None
    listed = entry.pair.target
    return entry if (listed.repo, listed.filename) == (target.repo, target.filename) else None


def drafting_method(pair: Pair) -> Chain | None:
    """Return the drafting methods of a pair, as the catalogue states them; None where it does not draft.

    Raises:
        UnsupportedMethodError: it is a method of llama.cpp's that cannot be measured here.
    """
    entry = entry_of(pair)
    if entry is None:
        return None if pair.draft is None else Chain(Method.DRAFT_MODEL)
    if not entry.supported:
        raise UnsupportedMethodError(
            f"the pair {pair.name} drafts by {entry.method}, which ggufspec does not support yet",
            "name its target alone with --target, or choose another pair: `ggufspec pairs`",
        )
    return entry.chain


def _read(file: Path) -> Catalogue:
    """Return a file's entries; none if there is no file."""
    reason: object
    try:
        return _parse(file, userfiles.read_text(file))
    except FileNotFoundError:
        return Catalogue(entries={}, wrong={})
    except OSError as error:
        reason = error.strerror
    except RecursionError:
        reason = "its brackets are nested too deeply"
    except ValueError as error:
        reason = error
    sentence = one_line(f"the catalogue {file} cannot be read, and is left out: {reason}")
    return Catalogue(entries={}, wrong={}, unreadable=sentence)


@cache
def _parse(file: Path, text: str) -> Catalogue:
    """Return the entries of a catalogue.

    Raises:
        ValueError: it is not of the documented form.
        RecursionError: it is nested too deeply.
    """
    tables = tomllib.loads(text).get("pairs", {})
    if not isinstance(tables, dict):
        raise ValueError("pairs is not a table of pairs")  # noqa: TRY004  # as every fault of a catalogue
    entries: dict[str, CatalogueEntry] = {}
    wrong: dict[str, str] = {}
    for name, table in tables.items():
        try:
            entries[name] = _entry(name, table, file)
        except ValueError as error:  # msgspec's errors are ValueErrors
            wrong[name] = one_line(f"{file}: [pairs.{name}]: {error}")
    return Catalogue(entries=entries, wrong=wrong)


def _entry(name: str, table: object, file: Path) -> CatalogueEntry:
    """Return an entry.

    Raises:
        ValueError: it is not of the documented form.
    """
    if "/" in name or ":" in name:
        raise ValueError("a pair's name has no '/' and no ':'")
    written = msgspec.convert(table, _PairTable)
    drafter = written.drafter
    method = written.method or (_NO_METHOD if drafter is None else Method.DRAFT_MODEL.value)
    needs_drafter = any(
        candidate.value in method.split("+") and candidate.needs_drafter for candidate in Method
    )
    if (drafter is None and needs_drafter) or (drafter is not None and method == _NO_METHOD):
        raise ValueError(f"it has {'no' if drafter is None else 'a'} drafter, but the method {method}")
    if method == _NO_METHOD and (written.gamma, written.p_min) != (None, None):
        raise ValueError("it has gamma or p_min, but nothing that drafts")
    return CatalogueEntry(
        pair=Pair(
            name=name,
            target=_model(written.target, file.parent),
            draft=None if drafter is None else _model(drafter, file.parent),
        ),
        licence=written.licence,
        source=written.source,
        evidence=written.evidence,
        method=method,
        note=written.note,
        catalogue=file,
        gamma=written.gamma,
        p_min=written.p_min,
    )


def is_repo(text: str) -> bool:
    """Return whether a text has the form of a repository's name on the Hub, ``user/repo``."""
    return _REPO.fullmatch(text) is not None


def is_inside(filename: str) -> bool:
    """Return whether a name from the Hub stays inside the folder that it is joined to."""
    parts = PurePosixPath(filename).parts
    return bool(parts) and not (
        filename.startswith("/")
        or any(part in {"..", "."} for part in filename.split("/"))
        or re.search(r"[\\:\x00-\x1f]", filename)
    )


def _model(table: _ModelTable, folder: Path) -> ModelFile:
    if table.path is not None:
        path = folder / paths.with_home(table.path)
        return ModelFile(filename=path.name, path=path, quant=table.quant)
    if table.repo is None or table.file is None:
        raise ValueError("a model needs repo and file, or path")
    if not is_repo(table.repo):
        raise ValueError(f"repo is like user/repo, not {table.repo!r}")
    if not is_inside(table.file):
        raise ValueError(f"file is the name of a file in {table.repo}, not {table.file!r}")
    return ModelFile(
        filename=table.file, repo=table.repo, revision=table.revision, quant=table.quant, sha256=table.sha256
    )
