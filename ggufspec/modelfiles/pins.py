"""The checksums that files of a catalogue's pairs must have: those of the catalogue, or of their first fetch.

What the first fetch got is kept in pins.json beside the user's own catalogue:

{"schema": 1, "files": {"user/repo/file.gguf": {"commit": "…", "sha256": "…"}}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ggufspec import paths, userfiles
from ggufspec.domain import ModelFile
from ggufspec.errors import CatalogError, ChangedFileError
from ggufspec.modelfiles import catalog
from ggufspec.modelfiles.gguf import split_names
from ggufspec.modelfiles.hub import FetchItem, Survey

_SCHEMA = 1


class _StoredPin(msgspec.Struct):
    commit: str
    sha256: str


class _AnyPins(msgspec.Struct):
    schema: int


class _StoredPins(_AnyPins):
    files: dict[str, _StoredPin]


@dataclass(frozen=True, kw_only=True)
class Pin:
    """The checksum of a file, the commit that had it where that is known, and the file that says so."""

    sha256: str
    commit: str | None
    stated_in: Path


def user_file() -> Path:
    """Return the path of the user's own pins, which may not exist."""
    return paths.config_dir() / "pins.json"


def find_pin(model: ModelFile, catalogue: Path, path: str | None = None) -> Pin | None:
    """Return what a file of a catalogue is pinned to: by an earlier fetch, else by the catalogue.

    Args:
        model: as the catalogue lists it.
        catalogue: the file that lists it.
        path: one part of a model in several files; the model's own file name without it.

    Raises:
        CatalogError: the user's pins cannot be read.
    """
    name = path or model.filename
    pin = _read_user_pins().get(f"{model.repo}/{name}")
    if pin is not None:
        return Pin(sha256=pin.sha256, commit=pin.commit, stated_in=user_file())
    if model.sha256 is not None and name == model.filename:
        return Pin(sha256=model.sha256, commit=model.revision, stated_in=catalogue)
    return None


def check_pins(survey: Survey) -> None:
    """Check that the Hub still has the files to which a pair of a catalogue is pinned.

    Raises:
        ChangedFileError: one of them has another checksum.
        CatalogError: the user's pins cannot be read.
    """
    for item, pin in _listed_items(survey):
        if pin is not None and pin.sha256 != item.file.digest:
            get_old = f"; `--revision {pin.commit}` gets the pinned one" if pin.commit else ""
            raise ChangedFileError(
                f"{item.repo}/{item.file.path} is not the file that {pin.stated_in} lists: "
                f"SHA-256 {pin.sha256} there, {item.file.digest} on the Hub",
                f"`ggufspec fetch {survey.pair.name} --repin` accepts the new file{get_old}",
            )


def pin_files(survey: Survey, *, replace: bool = False) -> tuple[str, ...]:
    """Pin those files of a pair of a catalogue that are not pinned yet.

    Args:
        survey: what was fetched.
        replace: pin all of them anew.

    Returns:
        The names of the files that are pinned now and were not, or not to this content.

    Raises:
        CatalogError: the user's pins cannot be read.
        OSError: they cannot be written.
    """
    new = {
        f"{item.repo}/{item.file.path}": _StoredPin(commit=item.commit, sha256=item.file.digest)
        for item, pin in _listed_items(survey)
        if pin is None or (replace and pin.sha256 != item.file.digest)
    }
    if new:
        content = msgspec.json.encode(_StoredPins(_SCHEMA, {**_read_user_pins(), **new}), order="sorted")
        paths.write_atomically(user_file(), msgspec.json.format(content, indent=2).decode() + "\n")
    return tuple(new)


def _listed_items(survey: Survey) -> Iterator[tuple[FetchItem, Pin | None]]:
    """Yield the files of a pair of a catalogue whose SHA-256 the Hub lists, each with its pin."""
    entry = catalog.entry_of(survey.pair)
    if entry is None:
        return
    models = {(model.repo, split_names(model.filename)[0]): model for model in entry.pair.models}
    for item in survey.items:
        model = models.get((item.repo, split_names(item.file.path)[0]))
        if model is not None and item.file.sha256 is not None:
            yield item, find_pin(model, entry.catalogue, item.file.path)


def _read_user_pins() -> Mapping[str, _StoredPin]:
    file = user_file()
    try:
        text = userfiles.read_text(file)
        schema = msgspec.json.decode(text, type=_AnyPins).schema  # a newer one may have another form
        if schema != _SCHEMA:
            raise CatalogError(
                f"{file} was written by a newer ggufspec (schema {schema})", "upgrade ggufspec"
            )
        return msgspec.json.decode(text, type=_StoredPins).files
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        reason = error.strerror if isinstance(error, OSError) else error
        raise CatalogError(
            f"the pins in {file} cannot be read: {reason}", "correct the file, or remove it"
        ) from error
