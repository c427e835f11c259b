"""Bundles of others -> the rows of a board. Of a bundle only its JSON is read; figures are computed anew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ggufspec import results
from ggufspec.analysis import BundleState, PublishedBundle, boards
from ggufspec.errors import ResultsError
from ggufspec.publishing.derived import BENCHES, Facts
from ggufspec.publishing.verifying import verify
from ggufspec.results import archive

_PAGE = "report.html"


def read_bundle(bundle: Path, *, verifies: bool = False) -> PublishedBundle:
    """Read a bundle for a board.

    Args:
        bundle: its folder or zip.
        verifies: whether to verify it, which takes seconds for each bench.

    Raises:
        ResultsError: it is not a bundle, or cannot be read.
        OSError: likewise.
    """
    name = bundle.resolve().name
    findings = verify(bundle).findings if verifies else ()
    with archive.opened(bundle) as contents:
        facts = _read_facts(bundle, contents.files)
        benches = [_load(bundle, contents.folder, bench) for bench in facts.benches]
        findings = findings or tuple(sentence for bench in benches for sentence in bench.damage)
        checked = BundleState.VERIFIED if verifies else BundleState.UNCHECKED
        state = BundleState.REFUTED if findings else checked
        sha256 = archive.hash_file(contents.files[archive.HASHES])
        rows = [
            row
            for bench in benches
            for row in boards.list_rows(bench, bundle=name, sha256=sha256, state=state)
        ]
    return PublishedBundle(
        name=name,
        report=bundle / _PAGE if (bundle / _PAGE).is_file() else bundle,
        sha256=sha256,
        made_at=facts.made_at,
        version=facts.versions.get("ggufspec", "unknown"),
        state=state,
        findings=findings,
        rows=tuple(rows),
    )


def _read_facts(bundle: Path, files: Mapping[str, Path]) -> Facts:
    try:
        return Facts.from_json(files[archive.FACTS].read_text(encoding="utf-8"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ResultsError(
            f"{bundle}: {archive.FACTS} cannot be read: {error}", "download the bundle again"
        ) from error


def _load(bundle: Path, folder: Path, name: str) -> results.ResultSet:
    """Load a bench of a bundle; its name may come from anybody and must not lead out of it."""
    try:
        archive.check_name(name)
        return results.load(folder / BENCHES / name)
    except ResultsError as error:
        raise ResultsError(
            f"{bundle}: {error.message}", "leave this bundle out, or download it again"
        ) from error
