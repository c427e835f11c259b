"""Stored benches and logs as tables, charts and pages, and as bundles that others can check.

These are ``ggufspec show``, ``report`` and ``parse``, and ``publish``, ``verify`` and ``board``.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from ggufspec import api, options
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import choose_columns, echo, emit
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.errors import GgufspecError

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.results import ResultSet


_TABLES = {name: f"{name}s" for name in ("prompt", "run", "position", "round", "turn", "segment")}
_TABLES |= {"category": "categories"}


@command_of(options.ShowOptions)
def show(asked: options.ShowOptions) -> None:
    """Print the table of a stored bench, or list the stored benches.

    A bench that confirmed a tuning begins with the verdict and the tuned configuration, a crossover with its
    map and policy.

    BENCH is the id of a stored bench, the beginning of one, or its folder. [default: the last bench]

    \b
    ggufspec show                         the last bench
    ggufspec show 20260102 --runs -o csv  every run of another bench
    ggufspec show --runs --columns prompt,draft,n_accepted,gen_tokens,gen_s
    ggufspec show --list
    ggufspec cache prune results/20260102-120000-a1b2   deletes one, after confirmation
    """
    from ggufspec.cli.steps import benches

    if asked.listing:
        benches.print_list(asked.output, asked.out)
        return
    stored = benches.load_bench(asked.bench, salvage=asked.salvage)
    if asked.checks or asked.variance or asked.plot:
        emit(_render_details(stored, asked.output, checks=asked.checks, variance=asked.variance), asked.out)
    else:
        page = _render_table(stored, asked.per, asked.columns, asked.output)
        if page is not None:
            emit(page, asked.out)
    if asked.strict:
        benches.refuse_doubtful([stored])


def _render_details(stored: ResultSet, output: str, *, checks: bool, variance: bool) -> str:
    """Return the checks of the speed-ups and what is recorded, what they vary by, or else the chart."""
    from ggufspec.report.text import chart, details, provenance, tables

    if not (checks or variance):
        return chart.curve(stored) or "There is no chart, as nothing was drafted.\n"
    form = output if output in tables.FOR_PEOPLE else "md"
    pages = [details.checks(stored, form)] if checks else []
    pages += [details.variance(stored, form)] if variance else []
    pages += [provenance.page(stored)] if checks else []
    return "\n".join(pages)


def _render_table(stored: ResultSet, per: str, columns: str | None, output: str) -> str | bytes | None:
    """Return a table with a row for each arm, prompt, …; None if people see only why it is empty."""
    from ggufspec.analysis import read_crossover
    from ggufspec.cli.steps import benches
    from ggufspec.report import frames
    from ggufspec.report.text import configuration, crossovers, details, figures, formats, overview, tables

    reason = details.why_empty(stored, per)
    if reason is not None:
        echo(reason, err=True)
        if output in tables.FOR_PEOPLE:
            return None
    if per == "arm" and output in tables.FOR_PEOPLE and columns is None:
        tuned = benches.load_configuration(stored.folder)
        head = "" if tuned is None else "\n".join((*configuration.lines(tuned), "", ""))
        crossover = read_crossover(stored)
        if crossover is not None:
            head += crossovers.text(crossover, {}, output) + "\n"
        return head + benches.describe_incomplete(stored) + overview.overview(stored, output)
    if output in tables.FOR_PEOPLE and columns is None and (page := details.parts(stored, per, output)):
        return page
    title = "summary" if per == "arm" else _TABLES[per]
    table = getattr(frames, title)(stored)
    if per in {"run", "round"} and output in tables.FOR_PEOPLE:
        table = frames.sort_by_arm(table, stored)
    hidden = 0
    if columns is not None:
        table = table[choose_columns(columns, list(table.columns))]
    elif output in tables.FOR_PEOPLE:
        names, hidden = details.choose(table, per)
        table = table[names]
    schema = "summary" if per == "arm" and columns is None else None
    text = formats.render(table, output, title=title, origin=frames.origin(stored.meta), schema=schema)
    if isinstance(text, str) and output in tables.FOR_PEOPLE:
        note = "".join(f"\n{line}\n" for line in overview.note(hidden, stored.meta.id, per))
        text = f"{figures.engine(stored.meta.engine)}\n\n{text}{note}"
    return text


_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in a file name
_LONGEST_ID = 100  # characters


@command_of(options.ReportOptions)
def report(asked: options.ReportOptions) -> None:
    """Write an HTML report of a bench: verdict, tables, charts and exact commands.

    The report is one file that works offline. BENCH is the id of a stored bench, the beginning of one, or its
    folder. [default: the last bench] With several, the later ones are compared with the first.

    \b
    ggufspec report                          write report.html for the last bench
    ggufspec report b9102 today --out both.html   compare two benches
    ggufspec report -o svg --out charts      write the charts into the folder charts
    """
    from pathlib import Path

    from ggufspec import userfiles
    from ggufspec.cli.steps import benches

    runs = asked.runs
    page = (asked.out or Path("report.html")) if asked.output == "html" else None
    if page is not None and str(page) != "-":
        if page.is_dir():
            raise click.UsageError(f"--out {page} is a folder; the report is a file")
        userfiles.check_writable(page)
    if asked.tuned is not None:
        runs = (benches.find_tuned(asked.tuned), *runs)
    stored = [benches.load_bench(run) for run in runs or ("last",)]
    if page is None:
        _write_charts(stored, asked.out or Path("charts"), asked.output)
    else:
        from ggufspec.report.html import sections

        configurations = [benches.load_configuration(bench.folder) for bench in stored]
        forecasts = benches.load_forecasts(stored[0].folder)
        content = sections.html(stored, forecasts, configurations).encode()
        emit(content, None if str(page) == "-" else page)
        _print_path(page)
    if asked.strict:
        benches.refuse_doubtful(stored)


def _write_charts(stored: list[ResultSet], folder: Path, form: str) -> None:
    from ggufspec.cli.steps import benches
    from ggufspec.report import plot

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GgufspecError(f"cannot create {folder}: {error.strerror}", "choose another folder") from error
    prefixes = _prefixes([bench.meta.id for bench in stored]) if len(stored) > 1 else [""]
    undrawn = plot.Pictures(drawn={}, failures={})
    prefixed = [*zip(prefixes, stored, strict=True)]
    for prefix, bench in Terminal().each(prefixed, lambda pair: pair[1].meta.id):
        drawn = plot.drawn(bench, benches.load_forecasts(bench.folder))
        charts = {f"{prefix}{name}.{form}": picture.chart for name, picture in drawn.items()}
        pictures = plot.draw_pictures(charts, "png" if form == "png" else "svg")
        for name, content in pictures.drawn.items():
            emit(content, folder / name)
            _print_path(folder / name)
        failures = {**undrawn.failures, **pictures.failures}
        undrawn = plot.Pictures(drawn={}, failures=failures, hint=pictures.hint)
    undrawn.check()


def _prefixes(ids: list[str]) -> list[str]:
    """Return a file name prefix for each bench; an id may come from others and must not become a path."""
    safe = [_UNSAFE.sub("_", bench_id)[:_LONGEST_ID].lstrip(".") for bench_id in ids]
    return [f"{name}-" if safe.count(name) == 1 else f"{name}-{n}-" for n, name in enumerate(safe, start=1)]


def _print_path(file: Path) -> None:
    if str(file) != "-":
        echo(f"written: {file}", err=True)


@command_of(options.ParseOptions)
def parse(asked: options.ParseOptions) -> None:
    """Read logs of any version of llama.cpp into a table.

    Accepts the logs of main, llama-cli, speculative, speculative-simple and server, with or without the
    answer, as files or as people paste them: quoted, indented, numbered, in Markdown, HTML or a notebook,
    with prefixes of other programs and with other text around them. Each run has a row; a server's requests
    are added up. Also accepts the JSON answers of llama-server: each "timings" object has a row, of a stream
    its last one. Use - to read standard input.

    Exits with code 14 if a log has no figures. The rows of the others are printed.

    \b
    ggufspec parse run.log other.log -o csv
    ggufspec parse notebook.ipynb --columns lines,gen_tps,accept_rate
    llama-speculative -m big.gguf -md small.gguf -p Hi 2>&1 | ggufspec parse -
    """
    from ggufspec.errors import LogError
    from ggufspec.llama.logs import read
    from ggufspec.report import frames
    from ggufspec.report.text import formats

    readings = []
    for log in asked.logs:
        content = sys.stdin.buffer.read() if str(log) == "-" else log.read_bytes()
        readings.append((str(log), read(content, str(log))))
    runs = [run for _, reading in readings for run in reading.runs]
    if runs:
        table = frames.logs(runs)
        if asked.columns is not None:
            table = table[choose_columns(asked.columns, list(table.columns))]
        emit(formats.render(table, asked.output, title="logs"), asked.out)
    for name, reading in readings:
        for note in reading.notes:
            echo(f"note: {name}: {note}", err=True)
    problems = [(name, reading.problem) for name, reading in readings if reading.problem is not None]
    if problems:
        raise LogError(
            "; ".join(f"{name}: {problem.message}" for name, problem in problems), problems[0][1].hint
        )


@command_of(options.PublishOptions)
def publish(asked: options.PublishOptions) -> None:
    """Write benches as a folder and a zip that others can read and verify.

    The bundle has the runs, raw logs, tables, charts, report, methods, a BibTeX entry and hashes. Names of
    users, hosts, folders and private repositories are replaced, and tokens are removed. With --offline,
    names of repositories that are not known to be public are replaced, too. BENCH is the id of a stored
    bench, the beginning of one, or its folder. [default: the last bench]

    With --to-hub, the bundle becomes a dataset whose tables `datasets` loads, in one commit. The login is
    that of `hf auth login`, HF_TOKEN or --token; a token is never stored.

    \b
    ggufspec publish                        the last bench, as ID-bundle and ID-bundle.zip
    ggufspec publish b9102 today --out both  two benches
    ggufspec verify both.zip                what a reader does
    ggufspec publish --to-hub user/speeds   also as a private dataset, after confirmation
    """
    bundle = api.publish(asked, sink=Terminal())
    if bundle.address is not None:
        echo(f"Uploaded: {bundle.address} ({'public' if asked.public else 'private'}).")


@command_of(options.VerifyOptions)
def verify(asked: options.VerifyOptions) -> None:
    """Check that the figures of a bundle follow from its raw logs, and its files from the figures.

    BUNDLE is a folder or zip that `ggufspec publish` wrote. Nothing in it is executed. The exit code is 0 if
    all follows and 36 if not; what cannot be recomputed is named. Logs, figures and hashes that were forged
    to agree are not found: compare --sha256 with what the publisher states elsewhere.

    \b
    ggufspec verify today-bundle.zip
    ggufspec verify today-bundle --sha256 5d3f…
    """
    from ggufspec import publishing
    from ggufspec.errors import VerificationError
    from ggufspec.units import counted

    verification = api.verify(asked)
    echo(publishing.describe_verification(verification), nl=False)
    if verification.findings:
        raise VerificationError(
            f"{asked.bundle} does not verify: {counted(len(verification.findings), 'finding')}",
            "do not rely on its figures; ask who published it",
        )


@command_of(options.BoardOptions)
def board(asked: options.BoardOptions) -> None:
    """Write a page with the configurations of many bundles: a table that sorts and filters.

    BUNDLE is a folder or zip that `ggufspec publish` wrote. Every arm that drafts is a row: pair, machine,
    llama.cpp, γ, tokens/s, and the speed-up with its interval. Only runs are read from a bundle; its pages
    are linked, not read. The page works offline, and links to reports are relative to it.

    \b
    ggufspec board bundles/*.zip                 write board.html
    ggufspec board ours theirs.zip --verify      recompute all figures from raw logs first
    """
    from pathlib import Path

    from ggufspec.report.html import board as page

    out = asked.out or Path("board.html")
    made = api.board(asked.replace(out=out), sink=Terminal())
    for sentence in page.sentences(made):
        echo(sentence)
    echo(f"written: {out}", err=True)
