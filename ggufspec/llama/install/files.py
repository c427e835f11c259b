"""The files of llama.cpp that run: its programs, and the libraries that they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ggufspec.domain import Program
from ggufspec.llama.install.environment import is_of_llama, loaded_libraries
from ggufspec.llama.install.installs import Install

_LIBRARY = re.compile(r".+\.(?:so|dylib)(?:\.[\d.]+)?")


def programs(install: Install, wanted: Iterable[Program]) -> tuple[Path, ...]:
    """Return the programs that an install has, of those wanted, and its tokenizer program."""
    executables = [*(install.programs.get(program) for program in wanted), install.tokenizer]
    return tuple(dict.fromkeys(program.path.resolve() for program in executables if program is not None))


def libraries(install: Install, programs: Iterable[Path]) -> tuple[Path, ...]:
    """Return the libraries of llama.cpp that programs load, and those beside them.

    Those beside them include backends, which a program chooses by the processor when it runs.
    """
    folders = {program.parent for program in programs} | {install.root.resolve()}
    loaded = frozenset[Path]().union(*map(loaded_libraries, programs))
    paths = [path for folder in folders for path in _in_folder(folder)]
    elsewhere = {library.parent for library in loaded} | {folder.parent / "lib" for folder in folders}
    if install.library is not None:
        elsewhere.add(install.library.resolve())
    paths += [path for folder in elsewhere for path in _in_folder(folder) if is_of_llama(path)]
    paths += [
        path for folder in elsewhere for path in folder.glob("ggml/*/libggml-*.so")
    ]  # as Debian has them
    return tuple(sorted({path.resolve() for path in paths}))


def _in_folder(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if _LIBRARY.fullmatch(path.name) and path.is_file())
