"""``ggufspec fleet``: several machines."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from ggufspec.cli.entry import output
from ggufspec.cli.entry.output import echo
from ggufspec.cli.options import completions
from ggufspec.cli.options.placement import Devices
from ggufspec.cli.options.shared import Count
from ggufspec.cli.steps import fleets

_OPEN = """\
warning: RPC has neither encryption nor access control. Whoever reaches {address} can use this worker, and
read and change what it holds. Use it only in a network that you trust."""
_TUNNEL = """\
RPC has neither encryption nor access control, so this worker listens on this machine only. On the machine
that measures, reach it through a tunnel:
    ssh -N -L {port}:127.0.0.1:{port} USER@THIS-MACHINE
    ggufspec bench --rpc 127.0.0.1:{port}"""


@click.group()
def command() -> None:
    """Measure on several machines, or lend this one to another.

    \b
    ggufspec fleet sweep --address auto --pair demo --draft 1-8
    ggufspec fleet merge nightly nightly-other
    ggufspec fleet worker
    """


@command.command()
@click.option(
    "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="IPv4 address to listen on."
)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=50052, show_default=True, help="Port to listen on."
)
@click.option(
    "-t", "--threads", type=Count(1), help="CPU threads, if the CPU is lent. [default: all physical cores]"
)
@click.option(
    "-dev",
    "--device",
    "devices",
    type=Devices(),
    help="Devices to lend, such as CUDA0,CUDA1 or CPU. [default: all GPUs, or the CPU]",
)
@click.option(
    "--cache",
    is_flag=True,
    help="Keep tensors on the disk (~/.cache/llama.cpp/rpc). Without it, every load sends all weights again.",
)
@click.option(
    "--llama",
    type=click.Path(path_type=Path),
    shell_complete=completions.installs,
    help="Folder of a llama.cpp installation with ggml-rpc-server.",
)
def worker(
    *,
    host: str,
    port: int,
    threads: int | None,
    devices: tuple[str, ...] | None,
    cache: bool,
    llama: Path | None,
) -> None:
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
        host=host,
        port=port,
        threads=threads or machine.usable_cores(),
        devices=devices or (),
        cache=cache,
    )
    install = installs.find_install(llama)
    echo((_TUNNEL if settings.is_local else _OPEN).format(address=f"{host}:{port}", port=port), err=True)
    with lending.start_worker(install, settings) as running:
        names = running.devices or tuple(f"device {number}" for number in range(len(running.report.devices)))
        for name, memory in zip(names, running.report.devices, strict=True):
            total, free = format_bytes(memory.total_bytes), format_bytes(memory.free_bytes)
            echo(f"{name}, {total}, {free} free")
        echo(f"worker: {host}:{port}, RPC {running.report.version}, {install.version or 'unknown version'}")
        output.flush()
        with closing(running.watch()) as lines:
            for line in lines:
                echo(line, err=True)


fleets.register(command)
