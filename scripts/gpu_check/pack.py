"""What a machine without a network needs: wheels, and llama.cpp's source."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ggufspec.errors import GgufspecError
from ggufspec.llama.source import choose_source, index
from ggufspec.llama.source.sources import Sdist
from gpu_check.llama import SOURCE

WHEELS = (
    *("click", "platformdirs", "psutil", "numpy", "gguf", "msgspec", "filelock", "packaging"),
    *("pyyaml", "tqdm", "requests", "urllib3", "certifi", "charset-normalizer", "typing-extensions"),
    *("huggingface-hub", "httpx2", "httpcore2", "anyio", "h11", "idna", "truststore", "jinja2", "markupsafe"),
    *("rich", "pygments", "markdown-it-py", "mdurl", "tomlkit", "unearth", "diskcache", "nvidia-ml-py"),
    *("scipy", "cmake", "ninja"),
)
"""What a check imports, and what builds; the package's other dependencies draw and print only."""

_PLATFORMS = tuple(f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_17", "2014"))
_LEFT_OUT = re.compile(r"/vendor/llama\.cpp/(docs|media|models|tests|benches|gguf-py)/")
_KEPT = re.compile(r"^[^/]+/(LICENSE\.md|vendor/llama\.cpp/.*)$")


def pack(folder: Path, *, without: str, limit_mib: float, python: str | None) -> str:
    """Fill a folder with ``wheels/`` and llama.cpp's source, and say how large it became.

    Raises:
        GgufspecError: it is larger than allowed, or something is not available.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    left_out = {name.strip() for name in without.split(",")}
    _download([name for name in WHEELS if name not in left_out], wheels, python)
    source = choose_source(None, None)
    assert isinstance(source, Sdist), "the default"
    _source(_last(index.download(source.version)), folder / SOURCE)
    sizes = {path.name: path.stat().st_size / 2**20 for path in folder.rglob("*") if path.is_file()}
    size = sum(sizes.values())
    if size > limit_mib:
        most = sorted(sizes, key=lambda name: -sizes[name])[:4]
        largest = ", ".join(f"{name} {sizes[name]:.1f}" for name in most)
        raise GgufspecError(
            f"{folder} holds {size:.1f} MiB, more than {limit_mib:g}; the largest: {largest}",
            "leave out what the machine has: --without cmake,ninja,numpy,scipy",
        )
    return f"{folder}: {size:.1f} MiB of {limit_mib:g}, {len(sizes)} files"


def _download(names: list[str], folder: Path, python: str | None) -> None:
    """Get the installed versions as wheels, for this Python or for another one."""
    versions = {name: _version(name) for name in names}
    wanted = [f"{name}=={version}" if version else name for name, version in versions.items()]
    also = [word for name in _PLATFORMS for word in ("--platform", name)] if python else []
    also += ["--python-version", python, "--implementation", "cp"] if python else []
    words = [
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        *also,
        "-d",
        str(folder),
        *wanted,
    ]
    if subprocess.run([sys.executable, *words], check=False).returncode:
        raise GgufspecError("pip could not get every wheel", "what it said above tells which")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _source(sdist: Path, into: Path) -> None:
    """Repack a source distribution without what no program is built from."""
    with tarfile.open(sdist) as whole, tarfile.open(into, "w:xz") as small:
        for member in whole:
            if carries(member.name):
                small.addfile(member, whole.extractfile(member) if member.isfile() else None)


def carries(name: str) -> bool:
    """Whether something in the source distribution is needed to build the programs."""
    return bool(_KEPT.match(name)) and not _LEFT_OUT.search(name)


def _last(work: Iterator[object]) -> Path:
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: Path = end.value
            return found
