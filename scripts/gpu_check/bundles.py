"""A bundle of all benches of a check, which others can verify: ``ggufspec publish``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ggufspec import results
from ggufspec.errors import ResultsError
from gpu_check.steps import NotRunError, Report, Section

NAME = "bundle"


def publish(reports: Iterable[Report], out: Path, most: int | None = None) -> Section:
    """Write ``bundle/`` and ``bundle.zip`` of the benches so far, in place of those of an earlier call.

    Args:
        reports: how the steps so far ended.
        out: the folder of both.
        most: how many benches; None for all.
    """
    try:  # these libraries are not carried to a bare machine
        from ggufspec import publishing
        from ggufspec.publishing import api
    except ModuleNotFoundError as error:
        raise NotRunError(
            f"{error.name} is not installed here; publish the benches of logs.tar.gz where it is"
        ) from error
    benches = [*islice(_load(reports), most)]
    if not benches:
        raise NotRunError("nothing was measured that can be published")
    folder = out / NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".zip").unlink(missing_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    bundle = api.publish(benches, out=folder, offline=True)
    return Section(notes=[f"```text\n{publishing.describe_bundle(bundle).rstrip()}\n```"])


def _load(reports: Iterable[Report]) -> Iterable[results.ResultSet]:
    for name in dict.fromkeys(bench for report in reports for bench in report.section.benches):
        with suppress(ResultsError):  # measured on a machine that is gone
            yield results.load(name)
