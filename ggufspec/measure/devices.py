"""The devices of a bench: those of this machine, and those that workers lend over the network."""

from __future__ import annotations

from collections.abc import Sequence

from ggufspec.domain import Failure, Offload
from ggufspec.errors import GgufspecError
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install
from ggufspec.llama.install import options as llama_options
from ggufspec.llama.rpc import WorkerReport, workers


def check_rpc(rpcs: Sequence[tuple[str, ...]], installs: Sequence[Install]) -> None:
    """Make sure that workers can be used at all.

    Raises:
        NoInstallError: a llama.cpp was built without RPC.
        GgufspecError: several llama.cpps would need the same worker at once.
    """
    if not any(rpcs):
        return
    for install in installs:
        commands.check_rpc(install)
    if len(installs) > 1:
        raise GgufspecError(
            "a worker serves one program at a time, so --rpc measures with one llama.cpp",
            "measure each llama.cpp in a bench of its own, and use `ggufspec compare`",
        )


def measure_workers(
    rpcs: Sequence[tuple[str, ...]], install: Install
) -> tuple[dict[str, WorkerReport], tuple[Failure, ...]]:
    """Return what all workers say, with the network to them, and why values of the axis cannot be measured.

    Raises:
        WorkerError: none of them can.
        NoInstallError: the llama.cpp was built without RPC.
    """
    reports: dict[str, WorkerReport] = {}
    without_answer: dict[str, Failure] = {}
    for address in dict.fromkeys(address for rpc in rpcs for address in rpc):
        try:
            reports[address] = workers.measure_worker(address)
        except Failure as problem:
            without_answer[address] = problem
    problems: list[Failure] = []
    for rpc in rpcs:
        try:
            if reports.keys() >= {*rpc}:
                workers.check_versions(install, rpc)
            else:
                problems.append(next(without_answer[address] for address in rpc if address not in reports))
        except Failure as problem:
            problems.append(problem)
    if len(problems) == len(rpcs):
        raise workers.failure_error(problems[0]) from problems[0]
    return reports, tuple(problems)


def check_devices(offload: Offload, install: Install) -> None:
    """Refuse devices that the llama.cpp in use does not list; builds that cannot list any are believed.

    Raises:
        GgufspecError: one is not there.
    """
    program = next(iter(install.programs.values()), None)
    if program is not None and llama_options.DEVICES_FLAG not in program.options:
        return
    listed = [name.partition(":")[0] for name in install.devices]
    listing = f"the llama.cpp in {install.root} lists {', '.join(install.devices) or 'no device'}"
    build = "`ggufspec build --backend cuda` makes one for a GPU"
    for device in (*offload.target.devices, *offload.drafter.devices):
        if device not in {*listed, "none"}:
            raise GgufspecError(
                f"there is no device {device}: {listing}",
                "name one of these, or leave --device out" if listed else f"leave --device out; {build}",
            )
    usable = len(offload.target.devices or listed)
    if offload.main_gpu is not None and listed and offload.main_gpu >= usable:
        raise GgufspecError(
            f"there is no GPU {offload.main_gpu} for --main-gpu: {listing}",
            f"give a number below {usable}: they count from 0",
        )
