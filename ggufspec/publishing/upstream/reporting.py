"""``ggufspec issue``: a finding, the smallest command that shows it, and the report.

The report is Markdown, in the order of the form for bug reports of ggml-org/llama.cpp, that is
``.github/ISSUE_TEMPLATE/011-bug-results.yml`` there: the heading of each field, and what it asks for.
"""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from ggufspec import units
from ggufspec.choices import FindingKind
from ggufspec.domain import Build, ModelFile
from ggufspec.engines import reduced
from ggufspec.errors import GgufspecError, NothingToReportError
from ggufspec.llama.install import Install, environment, installs, releases
from ggufspec.llama.server import path_of
from ggufspec.modelfiles import hub
from ggufspec.options import IssueOptions, takes
from ggufspec.publishing import copying
from ggufspec.publishing.api import find_private
from ggufspec.publishing.redacting import make_redactor, read_identity
from ggufspec.publishing.upstream.reproducing import KEPT, Evidence, Reproducer, reduce_options
from ggufspec.publishing.upstream.showing import UpstreamFinding, list_findings
from ggufspec.report.text import figures, tables
from ggufspec.results import LATEST, ResultSet, load_each
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning.bisect import BisectedBench, is_bisection, read_bisected

_LAST_LINES = 25  # of a log
_SYSTEMS = {"Darwin": "Mac"}
_BACKENDS = {"metal": "Metal", "vulkan": "Vulkan"}
_SIDES = 2
_OF_DRAFTER = {"-md", "-ngld", "-td", "-tbd"}


@dataclass(frozen=True, kw_only=True)
class UpstreamIssue:
    """A report, and what it rests on.

    Attributes:
        title: for the issue.
        report: Markdown, in the order of llama.cpp's form.
        finding: what was stored.
        command: the smallest one that shows it, as it was run.
        dropped: the options that it does not need.
        evidence: the last runs of it.
    """

    title: str
    report: str
    finding: UpstreamFinding
    command: tuple[str, ...]
    dropped: frozenset[str]
    evidence: Evidence


@takes(IssueOptions)
def issue(asked: IssueOptions, sink: Sink = SILENT) -> UpstreamIssue:
    """Write a report for llama.cpp's project of what a bench, two benches or a bisection found.

    Raises:
        NothingToReportError: nothing is wrong, or it does not show any more.
        GgufspecError: a model or a llama.cpp is not here any more, or the prompt is private.
    """
    benches, bisected = _read(asked.benches or (LATEST,), sink)
    finding = _choose(list_findings(benches, bisected), asked.finding, benches[-1], sink)
    if not asked.with_texts and copying.find_hidden(finding.spec, benches[-1].meta.command):
        raise GgufspecError(
            f"the prompt {finding.spec.prompt.id} is not built into ggufspec, and the report would show it",
            "allow that with --with-texts, or measure with built-in prompts",
        )
    gone = [model.path for model in finding.spec.pair.models if model.path is None or not model.path.exists()]
    if gone:
        raise GgufspecError(f"the model {gone[0] or 'of the bench'} is not here any more", "fetch it again")
    used = tuple(installs.find_install(Path(build.path)) for build in finding.builds)
    reproducer = Reproducer(finding=finding, installs=used)
    sink.say(f"found: {finding.summary}; running that again by a command of llama.cpp alone")
    first = reproducer.look()
    if first is None:
        raise NothingToReportError(
            f"it does not show any more, by a command of llama.cpp alone: {finding.summary}",
            "a report would not help; measure again if you doubt that",
        )
    run = first.runs[-1]
    listed = reduced.list_droppable(run, reproducer.program, used[-1])
    names = [name for name in listed if name not in KEPT[finding.kind]]

    def shows(dropped: frozenset[str]) -> bool:
        found = reproducer.look(dropped, first) is not None
        kept = ", ".join(name for name in names if name not in dropped) or "no other option"
        sink.say(f"{'shows' if found else 'does not show'} with {kept}")
        return found

    drafting = [name for name in names if "draft" in name or "spec" in name or name in _OF_DRAFTER]
    dropped = reduce_options([[name for name in names if name not in drafting], drafting], shows)
    sink.say(f"{units.counted(len(dropped), 'option')} of {len(names)} left out; running the rest once more")
    last = Reproducer(finding=finding, installs=used).look(dropped, first)
    if last is None:
        raise NothingToReportError(
            f"it does not show each time: {finding.summary}", "stop other programs, and try again"
        )
    private = find_private(benches, hub.Access.of(asked))
    logs = [log for bench in benches for log in copying.all_logs(bench)]
    redactor = make_redactor(benches, logs, read_identity(), private)
    return UpstreamIssue(
        title=redactor(title_of(finding, last)),
        report=redactor(write_report(finding, reproducer, last, benches[-1])),
        finding=finding,
        command=last.runs[-1].argv,
        dropped=dropped,
        evidence=last,
    )


def _read(names: Sequence[object], sink: Sink) -> tuple[list[ResultSet], BisectedBench | None]:
    """Return the benches that are meant, and the bisection whose last trial the only one is.

    Raises:
        GgufspecError: there are more than two.
    """
    if len(names) > _SIDES:
        raise GgufspecError(f"a report is of one bench or of two, not of {len(names)}", "name what to report")
    if len(names) == 1 and isinstance(names[0], str) and is_bisection(names[0]):
        bisected = read_bisected(names[0])
        return [bisected.bench], bisected
    return load_each(names, sink), None  # type: ignore[arg-type]  # names or benches, as the options say


def _choose(
    found: Sequence[UpstreamFinding], wanted: str | None, bench: ResultSet, sink: Sink
) -> UpstreamFinding:
    """Return the finding to report; the others are said."""
    chosen = next((finding for finding in found if wanted in {None, finding.kind.value}), None)
    if chosen is None:
        what = (
            "nothing that is wrong with llama.cpp" if wanted is None else f"no finding of the kind {wanted}"
        )
        raise NothingToReportError(
            f"{bench.meta.id} shows {what}",
            f"it can show {', '.join(FindingKind)}; a lower speed needs two llama.cpps (`ggufspec compare`)",
        )
    for other in found:
        if other.kind is not chosen.kind:
            sink.say(f"also found: {other.summary} (--finding {other.kind.value})")
    return chosen


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
        "Hardware": figures.machine(machine),
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
    parts += _figures(evidence, reproducer.installs, is_text=is_text)
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


def _figures(evidence: Evidence, installs: Sequence[Install], *, is_text: bool) -> Iterator[str]:
    """Yield a table with a row for each llama.cpp, or for the target alone and drafting, and their texts."""
    versions = [str(releases.identify(install.describe())) for install in installs]
    names = ["target alone", "drafting"] if is_text else versions
    rows = []
    for number, name in enumerate(names):
        runs = evidence.runs[number :: len(names)]
        rates = [rate for run in runs if (rate := run.sample.decode_tps) is not None]
        last = runs[-1].sample
        counts = ["" if count is None else f"{count}" for count in (last.n_drafted, last.n_accepted)]
        median = units.format_rate(statistics.median(rates)) if rates else ""
        rows.append((name, str(len(runs)), median, *counts, last.status.value))
    yield tables.grid(("", "runs", "tokens/s", "drafted", "accepted", "outcome"), rows)
    if is_text:
        texts = (f"{name}: {run.sample.text}" for name, run in zip(names, evidence.runs, strict=True))
        yield _fence("\n".join(texts), "text")


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
