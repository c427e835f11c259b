"""``ggufspec issue``: a finding, the smallest command that shows it, and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ggufspec.choices import FindingKind
from ggufspec.engines import reduced
from ggufspec.errors import GgufspecError, NothingToReportError
from ggufspec.llama.install import installs
from ggufspec.modelfiles import hub
from ggufspec.options import IssueOptions, takes
from ggufspec.publishing import copying
from ggufspec.publishing.api import find_private
from ggufspec.publishing.redacting import make_redactor, read_identity
from ggufspec.publishing.upstream.reproducing import KEPT, Evidence, Reproducer, reduce_options
from ggufspec.publishing.upstream.showing import UpstreamFinding, list_findings
from ggufspec.publishing.upstream.writing import title_of, write_report
from ggufspec.results import LATEST, ResultSet, load_each
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning.bisect import BisectedBench, is_bisection, read_bisected
from ggufspec.units import counted

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
    sink.say(f"{counted(len(dropped), 'option')} of {len(names)} left out; running the rest once more")
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
    """Return the benches that are meant, and the bisection whose last trial the only one is."""
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
