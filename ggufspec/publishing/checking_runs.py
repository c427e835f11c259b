"""Whether the runs of a published bench follow from their raw logs and texts."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ggufspec import domain, serving
from ggufspec.analysis import MeasurementWarning, warnings
from ggufspec.engines import keeps_loads, plausibility, rereading
from ggufspec.errors import LogError, ResultsError
from ggufspec.llama.install import Install
from ggufspec.measure import audit
from ggufspec.publishing.copying import RawLogs, read_logs
from ggufspec.publishing.derived import BENCHES
from ggufspec.publishing.findings import Report, is_close
from ggufspec.results import Meta, ResultSet, archive
from ggufspec.units import counted

_TEXTS = ("text", "tokens")
_FROM_EXIT_CODE = ("status", "program", "n_draft")
"""Fields of failed runs that engines also take from exit codes and requests."""
_FROM_LOG = {domain.Status.SUMMARY_LOST, domain.Status.DRAFTING_INACTIVE, domain.Status.PROMPT_TOO_LONG}
"""Ways to fail that a complete log rules out."""
_JUDGED = {domain.Status.IMPLAUSIBLE, domain.Status.NO_TEXT}
"""What a run of which everything arrived counts as if its figures cannot be true."""
_ONLY_EXIT_CODE = "whether runs failed whose logs are complete, as only their exit codes say so"
_PLACEMENTS = (*rereading.TARGET_PLACEMENT, *rereading.DRAFTER_PLACEMENT, "build")
_OF_CONDITIONS = {
    MeasurementWarning.BUSY_MACHINE,
    MeasurementWarning.SWAPPING,
    MeasurementWarning.GPU_THROTTLED,
}
"""Warnings that decide which runs count, and that follow from a run alone."""
_COMMIT = re.compile(r"\b([0-9a-f]{7,40})\)")
_PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)", re.IGNORECASE)
_NO_PROGRAMS = Install(
    root=Path(), origin="", programs={}, version=None, build_number=None, commit=None, backend=None
)
_CELL = re.compile(r"-([war])(\d+)")
"""How the name of a log ends: a warm-up, an anchor or a counted run, and its repeat."""
_CLIENTS = (
    "when tokens arrived and how busy the clients were, by ggufspec's own clock: it is the record that the "
    "figures of several users follow from"
)
_RECORDED = "whether users sent the replayed requests, and when"
_SERVERS = "what running servers say of themselves (software, model, draft size), as they leave no logs here"


def check_bench(bench: ResultSet, files: Mapping[str, Path], report: Report) -> None:
    """Compare every run of a bench with its logs, and what the bench says of builds and models."""
    name, folder = bench.meta.id, f"{BENCHES}/{bench.meta.id}/"
    names = {f"{folder}meta.json", f"{folder}runs.jsonl"}
    logs_of: dict[str, dict[str, RawLogs]] = {}
    for run in bench.runs:
        if not _is_log_name(run.log):
            report.find(f"{name}: a run has the log {run.log!r}, which is no name of a log")
            return
        logs_of[run.log] = read_logs(bench.folder, run.log)
        for end in logs_of[run.log]:
            names |= {f"{folder}logs/{run.log}{end}.out", f"{folder}logs/{run.log}{end}.err"}
    if len(logs_of) < len(bench.runs):
        report.find(f"{name}: two runs have the same log")
    for file in sorted(file for file in files.keys() - names if file.startswith(folder)):
        is_log = file.startswith(f"{folder}logs/")
        report.find(f"{file} {'belongs to no run' if is_log else 'is not a file of a bench'}")
    loads = _samples_of_loads(bench.runs, logs_of)
    methods = _methods_of_runs(bench.runs, logs_of)
    first = _first_texts(bench)
    for number, run in enumerate(bench.runs):
        placed = loads.get(-1 if run.load is None else run.load, ())
        for sentence in (
            *_check_run(run, logs_of[run.log], placed, methods.get(run.log), report),
            *_check_cell(run),
            *_check_warnings(run, bench.meta.machine.cores),
            *_check_build(run, bench.meta),
            *_check_text(run, first.get(run.spec.baseline.key), report),
        ):
            report.find(f"{name}, run {number} ({run.log}): {sentence}")
        report.n_runs += 1
    _check_models(bench, report)


def _is_log_name(log: str) -> bool:
    """Whether a run's log is the name of a file, and not a path."""
    try:
        archive.check_name(log)
    except ResultsError:
        return False
    return "/" not in log


def _samples_of_loads(
    runs: Sequence[domain.RunResult], logs_of: Mapping[str, Mapping[str, RawLogs]]
) -> dict[int, list[domain.Sample]]:
    """Return what the logs of runs that shared a load show of it, by the number of the load."""
    logs: dict[int, list[bytes]] = defaultdict(list)
    engines: dict[int, str] = {}
    for run in runs:
        if run.load is not None and keeps_loads(run.engine):
            engines[run.load] = run.engine
            logs[run.load] += [pair.err for pair in logs_of[run.log].values()]
    return {load: list(rereading.placements(engines[load], logs[load])) for load in logs}


def _methods_of_runs(
    runs: Sequence[domain.RunResult], logs_of: Mapping[str, Mapping[str, RawLogs]]
) -> dict[str, tuple[domain.MethodCounts, ...] | None]:
    """Return what each method of a chain drafted in runs of servers, by the logs of the runs."""
    requests: dict[int, list[str]] = defaultdict(list)
    for run in runs:
        if run.load is not None and domain.ENGINES.get(run.engine) is domain.Program.SERVER:
            requests[run.load].append(run.log)
    return {
        log: counts
        for logs in requests.values()
        for log, counts in zip(
            logs, rereading.count_methods(logs_of[log][""].err for log in logs), strict=True
        )
    }


def _check_run(
    run: domain.RunResult,
    logs: Mapping[str, RawLogs],
    loads: Sequence[domain.Sample],
    methods: tuple[domain.MethodCounts, ...] | None,
    report: Report,
) -> Iterator[str]:
    """Yield where a run's sample is not what its raw logs show.

    Args:
        run: what is stored.
        logs: its raw logs, also of lost attempts.
        loads: what the logs of its load show.
        methods: for a run of a server, what each method of a chain drafted by the logs of its load.
        report: gets what cannot be recomputed, and how many figures follow.
    """
    if len(logs) != run.attempts:
        yield f"{counted(run.attempts, 'attempt')}, but logs of {len(logs)}"
    raw = logs[""]
    if raw == RawLogs() and run.sample.status is domain.Status.OK:
        yield "its raw logs are missing or empty"
        return
    try:
        reread = serving.reread_run(run, raw.out, raw.err)
    except LogError as error:
        yield error.message
        return
    if methods and sum(counts.n_accepted for counts in methods) == reread.n_accepted:
        reread = replace(reread, by_method=methods)
    left_out = _lacks_texts(run.spec)
    traffic = run.spec.traffic
    for reason, is_skipped in {
        _CLIENTS: traffic is not None,
        _RECORDED: traffic is not None and bool(traffic.arrivals),
        _SERVERS: traffic is not None and run.spec.servers is not None,
        "texts that are left out, and whether drafting changed them": left_out,
    }.items():
        if is_skipped:
            report.skip(reason, run.log)
    skipped = {*_TEXTS} if left_out else set[str]()
    if run.sample.by_segment is None:  # segments follow from the text, which was changed or left out
        skipped |= {"by_segment", "segment_s"}
    if run.sample.status is domain.Status.OK or (
        reread.status is domain.Status.OK and run.sample.status in _JUDGED
    ):
        yield from _check_judged(run, reread, left_out=left_out)
    elif reread.status is not domain.Status.OK:
        report.skip("why runs failed, as exit codes are not in the logs", run.log)
    elif run.sample.status in _FROM_LOG:
        yield f"it counts as {run.sample.status.value}, but its log is complete"
    else:
        report.skip(_ONLY_EXIT_CODE, run.log)
    if run.sample.status is not domain.Status.OK:
        skipped |= {*_FROM_EXIT_CODE, *_TEXTS}
    if methods and run.attempts > 1:  # the totals contain attempts of this load that were lost
        skipped.add("by_method")
        report.skip("what each method of a chain drafted, in runs that were repeated", run.log)
    if keeps_loads(run.engine):
        skipped |= {*_PLACEMENTS}
        if run.sample.status is domain.Status.OK:
            yield from _check_placement(run, loads, report)
    for name in (part.name for part in fields(domain.Sample) if part.name not in skipped):
        stored, shown = _comparable(name, run.sample), _comparable(name, reread)
        if stored is None and run.sample.status is not domain.Status.OK:
            continue
        if is_close(stored, shown):
            report.n_figures += stored is not None
        else:
            yield f"{name} is {_short(stored)}, but its log shows {_short(shown)}"


def _check_judged(run: domain.RunResult, reread: domain.Sample, *, left_out: bool) -> Iterator[str]:
    """Yield whether a run counts although the figures in its log cannot be true, or the other way round."""
    verdict = plausibility.judge(run.spec, reread, wall_s=run.program_s)
    judged = domain.Status.OK if verdict is None else verdict[0]
    stored = run.sample.status
    if stored is judged or (left_out and domain.Status.IMPLAUSIBLE not in (stored, judged)):
        return
    reason = "" if verdict is None else f": {verdict[1]}"
    yield f"it counts as {stored.value}, but its figures are {judged.value}{reason}"


def _lacks_texts(spec: domain.RunSpec) -> bool:
    """Whether the text of a prompt was left out."""
    return any(prompt.text == "" and prompt.request is None for prompt in spec.prompts)


def _comparable(name: str, sample: domain.Sample) -> Any:
    """Return a field of a sample; tokens and placements of none are absent."""
    value = getattr(sample, name)
    return None if value == () else value


def _check_placement(run: domain.RunResult, loads: Sequence[domain.Sample], report: Report) -> Iterator[str]:
    """Compare a run's placement with the logs of its load; it may be in that of another run of the load."""
    parts = {"target": rereading.TARGET_PLACEMENT, "drafter": rereading.DRAFTER_PLACEMENT}
    if domain.ENGINES.get(run.engine) is domain.Program.SERVER:
        parts["build"] = ("build",)
    for what, names in parts.items():
        stored = [_comparable(name, run.sample) for name in names]
        shown = [[_comparable(name, load) for name in names] for load in loads]
        if stored in shown or not any(part is not None for part in stored):
            report.n_figures += sum(part is not None for part in stored)
        elif any(part is not None for values in shown for part in values):
            yield f"the placement of its {what} is not that of its load's logs"
        else:
            report.skip(f"the {what} of runs whose load has no log", run.log)


def _check_cell(run: domain.RunResult) -> Iterator[str]:
    """Compare what a run counts as with the name of its log, and its draft size with what was logged."""
    ending = _CELL.fullmatch(run.log[run.log.rfind("-") :])
    letter = "w" if run.warmup else "a" if run.anchor else "r"
    if ending is not None and (ending[1], int(ending[2])) != (letter, run.repeat):
        yield f"it counts as {letter}{run.repeat}, but its log is named otherwise"
    drafting, logged = run.spec.drafting, run.sample.n_draft
    if drafting is None or logged is None:
        return
    is_lowered = drafting.method.is_head and logged < drafting.n_max  # to what a head was trained for
    if logged != drafting.n_max and not is_lowered:
        yield f"its draft size is {drafting.n_max}, but its log shows {logged}"


def _check_warnings(run: domain.RunResult, cores: int) -> Iterator[str]:
    """Compare the warnings that decide whether a run counts with its sample and conditions."""
    raised = {*warnings.of_run(run, gpu=None, cores=cores)} & _OF_CONDITIONS
    stored = {warning for warning in _OF_CONDITIONS if warning.value in run.doubts}
    for warning in sorted(raised ^ stored):
        verb = "lacks" if warning in raised else "has"
        yield f"it {verb} the warning {warning.value}, against its figures and conditions"


def _check_build(run: domain.RunResult, meta: Meta) -> Iterator[str]:
    """Compare the llama.cpp that a run's log names with that of the bench."""
    build = meta.build if run.spec.build is None else meta.builds.get(run.spec.build)
    if build is None:
        yield f"its llama.cpp {run.spec.build!r} is not one of the bench"
    elif not _same_commit(run.sample.build, build.commit):
        yield f"its log names llama.cpp {run.sample.build}, the bench {build.commit}"


def _same_commit(logged: str | None, recorded: str | None) -> bool:
    """Whether a log names the recorded commit; True where one of them names none."""
    match = _COMMIT.search(logged or "")
    if match is None or recorded is None or not re.fullmatch(r"[0-9a-f]{7,40}", recorded):
        return True
    return match[1].startswith(recorded) or recorded.startswith(match[1])


def _first_texts(bench: ResultSet) -> dict[str, domain.RunResult]:
    """Return the target's own first run with a text, by the keys of specifications."""
    first: dict[str, domain.RunResult] = {}
    for run in bench.runs:
        if run.spec.role is domain.Role.TARGET and audit.has_text(run.sample):
            first.setdefault(run.spec.key, run)
    return first


def _check_text(run: domain.RunResult, baseline: domain.RunResult | None, report: Report) -> Iterator[str]:
    """Compare a greedy text with the target's own first one, as the bench did."""
    if run.audit is not None or (run.difference is not None and run.difference.verdict is not None):
        report.skip("what the target said of texts (margins, verdicts, audits)", run.log)
    if _lacks_texts(run.spec):
        return
    is_compared = (
        audit.has_text(run.sample)
        and run.spec.role is not domain.Role.DRAFTER
        and run.spec.sampling.greedy
        and not (run.spec.drafting and run.spec.drafting.synthetic)
    )
    if not is_compared or baseline is None or baseline.log == run.log:
        if run.text_identical is not None:
            yield "its text counts as compared, but there is nothing to compare it with"
        return
    report.n_figures += 1
    if run.spec.traffic is not None:
        same = audit.compare_answers(run, baseline)
        if run.text_identical is not same:
            yield f"text_identical is {run.text_identical}, but its answers show {same}"
        return
    difference = audit.locate(run.sample, baseline.sample, _NO_PROGRAMS, "", n_predict=run.spec.n_predict)
    if run.text_identical is not (difference is None):
        yield f"text_identical is {run.text_identical}, but its text shows the opposite"
    elif difference is not None and run.difference is not None:
        if difference.at_char != run.difference.at_char:
            yield f"it differs at character {difference.at_char}, not {run.difference.at_char}"
        if difference.at_token not in {None, run.difference.at_token}:
            yield f"it differs at token {difference.at_token}, not {run.difference.at_token}"


def _check_models(bench: ResultSet, report: Report) -> None:
    """Compare the contents that runs name with the hashes of the bench's files."""
    if bench.meta.files is None:
        return
    contents = set(_contents(file for file in bench.meta.files if file.use is domain.FileUse.MODEL))
    pairs = dict.fromkeys(spec.pair for spec in bench.runs.specs)
    for model in dict.fromkeys(model for pair in pairs for model in pair.models):
        if model.content is not None and model.content not in contents:
            report.find(
                f"{bench.meta.id}: runs name the content {model.content[:12]}… of {model.filename}, which "
                "is not that of a file of the bench"
            )


def _contents(files: Iterable[domain.FileIdentity]) -> Iterator[str]:
    """Yield the content of each model: the hash of its file, or of the list of its parts' hashes."""
    parts: dict[str, list[domain.FileIdentity]] = defaultdict(list)
    for file in files:
        parts[_PART.sub("", file.path)].append(file)
    for of_model in parts.values():
        hashes = [file.sha256 for file in sorted(of_model, key=lambda file: file.path)]
        yield hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def _short(value: Any) -> str:
    text = repr(getattr(value, "value", value))
    return text if len(text) <= 80 else f"{text[:80]}…"
