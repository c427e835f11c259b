"""What a long piece of work reports while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BuildStep(StrEnum):
    """The steps from a version's name to programs that run, and those of a conversion."""

    WAIT = "wait"
    FETCH = "fetch"
    UNPACK = "unpack"
    CONFIGURE = "configure"
    COMPILE = "compile"
    TEST = "test"
    INSTALL = "install"
    CONVERT = "convert"


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """How far a step has come; ``total`` is None where nobody knows, and units are the step's own.

    ``notice`` marks the few lines that a user should read even where no progress is shown.
    """

    step: BuildStep
    done: int = 0
    total: int | None = None
    line: str = ""
    notice: bool = False
