"""Convert a head from Hugging Face's format to GGUF: its sources, the conversion, the check of its result."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

from ggufspec import paths
from ggufspec.choices import Method
from ggufspec.errors import BadReferenceError, ConversionError, GgufspecError, ModelFileError, SourceError
from ggufspec.llama import progress
from ggufspec.llama.convert import Converter, converting, environment
from ggufspec.llama.install import installs
from ggufspec.llama.source import choose_source, sources
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.checkpoint import Checkpoint
from ggufspec.modelfiles.compat import Head, read_head

_BASE = "general.base_model.0.repo_url"
_F32_PER_F16 = 2


def find_folder(text: str) -> Path | None:
    """Return the folder that a text names; None if it names a repository of the Hub.

    Raises:
        BadReferenceError: it names a GGUF, which is the result of a conversion.
        ModelFileError: it is a path, and there is no such folder.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.is_file():
        raise BadReferenceError(
            f"{text} is a file; a conversion reads models in Hugging Face's format", _suggest_base(path)
        )
    if text.startswith(("/", "./", "../", "~")):
        raise ModelFileError(f"there is no folder {path}", "check the path")
    return None


def _suggest_base(path: Path) -> str:
    """Return which repository a GGUF was made from, as far as its header says so."""
    usual = "name the repository from which it was made, or a folder with config.json"
    try:
        url = gguf.read_card(path).metadata.get(_BASE)
    except GgufspecError:
        return usual
    return f"it was made from {url}" if isinstance(url, str) else usual


def find_source(source: str | None, version: str | None, llama: Path | None = None) -> sources.Source:
    """Return the source of the converter: the named one, otherwise that of the llama.cpp in use.

    Args:
        source: as ``ggufspec build --source``.
        version: as ``ggufspec build --version``.
        llama: the folder of a llama.cpp; None for the usual one.

    Raises:
        NoInstallError: nothing is named, and there is no llama.cpp.
        SourceError: the source is not one of llama.cpp, or that of the llama.cpp in use is not known.
    """
    if source is not None or version is not None:
        return choose_source(source, version)
    install = installs.find_install(llama)
    if install.release is None:
        raise SourceError(
            f"the source of the llama.cpp in {install.root} is not known, and the converter is part of it",
            "name its source tree with --source PATH, or a release with --version",
        )
    return choose_source("sdist", install.release)


def name_output(name: str, method: Method, outtype: str) -> str:
    """Return the name by which llama.cpp finds a converted head beside its target: eagle3-NAME.gguf."""
    kind = method.removeprefix("draft-")
    stem = name if name.lower().startswith(f"{kind}-") else f"{kind}-{name}"
    return f"{stem}.gguf" if outtype == "auto" else f"{stem}-{outtype.upper()}.gguf"


def most_bytes(checkpoint: Checkpoint, outtype: str) -> int:
    """Return how large a converted head may become."""
    return checkpoint.size_bytes * (_F32_PER_F16 if outtype == "f32" else 1)


def convert_head(
    converter: Converter,
    checkpoint: Checkpoint,
    target: Path,
    out: Path,
    *,
    outtype: str,
    name: str,
) -> Generator[progress.BuildProgress, None, Head]:
    """Convert a head into a file that gets its name when it is complete; return what its header says.

    Args:
        converter: of the llama.cpp that is to run the head.
        checkpoint: the head.
        target: the folder with the target's configuration and tokenizer.
        out: the file to write.
        outtype: as the converter names types.
        name: of the model, in the file's metadata.

    Raises:
        ConversionError: the converter fails, or its result is not the head that was expected.
        GgufspecError: the class says what went wrong.
    """
    partial, log = out.with_name(f".{out.name}.partial"), environment.log_path(out.name)
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    partial.mkdir(parents=True)
    try:
        made = partial / "head.gguf"
        conversion = converting.Conversion(
            python=converter.python,
            script=converter.script,
            head=checkpoint.folder,
            target=target,
            outtype=outtype,
            name=name,
        )
        yield from converting.run_converter(conversion, made, log)
        head = read_head(gguf.validate_file(made))
        if head is None or head.method is not checkpoint.method:
            result = "a model without a head" if head is None else f"a head for {head.method}"
            raise ConversionError(
                f"the converter of llama.cpp {converter.version} made {result} of {checkpoint.architecture}, "
                f"which drafts by {checkpoint.method}",
                "choose a newer one with --version",
            )
        paths.sync(made)
        made.replace(out)
        paths.sync(out.parent)
        log.unlink(missing_ok=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return head
