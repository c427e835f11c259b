"""What a user asks of a bench or a sweep, checked before anything runs: Request -> Session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from itertools import product
from numbers import Real
from pathlib import Path
from typing import TypeVar

from ggufspec import catalog, compat, engines, fitting, gguf, hub, identity, machine, texts
from ggufspec.domain import FileIdentity, Layers, Method, ModelFile, Offload, Pair, Program, Sampling
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama import install as installs
from ggufspec.llama import serving
from ggufspec.llama.command_drafting import check_method
from ggufspec.measuring import Render
from ggufspec.sweep import Suite, Sweep
from ggufspec.trace import draft_sizes

_EMBEDDED = "demo"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """Everything that can be said about a bench, under the names of the command line's options.

    Tuples are axes: every combination is measured. ``method`` is what drafts; without ``draft``, each has its
    own size. Decoding is greedy unless ``temp`` is positive, or left out and ``top_k``, ``top_p`` or
    ``min_p`` ask for sampling, then at temperature 1; ``top_k`` defaults to llama.cpp's 40 there.
    ``synthetic_accept`` lets dice decide what is accepted: each token's chance, or the shares of rounds that
    accept each position. ``offload`` is what places the models beside ``ngl`` and ``ngld``.
    ``ctx`` and ``threads`` default to what fits and to the usable physical cores; ``timeout`` (of one run)
    and ``max_time`` (of the bench) are in seconds; ``precision`` is half of the speed-up's interval over the
    speed-up. ``chat`` says whether the target's chat template makes the prompts; without it the suite
    decides.
    """

    pair: str | None = None
    target: Path | tuple[Path, ...] | None = None
    draft_model: Path | tuple[Path, ...] | None = None
    ngl: Layers | tuple[Layers, ...] = "auto"
    ngld: Layers | tuple[Layers, ...] = "auto"
    offload: Offload = field(default_factory=Offload)
    method: str | tuple[str, ...] = Method.DRAFT_MODEL.value
    draft: int | tuple[int, ...] = ()
    p_min: float | tuple[float, ...] = 0.0
    synthetic_accept: float | tuple[float, ...] | None = None
    kv_type: str | tuple[str, ...] | None = None
    ubatch: int | tuple[int, ...] | None = None
    threads: int | tuple[int, ...] | None = None
    n_predict: int = 250
    ctx: int | None = None
    temp: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1
    suite: str | None = None
    prompt: tuple[str, ...] = ()
    prompt_file: tuple[Path, ...] = ()
    per_category: int | None = None
    chat: bool | None = None
    system: str | None = None
    repeats: int = 3
    warmup: int = 1
    precision: float | None = None
    max_time: float | None = None
    timeout: float = 3600.0
    llama: Path | None = None
    engine: str = "binary"
    force: bool = False

    def __post_init__(self) -> None:
        """Refuse what the command line refuses, too.

        Raises:
            GgufspecError: a number is NaN or infinite.
        """
        check_finite(self)


def check_finite(request: object) -> None:
    """Raise where a field of a dataclass, or of one in it, is not a finite number.

    Raises:
        GgufspecError: naming the field.
    """
    for name, value in vars(request).items():
        if is_dataclass(value) and not isinstance(value, type):
            check_finite(value)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, Real) and not math.isfinite(number):
                raise GgufspecError(
                    f"{name} is {number}", f"give a finite number for {name}, or leave it out"
                )


@dataclass(frozen=True, kw_only=True)
class Session:
    """A checked bench, ready to run; ``notes`` say what was chosen and what is doubtful.

    ``files`` are the models, programs and libraries that it measures; None before ``identify``.
    """

    name: str  # of what is measured
    suite: Suite
    engine: engines.Engine
    install: installs.Install
    render: Render | None
    notes: tuple[str, ...]
    files: tuple[FileIdentity, ...] | None = None


def prepare(request: Request) -> Session:
    """Turn a request into something that can run.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    methods = tuple(map(_method, _axis(request.method)))
    name, targets, drafters, why = _models(request, methods)
    cards = {model: gguf.validate_file(model.path) for model in (*targets, *drafters) if model.path}
    install = installs.find(request.llama)
    _check_programs(install, request.engine, methods, drafting=bool(drafters))
    if request.synthetic_accept is not None:
        engines.check_synthetic(request.engine, install, methods if drafters else ())
    sizes, never = _sizes(request, methods)
    for target, drafter in product(targets, drafters):
        _check_drafter(cards[target], cards[drafter], install, request.engine)
    asked = texts.read(request, cards[targets[0]], embedded=name == _EMBEDDED)
    sweep = Sweep(
        name=name,
        targets=targets,
        drafters=drafters,
        n_predict=request.n_predict,
        context=texts.context(
            replace(request, draft=sizes), asked.prompts, targets[0], tuple(cards.values()), install
        ),
        target_layers=_axis(request.ngl),
        draft_layers=_axis(request.ngld),
        methods=methods,
        draft_sizes=_axis(request.draft),
        p_mins=_axis(request.p_min),
        synthetic=None if request.synthetic_accept is None else _axis(request.synthetic_accept),
        threads=_axis(request.threads or machine.usable_cores()),
        kv_types=_axis(request.kv_type),
        ubatches=_axis(request.ubatch),
        sampling=_sampling(request),
        offload=request.offload,
    )
    engine = engines.make(
        request.engine, install, timeout_s=request.timeout, capacity=fitting.capacity(sweep, cards, install)
    )
    if request.offload != Offload():
        for arm in sweep.blocks()[0].arms:
            engine.argv(arm)  # misses a flag now, not after the target has been measured
    tight = tuple(dict.fromkeys(fitting.check(sweep, cards, install, force=request.force)))
    return Session(
        name=name,
        suite=Suite(
            blocks=sweep.blocks(),
            prompts=asked.prompts,
            warmup_prompts=asked.warmups,
            repeats=request.repeats,
            warmups=request.warmup,
            seed=request.seed,
            precision=request.precision,
            max_time_s=request.max_time,
        ),
        engine=engine,
        install=install,
        render=asked.render,
        notes=(
            f"pair: {name} ({why})",
            f"llama.cpp: {install.version or 'unknown version'} in {install.root}",
            *asked.notes,
            *never,
            *tight,
        ),
    )


def identify(session: Session) -> Session:
    """Return a session whose models and llama.cpp are known by their content.

    Files whose digest is not remembered are read, which takes a second for each 1 to 2 GB; ``unread_files``
    says beforehand which.

    Raises:
        ModelFileError: a file cannot be read.
    """
    models = identity.of_models(identity.models(session.suite.blocks))
    suite = replace(session.suite, blocks=identity.with_contents(session.suite.blocks, models))
    llama = identity.of_llama(session.install, session.engine.name)
    parts = dict.fromkeys(part for parts in models.values() for part in parts)
    return replace(session, suite=suite, files=(*parts, *llama))


def unread_files(session: Session) -> Mapping[Path, int]:
    """Return the files of models that ``identify`` has to read, and their sizes in bytes."""
    return identity.unread(identity.models(session.suite.blocks))


def _axis(values: T | tuple[T, ...]) -> tuple[T, ...]:
    return values if isinstance(values, tuple) else (values,)


def _sampling(request: Request) -> Sampling:
    asked_for = request.top_k not in {None, 1} or request.top_p < 1 or request.min_p > 0
    temperature = request.temp if request.temp is not None else float(asked_for)
    return Sampling(
        temperature=temperature,
        top_k=request.top_k if request.top_k is not None else (40 if temperature > 0 else 1),
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
    )


def _method(name: str) -> Method:
    if name not in list(Method):
        raise GgufspecError(f"no drafting method is called {name!r}", f"there are {', '.join(Method)}")
    return Method(name)


def _sizes(request: Request, methods: tuple[Method, ...]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the draft sizes of all arms, and notes on those at which a method drafts nothing.

    Raises:
        GgufspecError: a method drafts at none of them.
    """
    asked = _axis(request.draft)
    every: list[int] = []
    notes: list[str] = []
    for method in methods:
        sizes = draft_sizes(method, asked)
        left_out = ", ".join(str(size) for size in asked if size not in sizes)
        if not sizes:
            own = draft_sizes(method)[0]
            raise GgufspecError(
                f"{method.value} drafts nothing at γ {left_out}",
                f"llama.cpp's own γ for it is {own}: add --draft {own}, or leave --draft out",
            )
        if left_out:
            notes.append(f"draft sizes: {method.value} drafts nothing at γ {left_out}, which is left out")
        every += sizes
    return tuple(every), tuple(notes)


def _models(
    request: Request, methods: tuple[Method, ...]
) -> tuple[str, tuple[ModelFile, ...], tuple[ModelFile, ...], str]:
    """Choose the models: named files, a named pair, the last fetched one, the embedded one.

    Drafters are left out where no method loads one.
    """
    name, targets, drafters, why = _named(request)
    if any(method.needs_drafter for method in methods):
        return name, targets, drafters, why
    if request.draft_model is not None:
        raise GgufspecError(
            "a drafter was given, and no method that drafts with one", "add draft-model to --method"
        )
    return name, targets, (), why


def _named(request: Request) -> tuple[str, tuple[ModelFile, ...], tuple[ModelFile, ...], str]:
    if request.target is not None:
        targets, drafters = (_files(request.target), _files(request.draft_model))
        stems = [Path(model.filename).stem for model in (*targets, *drafters)]
        name = " + ".join(stems) if len(stems) <= 2 else f"{stems[0]} + {len(stems) - 1} more"
        return name, targets, drafters, "as given"
    if request.draft_model is not None and request.pair is None:
        raise GgufspecError("a drafter was given without a target", "add --target FILE")
    pair, why = _pair(request)
    drafters = _files(request.draft_model) or ((pair.draft,) if pair.draft else ())
    return pair.name, (pair.target,), drafters, why


def _pair(request: Request) -> tuple[Pair, str]:
    if request.pair is not None:
        return hub.resolve(catalog.find(request.pair), offline=True), "as named"
    last = hub.last_fetched()
    if last is not None:
        return last, "the last fetched pair"
    return hub.resolve(catalog.find(_EMBEDDED), offline=True), "the embedded pair, as nothing was fetched yet"


def _files(paths: Path | tuple[Path, ...] | None) -> tuple[ModelFile, ...]:
    given = () if paths is None else _axis(paths)
    return tuple(ModelFile(filename=path.name, path=path.absolute()) for path in dict.fromkeys(given))


def _check_programs(
    install: installs.Install, engine: str, methods: tuple[Method, ...], *, drafting: bool
) -> None:
    """Miss a program now, not after the target has been measured."""
    lookups = [method for method in methods if not method.needs_drafter]
    if engine == "inprocess":
        if lookups:
            raise GgufspecError(
                f"the engine {engine} drafts with a second model only, not by {lookups[0].value}",
                "use --engine server or binary-simple",
            )
        if install.library is None:
            raise NoInstallError(
                f"the llama.cpp in {install.root} has no library beside it that can be loaded",
                "`ggufspec build` makes one, or use another --engine",
            )
        return
    drafts_with = engines.ENGINES[engine]
    install.executable(Program.SERVER if drafts_with is Program.SERVER else Program.PLAIN)
    if drafting:
        program = install.executable(drafts_with)
        if drafts_with is Program.SERVER and not serving.can_draft(program.options):
            raise GgufspecError(
                f"the {program.path.name} in {install.root} cannot draft", "use --engine binary"
            )
    for method in lookups:
        check_method(install.executable(drafts_with), drafts_with, method)


def _check_drafter(
    target: gguf.ModelCard, draft: gguf.ModelCard, install: installs.Install, engine: str
) -> None:
    verdict = compat.check(target, draft, compat.rule_of(install, engines.ENGINES[engine]))
    if verdict.outcome is compat.Outcome.REFUSED:
        raise compat.refusal(verdict)
