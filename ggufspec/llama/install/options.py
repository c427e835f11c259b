"""What a llama.cpp program lists: flags (``--help``) and GPUs (``--list-devices``, since b4167)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ggufspec.machine import Gpu, nvidia_gpus

_DEFINITION = re.compile(
    r" {0,9}(-{1,2}[A-Za-z][\w-]*(?:[ =][^\s,]+)?(?:,\s+-{1,2}[A-Za-z][\w-]*(?:[ =][^\s,]+)?)*)"
)
_FLAG = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*")
_DEFAULT = re.compile(r"\(default:\s+([^\s,)]+)")
_VARIABLE = re.compile(r"\(env: (\w+)\)")
_REMOVED = "the argument has been removed"
DEVICES_FLAG = "--list-devices"
_DEVICE = re.compile(r"^ +([A-Za-z]+\d+|Metal): (.*?)(?: \((\d+) MiB, (\d+) MiB free\))?$", re.MULTILINE)
_BACKENDS = {"CUDA": "cuda", "ROCm": "hip", "Vulkan": "vulkan", "Metal": "metal", "MTL": "metal"}


@dataclass(frozen=True, kw_only=True)
class ListedFlags:
    """The flags that a program accepts, each with its help text.

    Builds up to b3682 gave every program one common parser, whose help also hides some flags that it
    accepts; ``generic`` marks them. Flags that are listed only as removed are left out.
    """

    help: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    generic: bool = False

    def __contains__(self, flag: object) -> bool:
        """Whether the flag is listed and not removed."""
        return flag in self.help

    def first(self, *spellings: str) -> str | None:
        """Return the first spelling that this program lists, or None."""
        return next((flag for flag in spellings if flag in self.help), None)

    def spellings(self, flag: str) -> frozenset[str]:
        """Return all spellings of a listed flag, also those that turn it off; of another, itself."""
        if flag not in self.help:
            return frozenset({flag})
        return frozenset(other for other, text in self.help.items() if text is self.help[flag])

    def value_hint(self, flag: str) -> str | None:
        """Return the word that stands for a listed flag's value, such as ``FNAME``; None if it takes none."""
        definition = _DEFINITION.match(self.help.get(flag, ""))
        last = re.split(r"[ =]", definition[1])[-1] if definition else ""
        return last if last and not _FLAG.fullmatch(last) else None

    def variable(self, flag: str) -> str | None:
        """Return the environment variable that stands for a listed flag; None if there is none."""
        variable = _VARIABLE.search(self.help.get(flag, ""))
        return variable[1] if variable else None

    def default(self, flag: str) -> str | None:
        """Return the value that a flag has where it is not given; None where the help does not name it."""
        default = _DEFAULT.search(self.help.get(flag, ""))
        return default[1] if default else None

    def mentions(self, flag: str, word: str) -> bool:
        """Whether the flag is listed and its help contains a word, e.g. a value that it takes."""
        return word in self.help.get(flag, "")


def parse_help(text: str, *, plain: bool) -> ListedFlags:
    """Parse the text of ``--help``.

    Args:
        text: what the program printed.
        plain: whether the program only continues text; then ``--model-draft`` in its help shows the old
            common parser.
    """
    descriptions: dict[str, str] = {}
    flags: list[str] = []
    block: list[str] = []

    def close() -> None:
        description = "\n".join(block)
        if _REMOVED not in " ".join(description.split()):
            descriptions.update(dict.fromkeys(flags, description))

    for line in text.splitlines():
        match = _DEFINITION.match(line)
        if match:
            close()
            flags, block = _FLAG.findall(match[1]), [line]
        else:
            block.append(line)
    close()
    generic = plain and "--model-draft" in descriptions
    return ListedFlags(help=MappingProxyType(descriptions), generic=generic)


@dataclass(frozen=True, kw_only=True)
class ListedDevice:
    """One line of the list, such as ``CUDA0: NVIDIA H200``; ``gpu`` is None if its memory is not listed."""

    name: str
    gpu: Gpu | None


def parse_devices(text: str) -> tuple[ListedDevice, ...]:
    """Parse the list; entries with neither a number nor memory, such as BLAS, are not GPUs."""
    return tuple(
        ListedDevice(
            name=f"{device}: {name}",
            gpu=Gpu(name=name, total_bytes=int(total) << 20, free_bytes=int(free) << 20) if total else None,
        )
        for device, name, total, free in _DEVICE.findall(text)
    )


def backend(devices: Sequence[ListedDevice] | None) -> str | None:
    """Return the backend of a llama.cpp, from its first device; None if it cannot list devices."""
    if devices is None:
        return None
    first = devices[0].name if devices else ""
    return next((name for prefix, name in _BACKENDS.items() if first.startswith(prefix)), "cpu")


def gpus(devices: Sequence[ListedDevice] | None, made_for: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that a build can use; from the driver if the build is too old to list them."""
    if devices is None:
        return () if made_for == "cpu" else nvidia_gpus()
    return tuple(device.gpu for device in devices if device.gpu is not None)
