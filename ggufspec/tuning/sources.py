"""Everything that may draft for a target: drafters on the Hub, the target's own layers, the text so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ggufspec import machine, measure
from ggufspec.domain import Chain, Method, ModelFile, ModelRun, Offload, Program
from ggufspec.errors import ConsentNeededError, GgufspecError, OutOfMemoryError
from ggufspec.llama.command import FIRST_BUILDS, LEARNING_METHODS, check_chain, commands
from ggufspec.llama.install import Install, installs
from ggufspec.llama.rpc import WorkerReport, workers
from ggufspec.modelfiles import api, catalog, hub, memory, pins
from ggufspec.modelfiles.compat import judging, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import AutoOptions, TuneOptions
from ggufspec.prompts import EMBEDDED
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
    def survey(self) -> hub.Survey:
        """The files of the target and of all drafters that are tried, as one download."""
        surveys = (self.target, *(source.survey for source in self.tried if source.survey is not None))
        items = dict.fromkeys(item for survey in surveys for item in survey.items)
        return replace(self.target, items=tuple(items))

    @property
    def models(self) -> tuple[ModelFile, ...]:
        """The target and the drafters that are tried, once they are on this machine."""
        surveys = (self.target, *(source.survey for source in self.tried if source.survey is not None))
        return tuple(map(measure.file_of, surveys))

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
        notes=(
            *((f"memory: {fit.reason}",) if fit.outcome is not memory.MemoryFit.FITS else ()),
            *why_none,
        ),
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
        if drafter.is_refused:
            left_out = f"refused: {drafter.verdict.reasons[0]}"
        elif n_tried == most:
            left_out = f"not among the first {most} (--drafters)"
        else:
            try:
                source = fitting.judge(drafter.name)
            except GgufspecError as error:  # one broken repository must not end the search
                left_out = error.message
            else:
                n_tried += source.left_out is None
                yield source
                continue
        yield DraftSource(name=drafter.name, method=drafter.method, left_out=left_out)


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
