"""Why a run failed: the one exception of everything that measures."""

from __future__ import annotations

from ggufspec.domain.measurements import Status


class Failure(Exception):  # noqa: N818  # it becomes a row of the results, not an error
    """A run failed; ``status`` and ``reason`` go into its Measurement.

    ``log`` is the output of a program that failed before its first run.
    """

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.log = b""
