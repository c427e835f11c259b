"""Named pairs: the catalogue of the package, and the user's own."""

from __future__ import annotations

import difflib
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ggufspec import paths
from ggufspec.domain import Chain, Method, ModelFile, Pair
from ggufspec.errors import CatalogError, UnsupportedMethodError

DEFAULT = "llama-3-70b"
"""The Llama-3 notebook's pair: the default of ``ggufspec fetch``."""
EMBEDDED = "demo"
"""The pair that commands use where nothing is named and nothing was fetched."""

_NO_METHOD = "none"
_MODEL_KEYS = {"repo", "file", "path", "quant", "revision", "sha256"}
_PAIR_KEYS = {"target", "drafter", "method", "gamma", "p_min", "licence", "source", "evidence", "note"}
_LONGEST_DRAFT = 64  # tokens


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


def user_file() -> Path:
    """Return the path of the user's own catalogue, which may not exist."""
    return paths.config_dir() / "pairs.toml"


def entries() -> Mapping[str, CatalogueEntry]:
    """Return every entry by name; the user's entries replace ours of the same name.

    Raises:
        CatalogError: a catalogue cannot be read, or an entry is not of the documented form.
    """
    ours = _read(paths.models_dir() / "pairs.toml")
    return {**ours, **_read(user_file())} if user_file().exists() else ours


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
        CatalogError: no catalogue has it; the hint names the closest ones.
    """
    pairs = load_catalogue()
    if name in pairs:
        return pairs[name]
    if "/" in name:
        raise CatalogError(
            f"no pair is called {name!r}",
            f"no pair has a slash in its name; `ggufspec fetch {shlex.quote(name)}` gets a model of the Hub, "
            "and --target a file",
        )
    lower = {known.lower(): known for known in pairs}
    close = [lower[known] for known in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    hint = f"close names: {', '.join(close)}; " if close else ""
    raise CatalogError(
        f"no pair is called {name!r}", f"{hint}ggufspec pairs lists them all, or name files with --target"
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


def _read(file: Path) -> Mapping[str, CatalogueEntry]:
    try:
        return _parse(file, file.read_text(encoding="utf-8"))
    except (
        OSError,
        UnicodeDecodeError,
        tomllib.TOMLDecodeError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        raise CatalogError(
            f"the catalogue {file} cannot be read: {error}", "see models/pairs.toml for the form"
        ) from error


@cache
def _parse(file: Path, text: str) -> Mapping[str, CatalogueEntry]:
    tables = tomllib.loads(text).get("pairs", {})
    return {name: _entry(name, table, file) for name, table in tables.items()}


def _entry(name: str, table: Mapping[str, Any], file: Path) -> CatalogueEntry:
    if "target" not in table:
        raise ValueError(f"[pairs.{name}] needs a target")
    if "/" in name or ":" in name:
        raise ValueError(f"[pairs.{name}]: a pair's name has no '/' and no ':'")
    _refuse_unknown(f"[pairs.{name}]", table, _PAIR_KEYS)
    drafter = table.get("drafter")
    method = str(table.get("method", _NO_METHOD if drafter is None else Method.DRAFT_MODEL.value))
    needs_drafter = any(known.value in method.split("+") and known.needs_drafter for known in Method)
    if (drafter is None and needs_drafter) or (drafter is not None and method == _NO_METHOD):
        has = "no drafter" if drafter is None else "a drafter"
        raise ValueError(f"[pairs.{name}] has {has}, but the method {method}")
    if method == _NO_METHOD and ("gamma" in table or "p_min" in table):
        raise ValueError(f"[pairs.{name}] has gamma or p_min, but nothing that drafts")
    return CatalogueEntry(
        pair=Pair(
            name=name,
            target=_model(name, table["target"], file.parent),
            draft=None if drafter is None else _model(name, drafter, file.parent),
        ),
        licence=str(table.get("licence", "not stated")),
        source=str(table.get("source", "the user's own")),
        evidence=table.get("evidence"),
        method=method,
        note=table.get("note"),
        catalogue=file,
        gamma=_gamma(name, table.get("gamma")),
        p_min=_p_min(name, table.get("p_min")),
    )


def _gamma(name: str, value: object) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= _LONGEST_DRAFT:
        raise ValueError(f"[pairs.{name}]: gamma is a draft size from 1 to {_LONGEST_DRAFT}, not {value!r}")
    return value


def _p_min(name: str, value: object) -> float | None:
    if value is None:
        return None
    if type(value) not in {int, float} or not 0 <= float(str(value)) <= 1:
        raise ValueError(f"[pairs.{name}]: p_min is a probability from 0 to 1, not {value!r}")
    return float(str(value))


def _model(name: str, table: Mapping[str, Any], folder: Path) -> ModelFile:
    if not isinstance(table, dict):
        raise TypeError(
            f"[pairs.{name}]: a model is a table such as {{ repo = 'user/repo', file = 'a.gguf' }}"
        )
    _refuse_unknown(f"[pairs.{name}]", table, _MODEL_KEYS)
    if "path" in table:
        path = folder / Path(table["path"]).expanduser()
        return ModelFile(filename=path.name, path=path, quant=table.get("quant"))
    if "repo" not in table or "file" not in table:
        raise ValueError(f"[pairs.{name}]: a model needs repo and file, or path")
    return ModelFile(
        filename=table["file"],
        repo=table["repo"],
        revision=table.get("revision"),
        quant=table.get("quant"),
        sha256=table.get("sha256"),
    )


def _refuse_unknown(where: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
