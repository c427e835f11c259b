"""Which repositories of published benches are private, as far as the Hub says."""

from __future__ import annotations

from collections.abc import Collection

from ggufspec.cli.entry.output import echo


def find_private(repositories: Collection[str], *, offline: bool) -> tuple[str, ...]:
    """Return the repositories that are not known to be public, and print them.

    Those of ggufspec's catalogue are public. The Hub is asked for the others, without a login.

    Raises:
        CatalogError: the user's own catalogue cannot be read.
    """
    from ggufspec.modelfiles import catalog

    ours = [entry.pair for entry in catalog.entries().values() if entry.catalogue != catalog.user_file()]
    known = {model.repo for pair in ours for model in (pair.target, pair.draft) if model is not None}
    unknown = [name for name in repositories if name not in known]
    if not unknown:
        return ()
    from ggufspec.modelfiles import hub  # slow to import

    access = hub.Access(offline=offline)
    private = tuple(name for name in unknown if not hub.is_public(name, access))
    if private:
        echo(
            f"names replaced, as these repositories are not known to be public: {', '.join(private)}",
            err=True,
        )
    return private
