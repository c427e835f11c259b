"""A finding as Markdown, in the order of the form for bug reports of ggml-org/llama.cpp.

That is ``.github/ISSUE_TEMPLATE/011-bug-results.yml`` there: the heading of each field, and what it asks for.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from ggufspec import units
from ggufspec.choices import FindingKind
from ggufspec.domain import Build, ModelFile
from ggufspec.engines import reduced
from ggufspec.llama.install import Install, environment, releases
from ggufspec.llama.server import path_of
from ggufspec.publishing.upstream.reproducing import Evidence, Reproducer
from ggufspec.publishing.upstream.showing import UpstreamFinding
from ggufspec.results import ResultSet

_LAST_LINES = 25  # of a log
_SYSTEMS = {"Darwin": "Mac"}
_BACKENDS = {"metal": "Metal", "vulkan": "Vulkan"}


def title_of(finding: UpstreamFinding, evidence: Evidence) -> str:
    """Return the title of an issue."""
    return f"Eval bug: {PurePath(evidence.runs[-1].argv[0]).name}: {evidence.says}"


def write_report(
    finding: UpstreamFinding, reproducer: Reproducer, evidence: Evidence, bench: ResultSet
) -> str:
    """Return the report as Markdown, not redacted yet."""
    machine, install = bench.meta.machine, reproducer.installs[-1]
    build = install.describe()
    backend = build.backend or "cpu"
    sections = {
        "Name and Version": "\n".join(_versions(build)),
        "Operating systems": f"{_SYSTEMS.get(machine.system.split()[0], machine.system.split()[0])}",
        "GGML backends": _BACKENDS.get(backend, backend.upper()),
        "Hardware": ", ".join(
            (
                f"{machine.cpu}, {units.counted(machine.cores, 'core')}",
                units.format_bytes(machine.memory_bytes),
                *machine.gpus,
                *([f"driver {machine.gpu_driver}"] if machine.gpu_driver else []),
            )
        ),
        "Models": "\n".join(_models(finding, bench)),
        "Problem description & steps to reproduce": _describe(finding, reproducer, evidence, bench),
        "First Bad Commit": _first_bad(finding, reproducer.installs),
        "Relevant log output": _fence(_log_end(evidence.runs[-1]), "shell"),
    }
    return "\n".join(f"### {title}\n\n{text}\n" for title, text in sections.items())


def _versions(build: Build) -> Iterator[str]:
    yield f"version: {releases.identify(build)}"
    yield from [f"built with {build.compiler}"] if build.compiler else []
    yield from [f"options: {' '.join(build.flags)}"] if build.flags else []


def _models(finding: UpstreamFinding, bench: ResultSet) -> Iterator[str]:
    """Yield each model by its reference on the Hub and the digest of its content."""
    digests = {file.path: file.sha256 for file in bench.meta.files or ()}
    pair = finding.spec.pair
    for what, model in zip(("target", "drafter"), pair.models, strict=False):
        digest = digests.get(str(model.path)) or model.sha256 or model.content
        yield f"- {what}: `{_name(model)}`, SHA-256 `{digest or 'unknown'}`"


def _name(model: ModelFile) -> str:
    if model.repo is None:
        return model.filename
    return f"{model.repo}/{model.filename}{f' @ {model.revision}' if model.revision else ''}"


def _describe(finding: UpstreamFinding, reproducer: Reproducer, evidence: Evidence, bench: ResultSet) -> str:
    """Return what happens, the commands, and what they gave."""
    is_text = finding.kind is FindingKind.TEXT
    runs = evidence.runs[: 2 if is_text else 1]
    parts = [f"With the command below, {evidence.says}. Options that this does not need are left out."]
    parts += [_fence(_commands(run, reproducer.installs[-1]), "sh") for run in runs]
    parts.append("\n".join(_table(evidence, reproducer.installs, is_text=is_text)))
    parts.append(
        f"Seen before that in a bench of {units.counted(len(bench.runs), 'run')}: {finding.summary}."
    )
    switches = environment.switches()
    if switches:
        parts.append(f"Environment: `{shlex.join(f'{name}={value}' for name, value in switches.items())}`")
    return "\n\n".join(parts)


def _commands(run: reduced.ReducedRun, install: Install) -> str:
    """Return the command of a program by its name, an option a line; of a server the request behind it."""
    listed = next(
        (each for each in install.programs.values() if [*each.argv] == [*run.argv[: len(each.argv)]]), None
    )
    words = 1 if listed is None else len(listed.argv)
    started = shlex.join((PurePath(run.argv[0]).name, *run.argv[1:words]))
    options = run.argv[words:] if listed is None else reduced.split_options(run.argv[words:], listed.options)
    lines = [started, *(shlex.join([part] if isinstance(part, str) else part) for part in options)]
    command = " \\\n  ".join(lines)
    if run.request is None:
        return command
    port = run.argv[run.argv.index("--port") + 1]
    asked = shlex.quote(json.dumps(run.request, ensure_ascii=False))
    return f"{command} &\ncurl -N http://127.0.0.1:{port}{path_of(run.request)} -d {asked}"


def _table(evidence: Evidence, installs: Sequence[Install], *, is_text: bool) -> Iterator[str]:
    """Yield the figures of all runs: a row for each llama.cpp, or for the target alone and drafting."""
    count = 2 if is_text else len(installs)
    names = (
        ["target alone", "drafting"]
        if is_text
        else [str(releases.identify(each.describe())) for each in installs]
    )
    yield "| | runs | tokens/s | drafted | accepted | outcome |"
    yield "|---|---|---|---|---|---|"
    for number, name in enumerate(names):
        runs = evidence.runs[number::count]
        rates = [rate for run in runs if (rate := run.sample.decode_tps) is not None]
        last = runs[-1].sample
        cells = (
            name,
            str(len(runs)),
            units.format_rate(statistics.median(rates)) if rates else "",
            "" if last.n_drafted is None else f"{last.n_drafted}",
            "" if last.n_accepted is None else f"{last.n_accepted}",
            last.status.value,
        )
        yield f"| {' | '.join(cells)} |"
    if is_text:
        texts: Mapping[str, str | None] = {
            name: run.sample.text for name, run in zip(names, evidence.runs, strict=True)
        }
        yield ""
        yield _fence("\n".join(f"{name}: {text}" for name, text in texts.items()), "text")


def _first_bad(finding: UpstreamFinding, installs: Sequence[Install]) -> str:
    builds = [str(releases.identify(install.describe())) for install in installs]
    if finding.first_bad is not None:
        good, bad = finding.first_bad
        return f"{bad} ({builds[-1]}); the last good one is {good} ({builds[0]})"
    if len(builds) > 1:
        return f"Not bisected: it shows with {builds[1]}, and not with {builds[0]}."
    return "Not searched for."


def _log_end(run: reduced.ReducedRun) -> str:
    """Return the last lines of a log; of a crash from the line that names it on."""
    lines = run.log.decode(errors="replace").rstrip().splitlines()
    crash = next((at for at, line in enumerate(lines) if run.error and run.error in line), len(lines))
    return "\n".join(lines[min(crash, max(0, len(lines) - _LAST_LINES)) :][:_LAST_LINES])


def _fence(text: str, language: str) -> str:
    """Return a block of code whose marks are longer than any in it."""
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}{language}\n{text}\n{marks}"
