"""Draw Vega-Lite specs: a program for a process of its own.

Its only import is the library with V8, which ends its process where it cannot reserve tens of GB of address
space, as under ``ulimit -v``, and on some texts.

    python vega.py JOBS.json

A job has a ``spec``, the ``version`` of Vega-Lite, a ``format`` (``svg`` or ``png``) and the ``file`` to
write. Each job that is done or fails is a line of JSON on standard output: its ``file``, and its ``error`` or
null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import vl_convert

_PPI = 144  # twice what browsers take for an inch of CSS, so that pictures are sharp on dense screens


def convert(job: dict[str, Any]) -> bytes:
    """Return the picture that a job asks for.

    Raises:
        ValueError: Vega refuses the spec.
    """
    if job["format"] == "png":
        return vl_convert.vegalite_to_png(job["spec"], vl_version=job["version"], ppi=_PPI)
    return vl_convert.vegalite_to_svg(job["spec"], vl_version=job["version"]).encode()


def main(jobs: Path) -> None:
    """Do the jobs of a file in their order."""
    for job in json.loads(jobs.read_bytes()):
        error = None
        try:
            Path(job["file"]).write_bytes(convert(job))
        except (ValueError, OSError) as refusal:
            error = " ".join(str(refusal).splitlines()[:2])  # the rest are V8's frames
        print(json.dumps({"file": job["file"], "error": error}), flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    main(Path(sys.argv[1]))
