"""Stored benches -> a bundle that others can read and verify: a folder and a zip; and what a bundle holds.

A verification finds whether a bundle's figures follow from its raw logs, and its other files from those
figures. What is wrong becomes a finding, and what cannot be recomputed is named. A forger who changes logs,
figures and hashes so that all agree is not found; only the SHA-256 that the publisher gave elsewhere shows
that.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from ggufspec import results, units
from ggufspec.analysis import BundleState, PublishedBundle, boards
from ggufspec.errors import ChartError, GgufspecError, ResultsError
from ggufspec.forecast import profiles
from ggufspec.forecast.profiles import SharedProfile
from ggufspec.publishing import copying
from ggufspec.publishing.checking_runs import check_bench
from ggufspec.publishing.derived import BENCHES, Facts, can_write_parquet, derive_files, library_versions
from ggufspec.publishing.findings import Report, check_costs, check_derived, redact_costs
from ggufspec.publishing.redacting import Identity, Redactor, make_redactor
from ggufspec.results import ResultSet, archive

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


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A bundle that was written and verified.

    Attributes:
        folder: with all files.
        zip: the same files.
        sha256: of its ``verify.txt``, which names all other files.
        left_out: how many prompts have no text in it.
        verification: what follows from the logs, and what cannot be recomputed.
        n_curves: how many cost curves it has.
        undrawn: why it has no charts; None if it has them.
        address: of the dataset on the Hub; None if it was not uploaded.
    """

    folder: Path
    zip: Path
    sha256: str
    left_out: int
    verification: Verification
    n_curves: int = 0
    undrawn: str | None = None
    address: str | None = None


def publish(
    benches: Sequence[ResultSet],
    folder: Path,
    *,
    identity: Identity,
    private: Collection[str] = (),
    with_texts: bool = False,
    author: str | None = None,
    costs: Sequence[SharedProfile] = (),
) -> Bundle:
    """Write a bundle of benches, verify it, and pack it into one zip beside the folder.

    Args:
        benches: what is published, at least one.
        folder: to be made.
        identity: whose names and secrets are replaced.
        private: repositories whose names are replaced, such as ``owner/name``.
        with_texts: whether to publish texts that are not built in.
        author: for the BibTeX entry.
        costs: what evaluations cost on the machines of the benches.

    Raises:
        ResultsError: the folder or the zip exists, or figures do not follow from the raw logs.
        OSError: a log cannot be read, or the bundle cannot be written.
    """
    packed = folder.with_name(f"{folder.name}.zip")
    for path in (folder, packed):
        if path.exists():
            raise GgufspecError(f"{path} already exists", "choose another --out, or remove it")
    logs = [log for bench in benches for log in copying.all_logs(bench)]
    redactor = make_redactor(benches, logs, identity, private, is_word=_word_test(benches))
    names = [copying.copied_id(bench, redactor) for bench in benches]
    if len(set(names)) < len(names):
        raise GgufspecError("two of the benches have the same name", "name each bench once")
    draft = folder.with_name(f".{folder.name}.unfinished")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        copies = [
            copying.copy_bench(bench, draft / BENCHES / name, redactor, with_texts=with_texts)
            for bench, name in zip(benches, names, strict=True)
        ]
        derived, undrawn = _write_derived(copies, draft, with_texts=with_texts, author=author)
        if costs:
            redacted = [redact_costs(profile, redactor) for profile in costs]
            (draft / profiles.SHARED).write_bytes(profiles.write_shared(redacted))
        sha256 = archive.write_hashes(draft)
        verification = verify(draft, derived=derived)
        if verification.findings:
            raise ResultsError(
                f"the bundle would not verify: {verification.findings[0]}",
                "figures must follow from the raw logs: measure again with this version of ggufspec",
            )
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    archive.write_zip(folder, packed)
    left_out = 0 if with_texts else sum(len(copying.hidden_prompts(bench)) for bench in benches)
    return Bundle(
        folder=folder,
        zip=packed,
        sha256=sha256,
        left_out=left_out,
        verification=verification,
        n_curves=len(costs),
        undrawn=undrawn,
    )


def _write_derived(
    copies: Sequence[ResultSet], folder: Path, *, with_texts: bool, author: str | None
) -> tuple[dict[str, bytes], str | None]:
    """Write the files that follow from benches; return them, and why there are no charts among them."""
    facts = Facts(
        benches=tuple(bench.meta.id for bench in copies),
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        author=author,
        with_texts=with_texts,
        with_parquet=can_write_parquet(),
        with_charts=True,
        versions=library_versions(),
    )
    undrawn = None
    try:
        derived = derive_files(copies, facts)
    except ChartError as error:
        facts, undrawn = replace(facts, with_charts=False), error.message
        derived = derive_files(copies, facts)
    (folder / archive.FACTS).write_text(facts.to_json(), encoding="utf-8")
    for name, content in derived.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return derived, undrawn


def _word_test(benches: Sequence[ResultSet]) -> Callable[[str], bool]:
    """Return the function that says whether replacing a pattern would change a figure of some log."""

    @cache
    def is_word(pattern: str) -> bool:
        redactor = Redactor(patterns=((pattern, "name-1"),))
        return any(
            copying.changes_figures(run, logs, redactor)
            for bench in benches
            for run in bench.runs
            for logs in copying.read_logs(bench.folder, run.log).values()
        )

    return is_word


def describe_bundle(bundle: Bundle) -> str:
    """Return what was written, what to look at before it is published, and its SHA-256."""
    lines = [
        f"Written: {bundle.folder} and {bundle.zip} ({units.format_bytes(bundle.zip.stat().st_size)}).",
        f"Verified: {_extent(bundle.verification)}.",
    ]
    if bundle.left_out:
        lines.append(
            f"Left out: the texts of {units.counted(bundle.left_out, 'prompt')} and the answers to them, as "
            "they are not built into ggufspec; --with-texts publishes them."
        )
    if bundle.undrawn is not None:
        lines.append(f"Without charts: {bundle.undrawn}.")
    if bundle.n_curves:
        lines.append(
            f"It has {units.counted(bundle.n_curves, 'cost curve')} of this machine: "
            "`ggufspec whatif --like` forecasts other pairs with them."
        )
    lines += [
        "Names, paths and tokens were replaced as far as known: read the bundle before you publish it.",
        f"SHA-256: {bundle.sha256}",
        "State this SHA-256 outside of the bundle, as in the paper: `ggufspec verify --sha256` compares it.",
    ]
    return "".join(f"{line}\n" for line in lines)


def describe_verification(verification: Verification) -> str:
    """Return what follows, what does not, and what cannot be recomputed."""
    lines = [
        "Does not verify." if verification.findings else "Verifies: all figures follow from the raw logs.",
        f"Checked: {_extent(verification)}.",
        f"SHA-256: {verification.sha256}",
        *(f"Wrong: {finding}." for finding in verification.findings),
        *(f"Not recomputed: {sentence}." for sentence in verification.unchecked),
    ]
    return "".join(f"{line}\n" for line in lines)


def _extent(verification: Verification) -> str:
    """Return how much was checked: ``24 files; 16 runs of 1 bench, 420 figures``."""
    runs = (
        f"{units.counted(verification.n_runs, 'run')} of {units.counted(len(verification.benches), 'bench')}"
    )
    return f"{units.counted(verification.n_files, 'file')}; {runs}, {verification.n_figures:,} figures"


_PAGE = "report.html"


def read_bundle(bundle: Path, *, verifies: bool = False) -> PublishedBundle:
    """Read a bundle for a board.

    Args:
        bundle: its folder or zip.
        verifies: whether to verify it, which takes seconds for each bench.

    Raises:
        ResultsError: it is not a bundle, or cannot be read.
        OSError: the system does not let it be read.
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
