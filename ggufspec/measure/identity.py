"""What is measured, by its content: models, and the programs and libraries of llama.cpp."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cache
from importlib import metadata
from pathlib import Path

from ggufspec import digests
from ggufspec.domain import FileIdentity, FileUse, ModelFile, Program, Prompt, RunSpec
from ggufspec.engines import ENGINES
from ggufspec.errors import ModelFileError, ResultsError
from ggufspec.llama.install import Install, releases
from ggufspec.measure.sweep import Block
from ggufspec.modelfiles import gguf


def models(blocks: Iterable[Block]) -> tuple[ModelFile, ...]:
    """Return the models of all arms that lie on this machine, and the files beside them, each once."""
    named = (
        model
        for block in blocks
        for arm in block.arms
        for model in (arm.model, arm.drafter, *map(_beside, arm.runtime.files))
    )
    return tuple(dict.fromkeys(model for model in named if model is not None and model.path is not None))


def _beside(path: Path) -> ModelFile:
    return ModelFile(filename=path.name, path=path)


def unread(of: Iterable[ModelFile]) -> dict[Path, int]:
    """Return the files of models that have to be read for their digests, and their sizes in bytes."""
    sizes = {}
    for part in (part for model in of for part in _parts(model)):
        with suppress(OSError):  # who reads it says what is wrong
            if digests.remembered(part) is None:
                sizes[part] = part.stat().st_size
    return sizes


def of_models(of: Iterable[ModelFile]) -> dict[ModelFile, tuple[FileIdentity, ...]]:
    """Return what identifies the files of each model; reads those whose digest is not remembered.

    Raises:
        ModelFileError: a file cannot be read.
    """
    return {model: tuple(_identity(part, FileUse.MODEL) for part in _parts(model)) for model in of}


def of_llama(install: Install, engine: str) -> tuple[FileIdentity, ...]:
    """Return what identifies the programs and libraries of llama.cpp that an engine runs.

    Raises:
        ModelFileError: a file cannot be read.
    """
    program = ENGINES[engine]
    wanted = {"inprocess": (), "server": (program,)}.get(engine, (Program.PLAIN, program))
    programs = install.program_files(wanted)
    libraries = install.library_files(programs)
    return (
        *(_identity(path, FileUse.PROGRAM) for path in programs),
        *(_identity(path, FileUse.LIBRARY) for path in libraries),
    )


def of_prompts(prompts: Iterable[Prompt], origin: str | None = None) -> str:
    """Return a SHA-256 of prompts: their names, texts, categories and later turns, in order.

    Args:
        prompts: of a suite.
        origin: the files of the Hub that they are from, with commit and SHA-256; None for those of this
            machine.
    """
    content = json.dumps([[astuple(prompt) for prompt in prompts], origin], ensure_ascii=False)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


@cache
def of_software() -> Mapping[str, str]:
    """Return the versions of ggufspec and Python, and of the installed packages that ggufspec uses."""
    versions = {
        "ggufspec": metadata.version("ggufspec"),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
    }
    for requirement in sorted(metadata.requires("ggufspec") or (), key=str.lower):
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def name_builds(installs: Sequence[Install], engine: str) -> dict[str, Install]:
    """Return installs by an id each: the version, and a digest of the programs and libraries that run.

    Equal builds, as in a test that nothing differs, are told apart by a number.

    Raises:
        ModelFileError: a file cannot be read.
    """
    named: dict[str, Install] = {}
    for install in installs:
        digest = hashlib.sha256("\n".join(sorted(file.sha256 for file in of_llama(install, engine))).encode())
        version = re.sub(r"[^\w.]+", "-", releases.identify(install.describe()).name)
        name = f"{version}-{digest.hexdigest()[:8]}"
        twins = sum(other == name or other.startswith(f"{name}-") for other in named)
        named[f"{name}-{twins + 1}" if twins else name] = install
    return named


def with_contents(
    blocks: Iterable[Block], known: Mapping[ModelFile, Sequence[FileIdentity]]
) -> tuple[Block, ...]:
    """Return blocks whose models say what they hold."""
    contents = {model: replace(model, content=_content(parts)) for model, parts in known.items()}

    def identified(arm: RunSpec) -> RunSpec:
        target, draft = arm.pair.target, arm.pair.draft
        pair = replace(
            arm.pair, target=contents.get(target, target), draft=draft and contents.get(draft, draft)
        )
        return replace(arm, pair=pair)

    return tuple(Block(arms=tuple(map(identified, block.arms))) for block in blocks)


def check_unchanged(files: Iterable[FileIdentity]) -> None:
    """Make sure that files are what they were; one that was touched only is read again.

    Raises:
        ResultsError: one is not, or cannot be read.
    """
    for file in files:
        path = Path(file.path)
        try:
            now = _digest(path, _facts(path))
        except OSError as error:
            raise _changed(file, error.strerror or "it cannot be read") from error
        if now.sha256 != file.sha256:
            changed = replace(file, size_bytes=now.size_bytes, sha256=now.sha256)
            raise _changed(file, f"{file.summary} before, {changed.summary} now")


@cache
def _digest(path: Path, facts: tuple[int, ...]) -> digests.FileDigest:
    """Return the digest of a file as long as these facts hold; looking it up takes longer than they do."""
    return digests.of_file(path)


def _changed(file: FileIdentity, what: str) -> ResultsError:
    return ResultsError(
        f"{file.path} was changed while it was measured: {what}",
        "the runs before are stored; put the file back and go on with --resume, or start a new bench",
    )


def _facts(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _parts(model: ModelFile) -> list[Path]:
    return [] if model.path is None else gguf.part_paths(model.path)


def _identity(path: Path, use: FileUse) -> FileIdentity:
    try:
        digest = digests.of_file(path)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}", "check the file") from error
    return FileIdentity(use=use, path=str(path), size_bytes=digest.size_bytes, sha256=digest.sha256)


def _content(parts: Sequence[FileIdentity]) -> str:
    if len(parts) == 1:
        return parts[0].sha256
    return hashlib.sha256("\n".join(part.sha256 for part in parts).encode()).hexdigest()
