"""Benches for others, each as one function of a command's options: publish, verify, board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ggufspec import userfiles
from ggufspec.analysis import Board, boards
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import catalog, hub
from ggufspec.options import BoardOptions, PublishOptions, VerifyOptions, takes
from ggufspec.publishing import bundles, copying
from ggufspec.publishing.bundles import Bundle, Verification, read_bundle
from ggufspec.publishing.derived import can_write_parquet
from ggufspec.publishing.findings import find_costs
from ggufspec.publishing.redacting import find_repositories, read_identity
from ggufspec.report.html import board as page
from ggufspec.results import LATEST, ResultSet, archive, load_each
from ggufspec.steps import SILENT, Sink
from ggufspec.units import counted, format_bytes

__all__ = ["board", "publish", "verify"]


@takes(PublishOptions)
def publish(asked: PublishOptions, sink: Sink = SILENT) -> Bundle:
    """Write benches as a redacted folder and zip that others can verify, as ``ggufspec publish`` does.

    Raises:
        ConsentNeededError: the upload is not confirmed.
        GgufspecError: figures do not follow from the raw logs, the folder exists, or the upload failed.
    """
    access, repo = hub.Access.of(asked), asked.to_hub
    if repo is not None:
        check_upload(repo, access)
        if not asked.yes:
            sink.refuse_unasked(f"the upload to {repo}")
    stored = load_each(asked.benches or (LATEST,), sink)
    folder = asked.out or Path(f"{stored[0].meta.id}-bundle")
    if folder.suffix == ".zip":  # which has the folder's name
        folder = folder.with_suffix("")
    userfiles.check_writable(folder.with_name(f"{folder.name}.zip"))
    private = find_private(stored, access)
    if private:
        sink.say(f"names replaced, as these repositories are not known to be public: {', '.join(private)}")
    identity = read_identity()
    if asked.token:
        identity = replace(identity, secrets=(*identity.secrets, asked.token))
    with userfiles.writing(folder):
        bundle = bundles.publish(
            stored,
            folder,
            identity=identity,
            private=private,
            with_texts=asked.with_texts,
            author=asked.author,
            costs=find_costs(stored),
        )
    sink.show(bundle)
    return bundle if repo is None else upload(bundle, repo, access, sink, public=asked.public, yes=asked.yes)


def find_private(benches: Sequence[ResultSet], access: hub.Access) -> tuple[str, ...]:
    """Return the repositories that benches and their logs name and that are not known to be public.

    Those of ggufspec's catalogue are public. The Hub is asked for the others, without a login.

    Raises:
        CatalogError: the user's own catalogue cannot be read.
        OSError: a log cannot be read.
    """
    entries = catalog.entries().values()
    ours = [entry.pair for entry in entries if entry.catalogue != catalog.user_file()]
    public = {model.repo for pair in ours for model in pair.models}
    named = find_repositories(benches, (log for bench in benches for log in copying.all_logs(bench)))
    return tuple(name for name in named if name not in public and not hub.is_public(name, access))


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


def upload(bundle: Bundle, repo: str, access: hub.Access, sink: Sink, *, public: bool, yes: bool) -> Bundle:
    """Upload a bundle as a dataset after a question, and return it with its address.

    Raises:
        ConsentNeededError: nobody can be asked, and ``yes`` is not set.
        GgufspecError: the upload failed, or the dataset has files already.
    """
    files = archive.list_files(bundle.folder)
    if not yes:
        size = format_bytes(sum(file.stat().st_size for file in files.values()))
        place, seen_by = hub.dataset_address(repo, access), "public" if public else "private"
        question = f"Upload {counted(len(files), 'file')} ({size}) to {place} ({seen_by})?"
        sink.agree(question, f"the upload to {repo}")
    message = f"Publish measurements, SHA-256 {bundle.sha256}"
    return replace(bundle, address=hub.upload_dataset(files, repo, access, public=public, message=message))


@takes(VerifyOptions)
def verify(asked: VerifyOptions) -> Verification:
    """Recompute a bundle from its raw logs, and compare, as ``ggufspec verify`` does.

    Returns:
        What was checked; ``findings`` is empty if all figures follow. A finding is not an error.

    Raises:
        ResultsError: it is not a bundle, or has what no bundle has.
    """
    return bundles.verify(asked.bundle, sha256=asked.sha256)


@takes(BoardOptions)
def board(asked: BoardOptions, sink: Sink = SILENT) -> Board:
    """Compare the bundles of many machines, as ``ggufspec board`` does.

    Returns:
        The board; ``ggufspec.frames.board(board)`` is its table.

    Raises:
        ResultsError: one of them is not a bundle, or cannot be read.
        GgufspecError: the page cannot be written.
    """
    out = asked.out
    if out is not None:
        userfiles.check_writable(out)
    read = [
        read_bundle(bundle, verifies=asked.verify)
        for bundle in sink.each(asked.bundles, lambda bundle: bundle.name)
    ]
    made = boards.make_board(read)
    for bundle in read:
        if not any(bundle is kept for kept in made.bundles):
            sink.say(f"note: {bundle.name} is left out: another bundle here has the same SHA-256")
        for finding in bundle.findings:
            sink.say(f"warning: {bundle.name} does not verify: {finding}")
    if out is not None:
        with userfiles.writing(out):
            out.write_text(page.html(made, out.parent), encoding="utf-8")
    return made
