"""Flags for drafting: a draft model or a head, n-gram methods and their settings, and chains of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ggufspec.domain import Chain, Drafting, Experts, Method, NgramSettings, Offload, Program, RunSpec
from ggufspec.errors import GgufspecError
from ggufspec.llama.command.flags import SPELLINGS, Arguments, format_layers
from ggufspec.llama.command.runtime import name_caches
from ggufspec.llama.install.installs import IK, Executable, Install
from ggufspec.llama.install.options import ListedFlags

_MODEL_TYPES = ("draft-simple", "draft")
_SYNTHETIC = "--spec-synth-rates"  # of llama-server and the chat client alone
_LIST_OF_TYPES = "comma-separated"  # in the help of builds that take several methods
_FIRST_CHAINS = 9109  # the first of those builds
_FIRST_SAMPLED_DRAFTS = 11368

# ik_llama.cpp has one --spec-type for each method, with all settings of that method (June 2026 on)
_STAGE = "SPEC[:k=v"
_STAGE_TYPES = re.compile(r"^ *types: (.+)$", re.MULTILINE)
_LAST_STAGES = {Method.DRAFT_MODEL, Method.DRAFT_MTP}  # after one n-gram method

FIRST_BUILDS: Mapping[Method, int] = MappingProxyType(
    {
        Method.DRAFT_MTP: 9180,
        Method.DRAFT_EAGLE3: 9606,
        Method.DRAFT_DFLASH: 9831,
        Method.DRAFT_DSPARK: 10163,
        **dict.fromkeys((Method.NGRAM_SIMPLE, Method.NGRAM_MAP_K, Method.NGRAM_MAP_K4V), 7864),
        **dict.fromkeys((Method.NGRAM_MOD, Method.NGRAM_CACHE), 7864),
    }
)
"""The first build whose llama-server drafts by a method; the simple program learnt n-grams in b8955.

Builds from b9131 on list ``draft-eagle3``, but the first of them cannot load such a head.
"""


def add_drafting(arguments: Arguments, spec: RunSpec, install: Install, *, program: Program) -> None:
    """Add the flags for drafting; none for plain decoding.

    Raises:
        GgufspecError: the program cannot draft in this way, or lacks a requested flag.
    """
    drafting = spec.drafting
    if drafting is None:
        return
    check_drafting(install, program, drafting)
    if drafting.synthetic is not None and drafting.method.drafts_with_model:
        check_synthetic(install.executable(program))
    if takes_stages(arguments.options):
        _add_stages(arguments, drafting)
        _add_drafter(arguments, spec, install)
        return
    if drafting.method.drafts_with_model:
        _add_model(arguments, spec, drafting, install, program=program)
    else:
        _add_lookup(arguments, drafting)
    for method in drafting.first:
        for flag, value in _ngram_flags(arguments, drafting, method).items():
            arguments.add(flag, value)


def _add_model(
    arguments: Arguments, spec: RunSpec, drafting: Drafting, install: Install, *, program: Program
) -> None:
    """Add a draft model or a head, and how it drafts."""
    types = [type_name(method, arguments.options) for method in drafting.chain.methods]
    if program is not Program.TREE and any(types):  # the tree program always drafts with a model
        arguments.add("--spec-type", ",".join(filter(None, types)))  # required from b9464 on
    _add_drafter(arguments, spec, install)
    arguments.add_flags(draft_max=drafting.n_max)
    add = arguments.require_flags if drafting.n_min else arguments.add_flags
    add(draft_min=drafting.n_min)
    arguments.add_flags(draft_p_min=drafting.p_min)
    if drafting.synthetic is not None:
        arguments.add(_SYNTHETIC, ",".join(f"{rate:g}" for rate in drafting.synthetic))


def _add_drafter(arguments: Arguments, spec: RunSpec, install: Install) -> None:
    """Add a drafter's file, if it has one, its placement, caches and sampling; n-grams have none of them.

    The drafter's cache gets the type of the target's, unless others are requested. Programs without a flag
    for it use the target's type anyway, except for servers before b5709, which use f16.
    """
    assert spec.drafting is not None
    if not spec.drafting.method.drafts_with_model:
        return
    if spec.pair.draft is not None:
        remote = spec.offload.lends_to_drafter
        count = format_layers(spec.offload.drafter, arguments.options, install, remote=remote)
        arguments.add_flags(draft_model=str(spec.pair.draft.path), draft_layers=count)
        arguments.require_flags(draft_devices=drafter_devices(spec.offload, install))
        add_experts(arguments, spec.offload.drafter.cpu_moe, whose="draft_")
        arguments.add_flags(draft_threads=spec.threads, draft_threads_batch=spec.threads)
        arguments.add_flags(draft_context=spec.context)
    caches = spec.offload.drafter_caches
    for meaning, kv_type in name_caches(caches):
        add = arguments.add_flags if caches == spec.offload.target.caches else arguments.require_flags
        add(**{f"draft_{meaning}": kv_type})
    sampling = spec.runtime.draft_backend_sampling
    if sampling is not None:
        arguments.require_flags(**{f"draft_backend_sampling_{sampling}": True})
    arguments.require_flags(draft_sampling=spec.drafting.sampling)


def takes_stages(options: ListedFlags) -> bool:
    """Whether a program takes a method with its settings in one word, as ik_llama.cpp does."""
    return options.mentions("--spec-type", _STAGE)


def _add_stages(arguments: Arguments, drafting: Drafting) -> None:
    """Add each method of a chain, in the order in which they are asked, with all settings of its drafts."""
    for method in drafting.chain.methods:
        if method.drafts_with_model:
            limits = {"n_max": drafting.n_max, "n_min": drafting.n_min, "p_min": f"{drafting.p_min:g}"}
        else:
            settings = _usable_ngram(drafting, method)
            own = {key: settings[name] for name, key in LOOKUPS[method].keys.items()}
            limits = {"n_max": settings["size_m"], **own}
        words = ",".join(f"{key}={value}" for key, value in limits.items())
        arguments.add("--spec-type", f"{method.stage}:{words}")


def drafter_devices(offload: Offload, install: Install) -> tuple[str, ...]:
    """Return the devices to name for a drafter; () for llama.cpp's default.

    That default are the target's devices in current builds, and all devices in earlier ones, among them
    those of workers. Verification pays the network once a round; a drafter there would pay it for each token.
    """
    if offload.drafter_devices or not offload.rpc:
        return offload.drafter_devices
    return tuple(device.partition(":")[0] for device in install.devices) or ("none",)


def add_experts(arguments: Arguments, kept: Experts | None, *, whose: str = "") -> None:
    """Add the number of layers whose experts stay on the processor, for the target or the drafter.

    Raises:
        GgufspecError: the program lacks the flag.
    """
    if kept == "all":
        arguments.require_flags(**{f"{whose}cpu_moe": True})
    else:
        arguments.require_flags(**{f"{whose}n_cpu_moe": kept})


def check_drafting(install: Install, program: Program, drafting: Drafting) -> None:
    """Make sure that a program of an install drafts in one way.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: as for ``check_chain``, or it has no choice of how drafts are chosen.
    """
    check_chain(install, program, drafting.chain)
    if drafting.sampling is not None:
        check_draft_sampling(install, program)


def check_draft_sampling(install: Install, program: Program) -> None:
    """Make sure that a program acts on the choice of how drafts are sampled.

    The other drafting programs of b11368 and newer list the flag, too, and draft greedily all the same.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: it does not; the hint names what does.
    """
    if program is not Program.SERVER:
        raise GgufspecError(
            "of all programs only llama-server has a choice of how drafts are sampled",
            "add --engine server, or leave --draft-sampling out",
        )
    executable = install.executable(program)
    if SPELLINGS["draft_sampling"][0] not in executable.options:
        raise GgufspecError(
            f"this {executable.name} has no --spec-draft-sampling: its --help does not list it",
            f"llama.cpp b{_FIRST_SAMPLED_DRAFTS} and newer do: `ggufspec build` makes one; or leave "
            "--draft-sampling out",
        )


def check_chain(install: Install, program: Program, chain: Chain) -> None:
    """Make sure that a program of an install drafts by all methods of a chain.

    Raises:
        NoInstallError: the install lacks the program.
        GgufspecError: it does not draft in this way; the hint names a program or a build that does.
    """
    check_fork(install, program)
    executable = install.executable(program)
    name = executable.name
    if program is Program.TREE:
        if chain != Chain(Method.DRAFT_MODEL):
            raise GgufspecError(
                f"{name} drafts only with a draft model, not by {chain}",
                "use `--engine server` or `--engine binary-simple`",
            )
        return
    for method in chain.methods:
        if method is not Method.DRAFT_MODEL and not _drafts_by(method, executable.options, install):
            raise _unknown_method(method, install, name)
    if not chain.first:
        return
    if takes_stages(executable.options):
        if len(chain.first) > 1 or chain.method not in _LAST_STAGES:
            last = " or ".join(sorted(method.value for method in _LAST_STAGES))
            raise GgufspecError(
                f"{install.fork} cannot draft by {chain}: it takes one n-gram method before {last}",
                "name a chain of two, such as ngram-mod+draft-model",
            )
    elif not executable.options.mentions("--spec-type", _LIST_OF_TYPES):
        raise GgufspecError(
            f"this {name} drafts by one method at a time, not by {chain}",
            f"llama.cpp b{_FIRST_CHAINS} and newer takes several: `ggufspec build` makes one",
        )


def check_fork(install: Install, program: Program) -> None:
    """Make sure that a program is measured at all: of a fork, only the server is.

    Raises:
        GgufspecError: it is another program of a fork.
    """
    if install.fork is not None and program is not Program.SERVER:
        raise GgufspecError(
            f"{install.fork} is measured by its llama-server alone", "use `--engine server`, or leave it out"
        )


def _unknown_method(method: Method, install: Install, name: str) -> GgufspecError:
    """Return the error for a method that a program does not list."""
    first = FIRST_BUILDS.get(method)
    if install.fork is not None or first is None:
        whose = f"{name} of {install.fork or 'llama.cpp'}"
        able = IK if first is None else f"llama.cpp b{first} and newer"
        return GgufspecError(
            f"this {whose} cannot draft by {method.value}: its --help does not list it",
            f"{able} can: name its folder with --llama",
        )
    return GgufspecError(
        f"this {name} cannot draft by {method.value}: it is older than that method",
        f"llama.cpp b{first} and newer do: `ggufspec build` makes one",
    )


def _drafts_by(method: Method, options: ListedFlags, install: Install) -> bool:
    """Whether a program drafts by a method, from its help; see FIRST_BUILDS for EAGLE-3."""
    types = _types(options)
    if type_name(method, options) not in types:
        return False
    is_listed_early = method is Method.DRAFT_EAGLE3 and Method.DRAFT_DFLASH.value not in types
    number = install.build_number
    return not is_listed_early or number is None or number >= FIRST_BUILDS[method]


def check_synthetic(executable: Executable) -> None:
    """Make sure that a program can simulate acceptance.

    Raises:
        GgufspecError: it cannot; the hint names a program that can.
    """
    if _SYNTHETIC not in executable.options:
        raise GgufspecError(
            f"this {executable.name} has no synthetic acceptance: its --help does not list {_SYNTHETIC}",
            "llama-server of autumn 2026 does: `ggufspec build` makes one",
        )


def _add_lookup(arguments: Arguments, drafting: Drafting) -> None:
    """Add an n-gram method that drafts alone, with all settings that affect its drafts.

    The limits for a draft model are set to γ too: builds of early 2026 cut every draft to them, and the
    current simple program prints them as ``n_draft`` for every method. If two settings share a flag, the
    method's own is used.
    """
    flags = {"--spec-type": drafting.method.value}
    for meaning, value in {"draft_max": drafting.n_max, "draft_min": 0}.items():
        flag = arguments.spelling(meaning)
        if flag is not None:
            flags[flag] = str(value)
    for flag, text in {**flags, **_ngram_flags(arguments, drafting, drafting.method)}.items():
        arguments.add(flag, text)


def _ngram_flags(arguments: Arguments, drafting: Drafting, method: Method) -> dict[str, str]:
    """Return the flags of an n-gram method, with values.

    Raises:
        GgufspecError: the method drafts nothing with these settings.
    """
    settings = _usable_ngram(drafting, method)
    flags = {
        arguments.find_flag(*spellings, is_optional=name == "min_hits"): str(settings[name])
        for name, spellings in LOOKUPS[method].flags.items()
    }
    return {flag: text for flag, text in flags.items() if flag is not None}


def _usable_ngram(drafting: Drafting, method: Method) -> Mapping[str, int]:
    """Return all settings of an n-gram method of a run; see ``resolve_ngram``.

    Raises:
        GgufspecError: the method drafts nothing with these settings.
    """
    settings = resolve_ngram(drafting, method)
    size, sizes = settings["size_m"], _usable_sizes(method, settings["size_n"])
    if size not in sizes:
        default = LOOKUPS[method].size_m
        raise GgufspecError(
            f"{method.value} drafts nothing with at most {size} tokens a round",
            f"llama.cpp's own draft size for it is {default}: --draft {default}",
        )
    return settings


def resolve_ngram(drafting: Drafting, method: Method) -> Mapping[str, int]:
    """Return all settings of an n-gram method of a run, by the names of NgramSettings.

    Args:
        drafting: the run's drafting, which asks the method alone or in a chain.
        method: one of its n-gram methods.
    """
    lookup = LOOKUPS[method]
    requested = {name: value for name, value in vars(drafting.ngram).items() if value is not None}
    settings = {**vars(lookup), **requested}
    if method is drafting.method:
        settings["size_m"] = drafting.n_max
    if "n_min" not in requested:  # of a draft that is shorter, only the full length is used
        settings["n_min"] = min(lookup.n_min, settings["size_m"])
    return {name: settings[name] for name in vars(drafting.ngram)}


def canonical_ngram(chain: Chain, settings: NgramSettings) -> NgramSettings:
    """Return the settings that change what a chain drafts, so that equal runs have one form.

    A value that no n-gram method of the chain uses, or that is the default of each, becomes None.
    """
    methods = [method for method in chain.methods if not method.drafts_with_model]
    values: dict[str, int | None] = {}
    for name, value in vars(settings).items():
        users = [method for method in methods if name in LOOKUPS[method].used]
        is_size_alone = name == "size_m" and not chain.first
        is_default = all(vars(LOOKUPS[method])[name] == value for method in users)
        values[name] = None if is_size_alone or is_default else value
    return NgramSettings(**values)


def unused_settings(chains: Iterable[Chain], settings: NgramSettings) -> tuple[str, ...]:
    """Return the names of settings that no n-gram method of any of these chains uses."""
    methods = {method for chain in chains for method in chain.methods if not method.drafts_with_model}
    return tuple(
        name.replace("_", "-")
        for name, value in vars(settings).items()
        if value is not None and not any(name in LOOKUPS[method].used for method in methods)
    )


def longest_draft(drafting: Drafting) -> int:
    """Return how many tokens a round verifies at most, beside the target's own."""
    return max(drafting.n_max, *(resolve_ngram(drafting, method)["size_m"] for method in drafting.first), 0)


def type_name(method: Method, options: ListedFlags) -> str | None:
    """Return what a program calls a method; None for a draft model in programs that have no name for it."""
    if takes_stages(options):
        return method.stage
    if method is Method.DRAFT_MODEL:
        return next((name for name in _MODEL_TYPES if name in _types(options)), None)
    return method.value


def _types(options: ListedFlags) -> list[str]:
    """Return the drafting methods that a program's help lists."""
    stages = _STAGE_TYPES.search(options.help.get("--spec-type", ""))
    if stages is not None:
        return stages[1].split(", ")
    listed, _, _ = options.help.get("--spec-type", "").partition("\n")  # the text below contains "draft" too
    return re.split(r"[^\w-]+", listed)


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The settings of one n-gram method. They are always passed, as defaults differ between builds.

    Attributes:
        size_n: number of tokens that must recur, the last one included, before anything is drafted.
        size_m: default γ, which is llama.cpp's own.
        least: the smallest γ at which anything can be drafted.
        most: the largest γ that the programs accept.
        min_hits: how often the tokens must have recurred; used by one method.
        n_min: shorter drafts are dropped.
        used: the settings that change what it drafts; two methods have a flag for hits and ignore it.
        flags: settings that have flags -> their spellings, the preferred one first.
        keys: settings -> what ik_llama.cpp calls them, beside ``n_max``.
        learns: whether a server keeps what it saw in earlier requests.
    """

    size_n: int
    size_m: int
    least: int = 1
    most: int = 1024
    min_hits: int = 1
    n_min: int = 0
    used: frozenset[str] = frozenset()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    learns: bool = True


def _map_flags(method: Method) -> Mapping[str, tuple[str, ...]]:
    words = {"size_n": "size-n", "size_m": "size-m", "min_hits": "min-hits"}
    return {setting: (f"--spec-{method}-{word}", f"--spec-ngram-{word}") for setting, word in words.items()}


_SIZES = frozenset({"size_n", "size_m"})
_SIZE_KEYS = {name: f"ngram_{name}" for name in ("size_n", "size_m")}
_MAP = Lookup(size_n=12, size_m=48, used=_SIZES, keys={**_SIZE_KEYS, "min_hits": "ngram_min_hits"})

LOOKUPS: Mapping[Method, Lookup] = MappingProxyType(
    {
        # drops drafts shorter than the n-gram (common_ngram_simple_draft): γ < 12 drafts nothing
        Method.NGRAM_SIMPLE: replace(
            _MAP, least=12, flags=_map_flags(Method.NGRAM_SIMPLE), keys=_SIZE_KEYS, learns=False
        ),
        Method.NGRAM_MAP_K: replace(_MAP, flags=_map_flags(Method.NGRAM_MAP_K)),
        Method.NGRAM_MAP_K4V: replace(
            _MAP, used=_SIZES | {"min_hits"}, flags=_map_flags(Method.NGRAM_MAP_K4V)
        ),
        Method.NGRAM_MOD: Lookup(  # what llama.cpp's --spec-default sets
            size_n=24,
            size_m=64,
            n_min=48,
            used=_SIZES | {"n_min"},
            flags={
                "size_n": ("--spec-ngram-mod-n-match", "--spec-ngram-size-n"),
                "size_m": ("--spec-ngram-mod-n-max", "--draft-max"),
                "n_min": ("--spec-ngram-mod-n-min", "--draft-min"),
            },
            keys={"size_n": "ngram_size_n", "n_min": "n_min"},
        ),
        # looks up 1 to 4 tokens; its sizes are constants of the source (create_state_ngram_cache)
        Method.NGRAM_CACHE: Lookup(size_n=4, size_m=8, least=8, most=8),
        Method.SUFFIX: Lookup(
            size_n=5,
            size_m=16,
            used=_SIZES | {"n_min"},
            keys={"size_n": "suffix_min_match_len", "n_min": "n_min"},
        ),
    }
)
"""llama.cpp's defaults of the summer of 2026 (common_params_speculative_ngram_map and its neighbours)."""

# What these methods learn from a request stays until the server ends, even if slots are erased. Example: the
# embedded target's packing list, 300 tokens, requested three times (0.3.36, ngram-mod, γ 16): 0, 256 and 272
# tokens drafted, all accepted, at 181, 453 and 552 tokens/s: it drafts its earlier answer. ngram-cache counts
# the tokens of earlier requests and skips as many in the next one; the maps keep their draft lengths.
# The suffix tree of ik_llama.cpp holds the tokens of all requests (common_speculative_state_suffix).
LEARNING_METHODS = frozenset(method for method, lookup in LOOKUPS.items() if lookup.learns)

_MODEL_SIZE = 3  # default γ of a draft model and of a head, as in current llama.cpp


def draft_sizes(
    method: Method, requested: Iterable[int] = (), ngram: NgramSettings | None = None
) -> tuple[int, ...]:
    """Return the requested draft sizes at which a method can draft; without any, its default.

    Args:
        method: what drafts, alone or as the last one of a chain.
        requested: draft sizes γ.
        ngram: settings of n-gram methods; their ``size_m`` is the γ of one that drafts alone.
    """
    requested, lookup, ngram = tuple(requested), LOOKUPS.get(method), ngram or NgramSettings()
    if lookup is None:
        return requested or (_MODEL_SIZE,)
    if ngram.size_m is not None and "size_m" in LOOKUPS[method].used:
        requested = (ngram.size_m,)
    usable = _usable_sizes(method, ngram.size_n or lookup.size_n)
    return tuple(size for size in requested or (lookup.size_m,) if size in usable)


def _usable_sizes(method: Method, size_n: int) -> range:
    """Return the draft sizes at which an n-gram method drafts anything, and that the programs accept."""
    lookup = LOOKUPS[method]
    return range(size_n if method is Method.NGRAM_SIMPLE else lookup.least, lookup.most + 1)
