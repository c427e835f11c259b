"""The converter of one llama.cpp, installed once: its scripts, and a Python environment with PyTorch.

converters/<key>/llama.cpp/       the scripts of the source that was built
converters/<key>/venv/            Python packages as the source pins them
converters/<key>/converter.json   what it is; written last, before the folder gets its name
converters/.logs/<name>.log       the output of an installation or a conversion that failed
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import filelock

from ggufspec import digests, errors, paths, proc, userfiles
from ggufspec.llama.convert.checkpoints import write_specimen
from ggufspec.llama.source import index, sources
from ggufspec.redaction import without_secrets
from ggufspec.steps import BuildProgress, BuildStep, relay

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DOWNLOAD_BYTES = 300_000_000
DISK_BYTES = 1_600_000_000
"""What an installation needs at most. With PyTorch 2.13.0 for the CPU, the wheels for CPython 3.11 on Linux
are 245 MB; PyTorch and transformers unpack to 752 MB, beside other packages and, at first, the source.
"""

_SCRIPT = "convert_hf_to_gguf.py"
_REQUIREMENTS = Path("requirements", "requirements-convert_hf_to_gguf.txt")
_PARTS = (_SCRIPT, "conversion", "gguf-py")
_MANIFEST = "converter.json"
_SCHEMA = 1
_UV = "uv"
_WRITTEN = re.compile(r"^Writing: +(\d+)%")
_ERROR = re.compile(r"^(?:ERROR:[\w-]+:|\w*(?:Error|Exception): )")
_LOGGED = re.compile(r"^[A-Z]+:[\w-]+:")
_SHOWN = 300  # characters of a message
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}  # all that it reads has been fetched


@dataclass(frozen=True, kw_only=True)
class ConverterRequest:
    """Which llama.cpp's converter, with which PyTorch.

    Attributes:
        source: where its scripts come from.
        torch: a wheel of PyTorch on this machine; None for the release that the source pins, for the CPU.
    """

    source: sources.Source
    torch: Path | None = None

    @cached_property
    def key(self) -> str:
        """The name of the converter's folder; uses the network only for a git branch."""
        wheel = "pinned" if self.torch is None else digests.of_file(self.torch).sha256
        facts = (self.source.identity(), wheel, platform.python_version(), platform.machine(), str(_SCHEMA))
        return f"{self.source.label}-{hashlib.sha256(' '.join(facts).encode()).hexdigest()[:8]}"


@dataclass(frozen=True, kw_only=True)
class Converter:
    """An installed converter. ``version`` is that of its llama.cpp."""

    version: str
    torch: str
    home: Path

    @property
    def script(self) -> Path:
        """The program."""
        return self.home / "llama.cpp" / _SCRIPT

    @property
    def python(self) -> Path:
        """The Python that runs it."""
        return self.home / "venv" / "bin" / "python"

    def convert(
        self, head: Path, target: Path, out: Path, log: Path, *, outtype: str, name: str
    ) -> Generator[BuildProgress, None, None]:
        """Convert a head; yield how far the converter has come.

        Args:
            head: the folder of the head.
            target: the folder with the target's configuration and tokenizer.
            out: the file to write, in a folder that exists.
            log: the converter's output is appended here.
            outtype: as the converter names types: f16, bf16, q8_0, auto.
            name: of the model, in the file's metadata.

        Raises:
            ConversionError: the converter refuses the head, or fails.
            ChildCrashedError: a signal ended it.
            DiskFullError: the disk is full.
        """
        words = [str(self.python), "-sE", str(self.script), str(head.absolute())]
        words += ["--target-model-dir", str(target.absolute()), "--outtype", outtype]
        words += ["--model-name", name]
        words += ["--outfile", out.name]  # a template for the converter: a folder's name may contain braces

        def report(line: str) -> BuildProgress:
            written = _WRITTEN.match(line)
            done, total = (int(written[1]), 100) if written else (0, None)
            return BuildProgress(step=BuildStep.CONVERT, done=done, total=total, line=line)

        environment = without_secrets(os.environ) | _OFFLINE
        completed = yield from relay(proc.stream(words, log=log, env=environment, cwd=out.parent), report)
        _check_conversion(completed, log)
        if not out.is_file():
            raise errors.ConversionError("llama.cpp's converter wrote no file", f"the log is {log}")


def find_converter(request: ConverterRequest) -> Converter | None:
    """Return a finished converter; None where there is none, or its Python is gone."""
    home = paths.converters_dir() / request.key
    try:
        facts = json.loads((home / _MANIFEST).read_text(encoding="utf-8"))
        converter = Converter(version=facts["version"], torch=facts["torch"], home=home)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return converter if converter.python.exists() and converter.script.is_file() else None


def check_wheel(wheel: Path) -> None:
    """Refuse a file that is not a wheel of PyTorch.

    Raises:
        ConverterError: it is missing, or another file.
    """
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename  # slow to import

    hint = "name a file such as torch-2.11.0+cpu-cp312-cp312-manylinux_2_28_x86_64.whl"
    try:
        name = parse_wheel_filename(wheel.name)[0]
    except InvalidWheelFilename as error:
        raise errors.ConverterError(f"{wheel} is not a wheel", hint) from error
    if name != "torch":
        raise errors.ConverterError(f"{wheel} is a wheel of {name}, not of torch", hint)
    if not wheel.is_file():
        raise errors.ConverterError(f"there is no file {wheel}", hint)


def provide_converter(
    request: ConverterRequest, architecture: str
) -> Generator[BuildProgress, None, Converter]:
    """Return a converter; install and test it if it is not here.

    Close the generator to stop: no process and no incomplete converter is left.

    Args:
        request: which one.
        architecture: of the head that is to be converted.

    Raises:
        SourceError: the source is not available, or is too old.
        ConversionError: the source's converter does not know the architecture.
        ConverterError: it cannot be installed, or converts a head with known values wrongly.
        DiskFullError: there is too little disk space.
    """
    converter = find_converter(request)
    if converter is None:
        root = paths.converters_dir()
        root.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(root / f".{request.key}.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            line = f"{request.key} is being installed by another process: waiting"
            yield BuildProgress(step=BuildStep.WAIT, line=line, notice=True)
            lock.acquire()
        try:
            converter = find_converter(request) or (yield from _install(request, architecture))
        finally:
            lock.release()
    _check_architecture(converter.home / "llama.cpp", converter.version, architecture)
    return converter


def _install(request: ConverterRequest, architecture: str) -> Generator[BuildProgress, None, Converter]:
    root = paths.converters_dir()
    home, partial, log = root / request.key, root / f".{request.key}.partial", log_path(request.key)
    for folder in (partial, home):
        shutil.rmtree(folder, ignore_errors=True)
    hint = "free some disk space, or set GGUFSPEC_CACHE"
    userfiles.require_room(
        "llama.cpp's converter needs about", DISK_BYTES, root, paths.free_bytes(root), hint
    )
    try:
        with userfiles.making("install llama.cpp's converter"):
            partial.mkdir()
            tree = yield from sources.prepare_tree(request.source, partial / "source", log)
            requirements = _read_requirements(tree.root / _REQUIREMENTS, tree.version)
            _keep_scripts(tree.root, partial / "llama.cpp", tree.version)
            shutil.rmtree(partial / "source")
            _check_architecture(partial / "llama.cpp", tree.version, architecture)
            torch = yield from _install_packages(requirements, request.torch, partial / "venv", log)
            converter = Converter(version=tree.version, torch=torch, home=partial)
            yield from _test(converter, partial / "test", log)
            facts = {"schema": _SCHEMA, "version": tree.version, "torch": torch}
            (partial / _MANIFEST).write_text(json.dumps(facts) + "\n", encoding="utf-8")
            os.sync()  # of some ten thousand files, one by one would take minutes
            partial.rename(home)
            paths.sync(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    log.unlink(missing_ok=True)
    return Converter(version=tree.version, torch=torch, home=home)


def log_path(name: str) -> Path:
    """Return the path of an empty log, of an installation or a conversion; it is kept where that fails."""
    log = paths.converters_dir() / ".logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    return log


def _keep_scripts(source: Path, into: Path, version: str) -> None:
    into.mkdir()
    for name in _PARTS:
        part = source / name
        if not part.exists():
            raise errors.SourceError(
                f"llama.cpp {version} has no {name}: it is older than the converter for heads",
                "choose a newer one with --version",
            )
        part.rename(into / name)


def _check_architecture(scripts: Path, version: str, architecture: str) -> None:
    files = (scripts / _SCRIPT, *(scripts / "conversion").glob("*.py"))
    if not any(f'"{architecture}"' in file.read_text(encoding="utf-8") for file in files):
        raise errors.ConversionError(
            f"the converter of llama.cpp {version} does not know {architecture}",
            "choose a newer one with --version, or name its source with --source",
        )


def _read_requirements(file: Path, version: str) -> tuple[Requirement, ...]:
    """Return the packages that the converter requires.

    pip's options in the file are left out: its index holds PyTorch alone, and uv knows it as the backend cpu.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # slow to import

    try:
        return tuple(map(Requirement, _requirements(file)))
    except (OSError, InvalidRequirement) as error:
        raise errors.SourceError(
            f"the requirements of the converter of llama.cpp {version} cannot be read: {error}",
            "choose another --version",
        ) from error


def _requirements(file: Path) -> Iterator[str]:
    for line in file.read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text.startswith("-r"):
            yield from _requirements(file.parent / text.removeprefix("-r").strip())
        elif text and not text.startswith("-"):
            yield text


def _install_packages(
    requirements: tuple[Requirement, ...], wheel: Path | None, venv: Path, log: Path
) -> Generator[BuildProgress, None, str]:
    """Make an environment with what is required; return the version of PyTorch."""
    uv = shutil.which(_UV) or shutil.which(_UV, path=str(Path(sys.executable).parent))
    if uv is None:
        raise errors.ConverterError(
            "uv is not installed, which makes the converter's environment", "pip install 'ggufspec[convert]'"
        )
    python = str(venv / "bin" / "python")
    yield from _run_uv([uv, "venv", "--relocatable", "--python", sys.executable, str(venv)], log)
    if wheel is None:
        packages = [*map(str, requirements), "--torch-backend", "cpu"]
    else:
        packages = [*(str(package) for package in requirements if package.name != "torch"), str(wheel)]
    install = [uv, "pip", "install", "--python", python, *_index_words()]
    yield from _run_uv([*install, "--only-binary", ":all:", *packages], log)
    # whether it can be imported, which takes seconds, is seen by the conversion that follows
    asks = "from importlib.metadata import version; print(version('torch'))"
    _, out, _ = proc.capture([python, "-sE", "-c", asks])
    if not out.strip():
        raise _unavailable("there is no PyTorch after its installation", log)
    return out.strip()


def _index_words() -> list[str]:
    """Return uv's options for the indices of pip's settings, which it does not read; merged as pip does."""
    where = index.settings()
    first, *others = where.index_urls or ("",)
    words = [word for url in others for word in ("--index", url)]
    words += ["--index-strategy", "unsafe-best-match"] if others else []
    words += ["--default-index", first] if first else [] if where.index_urls else ["--no-index"]
    words += [word for folder in where.find_links for word in ("--find-links", folder)]
    return words + [word for host in where.trusted_hosts for word in ("--allow-insecure-host", host)]


def _run_uv(words: list[str], log: Path) -> Generator[BuildProgress, None, None]:
    environment = index.installer_environment() | {"UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    environment |= {"UV_PYTHON_DOWNLOADS": "never"}
    if certificates := environment.get("PIP_CERT"):
        environment.setdefault("SSL_CERT_FILE", certificates)
    completed = yield from relay(
        proc.stream(words, log=log, env=environment),
        lambda line: BuildProgress(step=BuildStep.INSTALL, line=line),
    )
    if completed.returncode != 0:
        raise _unavailable(_reason(completed.tail), log)


def _reason(lines: Sequence[str]) -> str:
    """Return uv's explanation in one line: what follows its last arrow, or its last line."""
    text = " ".join(" ".join(lines).split())
    _, arrow, reason = text.rpartition("╰─▶ ")
    if not arrow:
        reason = next((line for line in reversed(lines) if line.strip()), "uv printed nothing")
    return reason[:_SHOWN].removeprefix("error: ")


def _unavailable(reason: str, log: Path) -> errors.ConverterError:
    return errors.ConverterError(
        f"llama.cpp's converter cannot be installed: {reason}",
        f"check the network, or install a wheel of PyTorch from this machine with --torch; the log is {log}",
    )


def _test(converter: Converter, folder: Path, log: Path) -> Generator[BuildProgress, None, None]:
    """Convert a head with known values, and compare.

    Raises:
        ConverterError: the conversion fails, or a value differs.
    """
    yield BuildProgress(step=BuildStep.TEST, line="converting a head with known values")
    specimen = write_specimen(folder)
    out = folder / "converted.gguf"
    problem: str | None
    try:
        yield from converter.convert(specimen.head, specimen.target, out, log, outtype="f32", name="test")
    except errors.GgufspecError as error:
        problem = error.message
    else:
        wrong = [*specimen.missing(out.read_bytes())]
        problem = f"it changes the values of {wrong[0]}" if wrong else None
    if problem is not None:
        raise errors.ConverterError(
            f"the converter of llama.cpp {converter.version} does not work with PyTorch {converter.torch}: "
            f"{problem}",
            f"use another release of PyTorch with --torch; the log is {log}",
        )
    shutil.rmtree(folder)


def _check_conversion(completed: proc.Completed, log: Path) -> None:
    if completed.signal is not None:
        raise errors.ChildCrashedError(
            f"llama.cpp's converter was killed by {completed.signal}",
            "memory may have run out: close other programs and try again",
        )
    if completed.returncode == 0:
        return
    lines = completed.tail or ("no message",)
    reason = next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])
    if "No space left on device" in reason:
        raise errors.DiskFullError(
            "no room for the converted file", "free some disk space, or choose another --out"
        )
    raise errors.ConversionError(
        f"llama.cpp's converter failed: {_LOGGED.sub('', reason)[:_SHOWN]}",
        f"check that head and target belong together, or try a newer --version; the log is {log}",
    )
