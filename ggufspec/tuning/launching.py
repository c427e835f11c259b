"""What a tuned configuration is to serve, and the command that serves it, on the files of this machine."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from ggufspec import machine
from ggufspec.domain import Build, Launch, ModelFile, Program, RunSpec, Serving
from ggufspec.errors import GgufspecError, NoInstallError, ResultsError
from ggufspec.llama.install import Install, installs, options, switches
from ggufspec.measure import api, configured, identity
from ggufspec.modelfiles import choosing, gguf, memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import ServeOptions, takes
from ggufspec.results import LATEST, Configuration, Recommendation, read_configuration
from ggufspec.steps import SILENT, Sink
from ggufspec.tuning import verdicts
from ggufspec.tuning.budgeting import LAUNCH_SHARE, LONGEST_LAUNCH_S
from ggufspec.tuning.values import Plan, Tuned

_FIRST = 4096  # tokens: the first context that is tried, where the models were trained for as many
_HOST_SHARE = 0.5  # of the free memory, as for the loads of a bench
_UNKNOWN_SPEED = 1024  # tokens of that prompt where the speed of evaluation is not known
_TIMEOUT_S = 3600.0  # for the load, and for a request, without a time limit

Cards = Mapping[ModelFile, ModelCard]


def choose_serving(
    wanted: int | None,
    slots: int,
    arms: Sequence[RunSpec],
    cards: Cards,
    *,
    layout: memory.Layout,
    vram_bytes: int | None,
) -> tuple[Serving, str]:
    """Return what the configurations must serve, and why that context.

    By default, the context is the largest of 4,096, 8,192, 16,384, … tokens for which all models were trained
    and which fits: on a GPU, without a layer fewer than at 4,096; on the host, into half of the free memory,
    with caches no larger than the weights, because each of the many loads clears them.

    Args:
        wanted: the requested context of a slot; None for the default.
        slots: requests at once.
        arms: the configurations, with the context that their prompts and answers need.
        cards: the headers of all models.
        layout: how the llama.cpp in use lays models out.
        vram_bytes: the GPU's memory; None where there is no GPU.

    Raises:
        GgufspecError: the target was trained for less than the requested context.
    """
    trained = min(cards[arm.model].context_length for arm in arms)
    if wanted is not None:
        if wanted > trained and not any(arm.runtime.args for arm in arms):
            raise GgufspecError(
                f"the target was trained for a context of {trained:,} tokens, not {wanted:,}",
                f"use --serve-ctx {trained} or less",
            )
        return Serving(context=wanted, slots=slots), "as requested"
    drafters = [cards[arm.drafter].context_length for arm in arms if arm.drafter is not None]
    limit, needed = min([trained, *drafters]), max(arm.context for arm in arms)
    if limit <= _FIRST:
        return Serving(context=limit, slots=slots), "for which the models were trained"
    sizes = [_FIRST]
    while 2 * sizes[-1] <= limit:
        sizes.append(2 * sizes[-1])
    largest = {
        (arm.model, arm.drafter): arm
        for arm in sorted(arms, key=lambda arm: arm.drafting.n_max if arm.drafting else 0)
    }
    plans = _ContextFit(arms=tuple(largest.values()), cards=cards, layout=layout, vram_bytes=vram_bytes)
    fitting = max((size for size in sizes[1:] if plans.fits(size * slots, _FIRST * slots)), default=_FIRST)
    if needed > fitting:
        return Serving(context=needed, slots=slots), "which the prompts need"
    why = "the largest of 4,096, 8,192, 16,384, … that fits and for which the models were trained"
    return Serving(context=fitting, slots=slots), why


class _ContextFit:
    """Whether configurations fit into memory at a context."""

    def __init__(
        self, *, arms: Sequence[RunSpec], cards: Cards, layout: memory.Layout, vram_bytes: int | None
    ) -> None:
        self._arms, self._cards, self._layout, self._vram_bytes = arms, cards, layout, vram_bytes
        self._free_bytes = machine.memory().free_bytes

    def fits(self, context: int, first: int) -> bool:
        """Whether every configuration fits at a context as well as at the first; both are of all slots."""
        if self._vram_bytes is None:
            return all(self._fits_on_host(arm, context) for arm in self._arms)
        layers = [self._gpu_layers(arm, context) for arm in self._arms]
        return None not in layers and layers == [self._gpu_layers(arm, first) for arm in self._arms]

    def _fits_on_host(self, arm: RunSpec, context: int) -> bool:
        plan = memory.plan(*self._models(arm), arm.offload.on_processor, self._settings(arm, context))
        parts = [model.host for model in (plan.target, plan.draft) if model is not None]
        lean = sum(part.cache for part in parts) <= sum(part.weights for part in parts)
        return lean and plan.host_bytes <= self._free_bytes * _HOST_SHARE

    def _gpu_layers(self, arm: RunSpec, context: int) -> int | None:
        """Return how many of the target's layers fit on the GPU; None where the requested ones do not fit."""
        assert self._vram_bytes is not None
        settings, offload = self._settings(arm, context), arm.offload
        if offload.target.layers == "auto":
            draft_layers = "all" if offload.drafter.layers == "auto" else offload.drafter.layers
            plans = memory.plan_each_offload(
                *self._models(arm), settings, offload.with_layers(drafter=draft_layers)
            )
        else:
            plans = (memory.plan(*self._models(arm), offload, settings),)
        best = memory.best_fit(plans, self._vram_bytes)
        return None if best is None else best.target.gpu_layers

    def _models(self, arm: RunSpec) -> tuple[ModelCard, ModelCard | None]:
        return self._cards[arm.model], self._cards[arm.drafter] if arm.drafter is not None else None

    def _settings(self, arm: RunSpec, context: int) -> memory.MemorySettings:
        return memory.settings_for(replace(arm, context=context), self._layout)


def serve(plan: Plan, tuned: Tuned) -> Tuned:
    """Start llama-server with the choice, exactly as printed; if that cannot serve, take the next best.

    The choice stays where nothing can be served, and where it is for another engine, whose programs run it.
    Without a llama-server, and after the time limit, nothing is started.
    """
    tuned = replace(tuned, serving=plan.serving)
    if not plan.launches:
        return tuned
    first = _launch(plan, tuned, tuned.overall)
    if first.failure is not None and plan.deadline.is_over():  # which may have ended it
        return replace(tuned, launch=_not_started(plan))
    if first.failure is None or plan.session.engine.name != "server":
        return replace(tuned, launch=first)
    passed_over = [(tuned.overall.spec, first.failure)]
    for choice in verdicts.next_best(tuned):
        if plan.deadline.is_over():
            break
        launch = _launch(plan, tuned, choice)
        if launch.failure is None:
            return replace(
                tuned,
                overall=choice,
                by_category=verdicts.choose_by_category(tuned.selection, tuned.results, choice),
                launch=launch,
                passed_over=tuple(passed_over),
            )
        passed_over.append((choice.spec, launch.failure))
    return replace(tuned, launch=first)


def _not_started(plan: Plan) -> Launch:
    return Launch(argv=(), failure=f"it was not tried, because {plan.deadline.describe()} was over")


def _launch(plan: Plan, tuned: Tuned, choice: Recommendation) -> Launch:
    from ggufspec.engines.server import serve_once  # its HTTP client is slow to import

    if plan.deadline.is_over():
        return _not_started(plan)
    texts = [prompt.text for prompt in tuned.outlook.prompts]
    limit_s = LONGEST_LAUNCH_S
    if plan.deadline.limit_s is not None:
        limit_s = min(limit_s, plan.deadline.limit_s * LAUNCH_SHARE)
    speeds = [speed for speed in tuned.confirmed(choice.spec).good.column("prompt_tps") if speed]
    spec = replace(choice.spec, traffic=None, context=plan.serving.total_context)
    try:
        return serve_once(
            spec,
            plan.session.install,
            plan.serving,
            text=max(texts, key=len),
            most_tokens=round(median(speeds) * limit_s) if speeds else _UNKNOWN_SPEED,
            timeout_s=plan.deadline.timeout_s(_TIMEOUT_S),
        )
    except GgufspecError as error:
        return Launch(argv=(), failure=error.message)


_RPC = "--rpc"
_USERS = frozenset({"--host", "--port", _RPC})
"""Options that a user may name although the stored command has them: addresses change."""
_FILE_HINTS = re.compile(r"FNAME|FILE|PATH|\w+_FILE")
_DECIDING = re.compile(r"LLAMA_ARG_(?!HOST$|PORT$|API_|SSL_)\w+")
"""Variables of llama-server that could change a configuration; not those of its address and its keys."""


@dataclass(frozen=True, kw_only=True)
class ServerOption:
    """One option of llama-server.

    Attributes:
        flag: as it is passed.
        value: None where it takes none.
        spellings: all flags that mean the same, and those that turn it off.
        variable: the environment variable that stands for it, if there is one.
        default: its value where it is not passed, if the help names it.
        names_file: whether the value is the path of a file.
    """

    flag: str
    value: str | None = None
    spellings: frozenset[str] = frozenset()
    variable: str | None = None
    default: str | None = None
    names_file: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The option on a command line."""
        return (self.flag,) if self.value is None else (self.flag, self.value)

    @property
    def is_default(self) -> bool:
        """Whether it is passed with the value that it has anyway, in whatever notation."""
        if self.value is None or self.default is None:
            return False
        try:
            return float(self.value) == float(self.default)
        except ValueError:
            return self.value == self.default

    def means(self, *flags: str) -> bool:
        """Whether it is one of these options, in any spelling."""
        return not self.spellings.isdisjoint(flags)


@dataclass(frozen=True, kw_only=True)
class ServerCommand:
    """The command that serves a stored configuration.

    Attributes:
        name: that of the configuration.
        program: the words that start llama-server.
        options: those that were tuned, then the user's.
        environment: variables that were set when it was tuned and may change the speed.
        build: the llama.cpp that was tuned.
        notes: what is not as it was when it was tuned.
    """

    name: str
    program: tuple[str, ...]
    options: tuple[ServerOption, ...]
    environment: Mapping[str, str]
    build: Build
    notes: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The command line."""
        return (*self.program, *(word for option in self.options for word in option.words))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that options name, with all parts of split models."""
        named = (Path(option.value) for option in self.options if option.names_file and option.value)
        return tuple(dict.fromkeys(part for path in named for part in gguf.part_paths(path)))

    def value(self, flag: str) -> str | None:
        """Return the last value of an option, in any spelling; None where it is not among the options."""
        values = [option.value for option in self.options if option.means(flag)]
        return values[-1] if values else None

    def without(self, *flags: str) -> ServerCommand:
        """Return the command without some options, in any spelling."""
        return replace(self, options=tuple(option for option in self.options if not option.means(*flags)))

    def full_environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Return the user's environment with the variables that were tuned.

        Variables that would set other options of llama-server are left out, but not those of its address and
        its keys.
        """
        users = {name: value for name, value in environ.items() if not _DECIDING.fullmatch(name)}
        return users | dict(self.environment)


@takes(ServeOptions)
def serving_command(asked: ServeOptions, sink: Sink = SILENT) -> ServerCommand:
    """Return the command that serves a stored configuration, as ``ggufspec serve`` runs it.

    Returns:
        The command; ``argv`` are its words, ``full_environment()`` its variables.

    Raises:
        ResultsError: there is no such configuration, it was edited, or it cannot be served.
        GgufspecError: a model or the llama.cpp is not what was tuned, or an option contradicts it.
    """
    configuration = read_configuration(asked.tuned or LATEST)
    pair = choosing.locate_pair(configuration.spec)
    api.say_reading(identity.unread(pair.models), sink)
    server = prepare_server(configuration, asked.words)
    sink.say(f"tuned: {configuration.id}, made on {configuration.made_at[:10]}")
    for note in server.notes:
        sink.say(note)
    return server


def prepare_server(configuration: Configuration, words: Sequence[str] = ()) -> ServerCommand:
    """Return the command that serves a configuration, after checking that its files are what was tuned.

    Models are compared by their checksums; those that are not remembered are read.

    Args:
        configuration: what was tuned.
        words: further options for llama-server. --host, --port and --rpc replace those of the stored command.

    Raises:
        ResultsError: llama-server could not serve the configuration when it was tuned.
        ModelFileError: a model is not here, or another file is in its place.
        NotCachedError: a model of the Hub is not in the cache.
        NoInstallError: the llama.cpp that was tuned is gone.
        GgufspecError: an option contradicts the configuration.
    """
    if not configuration.serving_argv:
        launch = configuration.launch
        reason = launch.failure if launch is not None and launch.failure else "it had no llama-server"
        raise ResultsError(
            f"the tuned configuration {configuration.id} cannot be served: {reason}", "tune again"
        )
    pair = configured.verify_models(configuration)
    install = _find_install(configuration)
    server = install.executable(Program.SERVER)
    listed, n_program = server.options, len(server.argv)
    was = configuration.spec.pair
    models = ((was.target, pair.target), (was.draft, pair.draft))
    moved = {
        str(old.path): str(new.path)
        for old, new in models
        if old is not None and new is not None and old.path is not None and new.path is not None
    }
    tuned = [
        replace(option, value=moved.get(option.value, option.value)) if option.value else option
        for option in _read_options(configuration.serving_argv[n_program:], listed)
    ]
    added = [_absolute(option) for option in _read_options(words, listed)]
    for option in added:
        if not option.means(*_USERS) and any(option.means(*other.spellings) for other in tuned):
            raise GgufspecError(
                f"the tuned configuration {configuration.id} decides {option.flag}",
                f"leave {option.flag} out, or tune with it",
            )
        if option.means("--port") and not (option.value or "").isdecimal():
            raise GgufspecError(f"{option.value!r} is not a port", "a port is a number, such as 8080")
    users = frozenset(spelling for option in added for spelling in option.spellings)
    # a device of a worker can be named only after the worker
    workers = [option for option in added if option.means(_RPC)]
    others = [option for option in added if not option.means(_RPC)]
    return ServerCommand(
        name=configuration.id,
        program=configuration.serving_argv[:n_program],
        options=(*workers, *(option for option in tuned if not option.means(*users)), *others),
        environment=configuration.environment or {},
        build=configuration.build,
        notes=(
            *configured.compare_programs(configuration),
            *configured.compare_machines(configuration, install),
            *_compare_environments(configuration),
        ),
    )


def _compare_environments(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each variable that may change the speed and was not set when that was tuned."""
    tuned = configuration.environment
    for name in switches() if tuned is not None else ():
        if name not in (tuned or {}):
            yield f"tuned: without {name}, which is set now; another configuration may be faster with it"


def _find_install(configuration: Configuration) -> Install:
    """Return the llama.cpp that was tuned.

    Raises:
        NoInstallError: its server is gone, or does not start.
    """
    program, build = Path(configuration.serving_argv[0]), configuration.build
    install = installs.probe(program.parent, "the tuned configuration") if program.is_file() else None
    if install is None:
        raise NoInstallError(
            f"the llama.cpp that was tuned is gone: there is no working {program}",
            f"build llama.cpp {build.version} again" if build.version else "tune again",
        )
    return install


def _read_options(words: Sequence[str], listed: options.ListedFlags) -> Iterator[ServerOption]:
    """Yield the options of a command line; what --help does not list takes the word after it as its value.

    Raises:
        GgufspecError: a word is no option, or an option lacks its value.
    """
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if not word.startswith("-"):
            raise GgufspecError(f"{word!r} is not an option of llama-server", "options begin with a dash")
        flag = word.replace("_", "-") if word.startswith("--") else word
        hint = listed.value_hint(flag)
        if hint is not None and not rest:
            raise GgufspecError(f"{word} needs a value", f"add it after {word}")
        has_value = hint is not None or (flag not in listed and rest and not rest[0].startswith("-"))
        yield ServerOption(
            flag=flag,
            value=rest.popleft() if has_value else None,
            spellings=listed.spellings(flag),
            variable=listed.variable(flag),
            default=listed.default(flag),
            names_file=hint is not None and _FILE_HINTS.fullmatch(hint) is not None,
        )


def _absolute(option: ServerOption) -> ServerOption:
    """Return an option with an absolute path, where it names a file that is here."""
    if not option.names_file or option.value is None or not Path(option.value).exists():
        return option
    return replace(option, value=str(Path(option.value).absolute()))
