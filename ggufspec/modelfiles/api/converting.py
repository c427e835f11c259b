"""``ggufspec.convert``, and its steps: the head's sources, the conversion, the check of its result."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from ggufspec import paths
from ggufspec.choices import Method
from ggufspec.errors import (
    BadReferenceError,
    ConversionError,
    DiskFullError,
    GgufspecError,
    ModelFileError,
    SourceError,
)
from ggufspec.llama import progress
from ggufspec.llama.convert import (
    DOWNLOAD_BYTES,
    Converter,
    ConverterRequest,
    check_wheel,
    find_converter,
    log_path,
    provide_converter,
)
from ggufspec.llama.install import installs
from ggufspec.llama.source import BUILDS_PACKAGE, choose_source, sources
from ggufspec.modelfiles import gguf, hub
from ggufspec.modelfiles.checkpoint import Checkpoint, check_target, read_architecture, read_checkpoint
from ggufspec.modelfiles.compat import Head, read_head
from ggufspec.options import ConvertOptions, only, takes
from ggufspec.steps import SILENT, Sink, finish
from ggufspec.units import format_bytes

_BASE = "general.base_model.0.repo_url"
_F32_PER_F16 = 2


@dataclass(frozen=True, kw_only=True)
class HeadModels:
    """The folders of a head and its target, and the repositories that they are copies of.

    Attributes:
        name: of the head, without its owner.
        head: a folder; its weights may still be missing.
        target: a folder with a configuration and a tokenizer.
        surveys: of those that come from the Hub.
    """

    name: str
    head: Path
    target: Path
    surveys: tuple[hub.CheckpointSurvey, ...]

    @property
    def missing_bytes(self) -> int:
        """What is still to be downloaded."""
        return sum(survey.missing_bytes for survey in self.surveys)


@dataclass(frozen=True, kw_only=True)
class ConvertedHead:
    """A head that was converted, or would be.

    Attributes:
        path: the GGUF.
        models: what it is made of.
        is_installed: whether the converter was there already.
        head: what its header says; None before it is converted.
    """

    path: Path
    models: HeadModels
    is_installed: bool
    head: Head | None = None


@takes(ConvertOptions)
def convert(asked: ConvertOptions, sink: Sink = SILENT) -> ConvertedHead:
    """Make a GGUF of a head in Hugging Face's format, as ``ggufspec convert`` does; nothing asks for consent.

    Returns:
        The file, and what its header says. With ``dry_run``, what would be downloaded and installed.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    access = hub.Access.of(asked)
    if asked.torch is not None:
        check_wheel(asked.torch)
    request = ConverterRequest(
        source=find_source(asked.source, asked.version, only(asked.llama)),
        torch=asked.torch and asked.torch.absolute(),
    )
    models = finish(find_models(asked.head, asked.target, access))
    architecture, method = read_architecture(models.head)
    check_target(models.target)
    out = asked.out or Path(name_output(models.name, method, asked.outtype))
    if out.exists():
        raise GgufspecError(f"{out} already exists", "remove it, or choose another name with --out")
    made = ConvertedHead(path=out, models=models, is_installed=find_converter(request) is not None)
    if asked.dry_run:
        return made
    sink.show(made)
    for survey in models.surveys:
        hub.check_room(survey)
    packages = 0 if made.is_installed else DOWNLOAD_BYTES
    hub.ask_to_download(models.missing_bytes + packages, sink, yes=asked.yes)
    converter = sink.finish(provide_converter(request, architecture))
    for survey in models.surveys:
        sink.finish(hub.fetch_files(survey.items, access))
    weights = read_checkpoint(models.head)
    check_space(out, weights.size_bytes * (_F32_PER_F16 if asked.outtype == "f32" else 1))
    conversion = convert_head(converter, weights, models.target, out, outtype=asked.outtype, name=models.name)
    return replace(made, head=sink.finish(conversion))


def find_models(
    head: str, target: str, access: hub.Access
) -> Generator[hub.TransferProgress, None, HeadModels]:
    """Find a head and its target, and download their configurations and tokenizers.

    Raises:
        GgufspecError: one of them is not available, or not in Hugging Face's format.
    """
    folders, surveys = dict[str, Path](), list[hub.CheckpointSurvey]()
    for text, weights in ((head, True), (target, False)):
        folder = find_folder(text)
        if folder is None:
            survey = hub.survey_checkpoint(text, access, weights=weights)
            surveys.append(survey)
            yield from hub.fetch_files(survey.texts, access)
            folder = survey.place
        folders[text] = folder
    is_remote = bool(surveys) and surveys[0].place == folders[head]
    name = surveys[0].repo.partition("/")[2] if is_remote else folders[head].name
    return HeadModels(name=name, head=folders[head], target=folders[target], surveys=tuple(surveys))


def check_space(out: Path, size_bytes: int) -> None:
    """Refuse a file that would not fit on its disk.

    Raises:
        DiskFullError: the free space is less than what the file may need.
    """
    folder = out.absolute().parent
    free = paths.free_bytes(folder)
    if free < size_bytes:
        raise DiskFullError(
            f"{out} may need {format_bytes(size_bytes)}, but {folder} has only {format_bytes(free)} free",
            "free some disk space, or choose another --out",
        )


def find_folder(text: str) -> Path | None:
    """Return the folder that a text names; None if it names a repository of the Hub.

    Raises:
        BadReferenceError: it names a GGUF, which is the result of a conversion.
        ModelFileError: it is a path, and there is no such folder.
    """
    path = paths.expanded(text, "checkpoint")
    if path.is_dir():
        return path
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
    is_build = install.release.startswith("b")
    return choose_source(BUILDS_PACKAGE if is_build else "sdist", install.release)


def name_output(name: str, method: Method, outtype: str) -> str:
    """Return the name by which llama.cpp finds a converted head beside its target: eagle3-NAME.gguf."""
    head = method.removeprefix("draft-")
    stem = name if name.lower().startswith(f"{head}-") else f"{head}-{name}"
    return f"{stem}.gguf" if outtype == "auto" else f"{stem}-{outtype.upper()}.gguf"


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
    partial, log = out.with_name(f".{out.name}.partial"), log_path(out.name)
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    partial.mkdir(parents=True)
    try:
        made = partial / "head.gguf"
        yield from converter.convert(checkpoint.folder, target, made, log, outtype=outtype, name=name)
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
