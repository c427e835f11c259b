"""``ggufspec.publish``, ``verify`` and ``board``: single calls for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ggufspec.analysis import Board, boards
from ggufspec.errors import ConsentNeededError, GgufspecError
from ggufspec.modelfiles import catalog, hub
from ggufspec.notebooks import named_options
from ggufspec.publishing import publishing, verifying
from ggufspec.publishing.boards import read_bundle
from ggufspec.publishing.costs import find_costs
from ggufspec.publishing.derived import can_write_parquet
from ggufspec.publishing.publishing import Bundle
from ggufspec.publishing.redacting import read_identity
from ggufspec.publishing.verifying import Verification
from ggufspec.report.html import board as page
from ggufspec.results import ResultSet, archive

__all__ = [
    "board",
    "check_upload",
    "default_folder",
    "find_private",
    "publish",
    "upload",
    "verify",
    "write_bundle",
]


@named_options
def publish(
    benches: ResultSet | Sequence[ResultSet],
    *,
    out: Path | str | None = None,
    with_texts: bool = False,
    author: str | None = None,
    offline: bool = False,
    to_hub: str | None = None,
    public: bool = False,
    token: str | None = None,
    yes: bool = False,
) -> Bundle:
    """Write benches as a redacted folder and zip that others can verify, as ``ggufspec publish`` does.

    Args:
        benches: one or several.
        out: the folder, to be made; by default the first bench's id with "-bundle".
        with_texts: also publish prompts that are not built in, and the answers to them.
        author: of the BibTeX entry.
        offline: do not ask the Hub which repositories are public; names that are not in the catalogue are
            replaced.
        to_hub: also upload it as this dataset, such as "user/dataset".
        public: let everybody see the dataset.
        token: access token for the Hub.
        yes: confirm the upload, which is refused without it.

    Raises:
        ValueError: the options contradict each other.
        ConsentNeededError: the upload is not confirmed.
        GgufspecError: figures do not follow from the raw logs, the folder exists, or the upload failed.
    """
    stored = [benches] if isinstance(benches, ResultSet) else list(benches)
    if public and to_hub is None:
        raise ValueError("public needs to_hub")
    access = hub.Access(token=token, offline=offline)
    if to_hub is not None:
        check_upload(to_hub, access)
        if not yes:
            raise ConsentNeededError(f"the upload to {to_hub} needs confirmation", "add yes=True")
    bundle = write_bundle(
        stored,
        default_folder(stored) if out is None else Path(out),
        private=find_private(publishing.named_repositories(stored), access),
        with_texts=with_texts,
        author=author,
        token=token,
    )
    return bundle if to_hub is None else upload(bundle, to_hub, access, public=public)


def default_folder(benches: Sequence[ResultSet]) -> Path:
    """Return the folder of a bundle that nobody named."""
    return Path(f"{benches[0].meta.id}-bundle")


def write_bundle(
    benches: Sequence[ResultSet],
    folder: Path,
    *,
    private: Collection[str],
    with_texts: bool,
    author: str | None,
    token: str | None,
) -> Bundle:
    """Write a bundle without the names and secrets of the user of this process; ``token`` is one of them."""
    identity = read_identity()
    if token:
        identity = replace(identity, secrets=(*identity.secrets, token))
    return publishing.publish(
        benches,
        folder,
        identity=identity,
        private=private,
        with_texts=with_texts,
        author=author,
        costs=find_costs(benches),
    )


def find_private(repositories: Collection[str], access: hub.Access) -> tuple[str, ...]:
    """Return the repositories that are not known to be public.

    Those of ggufspec's catalogue are public. The Hub is asked for the others, without a login.

    Raises:
        CatalogError: the user's own catalogue cannot be read.
    """
    ours = [entry.pair for entry in catalog.entries().values() if entry.catalogue != catalog.user_file()]
    public = {model.repo for pair in ours for model in pair.models}
    return tuple(name for name in repositories if name not in public and not hub.is_public(name, access))


def check_upload(repo: str, access: hub.Access) -> None:
    """Check that a bundle could be uploaded, before it is written.

    Raises:
        GgufspecError: the dataset's name or the access is not usable, or no library writes Parquet.
    """
    hub.check_dataset(repo, access)
    if not can_write_parquet():
        raise GgufspecError(
            "a dataset needs tables as Parquet, and pyarrow is not installed",
            "pip install 'ggufspec[parquet]'",
        )


def upload(bundle: Bundle, repo: str, access: hub.Access, *, public: bool) -> Bundle:
    """Upload a bundle as a dataset, and return it with its address.

    Raises:
        GgufspecError: the upload failed, or the dataset has files already.
    """
    address = hub.upload_dataset(
        archive.list_files(bundle.folder),
        repo,
        access,
        public=public,
        message=f"Publish measurements, SHA-256 {bundle.sha256}",
    )
    return replace(bundle, address=address)


@named_options
def verify(bundle: Path | str, *, sha256: str | None = None) -> Verification:
    """Recompute a bundle from its raw logs, and compare, as ``ggufspec verify`` does.

    Args:
        bundle: its folder or zip.
        sha256: the bundle's SHA-256, as its publisher gave it elsewhere.

    Returns:
        What was checked; ``findings`` is empty if all figures follow. A finding is not an error.

    Raises:
        ResultsError: it is not a bundle, or has what no bundle has.
    """
    return verifying.verify(Path(bundle), sha256=sha256)


@named_options
def board(
    bundles: Path | str | Sequence[Path | str], *, out: Path | str | None = None, verify: bool = False
) -> Board:
    """Compare the bundles of many machines, as ``ggufspec board`` does.

    Args:
        bundles: folders or zips.
        out: a file for the page; by default none is written.
        verify: recompute the figures of each bundle first.

    Returns:
        The board; ``ggufspec.frames.board(board)`` is its table.

    Raises:
        ResultsError: one of them is not a bundle, or cannot be read.
    """
    paths = [bundles] if isinstance(bundles, Path | str) else bundles
    made = boards.make_board([read_bundle(Path(path), verifies=verify) for path in paths])
    if out is not None:
        Path(out).write_text(page.html(made, Path(out).parent), encoding="utf-8")
    return made
