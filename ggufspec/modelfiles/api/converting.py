"""``ggufspec.convert``, and its steps: the head's sources, the conversion, the check of its result.

The names of architectures and keys in a head's configuration are those of llama.cpp's converter
(conversion/llama.py and qwen.py).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ggufspec import errors, paths, steps, userfiles
from ggufspec.choices import Method
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
from ggufspec.modelfiles.compat import Head, read_head
from ggufspec.options import ConvertOptions, only, takes
from ggufspec.steps import SILENT, Sink, finish

_CONFIG = "config.json"
_NAMED = {
    "eagle3": Method.DRAFT_EAGLE3,
    "dspark": Method.DRAFT_DSPARK,  # their configurations have dflash_config, too
    "dflash": Method.DRAFT_DFLASH,
}
"""What the architecture's name contains, in lower case."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
_LENGTH_BYTES = 8  # of the number before a safetensors header (its format description, section "Format")
_LONGEST_HEADER_BYTES = 100_000_000  # the limit of the format's own reader


def read_architecture(folder: Path) -> tuple[str, Method]:
    """Return the architecture of the head in a folder, and how it drafts; only config.json is read.

    Raises:
        ModelFileError: there is no readable configuration, or it is not that of a head.
    """
    config = _read_config(folder)
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else None
    if architecture is None:
        raise errors.ModelFileError(f"{folder / _CONFIG} names no architecture", "check the folder")
    method = next((method for name, method in _NAMED.items() if name in architecture.lower()), None)
    if method is None and "dflash_config" in config:
        method = Method.DRAFT_DFLASH
    if method is None and "draft_vocab_size" in config and config.get("num_hidden_layers") == 1:
        method = Method.DRAFT_EAGLE3
    if method is None:
        raise errors.ModelFileError(
            f"{folder} is not an EAGLE-3, DFlash or DSpark head: its architecture is {architecture}",
            "name the repository of the head first, and its target with --target",
        )
    return architecture, method


def check_weights(folder: Path) -> int:
    """Return the bytes of the weights in a folder; their headers are read, not the weights.

    Raises:
        ModelFileError: there are none in safetensors, or a file is cut short.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise errors.ModelFileError(
            f"{folder} has no weights in safetensors",
            "choose a repository with *.safetensors; other formats may run code when they are read",
        )
    return sum(map(_check_weights, files))


def check_target(folder: Path) -> None:
    """Refuse a folder that lacks what a conversion reads of the target: its configuration and tokenizer.

    Raises:
        ModelFileError: one of them is missing or cannot be read.
    """
    _read_config(folder)
    if not any((folder / name).is_file() for name in _TOKENIZERS):
        raise errors.ModelFileError(
            f"{folder} has no tokenizer",
            f"it needs one of {', '.join(_TOKENIZERS)}, as the model was published",
        )


def _read_config(folder: Path) -> Mapping[str, Any]:
    file = folder / _CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.ModelFileError(
            f"{file} cannot be read: {error.strerror}", "name a folder in Hugging Face's format"
        ) from error
    except ValueError as error:
        raise errors.ModelFileError(f"{file} is not valid JSON", "fetch it again") from error
    if not isinstance(config, dict):
        raise errors.ModelFileError(f"{file} is not a configuration", "fetch it again")
    return config


def _check_weights(file: Path) -> int:
    """Return the size of a file that is complete, by its header.

    Raises:
        ModelFileError: it is not such a file, or its end is missing.
    """
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        text = stream.read(min(length, _LONGEST_HEADER_BYTES))
    try:
        header = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        missing = _LENGTH_BYTES + length + max(ends, default=0) - size
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise errors.ModelFileError(f"{file} is not a safetensors file", "fetch it again") from error
    if missing > 0:
        raise errors.ModelFileError(f"{file} is cut short: {missing} bytes are missing", "fetch it again")
    return size


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
        raise errors.GgufspecError(f"{out} already exists", "remove it, or choose another name with --out")
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
    needed_bytes = check_weights(models.head) * (_F32_PER_F16 if asked.outtype == "f32" else 1)
    folder = out.absolute().parent
    hint = "free some disk space, or choose another --out"
    userfiles.require_room(f"{out} may need", needed_bytes, folder, paths.free_bytes(folder), hint)
    conversion = convert_head(converter, models, out, outtype=asked.outtype, method=method)
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
        raise errors.BadReferenceError(
            f"{text} is a file; a conversion reads models in Hugging Face's format", _suggest_base(path)
        )
    if text.startswith(("/", "./", "../", "~")):
        raise errors.ModelFileError(f"there is no folder {path}", "check the path")
    return None


def _suggest_base(path: Path) -> str:
    """Return which repository a GGUF was made from, as far as its header says so."""
    usual = "name the repository from which it was made, or a folder with config.json"
    try:
        url = gguf.read_card(path).metadata.get(_BASE)
    except errors.GgufspecError:
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
        raise errors.SourceError(
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
    converter: Converter, models: HeadModels, out: Path, *, outtype: str, method: Method
) -> Generator[steps.BuildProgress, None, Head]:
    """Convert a head into a file that gets its name when it is complete; return what its header says.

    Args:
        converter: of the llama.cpp that is to run the head.
        models: the head and its target.
        out: the file to write.
        outtype: as the converter names types.
        method: how the head drafts, by its configuration.

    Raises:
        ConversionError: the converter fails, or its result is not the head that was expected.
        GgufspecError: the class says what went wrong.
    """
    partial, log = out.with_name(f".{out.name}.partial"), log_path(out.name)
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    partial.mkdir(parents=True)
    try:
        made = partial / "head.gguf"
        yield from converter.convert(models.head, models.target, made, log, outtype=outtype, name=models.name)
        head = read_head(gguf.validate_file(made))
        if head is None or head.method is not method:
            result = "a model without a head" if head is None else f"a head for {head.method}"
            raise errors.ConversionError(
                f"the converter of llama.cpp {converter.version} made {result} of {models.name}, "
                f"which drafts by {method}",
                "choose a newer one with --version",
            )
        paths.sync(made)
        made.replace(out)
        paths.sync(out.parent)
        log.unlink(missing_ok=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return head
