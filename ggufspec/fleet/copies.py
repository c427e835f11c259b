"""A bench of another machine becomes a stored one, in one step."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ggufspec import paths, results
from ggufspec.domain import RunResult
from ggufspec.errors import ResultsError
from ggufspec.results import Meta, store


def store_copy(name: str, meta: Meta, runs: Iterable[RunResult], add_files: Callable[[Path], object]) -> Path:
    """Store the runs of a bench under a name, and return its folder.

    Args:
        name: of the new bench.
        meta: of the copied bench.
        runs: in the order of measurement.
        add_files: adds its logs and other files to a folder that is empty.

    Raises:
        ResultsError: the name is in use, or the bench cannot be written; nothing is stored then.
        DiskFullError: the disk is full.
    """
    folder = paths.runs_dir() / name
    if folder.exists():
        raise ResultsError(f"the bench {name} already exists", "choose another name for the fleet")
    draft = folder.with_name(f".{name}-{secrets.token_hex(4)}")
    try:
        with results.disk(draft):
            draft.mkdir(parents=True)
            add_files(draft)
        results.write_bench(draft, replace(meta, id=name, number=store.next_number()), runs)
        with results.disk(folder):
            draft.rename(folder)
            paths.sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
