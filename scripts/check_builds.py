"""Build releases of every era of llama.cpp, and let each one draft.

    python scripts/check_builds.py [--releases 0.2.63,0.3.36] [--again]

Each release of llama-cpp-python is built for the processor by `ggufspec build`, unless that build is there
(with --again, every one is built, into a cache of its own), and runs the embedded pair once, with and without
drafting. A row says how long it took to build, which programs and whether the library is
there, the engines that ran, the acceptance rate, and whether drafting left the text unchanged. The greedy
acceptance rate is the same for every release that evaluates the pair alike.

The exit code is 1 where a release does not build, or a run fails or changes the text. Eleven releases take
about two hours on two cores, and 3 GiB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ggufspec.llama.command import commands
from ggufspec.llama.install import releases

RELEASES = (
    *("0.2.63", "0.2.77"),  # Makefile, `main`
    *("0.2.85", "0.3.2"),  # CMake, `llama-cli`
    *("0.3.5", "0.3.9", "0.3.16"),  # `llama-speculative-simple`; the first engines in process
    *("0.3.17", "0.3.23"),  # `llama-completion`
    *("0.3.28", "0.3.36"),  # no draft sizes for each request; today
)
_COLUMNS = "{:<9} {:>7} {:>9}  {:<44} {:<8} {:<22} {:>9}  {}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """How a release did; ``fault`` says why it failed, and is empty where it did not."""

    release: str
    build_s: float | None = None
    programs: tuple[str, ...] = ()
    has_library: bool = False
    engines: tuple[str, ...] = ()
    accept_rate: float | None = None
    fault: str = ""

    def __str__(self) -> str:
        return _COLUMNS.format(
            self.release,
            f"b{releases.BUILDS.get(releases.parts(self.release) or (0, 0, 0), '?')}",
            "there" if self.build_s is None else f"{self.build_s:.0f} s",
            ", ".join(self.programs),
            "yes" if self.has_library else "no",
            ", ".join(self.engines),
            "" if self.accept_rate is None else f"{self.accept_rate:.1%}",
            self.fault or "ok",
        )


def main() -> int:
    options = _options()
    print(_COLUMNS.format("release", "build", "compiled", "programs", "library", "engines", "accepted", ""))
    rows = []
    with tempfile.TemporaryDirectory(prefix="ggufspec-check-builds-") as scratch:
        environment = {**os.environ, "GGUFSPEC_DATA": str(Path(scratch) / "data")}
        if options.again:
            environment["GGUFSPEC_CACHE"] = str(Path(scratch) / "cache")
        for release in options.releases:
            rows.append(check_release(release, environment))
            print(rows[-1], flush=True)
    return int(any(row.fault for row in rows))


def check_release(release: str, environment: dict[str, str]) -> Row:
    """Build a release, and measure the embedded pair with every engine that it has."""
    started = time.perf_counter()
    built = _ggufspec(["build", "--version", release, "--backend", "cpu"], environment)
    seconds = time.perf_counter() - started if "already built" not in built.stderr else None
    if built.returncode:
        return Row(release=release, build_s=seconds, fault=_error(built.stderr))
    folder = built.stdout.strip().splitlines()[-1]
    listed = json.loads(_ggufspec(["build", "--list", "-o", "json"], environment).stdout)
    install = next(row for row in listed if Path(row["path"]) == Path(folder).resolve())
    programs = tuple(install["can"])
    engines, rates, faults = [], [], []
    for engine in _engines(release, programs):
        rows, fault = _measure(engine, folder, environment)
        drafting = [row for row in rows if row["role"] == "drafting"]
        if not fault and any(map(_changes_text, drafting)):
            fault = "drafting changes the text"
        if fault:
            faults.append(f"{engine}: {fault}")
        else:
            engines.append(engine)
            rates += [row["accept_rate"] for row in drafting if row["accept_rate"] is not None]
    return Row(
        release=release,
        build_s=seconds,
        programs=programs,
        has_library=install["library"] is not None,
        engines=tuple(engines),
        accept_rate=max(rates, default=None),
        fault="; ".join(faults),
    )


def _engines(release: str, programs: Sequence[str]) -> list[str]:
    """Return the engines that a build of a release has to have: the server reports drafts from b4984 on."""
    number = releases.build_number(release) or 0
    engines = ["binary"] if "speculative" in programs else []
    engines += ["binary-simple"] if "speculative-simple" in programs else []
    engines += ["server"] if "server" in programs and commands.reports_drafts(number) else []
    return engines + (["inprocess"] if releases.has_library(release) else [])


def _measure(engine: str, folder: str, environment: dict[str, str]) -> tuple[list[dict[str, Any]], str]:
    """Return the arms of a short bench, and why it failed."""
    words = ["bench", "--pair", "demo", "--draft", "3", "-n", "40", "-r", "1", "--warmup", "0", "-t", "1"]
    words += ["--per-category", "1", "--engine", engine, "--llama", folder, "-o", "json"]
    done = _ggufspec(words, environment)
    if done.returncode:
        return [], _error(done.stderr)
    return json.loads(done.stdout), ""


def _changes_text(row: Mapping[str, Any]) -> bool:
    """Whether a text is not the target's own, by more than near-ties where the build can tell."""
    return row["text_identical"] is False and row["divergent_tokens"] != 0


def _ggufspec(words: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ggufspec", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def _error(text: str) -> str:
    """Return the message of an error of ``ggufspec`` from what it printed."""
    lines = text.strip().splitlines() or ["nothing was printed"]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines)[-1].partition("   ")[0]  # without the end of the compiler's log


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--releases",
        type=lambda text: tuple(text.split(",")),
        default=RELEASES,
        help=f"by commas (default: {','.join(RELEASES)})",
    )
    parser.add_argument("--again", action="store_true", help="build those that are there, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
