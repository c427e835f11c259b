"""``ggufspec bisect``: find the version of llama.cpp that changed a speed or the acceptance rate."""

from __future__ import annotations

from ggufspec.cli.entry.command import command_of
from ggufspec.options import BisectOptions


@command_of(BisectOptions)
def command(asked: BisectOptions) -> None:
    """Find the version of llama.cpp between GOOD and BAD at which drafting became slower or accepted less.

    GOOD and BAD are releases of llama-cpp-python, or with --source commits. First, the two are compared. Then
    versions between them are built and measured in turn with both, until the step is found. At most 5 % of
    bisections end with a wrong verdict. Versions that cannot be built or measured are skipped and named.

    \b
    ggufspec bisect 0.3.9 0.3.36
    ggufspec bisect b4000 b4500 --source ~/llama.cpp --quantity acceptance --draft 8
    """
    from ggufspec.cli.steps import bisecting

    bisecting.run_bisection(asked)
