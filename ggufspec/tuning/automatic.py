"""From the name of a model to the fastest way to serve it, also where an earlier attempt was cut off.

The name of an attempt follows from everything that was asked for and from the files that are measured, so the
same command finds what an earlier one had finished. Its benches are ``NAME-selection`` and ``NAME``.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ggufspec import machine, paths, results
from ggufspec.llama.install import switches
from ggufspec.measure import RUN_SHARE, Deadline, api as benches, identity
from ggufspec.modelfiles import api, hub
from ggufspec.options import AutoOptions, TuneOptions, takes
from ggufspec.results import Configuration, read_configuration
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning import looking, running
from ggufspec.tuning.planning import identify, prepare_tuning
from ggufspec.tuning.running import NextBench
from ggufspec.tuning.sources import DraftSources, find_sources
from ggufspec.tuning.values import Plan, TuningForecast

_NOT_MEASURED = ("fresh", "yes", "output", "out", "strict")  # options that change no run
_DIGITS = 8  # of the key in a name
_LONGEST = 60  # characters of the target's name in it


@dataclass(frozen=True, kw_only=True)
class _StoredProgress:
    """What the runs of an unfinished tuning rest on.

    Attributes:
        serve_ctx: tokens of context in each slot.
        vram_bytes: the GPU memory that was planned with; None without a GPU.
        threads: of the processor; fewer than usual where other programs were busy.
        outlook: what was forecast.
    """

    serve_ctx: int
    vram_bytes: int | None
    threads: int
    outlook: TuningForecast


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A tuning that may have begun before.

    Attributes:
        name: of the bench that confirms.
        plan: what may be chosen.
        outlook: what was forecast before it was cut off; None if it was not.
    """

    name: str
    plan: Plan
    outlook: TuningForecast | None = None

    @property
    def finished(self) -> Configuration | None:
        """The configuration that it has stored; None while it is unfinished."""
        return _read_finished(self.name)

    def place_bench(self, bench: NextBench) -> tuple[str | None, str | None]:
        """Return the name of a new bench, or that of the stored one to go on with; the other is None."""
        name = bench.resume or (
            f"{self.name}{'' if bench.confirms else '-selection'}{'' if bench.note is None else '-again'}"
        )
        return (None, name) if name in results.ids() else (name, None)

    def keep_outlook(self, outlook: TuningForecast) -> None:
        """Store the forecasts until the tuning is finished.

        Raises:
            ResultsError: they cannot be written; DiskFullError where there is no room left.
        """
        file = _file(self.name)
        progress = _StoredProgress(
            serve_ctx=self.plan.serving.context,
            vram_bytes=self.plan.vram_bytes,
            threads=self.plan.alone.threads,
            outlook=outlook,
        )
        with results.disk(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            results.write_object(file, progress)

    def discard_outlook(self) -> None:
        """Remove the forecasts of a finished tuning."""
        _file(self.name).unlink(missing_ok=True)


def find_attempt(asked: TuneOptions, deadline: Deadline | None = None) -> Attempt:
    """Return a new tuning, or the one that the same request began; with ``fresh``, none that is finished.

    The models are read for their checksums.

    Args:
        asked: what to choose from, and for how long.
        deadline: the time limit, if it has begun before.

    Raises:
        GgufspecError: as for ``prepare_tuning``.
    """
    plan = identify(prepare_tuning(asked, deadline))
    name = _choose_name(_name(asked, plan), fresh=asked.fresh)
    progress = results.read_value(_file(name), _StoredProgress)
    if progress is None:
        return Attempt(name=name, plan=plan)
    before = (progress.serve_ctx, progress.vram_bytes, progress.threads)
    if before != (plan.serving.context, plan.vram_bytes, plan.alone.threads):
        same = asked.replace(threads=progress.threads, serve_ctx=progress.serve_ctx, vram=progress.vram_bytes)
        plan = identify(prepare_tuning(same, plan.deadline))
    return Attempt(name=name, plan=plan, outlook=progress.outlook)


def _name(asked: TuneOptions, plan: Plan) -> str:
    """Return a name that stands for a request, the content of all files, and this machine."""
    here = machine.snapshot(plan.session.install.devices)
    facts = [
        repr(asked.replace(**{name: TuneOptions.options[name].default for name in _NOT_MEASURED})),
        [(file.use, file.name, file.sha256) for file in plan.session.files or ()],
        identity.of_prompts(plan.session.suite.prompts),
        [here.cpu, here.cores, here.gpus],
        switches(),
    ]
    key = hashlib.sha256(json.dumps(facts).encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    target = Path(plan.alone.model.filename).stem
    readable = re.sub(r"[^A-Za-z0-9.]+", "-", target)[:_LONGEST].strip("-.")
    return f"auto-{readable or 'model'}-{key}"


def _choose_name(base: str, *, fresh: bool) -> str:
    """Return the name of a finished tuning, or with ``fresh`` of the first that is not."""
    names = (base if number == 1 else f"{base}-{number}" for number in count(1))
    unfinished = next(name for name in names if _read_finished(name) is None)
    return base if not fresh and unfinished != base else unfinished


def _read_finished(name: str) -> Configuration | None:
    """Return the configuration in the bench that confirmed, which may have been measured again."""
    for bench in (name, f"{name}-again"):
        if results.has_configuration(paths.runs_dir() / bench):
            return results.read_configuration(bench)
    return None


def _file(name: str) -> Path:
    return paths.data_dir() / "tunings" / f"{name}.json"


@takes(AutoOptions)
def auto(asked: AutoOptions, sink: Sink = SILENT) -> Configuration:
    """Find everything that may draft for a target, download it, and tune, as ``ggufspec auto`` does.

    A call that was interrupted goes on where it stopped: downloads resume, and stored runs are not repeated.

    Returns:
        The stored configuration: its verdict, and the command that serves it.

    Raises:
        GgufspecError: a model is not available, the download exceeds ``max_download``, or nothing can be
            tuned.
    """
    deadline = Deadline.start(asked.max_time, begun_s=sink.begun_s, run_share=RUN_SHARE)
    sink.show(deadline)
    since_s = deadline.elapsed_s
    sink.say(f"looking for what may draft for {asked.target}")
    sources = find_sources(asked)
    sink.show(sources)
    # a Hub that cannot be reached is waited for
    deadline = deadline.without_network(since_s, sink, "search for drafters")
    deadline = _fetch(sources, asked, deadline, sink)
    benches.say_reading(identity.unread(sources.models), sink)
    request = sources.tune_options(asked)
    attempt = find_attempt(request, deadline)
    if (finished := attempt.finished) is not None:
        sink.say(f"tuned already: {finished.id}; --fresh tunes again")
        return finished
    if attempt.outlook is None and looking.has_uncounted_experts(attempt.plan):
        sink.finish(looking.count_experts(attempt.plan))
        attempt = find_attempt(request, attempt.plan.deadline)  # at the places that are fastest with these
    plan, outlook = attempt.plan, attempt.outlook
    sink.show(plan.session)
    benches.check_machine(plan.session, sink)
    if outlook is None:
        outlook = sink.finish(looking.forecast_configurations(plan))
        attempt.keep_outlook(outlook)
    else:
        sink.say("going on with the forecasts and the runs of an earlier attempt")
    sink.show(outlook)
    tuned = running.measure_and_keep(
        plan, outlook, sink, place=attempt.place_bench, command=sink.command("auto", asked)
    )
    attempt.discard_outlook()
    return read_configuration(tuned.results.meta.id)


def _fetch(sources: DraftSources, asked: AutoOptions, deadline: Deadline, sink: Sink) -> Deadline:
    """Download the target and the drafters that are tried, after one question, which does not count either.

    Raises:
        ConsentNeededError: nobody can be asked, and ``yes`` is not set.
        GgufspecError: the disk is full, or the download fails.
    """
    survey = sources.survey
    if not survey.missing_bytes:
        return deadline
    since_s = deadline.elapsed_s
    hub.download(survey, hub.Access.of(asked), sink, yes=asked.yes, ask_above_bytes=0, remember=False)
    api.pin_files(survey, sink)
    return deadline.without_network(since_s, sink)
