"""What ``publish`` says and asks: which names it hides, and whether a bundle may be uploaded."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from ggufspec.cli.entry import verbosity
from ggufspec.cli.entry.output import echo
from ggufspec.errors import ConsentNeededError
from ggufspec.units import counted, format_bytes

if TYPE_CHECKING:
    from ggufspec.modelfiles import hub
    from ggufspec.publishing import Bundle


def find_private(repositories: Collection[str], access: hub.Access) -> tuple[str, ...]:
    """Return the repositories that are not known to be public, and print them.

    Raises:
        CatalogError: the user's own catalogue cannot be read.
    """
    from ggufspec.publishing import api

    private = api.find_private(repositories, access)
    if private:
        echo(
            f"names replaced, as these repositories are not known to be public: {', '.join(private)}",
            err=True,
        )
    return private


def check_upload(repo: str, access: hub.Access, *, yes: bool) -> None:
    """Check that a bundle could be uploaded and that it can be asked about, before it is written.

    Raises:
        ConsentNeededError: there is no terminal to ask on, or nothing may be printed.
        GgufspecError: the dataset's name or the access is not usable.
    """
    from ggufspec.publishing import api

    api.check_upload(repo, access)
    quiet = verbosity.current(click.get_current_context()).quiet
    if not yes and (quiet or not sys.stdin.isatty()):
        reason = "; --quiet does not ask" if quiet else ""
        raise ConsentNeededError(f"the upload to {repo} needs confirmation{reason}", "add --yes")


def confirm_upload(bundle: Bundle, repo: str, access: hub.Access, *, public: bool, yes: bool) -> None:
    """Ask for confirmation of an upload; the bundle stays where it is if that is refused.

    Raises:
        Abort: it was refused.
    """
    from ggufspec.modelfiles import hub
    from ggufspec.results import archive

    files = archive.list_files(bundle.folder).values()
    size = format_bytes(sum(file.stat().st_size for file in files))
    seen_by = "public" if public else "private"
    place = hub.dataset_address(repo, access)
    if not yes:
        click.confirm(
            f"Upload {counted(len(files), 'file')} ({size}) to {place} ({seen_by})?", abort=True, err=True
        )
