"""Make known bugs one after the other, and check that the tests find each of them.

    python scripts/check_seeded_bugs.py [NAME ...] [--fast] [--list]

scripts/seeded_bugs.toml lists the bugs: two for each room of docs/architecture.md and some that only real
programs show. Each is made in a copy of the working tree, and its tests run until the first failure. Names
choose some of the bugs; --fast leaves out tests that need a built llama.cpp.

Prints the test that found each bug and the seconds until then. The exit code is 1 if a bug was not found, or
if one of the tests that found a bug fails without any. A bug whose place in the code has changed ends the
check before anything runs: update its entry.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "seeded_bugs.toml"
_REAL = "tests/real/"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_TIMEOUT_S = 200  # of one test: a bug may make a loop endless


@dataclass(frozen=True, kw_only=True)
class Bug:
    """One change of the code, and the test modules that are expected to fail with it."""

    name: str
    room: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


def main() -> int:
    options = _options()
    bugs = [
        Bug(**{**entry, "tests": tuple(entry["tests"])}) for entry in tomllib.loads(LIST.read_text())["bugs"]
    ]
    _refuse_outdated(bugs)
    if unknown := set(options.names) - {bug.name for bug in bugs}:
        sys.exit(f"no such bug: {', '.join(sorted(unknown))}")
    chosen = [bug for bug in bugs if not options.names or bug.name in options.names]
    if options.fast:
        chosen = [
            replace(bug, tests=tuple(test for test in bug.tests if not test.startswith(_REAL)))
            for bug in chosen
        ]
        chosen = [bug for bug in chosen if bug.tests]
    if options.list:
        print("\n".join(f"{bug.room:<12}{bug.name}" for bug in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="seeded-bugs-") as folder:
        return _check(chosen, Path(folder))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="bugs to make; default: all")
    parser.add_argument("--fast", action="store_true", help="leave out tests that need a built llama.cpp")
    parser.add_argument("--list", action="store_true", help="print the bugs, and run nothing")
    return parser.parse_args()


def _refuse_outdated(bugs: Sequence[Bug]) -> None:
    """End the check if a bug cannot be made any more, or names tests that are gone."""
    problems = [
        f"{bug.name}: its text occurs {count} times in {bug.path}, not once"
        for bug in bugs
        if (count := (ROOT / bug.path).read_text(encoding="utf-8").count(bug.old)) != 1
    ]
    problems += [
        f"{bug.name}: there is no {test}" for bug in bugs for test in bug.tests if not (ROOT / test).is_file()
    ]
    if problems:
        sys.exit("\n".join(("scripts/seeded_bugs.toml is out of date:", *problems)))


def _check(bugs: Sequence[Bug], folder: Path) -> int:
    _copy_tree(folder)
    found: dict[str, str] = {}
    for number, bug in enumerate(bugs, start=1):
        file = folder / bug.path
        sound = file.read_text(encoding="utf-8")
        _write(file, sound.replace(bug.old, bug.new), at_s=2 * number)
        started_s = time.monotonic()
        failed = _run(bug.tests, folder)
        _write(file, sound, at_s=2 * number + 1)
        if failed:
            found[bug.name] = failed[0]
        what = failed[0] if failed else "NOT FOUND"
        print(f"{bug.room:<12}{bug.name:<40}{time.monotonic() - started_s:5.0f} s  {what}", flush=True)
    missed = [bug.name for bug in bugs if bug.name not in found]
    unsound = _run(tuple(dict.fromkeys(found.values())), folder, stop=False) if found else []
    print(f"{len(found)} of {len(bugs)} bugs were found")
    if missed:
        print(f"not found: {', '.join(missed)}")
    if unsound:
        print(f"fail without a bug, too: {', '.join(unsound)}")
    return 1 if missed or unsound else 0


def _copy_tree(folder: Path) -> None:
    """Copy the working tree, without what git ignores."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in filter(None, subprocess.check_output(words, text=True).split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def _write(file: Path, text: str, *, at_s: int) -> None:
    """Write a file with a time of its own: Python compiles a file again only if its time or size changed."""
    file.write_text(text, encoding="utf-8")
    os.utime(file, (at_s, at_s))


def _run(tests: Sequence[str], folder: Path, *, stop: bool = True) -> list[str]:
    """Run tests in the copy; return those that failed, only the first one with ``stop``."""
    words = [sys.executable, "-m", "pytest", "-q", "--no-header", f"--timeout={_TIMEOUT_S}"]
    words += ["-p", "no:cacheprovider", *(["-x"] if stop else []), *tests]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPATH"] = str(folder)  # before the package that is installed
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = _FAILED.findall(done.stdout)
    if done.returncode not in {0, 1} and not failed:
        sys.exit(
            f"pytest ended with exit code {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())
