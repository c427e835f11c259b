"""What a stored configuration decides of the options of a bench."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ggufspec import digests, machine
from ggufspec.domain import CacheTypes, FileUse, Pair, RunSpec, Sampling
from ggufspec.errors import ModelFileError
from ggufspec.llama.install import Install
from ggufspec.modelfiles import catalog, choosing, gguf
from ggufspec.options import BenchOptions, RunOptions
from ggufspec.prompts import EMBEDDED
from ggufspec.results import Configuration, read_configuration


def options_of(spec: RunSpec) -> dict[str, Any]:
    """Return the options with which a bench measures a configuration, without prompts, length and sampling.

    They are the inverse of ``DeviceOptions.offload``, ``RuntimeOptions.caches`` and ``runtimes``.
    """
    drafting, drafter = spec.drafting, spec.drafter
    offload = spec.offload if drafting is not None else spec.offload.target_alone
    runtime = spec.runtime if drafting is not None else spec.runtime.without_drafting
    options: dict[str, Any] = {
        "target": spec.pair.target.path,
        "draft_model": None if drafter is None else drafter.path,
        "threads": spec.threads,
        "ctx": spec.context,
        "ngl": offload.target.layers,
        "devices": offload.target.devices or None,
        "cpu_moe": offload.target.cpu_moe,
        "rpc": ",".join(offload.rpc) or None,
        "fit": None if offload.fit is None else "on" if offload.fit else "off",
        "tensor_split": (offload.tensor_split,) if offload.tensor_split else None,
        "split_mode": offload.split_mode,
        "main_gpu": offload.main_gpu,
        **_options_of_caches(offload.target.caches, ""),
        **_options_of_caches(offload.drafter.caches, "_draft"),
        "ubatch": spec.ubatch,
        "mlock": bool(runtime.mlock),
        "no_mmap": runtime.mmap is False,
        **{name: getattr(runtime, name) for name in runtime.settings()},
        "args": (runtime.args,) if runtime.args else None,
        "draft_args": (runtime.draft_args,) if runtime.draft_args else None,
    }
    if drafter is not None:
        options |= {
            "ngld": offload.drafter.layers,
            "draft_devices": offload.drafter.devices or None,
            "draft_cpu_moe": offload.drafter.cpu_moe,
        }
    if drafting is not None:
        options |= {
            "method": str(drafting.chain),
            "ngram": (drafting.ngram,) if str(drafting.ngram) else None,
            "draft": drafting.n_max,
            "p_min": drafting.p_min or None,
            "draft_sampling": drafting.sampling,
        }
    return options


def _options_of_caches(caches: CacheTypes | None, whose: str) -> dict[str, str | None]:
    """Return the options for the types of the caches of one model."""
    if caches is None:
        return {}
    if caches.type_k == caches.type_v:
        return {f"kv_type{whose}": caches.type_k}
    return {f"cache_type_k{whose}": caches.type_k, f"cache_type_v{whose}": caches.type_v}


def verify_models(configuration: Configuration) -> Pair:
    """Return what ``locating.locate_pair`` does, after comparing every file with its checksum.

    Files whose checksum is not remembered are read, which takes a second for each 1 to 2 GB.

    Raises:
        ModelFileError: a model is not here, cannot be read, or is not the file that was tuned.
        NotCachedError: a model of the Hub is not in the cache.
    """
    pair = choosing.locate_pair(configuration.spec)
    known: dict[str, set[str]] = {}
    for file in configuration.files or ():
        if file.use is FileUse.MODEL:
            known.setdefault(file.name, set()).add(file.sha256)
    paths = (model.path for model in (pair.target, pair.draft) if model is not None)
    parts = [part for path in paths if path is not None for part in gguf.part_paths(path)]
    for part in (*parts, *configuration.spec.runtime.files):
        try:
            sha256 = digests.of_file(part).sha256
        except OSError as error:
            raise ModelFileError(f"cannot read {part}: {error.strerror}", "check the file") from error
        if sha256 not in known.get(part.name, {sha256}):
            raise choosing.changed_file(part)
    return pair


def compare_programs(configuration: Configuration) -> Iterator[str]:
    """Yield a note for each file of llama.cpp that is not what it was when the configuration was tuned."""
    for file in configuration.files or ():
        if file.use is FileUse.MODEL:
            continue
        path = Path(file.path)
        if not path.is_file() or digests.of_file(path).sha256 != file.sha256:
            yield f"tuned: {path} has changed since; another configuration may be faster now"


def compare_machines(configuration: Configuration, install: Install) -> Iterator[str]:
    """Yield notes about what is not as it was when the configuration was tuned."""
    here, tuned_on = machine.snapshot(install.devices), configuration.machine
    if (here.cpu, here.cores, here.gpus) != (tuned_on.cpu, tuned_on.cores, tuned_on.gpus):
        gpus = "".join(f", {gpu}" for gpu in tuned_on.gpus)
        yield f"tuned: on another machine ({tuned_on.cpu}{gpus}); another configuration may be faster here"
    build, now = configuration.build, install.describe()
    if (build.version, build.commit, build.backend) != (now.version, now.commit, now.backend):
        yield (
            f"tuned: with another llama.cpp ({build.version or 'unknown version'}, {build.backend}); "
            "another configuration may be faster with this one"
        )


_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}


def with_tuned(request: BenchOptions, *, compares: bool = True) -> tuple[BenchOptions, Configuration | None]:
    """Return options with what their tuned configuration decides, and that configuration; None without one.

    Sampling, users and, for the embedded pair, prompts are as they were tuned, unless others are given.

    Args:
        request: names the configuration.
        compares: take the candidate of an undecided one, to be measured beside the target alone; otherwise
            the target alone, which is what is safe.

    Raises:
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    if request.tuned is None:
        return request, None
    configuration = read_configuration(request.tuned)
    tuned, given = configuration.spec, request.given.keys()
    spec = configuration.compared if compares else tuned
    fields = options_of(replace(spec, pair=choosing.locate_pair(spec))) | {"engine": configuration.engine}
    if not given & _SAMPLING.keys():
        fields |= {name: getattr(tuned.sampling, field) for name, field in _SAMPLING.items()}
    if not given & {"suite", "prompt", "prompt_file"}:
        fields["suite"] = EMBEDDED if catalog.is_embedded(tuned.pair.name) else None
    if "parallel" not in given:
        fields["parallel"] = None if tuned.traffic is None else tuned.traffic.users
    if "llama" not in given:
        programs = Path(configuration.build.path)
        fields["llama"] = programs if programs.exists() else None
    return request.replace(tuned=None, **fields), configuration


def choose_sampling(request: RunOptions) -> Sampling:
    """Return how tokens are chosen; see ``SamplingOptions``."""
    asked_for = request.top_k not in {None, 1} or request.top_p < 1 or request.min_p > 0
    temperature = request.temp if request.temp is not None else float(asked_for)
    return Sampling(
        temperature=temperature,
        top_k=request.top_k if request.top_k is not None else (40 if temperature > 0 else 1),
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
    )
