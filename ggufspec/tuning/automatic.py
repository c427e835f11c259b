"""From the name of a model to the fastest way to serve it, also where an earlier attempt was cut off.

What may draft for a target are drafters on the Hub, the target's own layers, and the text so far.
The name of an attempt follows from everything that was asked for and from the files that are measured, so the
same command finds what an earlier one had finished. Its benches are ``NAME-selection`` and ``NAME``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from ggufspec import machine, paths, results
from ggufspec.domain import Chain, Method, ModelFile, ModelRun, Offload, Program
from ggufspec.errors import ConsentNeededError, GgufspecError, OutOfMemoryError
from ggufspec.llama.command import FIRST_BUILDS, LEARNING_METHODS, check_chain, commands
from ggufspec.llama.install import Install, installs, switches
from ggufspec.llama.rpc import WorkerReport, workers
from ggufspec.measure import RUN_SHARE, Deadline, api as benches, file_of, identity
from ggufspec.modelfiles import api, catalog, hub, memory, pins
from ggufspec.modelfiles.compat import judging, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import AutoOptions, TuneOptions, takes
from ggufspec.prompts import EMBEDDED
from ggufspec.results import Configuration, read_configuration
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning import looking, running
from ggufspec.tuning.planning import identify, prepare_tuning
from ggufspec.tuning.values import NextBench, Plan, TuningForecast
from ggufspec.units import format_bytes

_CONTEXT = 4096  # tokens of each request, where none are asked for and the models were trained for as many


@dataclass(frozen=True, kw_only=True)
class DraftSource:
    """Something that may draft for the target.

    Attributes:
        name: a reference to a file, or what drafts without one.
        method: how it drafts.
        survey: its files; None for what needs none, or was not looked at.
        left_out: why it is not tried; None where it is.
        note: what else is known, such as that memory is tight.
    """

    name: str
    method: Method
    survey: hub.Survey | None = None
    left_out: str | None = None
    note: str | None = None

    @property
    def missing_bytes(self) -> int:
        """What would have to be downloaded."""
        return 0 if self.survey is None else self.survey.missing_bytes


@dataclass(frozen=True, kw_only=True)
class DraftSources:
    """What may draft for a target, the most promising first, and what that takes.

    Attributes:
        target: the target's files.
        sources: those that are tried, then those that are left out.
        notes: how the target fits into memory, and what could not be looked for.
    """

    target: hub.Survey
    sources: tuple[DraftSource, ...]
    notes: tuple[str, ...] = ()

    @property
    def tried(self) -> tuple[DraftSource, ...]:
        """The sources that a tuning chooses from."""
        return tuple(source for source in self.sources if source.left_out is None)

    @property
    def surveys(self) -> tuple[hub.Survey, ...]:
        """The files of the target, and those of each drafter that is tried."""
        return (self.target, *(source.survey for source in self.tried if source.survey is not None))

    @property
    def survey(self) -> hub.Survey:
        """The files of all of them, as one download."""
        items = dict.fromkeys(item for survey in self.surveys for item in survey.items)
        return replace(self.target, items=tuple(items))

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The target and the drafters that are tried, once they are on this machine."""
        return tuple(map(file_of, self.surveys))

    def tune_options(self, asked: AutoOptions) -> TuneOptions:
        """Return what to tune once everything is on this machine."""
        target, *drafters = self.models
        is_unnamed = asked.suite is None and not asked.prompt and not asked.prompt_file
        return asked.to(
            TuneOptions,
            target=target,
            draft_model=drafters,
            engine="server",
            suite=EMBEDDED if is_unnamed and catalog.is_embedded(asked.target) else asked.suite,
            method=tuple(dict.fromkeys(source.method.value for source in self.tried)),
            offline=False,
        )


def find_sources(asked: AutoOptions) -> DraftSources:
    """Find what may draft for a target, and whether it fits; only headers are read.

    Raises:
        NoInstallError: there is no llama.cpp with a server.
        OutOfMemoryError: the target cannot fit into memory.
        WorkerError: a worker cannot be used.
        ConsentNeededError: the target alone exceeds ``max_download``.
        ChangedFileError: the Hub's files are not those to which a pair of a catalogue is pinned.
        GgufspecError: the target, or a drafter that was named, is not available.
    """
    (rpc,), (llama,) = asked.rpcs, asked.llamas
    install = installs.find_install(llama)
    install.executable(Program.SERVER)
    pair = catalog.load_catalogue().get(asked.target)
    target = asked.target if pair is None else f"{asked.target}:target"
    survey = hub.survey_model(target, hub.Access.of(asked))
    if pair is not None:
        survey = replace(survey, pair=replace(survey.pair, name=pair.name))  # which has pins
    card = hub.read_card(survey.pair.target, hub.Access.of(asked))
    fitting = _DrafterJudge(asked=asked, target=card, install=install, lent=workers.read_workers(rpc))
    fit = fitting.judge_memory(None)
    if fit.outcome is memory.MemoryFit.IMPOSSIBLE:
        raise OutOfMemoryError(fit.reason, fit.hint)
    if asked.max_download is not None and survey.missing_bytes > asked.max_download:
        raise ConsentNeededError(
            f"the target alone needs a download of {format_bytes(survey.missing_bytes)}, more than "
            f"{format_bytes(asked.max_download)}",
            "raise --max-download, or name a smaller quant",
        )
    of_pair = () if pair is None or pair.draft is None else (f"{asked.target}:drafter",)
    named = [fitting.judge(name) for name in dict.fromkeys((*of_pair, *asked.draft_model))]
    is_embedded = pair is not None and survey.pair.target.repo is None  # its name says nothing on the Hub
    suggested, why_none = ((), ()) if is_embedded else _suggest(target, asked)
    models = [source.survey.pair.target for source in named if source.survey is not None]
    seen = {(model.repo, model.filename) for model in models}
    others = [
        drafter
        for drafter in suggested
        if not drafter.in_target and (drafter.file.repo, drafter.file.filename) not in seen
    ]
    all_sources = [*named, *_judge_suggested(others, fitting, asked.drafters)]
    sources = [*_within_download(all_sources, survey.missing_bytes, asked.max_download)]
    sources += [*_without_files(card, install, asked.users)]
    chosen = DraftSources(
        target=survey,
        sources=tuple(sorted(sources, key=lambda source: source.left_out is not None)),
        notes=(*((f"memory: {fit.reason}",) if fit.outcome is not memory.MemoryFit.FITS else ()), *why_none),
    )
    pins.check_pins(chosen.survey)
    return chosen


def _suggest(target: str, asked: AutoOptions) -> tuple[tuple[api.SuggestedDrafter, ...], tuple[str, ...]]:
    """Return the drafters that the Hub or the cache has for a target, or a note why there are none."""
    try:
        return api.suggest(target, offline=asked.offline, token=asked.token), ()
    except GgufspecError as error:  # n-grams and named drafters are left
        return (), (f"drafters: {error.message}",)


def _judge_suggested(
    suggested: Sequence[api.SuggestedDrafter], fitting: _DrafterJudge, most: int
) -> Iterator[DraftSource]:
    """Yield suggested drafters; headers are read again only of the most promising."""
    n_tried = 0
    for drafter in suggested:
        source = DraftSource(name=drafter.name, method=drafter.method)
        if drafter.is_refused:
            source = replace(source, left_out=f"refused: {drafter.verdict.reasons[0]}")
        elif n_tried == most:
            source = replace(source, left_out=f"not among the first {most} (--drafters)")
        else:
            try:
                source = fitting.judge(drafter.name)
            except GgufspecError as error:  # one broken repository must not end the search
                source = replace(source, left_out=error.message)
            n_tried += source.left_out is None
        yield source


def _within_download(
    sources: Sequence[DraftSource], missing_bytes: int, most_bytes: int | None
) -> Iterator[DraftSource]:
    """Yield sources; those that would exceed the download are left out."""
    for source in sources:
        if source.left_out is None and most_bytes is not None and source.missing_bytes:
            if missing_bytes + source.missing_bytes > most_bytes:
                yield replace(
                    source,
                    left_out=f"with its {format_bytes(source.missing_bytes)} the download would exceed "
                    f"{format_bytes(most_bytes)}",
                )
                continue
            missing_bytes += source.missing_bytes
        yield source


def _without_files(card: ModelCard, install: Install, users: int | None) -> Iterator[DraftSource]:
    """Yield what drafts without a further file: layers of the target, and n-gram methods."""
    head = read_head(card)
    if head is not None and head.in_target:
        method = head.method
        yield DraftSource(name="layers of the target", method=method, left_out=_why_unknown(method, install))
    for method in Method:
        if not method.drafts_with_model and (method in FIRST_BUILDS or install.fork is not None):
            left_out = _why_unknown(method, install)
            if users is not None and method in LEARNING_METHODS:
                left_out = "learns from earlier requests, and several users send every prompt more than once"
            yield DraftSource(name="the text so far", method=method, left_out=left_out)


def _why_unknown(method: Method, install: Install) -> str | None:
    """Return why a server cannot draft by a method; None if it can."""
    try:
        check_chain(install, Program.SERVER, Chain(method))
    except GgufspecError as error:
        return error.message
    return None


@dataclass(frozen=True, kw_only=True)
class _DrafterJudge:
    """Judges drafters for a target: whether llama.cpp takes them, and whether both fit into memory.

    ``lent`` are the workers on which layers of the target may be.
    """

    asked: AutoOptions
    target: ModelCard
    install: Install
    lent: tuple[WorkerReport, ...] = ()

    def judge(self, name: str) -> DraftSource:
        """Return a drafter with llama-server's verdict, and that of the memory plan.

        Raises:
            GgufspecError: it is not available.
        """
        survey = hub.survey_model(name, hub.Access.of(self.asked))
        card = hub.read_card(survey.pair.target, hub.Access.of(self.asked))
        method = usable_methods(read_head(card))[0]
        source = DraftSource(name=name, method=method, survey=survey)
        build = self.install.build_number
        try:
            rule = judging.rule_of(self.install, Program.SERVER)
        except ValueError as error:  # a server that does not draft yet
            return replace(source, left_out=str(error))
        verdict = judging.check_pair(self.target, card, rule, build=build, method=method)
        if verdict.outcome is judging.CompatOutcome.REFUSED:
            return replace(source, left_out=f"refused: {verdict.reasons[0]}")
        if (reason := _why_unknown(method, self.install)) is not None:
            return replace(source, left_out=reason)
        fit = self.judge_memory(card)
        if fit.outcome is memory.MemoryFit.IMPOSSIBLE:
            return replace(source, left_out=f"does not fit: {fit.reason}")
        return (
            source if fit.outcome is memory.MemoryFit.FITS else replace(source, note=f"tight: {fit.reason}")
        )

    def judge_memory(self, draft: ModelCard | None) -> memory.MemoryVerdict:
        """Return whether the target, alone or with a drafter, fits into memory, that of workers included."""
        install, asked = workers.with_devices(self.install, self.lent), self.asked
        context = min(asked.serve_ctx or _CONTEXT, self.target.context_length)
        settings = memory.MemorySettings(
            context=context * (asked.users or asked.serve_parallel),
            layout=memory.layout_for(install.build_number),
        )
        offload = Offload(
            target=ModelRun(layers="auto" if install.gpu is not False else 0),
            drafter=ModelRun(layers="auto" if self.install.gpu is not False else 0),
        )
        return memory.verdict(
            memory.plan(self.target, draft, offload, settings),
            machine.memory(install.gpus),
            alternatives=partial(
                memory.plan_each_offload,
                self.target,
                draft,
                settings,
                offload.with_layers(drafter=offload.drafter.layers and "all"),
            ),
            adjusts_layers=commands.can_adjust(install.executable(Program.SERVER).options),
        )


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
        return benches.place(name)

    def keep_outlook(self, outlook: TuningForecast) -> None:
        """Store the forecasts until the tuning is finished.

        Raises:
            ResultsError: they cannot be written; DiskFullError where there is no room left.
        """
        progress = _StoredProgress(
            serve_ctx=self.plan.serving.context,
            vram_bytes=self.plan.vram_bytes,
            threads=self.plan.alone.threads,
            outlook=outlook,
        )
        results.write_object(_file(self.name), progress, makes_folder=True)


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
    _file(attempt.name).unlink(missing_ok=True)
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
