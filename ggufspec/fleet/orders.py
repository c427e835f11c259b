"""What travels between the driver and the machines. Neither secrets nor open files are among it."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from ggufspec import userfiles
from ggufspec.choices import Where
from ggufspec.doctor import Checkup
from ggufspec.domain import Difference, FileUse, Machine, ModelName, RunResult, TextAudit
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import hub
from ggufspec.options import BenchOptions, FleetSweepOptions, FleetTuneOptions, RunOptions, TuneOptions
from ggufspec.results import Configuration, Meta

_LONGEST_NAME = 40  # characters of a host's name in an id
_DIGITS = 6


def identify_machine(machine: Machine) -> str:
    """Return a machine's id: its name, and a digest of its name and hardware.

    It stays the same over restarts and updates, and is fit for the name of a bench.
    """
    name = re.sub(r"[^A-Za-z0-9-]+", "-", machine.hostname).strip("-")[:_LONGEST_NAME] or "machine"
    facts = "\n".join((machine.hostname, describe_hardware(machine)))
    return f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:_DIGITS]}"


def describe_hardware(machine: Machine) -> str:
    """Return in words what equal machines have in common: processor, cores, memory in GiB, GPUs."""
    memory = f"{round(machine.memory_bytes / (1 << 30))} GiB"
    return ", ".join((machine.cpu, f"{machine.cores} cores", memory, *machine.gpus))


T = TypeVar("T", bound=RunOptions)

_TEXTS = ("prompt_file", "context_file", "replay")  # fields of a request whose files travel with it


@dataclass(frozen=True, kw_only=True)
class Order:
    """What every machine of a fleet measures.

    Attributes:
        fleet: its name, on the driver's machine.
        id: unique. Machines keep their runs under it: drivers on several machines may use the same name.
        request: what each machine measures or tunes; without a token, unless the user shares it.
        command: the driver's command line.
        texts: path on the driver's machine -> content of each file of prompts that the request names.
    """

    fleet: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    request: FleetSweepOptions | FleetTuneOptions
    command: tuple[str, ...]
    texts: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def tunes(self) -> bool:
        """Whether each machine tunes, instead of measuring blocks."""
        return isinstance(self.request, TuneOptions)

    @property
    def plans(self) -> bool:
        """Whether nothing is downloaded, built, stored or measured."""
        return isinstance(self.request, BenchOptions) and self.request.dry_run


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """What a machine says once it is ready to measure.

    Attributes:
        meta: as of the bench that it begins.
        keys: of each block; see ``block_key``.
        expected_s: seconds that each block may take there.
        notes: what was chosen.
    """

    meta: Meta
    keys: tuple[str, ...]
    expected_s: tuple[float, ...]
    notes: tuple[str, ...] = ()

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.meta.machine

    @property
    def machine_id(self) -> str:
        """Its id."""
        return identify_machine(self.meta.machine)

    @property
    def plan(self) -> CommonSetup:
        """What it measures, for a comparison with others."""
        builds = tuple(self.meta.builds.values()) or (self.meta.build,)
        return CommonSetup(
            engine=self.meta.engine,
            llama=", ".join(f"{build.version} ({build.commit})" for build in builds),
            models={file.name: file.sha256 for file in self.meta.files or () if file.use is FileUse.MODEL},
            hardware=describe_hardware(self.meta.machine),
            blocks=hashlib.sha256("\n".join(self.keys).encode()).hexdigest(),
        )


@dataclass(frozen=True, kw_only=True)
class CommonSetup:
    """What machines of one fleet have in common; the last two only where they share blocks."""

    engine: str
    llama: str
    models: Mapping[str, str]  # name -> SHA-256
    hardware: str
    blocks: str  # SHA-256 of the keys of all blocks


@dataclass(frozen=True, kw_only=True)
class OrderFailure:
    """What a machine was asked for ended with an error."""

    reason: str


class RunStored(NamedTuple):
    """A run of the bench of a machine, with the number that it has there; ``logs`` are its files by name."""

    place: int
    run: RunResult
    logs: Mapping[str, bytes]


class TextJudged(NamedTuple):
    """What is known in the end of a run's text; see ``RunResult``."""

    log: str
    text_identical: bool | None
    difference: Difference | None
    audit: TextAudit | None


class RunsMissing(NamedTuple):
    """The machine has no longer the runs that the driver has of it: it needs them back."""

    bench: str


class BlockMeasured(NamedTuple):
    """All runs of the block were sent before."""

    block: int
    waited_s: float  # for other blocks on the same host


class TunedHere(NamedTuple):
    """What a machine recommends, and the bench that confirmed it; ``logs`` are its files by name."""

    meta: Meta
    runs: tuple[RunResult, ...]
    configuration: Configuration
    logs: Mapping[str, bytes]


class Examined(NamedTuple):
    """What a check of the machine found, and its versions."""

    checkup: Checkup
    software: Mapping[str, str]


Message = (
    Preparation | Examined | TunedHere | OrderFailure | RunStored | TextJudged | RunsMissing | BlockMeasured
)


def make_order(
    fleet: str,
    request: FleetSweepOptions | FleetTuneOptions,
    *,
    command: tuple[str, ...] = (),
) -> Order:
    """Return a request as it travels: with its files of prompts, without a token that is not shared.

    Paths of models and of llama.cpp become absolute, because machines work in other folders.

    Raises:
        GgufspecError: it names what other machines do not have: a running server or a tuned configuration;
            or workers of RPC, which serve one machine at a time.
    """
    if request.rpc is not None:
        raise GgufspecError(
            "a fleet and workers of RPC cannot be used at once: each machine of a fleet measures alone",
            "leave out --rpc; `ggufspec bench --rpc` measures with workers",
        )
    if isinstance(request, BenchOptions) and (request.names_servers or request.api_key_file):
        raise GgufspecError(
            "a fleet does not measure servers that run already", "leave out --url, --url-drafting and keys"
        )
    if isinstance(request, BenchOptions) and request.tuned is not None:
        raise GgufspecError(
            "a tuned configuration belongs to one machine", "name the models and settings instead of --tuned"
        )
    texts = {str(path): userfiles.load(path, "check the file", streams=True) for path in list_texts(request)}
    token = hub.Access.of(request).known_token if request.share_token else None
    return Order(
        fleet=fleet,
        request=_with_absolute_paths(request).replace(token=token, name=None),
        command=command,
        texts=texts,
    )


def _with_absolute_paths(request: T) -> T:
    def absolute(name: ModelName) -> ModelName:
        is_path = isinstance(name, Path) or (isinstance(name, str) and Path(name).is_file())
        return Path(str(name)).absolute() if is_path else name

    return request.replace(
        target=tuple(map(absolute, request.target or ())),
        draft_model=tuple(map(absolute, request.draft_model or ())),
        llama=tuple(path.absolute() for path in request.llama or ()),
        mmproj=tuple(path.absolute() for path in request.mmproj or ()),
        chat_template_file=request.chat_template_file and request.chat_template_file.absolute(),
    )


def list_texts(request: BenchOptions | TuneOptions) -> tuple[Path, ...]:
    """Return the files of prompts that a request names."""
    named = (getattr(request, name, None) for name in _TEXTS)
    return tuple(
        path
        for value in named
        for path in (value if isinstance(value, tuple) else (value,))
        if path is not None
    )


def unpack_texts(order: Order, folder: Path) -> BenchOptions | TuneOptions:
    """Write an order's files of prompts into a folder, and return the request that names them there.

    Each has its own folder, because prompts are named after files.
    """
    files: dict[str, Path] = {}
    for number, (name, content) in enumerate(order.texts.items()):
        files[name] = folder / str(number) / Path(name).name
        files[name].parent.mkdir(parents=True)
        files[name].write_bytes(content)

    def moved(value: Path | tuple[Path, ...] | None) -> Path | tuple[Path, ...] | None:
        if isinstance(value, tuple):
            return tuple(files[str(path)] for path in value)
        return None if value is None else files[str(value)]

    asked = order.request
    changes = {name: moved(getattr(asked, name)) for name in _TEXTS if name in asked.options}
    return asked.replace(**changes)


def choose_plan(prepared: Iterable[Preparation], where: Where) -> CommonSetup:
    """Return the plan of most machines; of plans that are as frequent, the first one.

    Args:
        prepared: at least one; several nodes of a machine count once.
        where: with ``SAME``, machines must be equal and have the same blocks.
    """
    plans = list({ready.machine_id: ready.plan for ready in prepared}.values())
    common = [
        (plan.engine, plan.llama, tuple(sorted(plan.models.items())))
        + ((plan.hardware, plan.blocks) if where is Where.SAME else ())
        for plan in plans
    ]
    (most, _), *_ = Counter(common).most_common(1)
    return plans[common.index(most)]


def explain_difference(chosen: CommonSetup, other: CommonSetup, where: Where) -> str | None:
    """Return why a machine with another plan takes no part; None if it may."""
    if other.llama != chosen.llama:
        return f"it has llama.cpp {other.llama}, and the others {chosen.llama}"
    if other.engine != chosen.engine:
        return f"it measures with the engine {other.engine}, and the others with {chosen.engine}"
    for name in sorted(chosen.models.keys() | other.models.keys()):
        expected, actual = chosen.models.get(name), other.models.get(name)
        if expected is None or actual is None:
            return f"it measures other files: {name} is not among those of all machines"
        if expected != actual:
            return f"its {name} has another SHA-256: {actual[:12]}…, not {expected[:12]}…"
    if where is Where.SAME and other.hardware != chosen.hardware:
        return f"its hardware is not that of the others: {other.hardware}"
    if where is Where.SAME and other.blocks != chosen.blocks:
        return "it would choose other settings than the others: give --threads, --ngl and --ctx"
    return None
