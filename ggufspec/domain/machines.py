"""With what a bench was measured: the llama.cpp, the files, the machine, and workers on others."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from ggufspec.units import counted, format_bytes

_DIGITS = 12  # of a SHA-256 in a message


@dataclass(frozen=True, kw_only=True)
class Build:
    """The llama.cpp that measured.

    ``compiler`` is what its programs report, ``flags`` the options of a build of our own and the variables
    that were set for it. Neither is compared: the content of the programs identifies them.
    """

    version: str | None  # the build number or release that the programs report
    commit: str | None
    backend: str | None  # cpu, cuda, metal, vulkan, hip
    path: str
    compiler: str | None = field(default=None, compare=False)
    flags: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class RpcWorker:
    """A worker that lent its devices to a bench, and the network to it, before the first run.

    ``version`` is that of its protocol. ``free_bytes`` and ``total_bytes`` have the memory of each device.
    ``rtt_s`` is the median time of a round trip, ``bytes_per_s`` the bandwidth; None is not known.
    """

    address: str  # HOST:PORT
    version: str
    free_bytes: tuple[int, ...]
    total_bytes: tuple[int, ...]
    rtt_s: float | None = None
    bytes_per_s: float | None = None

    @property
    def summary(self) -> str:
        """The worker in words: ``a:50052: RPC 7.0.0, 1 device with 7.81 GiB, …``."""
        free, total = format_bytes(sum(self.free_bytes)), format_bytes(sum(self.total_bytes))
        lends = f"{counted(len(self.total_bytes), 'device')} with {total}, of which {free} are free"
        network = [] if self.rtt_s is None else [f"round trip {self.rtt_s * 1000:.3g} ms"]
        network += [] if self.bytes_per_s is None else [f"{format_bytes(round(self.bytes_per_s))}/s"]
        return ", ".join((f"{self.address}: RPC {self.version}", lends, *network))


class FileUse(StrEnum):
    """The use of a file in a bench."""

    MODEL = "model"  # or one part of it
    PROGRAM = "program"
    LIBRARY = "library"


@dataclass(frozen=True, kw_only=True)
class FileIdentity:
    """A file of a bench, identified by its content; ``sha256`` in lower-case hexadecimal."""

    use: FileUse
    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name, without its folder."""
        return PurePath(self.path).name

    @property
    def summary(self) -> str:
        """The start of the checksum, and the size."""
        return f"SHA-256 {self.sha256[:_DIGITS]}… ({self.size_bytes} bytes)"


@dataclass(frozen=True, kw_only=True)
class MachineDetails:
    """What the system says about a machine; what it does not say is None.

    The numbers of the processor are texts as the system writes them; where cores differ, each value is named.
    """

    vendor: str | None = None
    family: str | None = None  # on ARM, the architecture
    model: str | None = None  # on ARM, the part
    stepping: str | None = None
    microcode: str | None = None
    governor: str | None = None  # of the clock frequency
    smt: bool | None = None  # whether a core runs several threads
    numa_nodes: int | None = None
    kernel: str | None = None
    distribution: str | None = None
    container: str | None = None  # docker, podman, kubernetes, …
    hypervisor: str | None = None  # of a virtual machine
    swap_bytes: int | None = None
    memory_limit_bytes: int | None = None  # of the control group


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine that measured. ``details`` are for the reader and are not compared."""

    hostname: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...] = ()
    gpu_driver: str | None = None  # NVIDIA's version, from NVML: "580.65.06"
    gpu_bytes: tuple[int, ...] = ()  # memory of each NVIDIA GPU that is visible
    details: MachineDetails | None = field(default=None, compare=False)
