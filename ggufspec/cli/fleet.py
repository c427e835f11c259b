"""``ggufspec fleet``: several machines."""

from __future__ import annotations

from contextlib import closing

from ggufspec.cli.entry import output
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.steps import fleets
from ggufspec.options import Options, WorkerOptions, only

_OPEN = """\
warning: RPC has neither encryption nor access control. Whoever reaches {address} can use this worker, and
read and change what it holds. Use it only in a network that you trust."""
_TUNNEL = """\
RPC has neither encryption nor access control, so this worker listens on this machine only. On the machine
that measures, reach it through a tunnel:
    ssh -N -L {port}:127.0.0.1:{port} USER@THIS-MACHINE
    ggufspec bench --rpc 127.0.0.1:{port}"""


@group_of(Options)
def command(asked: Options) -> None:
    """Measure on several machines, or lend this one to another.

    \b
    ggufspec fleet sweep --address auto --pair demo --draft 1-8
    ggufspec fleet merge nightly nightly-other
    ggufspec fleet worker
    """


@command_of(WorkerOptions, group=command, name="worker")
def worker(asked: WorkerOptions) -> None:
    """Lend this machine's devices to another machine.

    Bench there with --rpc HOST:PORT. Both machines need the same llama.cpp, as `ggufspec build` makes it.
    A worker serves one program at a time. It runs until Ctrl-C, and ends with this command.

    \b
    ggufspec fleet worker
    ggufspec fleet worker --cache --device CUDA0
    ggufspec fleet worker --host 192.168.0.7 --port 50060
    """
    from ggufspec import machine
    from ggufspec.llama.install import installs
    from ggufspec.llama.rpc import lending
    from ggufspec.units import format_bytes

    settings = lending.WorkerSettings(
        host=asked.host,
        port=asked.port,
        threads=asked.threads or machine.usable_cores(),
        devices=asked.devices or (),
        cache=asked.cache,
    )
    install = installs.find_install(only(asked.llama))
    address = f"{asked.host}:{asked.port}"
    echo((_TUNNEL if settings.is_local else _OPEN).format(address=address, port=asked.port), err=True)
    with lending.start_worker(install, settings) as running:
        names = running.devices or tuple(f"device {number}" for number in range(len(running.report.devices)))
        for name, memory in zip(names, running.report.devices, strict=True):
            total, free = format_bytes(memory.total_bytes), format_bytes(memory.free_bytes)
            echo(f"{name}, {total}, {free} free")
        echo(f"worker: {address}, RPC {running.report.version}, {install.version or 'unknown version'}")
        output.flush()
        with closing(running.watch()) as lines:
            for line in lines:
                echo(line, err=True)


fleets.register(command)
