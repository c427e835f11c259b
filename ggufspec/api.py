"""The whole bench as one call, for notebooks and scripts."""

from __future__ import annotations

from typing import Any

from ggufspec import measuring
from ggufspec.request import Request, prepare
from ggufspec.results import ResultSet


def bench(request: Request | None = None, **options: Any) -> ResultSet:
    """Measure target alone, drafter alone and drafting, as ``ggufspec bench`` does.

    Args:
        request: what to measure; without it, ``options`` are its fields, e.g. ``draft=(3, 5), ngl=45``.
        **options: fields of Request.

    Returns:
        The runs, already stored; ``ggufspec.load(results.meta.id)`` reads them again.

    Raises:
        GgufspecError: something cannot work, said before any model is loaded; failing runs are rows instead.
    """
    session = prepare(request or Request(**options))
    command = ("ggufspec.bench", repr(request or options))
    *_, results = measuring.record(session.suite, session.engine, session.install, command=command)
    return results
