"""Suites from datasets on the Hub: ``hf:USER/DATASET``, with ``@REVISION`` and ``:PART``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

from ggufspec import digests, userfiles
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import hub
from ggufspec.prompts import jsonl
from ggufspec.prompts.suite import PromptSuite
from ggufspec.units import format_bytes

PREFIX = "hf:"
"""How the name of such a suite begins."""

_JSON = (".jsonl", ".ndjson", ".json")
_PARQUET = ".parquet"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_MOST_BYTES = 512 << 20
_MOST_NAMED = 12


@cache
def read_dataset(name: str, access: hub.Access) -> PromptSuite:
    """Return the suite of a dataset; its files come from the cache if they are there.

    What it is read from is pinned for the life of the process, whatever happens to the dataset meanwhile.

    Args:
        name: ``hf:USER/DATASET``, and what follows.
        access: to the Hub.

    Raises:
        GatedRepositoryError: the terms of the dataset have to be accepted first.
        GgufspecError: there is no such dataset or part, it is too large, or it is no suite.
    """
    reference = hub.parse_dataset(name.removeprefix(PREFIX))
    listing = hub.list_dataset(reference, access)
    part, files = _choose_part(reference, listing.files)
    size_bytes = sum(file.size_bytes or 0 for file in files)
    if size_bytes > _MOST_BYTES:
        raise GgufspecError(
            f"{reference} has {format_bytes(size_bytes)} of prompts, more than {format_bytes(_MOST_BYTES)}",
            "keep the prompts that you want to measure in a file, and name it with --prompt-file",
        )
    paths = hub.fetch_dataset_files(listing, files, access)
    label = replace(reference, revision=None, part=part)
    suite = jsonl.make_suite(Path(*PurePosixPath(part).parts), _read_files(paths), name=f"{PREFIX}{label}")
    pinned = replace(reference, revision=listing.commit, part=part)
    sums = ", ".join(digests.of_file(path).sha256 for path in paths)
    return replace(suite, origin=f"{PREFIX}{pinned}, SHA-256 {sums}")


def _read_files(paths: Sequence[Path]) -> Iterator[jsonl.SuiteRow]:
    """Yield the rows of all files, numbered through."""
    number = 0
    for path in paths:
        if path.suffix.lower() == _PARQUET:
            rows = jsonl.read_parquet(path)
        else:
            rows = jsonl.read_rows(path, _read_text(path))
        for row in rows:
            number += 1
            yield row._replace(number=number)


def _read_text(path: Path) -> str:
    try:
        return userfiles.read_text(path, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise GgufspecError(
            f"cannot read {path}: {error.strerror}", "remove it, and run the command again"
        ) from error


def _choose_part(
    reference: hub.DatasetReference, files: Sequence[hub.DatasetFile]
) -> tuple[str, tuple[hub.DatasetFile, ...]]:
    """Return the part that is meant, and its files in order.

    Raises:
        GgufspecError: there is no such part, or there are several and none is named.
    """
    parts = _group_files(files)
    names = {part: _short_name(part, parts) for part in parts}
    wanted = reference.part
    matching = [part for part in parts if wanted is None or wanted in {part, *_names_of(part)}]
    listed = ", ".join(sorted(set(names.values()))[:_MOST_NAMED])
    if not parts:
        raise GgufspecError(
            f"the dataset {reference.repo} has neither JSONL nor Parquet files",
            "name a file with --prompt-file",
        )
    if not matching:
        raise GgufspecError(f"{reference.repo} has no part {wanted!r}", f"it has {listed}")
    if len(matching) > 1:
        example = replace(reference, part=names[matching[0]])
        several = ", ".join(sorted(names[part] for part in matching)[:_MOST_NAMED])
        raise GgufspecError(
            f"{reference} has several parts: {several}",
            f"name one, such as {PREFIX}{example}",
        )
    (part,) = matching
    return names[part], tuple(parts[part])


def _group_files(files: Sequence[hub.DatasetFile]) -> Mapping[str, list[hub.DatasetFile]]:
    """Return the files of each part: shards together, and JSONL where a part has Parquet as well."""
    by_part: dict[str, dict[bool, list[hub.DatasetFile]]] = {}
    for file in sorted(files, key=lambda file: file.path):
        path = PurePosixPath(file.path)
        ending = path.suffix.lower()
        if ending in _JSON or ending == _PARQUET:
            part = str(path.with_name(_SHARD.sub("", path.stem)))
            by_part.setdefault(part, {}).setdefault(ending == _PARQUET, []).append(file)
    return {part: by_split.get(False) or by_split[True] for part, by_split in by_part.items()}


def _names_of(part: str) -> set[str]:
    """Return by what names a part may be called: its folder, that is a configuration, or its file's."""
    folder, _, name = part.rpartition("/")
    return {name, folder.rpartition("/")[2]} - {""}


def _short_name(part: str, parts: Mapping[str, object]) -> str:
    """Return the shortest name that only this part has: its folder's, its file's, or both."""
    folder, _, name = part.rpartition("/")
    for short in (folder.rpartition("/")[2], name):
        if short and sum(short in _names_of(other) for other in parts) == 1:
            return short
    return part
