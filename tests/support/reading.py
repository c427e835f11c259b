"""Do what a page of the documentation shows, as a reader would: in an empty home, in order, for real."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import chdir, suppress
from pathlib import Path
from unittest import mock

from ggufspec.llama.install.installs import Install
from tests.support import shell
from tests.support.documentation import ROOT, Block, blocks, unlike

PATIENCE_S = 900  # for one command on a slow or busy machine
_NOT_HERE = re.compile(r"(?!ggufspec )|ggufspec fleet (?!show)|.*([$`|<>;&*~]|--plot)", re.DOTALL)
"""Lines that need a shell, or a process of their own: Ray keeps what it was connected with, and a chart's
letters are those that the output can show."""
_NOBODY = "http://127.0.0.1:9"  # no page that is run may need the network


def reader(home: Path, llama: Install) -> dict[str, str]:
    """Return the environment of somebody who has the embedded pair and both builds, and has set nothing."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GGUFSPEC_", "HF_"))}
    kept |= {"GGUFSPEC_CACHE": os.environ["GGUFSPEC_CACHE"], "HF_ENDPOINT": _NOBODY, "PIP_INDEX_URL": _NOBODY}
    if llama.origin != "own build":
        kept["GGUFSPEC_LLAMA"] = str(llama.root)
    return kept | {
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "110",
        "LC_ALL": "C.UTF-8",
    }


def _run(words: list[str], *, env: dict[str, str], folder: Path) -> tuple[int, str]:
    """Run a command to its end; return its exit code and all that it printed."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed


def _run_line(line: str, *, env: dict[str, str], folder: Path) -> tuple[int, str]:
    """Run a line of a shell; in this process, which spares a start, where it is a command of ours alone."""
    if _NOT_HERE.match(line):
        return _run(["bash", "-c", line], env=env, folder=folder)
    with mock.patch.dict(os.environ, env, clear=True), chdir(folder):
        done = shell.here(*shlex.split(line.replace("\\\n", " "))[1:])
    return done.returncode, done.stdout + done.stderr


def _follow(block: Block, *, env: dict[str, str], folder: Path) -> None:
    for command in block.commands:
        where = f"{block.page.relative_to(ROOT)}:{block.line}: {command.line}"
        code, printed = _run_line(command.line, env=env, folder=folder)
        assert code in command.exit_codes, f"{where}\n{printed}"
        missing = unlike(command.shown, printed) if code == command.exit_codes[0] else []
        assert not missing, f"{where}\n{printed}"


def read(page: Path, env: dict[str, str]) -> None:
    """Shell blocks first, in order; then all Python blocks as one program, as a notebook's cells are."""
    folder = ROOT if page.parent == ROOT else Path(env["HOME"], "folder")  # the README is read in the clone
    folder.mkdir(exist_ok=True)
    if folder != ROOT:
        (folder / "tests").symlink_to(ROOT / "tests")  # as in a clone
    chosen = [block for block in blocks(page) if block.is_run]
    for block in chosen:
        if block.language == "sh":
            _follow(block, env=env, folder=folder)
    cells = [block.body for block in chosen if block.language == "python"]
    if cells:
        code, printed = _run([sys.executable, "-c", "\n".join(cells)], env=env, folder=folder)
        assert code == 0, printed
