"""Every command that the documentation shows, run as a reader would: in an empty home, in order, for real."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from pathlib import Path
from unittest import mock

import pytest

from ggufspec.fleet.benching import HOST_LOCK
from ggufspec.llama.install.installs import Install
from tests.support import shell
from tests.support.documentation import PAGES, ROOT, Block, blocks, unlike
from tests.support.ray_nodes import RayNodes, start_cluster

_PATIENCE_S = 900  # for one command on a slow or busy machine
_NOT_HERE = re.compile(r"(?!ggufspec )|ggufspec fleet|.*([$`|<>;&*~]|--plot)", re.DOTALL)
"""Lines that need a shell, or a process of their own: Ray keeps what it was connected with, and a chart's
letters are those that the output can show."""
_NOBODY = "http://127.0.0.1:9"  # no page that is run may need the network
_RUN = {page: [block for block in blocks(page) if block.is_run] for page in PAGES}


def _takes(page: Path) -> pytest.MarkDecorator:
    """Say about how long the commands of a page take: those that measure take long."""
    body = "\n".join(block.body for block in _RUN[page])
    seconds = 3 + 8 * body.count("bench ") + 20 * body.count("tune ") + 15 * body.count("fleet ")
    shared = {"together": HOST_LOCK} if "fleet " in body else {}
    return pytest.mark.takes(seconds, **shared)


def _reader(home: Path, llama: Install) -> dict[str, str]:
    """Return the environment of somebody who has the embedded pair and both builds, and has set nothing."""
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
        printed, _ = process.communicate(timeout=_PATIENCE_S)
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


@pytest.mark.timeout(4 * _PATIENCE_S)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=str(page.relative_to(ROOT)), marks=_takes(page)) for page in PAGES if _RUN[page]],
)
@pytest.mark.usefixtures("legacy")
def test_the_commands_of_a_page_do_what_it_shows(page: Path, llama: Install, tmp_path: Path) -> None:
    home = tmp_path / "home-of-a-reader"
    home.mkdir()
    _read(page, _reader(home, llama))


def _read(page: Path, env: dict[str, str]) -> None:
    """Shell blocks first, in order; then all Python blocks as one program, as a notebook's cells are."""
    folder = ROOT if page.parent == ROOT else Path(env["HOME"], "folder")  # the README is read in the clone
    folder.mkdir(exist_ok=True)
    with _start_machines(page, env) as cluster:
        if cluster is not None:
            cluster.add("node")
            env["RAY_ADDRESS"] = cluster.address
        for block in _RUN[page]:
            if block.language == "sh":
                _follow(block, env=env, folder=folder)
    cells = [block.body for block in _RUN[page] if block.language == "python"]
    if cells:
        code, printed = _run([sys.executable, "-c", "\n".join(cells)], env=env, folder=folder)
        assert code == 0, printed


def _start_machines(page: Path, env: dict[str, str]) -> AbstractContextManager[RayNodes | None]:
    """Start what a page does not: a Ray cluster. Its own commands would end others on this machine."""
    return start_cluster(env) if page.name == "fleet.md" else nullcontext()
