"""The files of llama.cpp that run: its programs, and the libraries that they load."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from ggufspec.domain import Program
from ggufspec.llama.install.environment import capture_program
from ggufspec.llama.install.installs import Install

_LIBRARY = re.compile(r".+\.(?:so|dylib)(?:\.[\d.]+)?")
_OF_LLAMA = re.compile(r"lib(?:llama|ggml|mtmd)\b.*")
_LOADED = re.compile(r"=> (/.+) \(0x")  # a line of ldd


def programs(install: Install, wanted: Iterable[Program]) -> tuple[Path, ...]:
    """Return the programs that an install has, of those wanted, and its tokenizer program."""
    executables = [*(install.programs.get(program) for program in wanted), install.tokenizer]
    return tuple(dict.fromkeys(program.path.resolve() for program in executables if program is not None))


def libraries(install: Install, programs: Iterable[Path]) -> tuple[Path, ...]:
    """Return the libraries of llama.cpp that programs load, and those beside them.

    Those beside them include backends, which a program chooses by the processor when it runs.
    """
    folders = {program.parent for program in programs} | {(install.library or install.root).resolve()}
    loaded = {library for program in programs for library in _loaded(program)}
    paths = [path for folder in folders for path in _in_folder(folder)]
    paths += [
        path
        for folder in {library.parent for library in loaded} | {folder.parent / "lib" for folder in folders}
        for path in _in_folder(folder)
        if _OF_LLAMA.fullmatch(path.name)
    ]
    return tuple(sorted({path.resolve() for path in paths}))


def _in_folder(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if _LIBRARY.fullmatch(path.name) and path.is_file())


def _loaded(program: Path) -> Iterator[Path]:
    """Yield the libraries of llama.cpp that the dynamic loader finds for a program; none without ldd."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return
    _, out, _ = capture_program([ldd, str(program)])
    for match in _LOADED.finditer(out):
        path = Path(match[1])
        if _OF_LLAMA.fullmatch(path.name):
            yield path.resolve()
