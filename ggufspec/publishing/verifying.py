"""Whether a bundle's figures follow from its raw logs, and its other files from those figures.

What is wrong becomes a finding, and what cannot be recomputed is named. A forger who changes logs, figures
and hashes so that all agree is not found; only the SHA-256 that the publisher gave elsewhere shows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ggufspec import results
from ggufspec.analysis import BundleState, PublishedBundle, boards
from ggufspec.errors import ResultsError
from ggufspec.publishing.checking_runs import check_bench
from ggufspec.publishing.derived import BENCHES, Facts
from ggufspec.publishing.findings import Report, check_costs, check_derived
from ggufspec.results import archive

_CLOCK = (
    "times and memory by ggufspec's own clock (wall_s, program_s, started_at, peak_rss_bytes), and the "
    "conditions of runs (load, temperature, energy): llama.cpp's logs do not have them"
)
_IDENTITY = (
    "the machine, command lines and settings that no log names, and the hashes of models and programs, which "
    "are not in the bundle"
)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of checking a bundle.

    Attributes:
        sha256: that of its ``verify.txt``, which names all other files.
        benches: the ids of its benches.
        n_files: files whose hashes were compared.
        n_runs: runs whose logs were read again.
        n_figures: figures that follow from these logs.
        findings: sentences on what does not follow; empty if all does.
        unchecked: sentences on what cannot be recomputed.
    """

    sha256: str
    benches: tuple[str, ...]
    n_files: int
    n_runs: int
    n_figures: int
    findings: tuple[str, ...]
    unchecked: tuple[str, ...]


def verify(
    bundle: Path, *, sha256: str | None = None, derived: Mapping[str, bytes] | None = None
) -> Verification:
    """Recompute a bundle from its raw logs, and compare.

    Args:
        bundle: its folder or zip.
        sha256: the bundle's SHA-256, as its publisher gave it; None if that is not known.
        derived: what ``derive_files`` makes of the bundle's benches, if the caller has just made it.

    Raises:
        ResultsError: it is not a bundle, or has what no bundle has, such as paths that lead out of it.
        OSError: it cannot be read.
    """
    report = Report()
    with archive.opened(bundle) as contents:
        files = contents.files
        own_hash = archive.hash_file(files[archive.HASHES])
        if sha256 is not None and sha256.strip().lower() != own_hash:
            report.find(f"the SHA-256 of this bundle is {own_hash}, not {sha256}: it is another bundle")
        _check_hashes(files, report)
        benches: tuple[str, ...] = ()
        try:
            facts = _read_facts(files)
        except ResultsError as error:
            report.find(error.message)
        else:
            benches = facts.benches
            _check_benches(contents.folder, files, facts, report, derived)
    return Verification(
        sha256=own_hash,
        benches=benches,
        n_files=len(files) - 1,
        n_runs=report.n_runs,
        n_figures=report.n_figures,
        findings=tuple(report.findings),
        unchecked=tuple(report.sentences()),
    )


def _check_hashes(files: Mapping[str, Path], report: Report) -> None:
    try:
        hashes = archive.read_hashes(files[archive.HASHES].read_text(encoding="utf-8"))
    except (ResultsError, UnicodeDecodeError) as error:
        report.find(f"{archive.HASHES} cannot be read: {error}")
        return
    for name in sorted(hashes.keys() - files.keys()):
        report.find(f"{name} is missing")
    for name in sorted(files.keys() - hashes.keys() - {archive.HASHES}):
        report.find(f"{name} is not listed in {archive.HASHES}")
    for name in sorted(hashes.keys() & files.keys()):
        if archive.hash_file(files[name]) != hashes[name]:
            report.find(f"{name} was changed: it does not have the SHA-256 of {archive.HASHES}")


def _check_benches(
    folder: Path,
    files: Mapping[str, Path],
    facts: Facts,
    report: Report,
    derived: Mapping[str, bytes] | None,
) -> None:
    report.skip(_CLOCK)
    report.skip(_IDENTITY)
    benches = []
    for name in facts.benches:
        try:
            bench = _load(folder, name)
        except (ResultsError, RecursionError) as error:
            report.find(f"bench {name}: {error}")
            continue
        if bench.meta.id != name or "/" in name:
            report.find(f"bench {name} calls itself {bench.meta.id}")
            continue
        for sentence in bench.damage:
            report.find(f"bench {name}: {sentence}")
        check_bench(bench, files, report)
        benches.append(bench)
    if len(benches) < len(facts.benches):
        report.skip("tables, charts and report, as a bench cannot be read")
        return
    check_derived(benches, files, facts, report, derived)
    check_costs(benches, files, report)


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
        try:
            facts = _read_facts(contents.files)
            benches = [_load(contents.folder, bench) for bench in facts.benches]
        except ResultsError as error:
            raise ResultsError(
                f"{bundle}: {error.message}", "leave this bundle out, or download it again"
            ) from error
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


def _read_facts(files: Mapping[str, Path]) -> Facts:
    try:
        return Facts.from_json(files[archive.FACTS].read_text(encoding="utf-8"))
    except (ValueError, TypeError, RecursionError) as error:
        raise ResultsError(f"{archive.FACTS} cannot be read: {error}") from error


def _load(folder: Path, name: str) -> results.ResultSet:
    """Load a bench of a bundle; its name may come from anybody and must not lead out of it."""
    archive.check_name(name)
    return results.load(folder / BENCHES / name)
