"""What ``tune`` shows while it looks ahead and measures."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ggufspec import tuning
from ggufspec.cli.entry.echo import echo
from ggufspec.cli.options.bench import given
from ggufspec.cli.options.shared import emit
from ggufspec.cli.steps import measuring
from ggufspec.cli.steps.repeating import bench_command
from ggufspec.harmless import one_line
from ggufspec.measure import api
from ggufspec.report.text import forecasts, formats
from ggufspec.report.text import tuned as tuned_report
from ggufspec.tuning import Outlook, Stage
from ggufspec.tuning.running import default


def run(asked: dict[str, Any], output: str, out: Path | None) -> None:
    """Look, measure, judge, print.

    Raises:
        GgufspecError: something cannot work, or the first of the finalists failed.
    """
    own = ("method", "vram", "max_time", "precision", "fresh", "forecast", "name")
    about = {name: asked.pop(name) for name in own}
    wanted = default(**given(asked))
    plan = tuning.prepare(
        tuning.TuneRequest(
            request=wanted,
            methods=about["method"],
            vram_bytes=about["vram"],
            max_time_s=about["max_time"],
            precision=about["precision"],
            fresh=about["fresh"],
        )
    )
    measuring.tell(plan.session)
    measuring.announce_reading(plan.session)
    plan = tuning.identify(plan)
    warnings = measuring.look_around(plan.session)
    outlook = _shown(tuning.look(plan))
    for note in outlook.notes:
        echo(note, err=True)
    if about["forecast"]:
        emit(_forecasts(outlook, wanted.engine, output), out)
        return
    session = tuning.finals(plan, outlook)
    begun = time.monotonic()
    latest = opened = api.begin(
        session, command=measuring.command_line(), name=about["name"], warnings=warnings
    )
    try:
        for latest in measuring.shown(session, opened):  # noqa: B007  # the last one is what was measured
            pass
    except BaseException as error:
        with measuring.uninterrupted():
            session.engine.close()
            shows = f"`ggufspec show {latest.meta.id}` shows what was measured."
            echo(f"{measuring.ended(error, latest)} {shows}", err=True)
        raise
    session.engine.close()
    found = tuning.judge(outlook, latest, measuring_s=time.monotonic() - begun)
    tuning.keep(found)
    install, bench = session.install, bench_command(wanted, found.overall.arm.spec)
    if output == "md":
        emit(tuned_report.text(found, install, bench), out)
    elif output == "json":
        emit(tuned_report.as_json(found, install, bench), out)
    else:
        emit(_forecasts(outlook, wanted.engine, output), out)
    measuring.raise_for_failures(latest)


def _shown(steps: Generator[Stage, None, Outlook]) -> Outlook:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("looking ahead")
        while True:
            try:
                stage = next(steps)
            except StopIteration as end:
                outlook: Outlook = end.value
                return outlook
            progress.update(
                task, description=escape(one_line(stage.about)), completed=stage.done, total=stage.total
            )


def _forecasts(outlook: Outlook, engine: str, output: str) -> str | bytes:
    if output == "md":
        return forecasts.table(outlook, engine)
    from ggufspec.report.frames.forecasts import prospects

    return formats.render(prospects(outlook.prospects), output, title="forecasts")
