"""``ggufspec bench``, ``sweep``, ``demo`` and ``why``: measure a pair, and see where the time goes."""

from __future__ import annotations

import time

from ggufspec import api, units
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import default_output, echo, emit, terminal_width
from ggufspec.errors import GgufspecError
from ggufspec.options import BenchOptions, DemoOptions, SweepOptions, WhyOptions


@command_of(BenchOptions)
def bench(asked: BenchOptions) -> None:
    """Measure the target alone, the drafter alone, and drafting, and print a table.

    \b
    ggufspec bench                     the pair fetched last, or the embedded one
    ggufspec bench --ngl 45 --draft 3  the measurement of the Llama-3 notebook
    ggufspec bench -m big.gguf -md small.gguf --draft 1-8 --precision 2% -o json
    ggufspec bench --tuned last        what the last tuning recommends
    ggufspec bench --llama OLD --llama NEW  two llama.cpps, run in turn
    ggufspec bench -- llama-server -m a.gguf -md b.gguf  what you run today
    """
    from ggufspec.cli.steps import measuring, pasting

    asked, pasted = pasting.read_asked(asked)
    if asked.dry_run:
        emit(measuring.render_commands(measuring.plan(asked)), asked.out)
        return
    results = measuring.run(asked)
    if pasted is not None:
        pasting.print_advice(results, pasted, asked)


@command_of(SweepOptions)
def sweep(asked: SweepOptions) -> None:
    """Measure every combination of lists (3,5,8), ranges (1-8, 0-80+20, 1-16*2) and repeated options.

    Each run is stored before the next one starts. --resume continues an interrupted sweep without repeating
    finished runs; values can be added to its options.

    \b
    ggufspec sweep --ngl 0-80+20 --draft 1-8,12,16 --name nightly
    ggufspec sweep -m big.gguf -md small.gguf -md tiny.gguf --p-min 0,0.4,0.8 --dry-run
    """
    from ggufspec.cli.steps import measuring
    from ggufspec.report.text import projections

    if asked.dry_run:
        session = measuring.plan(asked)
        emit(projections.sweep_plan(session.suite, asked.output, session.engine.name), asked.out)
    else:
        measuring.run(asked)


_SOURCE = ("fetch", "unpack")  # steps of a build


@command_of(DemoOptions)
def demo(asked: DemoOptions) -> None:
    """Build llama.cpp if there is none, and measure the embedded pair at γ 3 and 8.

    No model is downloaded. The last line says how long each step took.

    \b
    ggufspec demo
    ggufspec demo -o json --out demo.json
    """
    from ggufspec.cli.steps import measuring

    begun_s, terminal = time.monotonic(), measuring.terminal_for(asked)
    measuring.finish(api.demo(asked, sink=terminal), asked)
    built_s = terminal.build_seconds
    measured_s = time.monotonic() - begun_s - sum(built_s.values())
    echo(describe_time(built_s, environment_s=asked.environment_s, measured_s=measured_s), err=True)


def describe_time(steps: dict[str, float], *, environment_s: float | None, measured_s: float) -> str:
    """Return how long each part of a demonstration took, as a line.

    Args:
        steps: seconds of the steps of the build; empty without one.
        environment_s: seconds for the Python environment; None if that is not known.
        measured_s: seconds from the checks of the bench to its table.
    """
    source_s = sum(seconds for step, seconds in steps.items() if step in _SOURCE)
    parts = {
        "environment": environment_s,
        "source": source_s if steps else None,
        "compile": sum(steps.values()) - source_s if steps else None,
        "measure": measured_s,
    }
    known = {name: seconds for name, seconds in parts.items() if seconds is not None}
    listed = ", ".join(f"{name} {units.format_duration(seconds)}" for name, seconds in known.items())
    return f"time: {listed}; {units.format_duration(sum(known.values()))} in all"


@command_of(WhyOptions)
def why(asked: WhyOptions) -> None:
    """Show where the time goes: drafting, verification and the rest, and the change that would pay most.

    Of the arms that draft, the fastest one is shown, with its target alone. BENCH is the id of a stored
    bench, the beginning of one, or its folder. [default: the last bench] Only the engine inprocess measures
    the parts of a round with every llama.cpp; with others, the drafter's time is that of its runs alone.

    \b
    ggufspec bench --draft 3 --engine inprocess && ggufspec why
    ggufspec why b9102                      another bench
    ggufspec why -- llama-server -m a.gguf -md b.gguf   measures it first
    """
    from ggufspec.cli.steps import benches, measuring, pasting
    from ggufspec.report.text import reasons

    measured, pasted = pasting.read_asked(asked.to(BenchOptions, output=default_output(None)))
    if pasted is None and "llama" in pasting.typed_options():
        raise GgufspecError(
            "--llama says what measures a command, and there is none",
            "put a command behind --, or measure first: `ggufspec bench --llama FOLDER`, then `ggufspec why`",
        )
    results = benches.load_bench(asked.run) if pasted is None else measuring.run(measured)
    echo(reasons.why(results, width=terminal_width()), nl=False)
