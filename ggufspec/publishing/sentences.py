"""What ``publish`` and ``verify`` print."""

from __future__ import annotations

from ggufspec import units
from ggufspec.publishing.publishing import Bundle
from ggufspec.publishing.verifying import Verification


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
