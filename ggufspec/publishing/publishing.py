"""Stored benches -> a bundle: a folder and a zip that others can read and check, and what is said of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from ggufspec import units
from ggufspec.errors import ChartError, GgufspecError, ResultsError
from ggufspec.forecast import profiles
from ggufspec.forecast.profiles import SharedProfile
from ggufspec.publishing import copying
from ggufspec.publishing.derived import BENCHES, Facts, can_write_parquet, derive_files, library_versions
from ggufspec.publishing.findings import redact_costs
from ggufspec.publishing.redacting import Identity, Redactor, make_redactor
from ggufspec.publishing.verifying import Verification, verify
from ggufspec.results import ResultSet, archive


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
