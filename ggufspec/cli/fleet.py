"""``ggufspec fleet``: measure on several machines, join what they measured, or lend this one to another."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ggufspec import options
from ggufspec.choices import Where
from ggufspec.cli.entry import output
from ggufspec.cli.entry.command import command_of, group_of
from ggufspec.cli.entry.output import echo, emit_page
from ggufspec.cli.entry.terminal import words_of_process
from ggufspec.errors import GgufspecError, ResultsError

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.fleet import Cluster, Order


@command_of(options.FleetSweepOptions)
def sweep(asked: options.FleetSweepOptions) -> None:
    """Measure every combination of settings on several machines; options are those of `ggufspec sweep`.

    A block is a target with one value of each setting that changes it, and everything that is compared with
    it. It is measured by one machine, and moves to another one if that is lost. Each machine needs ggufspec,
    and a Ray that was started with the resource "bench".

    \b
    ray start --head --include-dashboard=false --disable-usage-stats --resources='{"bench": 1}'
    ray start --address=HOST:6379 --disable-usage-stats --resources='{"bench": 1}'   on the others
    ggufspec fleet sweep --pair demo --threads 1-4 --draft 1-8 --name nightly
    ggufspec fleet sweep --pair demo --threads 1-4 --draft 1-8 --resume nightly
    """
    _measure(asked)


@command_of(options.FleetBenchOptions)
def bench(asked: options.FleetBenchOptions) -> None:
    """Measure the same on each machine, and print one table; options are those of `ggufspec bench`.

    \b
    ggufspec fleet bench --pair demo --draft 3 --address 10.0.0.1:6379
    """
    _measure(asked)


def _measure(asked: options.FleetSweepOptions) -> None:
    """Measure on a fleet, with a line for everything that happens, and print its table."""
    from ggufspec import fleet, units

    _refuse_token(asked)
    name = None if asked.resume is None else fleet.read_fleet(asked.resume).fleet.name
    order = fleet.make_order(name or asked.name or fleet.new_name(), asked, command=words_of_process())
    with fleet.RayCluster(address=asked.address) as cluster:
        if asked.dry_run:
            _print_plan(cluster, order, asked)
            return
        drive = fleet.Drive(
            cluster=cluster,
            order=order,
            where=Where(asked.where),
            resumes=asked.resume is not None,
            max_time_s=asked.max_time,
        )
        try:
            for lines in drive.run():
                for line in lines:
                    echo(line, err=True)
        except KeyboardInterrupt:
            echo(f"Interrupted. Continue with the same command and --resume {order.fleet}.", err=True)
            raise
    print_fleet(order.fleet, asked.output, asked.out)
    n_unmeasured = len(fleet.list_unmeasured(fleet.read_fleet(order.fleet)))
    if n_unmeasured:
        raise GgufspecError(
            f"{units.counted(n_unmeasured, 'block')} of the fleet {order.fleet} were not measured",
            f"continue with --resume {order.fleet}",
        )


def _refuse_token(asked: options.FleetSweepOptions | options.FleetTuneOptions) -> None:
    """Refuse a token on the command line, which Ray shows to all nodes.

    Raises:
        UsageError: there is one, and it is not shared.
    """
    if asked.token is not None and not asked.share_token:
        raise click.UsageError("--token would be sent to all machines: use HF_TOKEN, or add --share-token")


@command_of(options.FleetTuneOptions)
def tune(asked: options.FleetTuneOptions) -> None:
    """Find the fastest configuration of each machine; options are those of `ggufspec tune`.

    Each configuration is stored as NAME.MACHINE: `ggufspec show NAME.MACHINE` prints it.

    \b
    ggufspec fleet tune --pair demo --name office
    """
    from ggufspec import fleet

    _refuse_token(asked)
    order = fleet.make_order(asked.name or fleet.new_name(), asked, command=words_of_process())
    missing: list[str] = []
    with fleet.RayCluster(address=asked.address) as cluster:
        for host, answer in fleet.tune_nodes(cluster, order):
            if isinstance(answer, str):
                missing.append(host)
                echo(f"{host}: no configuration: {answer}", err=True)
            else:
                echo(f"{host}: tuned, stored as {answer.id}", err=True)
    print_fleet(order.fleet, asked.output, asked.out)
    if missing:
        raise GgufspecError(f"no configuration was found for {', '.join(missing)}", "see the reasons above")


def _print_plan(cluster: Cluster, order: Order, asked: options.FleetSweepOptions) -> None:
    """Print which machine would measure what: for people its blocks and time, otherwise a row per block."""
    from ggufspec import fleet, units
    from ggufspec.report.text import tables

    plan = fleet.plan_fleet(*fleet.prepare_nodes(cluster, order), Where(asked.where))

    def page() -> str:
        rows = []
        for machine, host in plan.hosts.items():
            jobs = [job for job in plan.measured if job.machine == machine]
            time = units.format_duration(max((job.until_s for job in jobs), default=0.0))
            rows.append((machine, host, str(len(jobs)), time))
        lines = [
            tables.grid(("machine", "host", "blocks", "time"), rows, asked.output),
            "",
            f"About {units.format_duration(max((job.until_s for job in plan.measured), default=0.0))}.",
            *(f"{host} would take no part: {reason}." for host, reason in plan.refused.items()),
        ]
        return "\n".join(lines) + "\n"

    blocks = [{**job._asdict(), "host": plan.hosts[job.machine]} for job in plan.measured]
    emit_page(page, lambda frames: frames.planned_blocks(blocks), asked.output, asked.out, title="blocks")


@command_of(options.AddressOption)
def doctor(asked: options.AddressOption) -> None:
    """Check all machines of a fleet, and print the command that fixes each problem.

    \b
    ggufspec fleet doctor --address 10.0.0.1:6379
    """
    from ggufspec import fleet
    from ggufspec.doctor import finding

    able = 0
    with fleet.RayCluster(address=asked.address) as cluster:
        for host, message in fleet.examine_nodes(cluster):
            echo(f"{host}")
            if isinstance(message, str):
                echo(f"  cannot measure: {message}")
                continue
            versions = ", ".join(f"{name} {version}" for name, version in message.software.items())
            echo(f"  {versions}")
            echo(finding.render(message.checkup, "text"), nl=False)
            able += message.checkup.can_run
    if not able:
        raise GgufspecError("no machine of the fleet can measure", fleet.START_HINT)
    echo(f"machines that can measure: {able}", err=True)


@command_of(options.FleetMergeOptions)
def merge(asked: options.FleetMergeOptions) -> None:
    """Join the benches of several machines, and print one table of them.

    BENCHES are folders that were copied from other machines, or ids of stored benches. They are copied and
    stored as NAME.MACHINE. Benches of the same machine, of different models, prompts, samplers or versions of
    llama.cpp, and damaged ones are refused.

    \b
    scp -r other:.local/share/ggufspec/runs/nightly nightly-other
    ggufspec fleet merge nightly nightly-other --name both
    """
    from ggufspec import fleet

    stored = fleet.merge(asked.benches, name=asked.name, command=words_of_process())
    echo(f"fleet: {stored.fleet.name}", err=True)
    print_fleet(stored.fleet.name, asked.output, asked.out)


@command_of(options.FleetShowOptions)
def show(asked: options.FleetShowOptions) -> None:
    """Print what several machines measured: a row for each arm of each machine.

    FLEET is the name of a stored fleet. [default: the last one]
    """
    print_fleet(asked.name, asked.output, asked.out)


def print_comparisons(before: str, after: str, *, threshold: float, output: str, out: Path | None) -> None:
    """Print the comparison of two fleets, machine by machine.

    Raises:
        ResultsError: no machine is in both, or the benches of one must not be compared.
    """
    from ggufspec import fleet
    from ggufspec.analysis import comparing
    from ggufspec.report.text import comparison

    first, second = (fleet.read_benches(fleet.read_fleet(name)) for name in (before, after))
    changes = {
        machine: comparing.compare(bench, second[machine], threshold=threshold)
        for machine, bench in first.items()
        if machine in second
    }
    if not changes:
        raise ResultsError(f"{before} and {after} have no machine in common", "see: ggufspec fleet show NAME")

    def page() -> str:
        pages = []
        for machine, one in changes.items():
            engines = comparison.engines(first[machine].meta.engine, second[machine].meta.engine)
            pages.append(f"{machine}\n\n{comparison.page(one, engines).text(output)}")
        others = sorted(first.keys() ^ second.keys())
        return "\n".join(pages) + (f"\nin one of them only: {', '.join(others)}\n" if others else "")

    def rows(frames: Any) -> Any:
        return frames.join_machines({machine: frames.comparison(one) for machine, one in changes.items()})

    emit_page(page, rows, output, out, title="comparison")


def print_fleet(name: str, output: str, out: Path | None) -> None:
    """Print the table of a fleet; for people also what was not measured, and why."""
    from ggufspec import fleet
    from ggufspec.report.text import overview

    stored = fleet.read_fleet(name)
    benches = fleet.read_benches(stored)

    def page() -> str:
        table = overview.machine_table(benches, output) or "Nothing was measured."
        lines = (table, "", *fleet.describe_unmeasured(stored), *overview.list_warnings(benches))
        return "\n".join(lines).rstrip("\n") + "\n"

    origin = {"fleet": stored.fleet.name, "date": stored.fleet.started_at}
    emit_page(page, lambda frames: frames.machines(benches), output, out, title="machines", origin=origin)


_OPEN = """\
warning: RPC has neither encryption nor access control. Whoever reaches {address} can use this worker, and
read and change what it holds. Use it only in a network that you trust."""
_TUNNEL = """\
RPC has neither encryption nor access control, so this worker listens on this machine only. On the machine
that measures, reach it through a tunnel:
    ssh -N -L {port}:127.0.0.1:{port} USER@THIS-MACHINE
    ggufspec bench --rpc 127.0.0.1:{port}"""


@command_of(options.WorkerOptions)
def worker(asked: options.WorkerOptions) -> None:
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
    install = installs.find_install(options.only(asked.llama))
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


@group_of(
    options.Options, worker=worker, doctor=doctor, sweep=sweep, bench=bench, tune=tune, merge=merge, show=show
)
def fleet(asked: options.Options) -> None:
    """Measure on several machines, or lend this one to another.

    \b
    ggufspec fleet sweep --address auto --pair demo --draft 1-8
    ggufspec fleet merge nightly nightly-other
    ggufspec fleet worker
    """
