"""Which arms of two benches are the same, which benches cannot be compared, and in what two differ."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ggufspec.analysis.arm import Arm, models_of
from ggufspec.domain import Drafting, FileIdentity, FileUse, ModelFile, RunSpec
from ggufspec.errors import ResultsError
from ggufspec.llama.install import releases
from ggufspec.results import Meta, ResultSet

Identity = tuple[object, ...]
"""What must be equal in two arms that are compared."""


def refuse_unknown_models(bench: ResultSet) -> None:
    """Refuse a bench that does not say what its models hold.

    Raises:
        ResultsError: it does not.
    """
    models = {model for spec in bench.current.specs if spec.servers is None for model in _models(spec)}
    unknown = sorted(model.filename for model in models if model.content is None)
    if unknown:
        raise ResultsError(
            f"{bench.meta.id} does not say what {unknown[0]} holds (schema {bench.meta.schema_version}), and "
            "other models can have that name",
            "measure it again with this version: its benches record the SHA-256 of each model",
        )


def refuse_other_prompts(before: ResultSet, after: ResultSet) -> None:
    """Refuse benches whose prompts have the same name and another text.

    Raises:
        ResultsError: one has.
    """
    ours, theirs = (
        {spec.prompt.id: spec.prompt.content for spec in results.current.specs} for results in (before, after)
    )
    other = sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name])
    if other:
        raise ResultsError(
            f"prompt {other[0]} has another text in {after.meta.id} than in {before.meta.id}",
            "measure both with the same prompts and the same template",
        )


def list_unmatched(first: Mapping[Identity, Arm], second: Mapping[Identity, Arm]) -> set[str]:
    """Return the arms of one bench only; those that look alike and run other models say what these hold."""
    alone = [arm.spec for name, arm in first.items() if name not in second]
    other = [arm.spec for name, arm in second.items() if name not in first]
    alike = {label_arm(spec) for spec in alone} & {label_arm(spec) for spec in other}
    return {
        f"{label_arm(spec)} ({_contents(spec)})" if label_arm(spec) in alike else label_arm(spec)
        for spec in (*alone, *other)
    }


def by_identity(groups: Sequence[Arm]) -> dict[Identity, Arm]:
    """Name arms by what must be equal; settings join in where one bench has several of them."""
    names = [_identity(arm.spec) for arm in groups]
    if len(set(names)) == len(names):
        return dict(zip(names, groups, strict=True))
    return {(*name, *settings_of(arm.spec).values()): arm for name, arm in zip(names, groups, strict=True)}


def _identity(spec: RunSpec) -> Identity:
    drafting = spec.drafting
    return (
        spec.role.value,
        tuple(model.content for model in _models(spec)) if spec.servers is None else _served(spec),
        drafting and (str(drafting.chain), drafting.n_max, *_manner(drafting)),
        spec.n_predict,
        spec.sampling,
        spec.traffic and replace(spec.traffic, service_level=None),
    )


def _served(spec: RunSpec) -> Identity:
    """Return what a server that runs already reports of its model; the file itself was not read."""
    endpoint = spec.endpoint
    return () if endpoint is None else (spec.model.filename, endpoint.n_params, endpoint.model_bytes)


def label_arm(spec: RunSpec) -> str:
    """Return an arm in a few words."""
    drafting = spec.drafting
    size, manner = (f"γ={drafting.n_max}", " ".join(_manner(drafting))) if drafting else ("", "")
    return " ".join((spec.role.value, " + ".join(models_of(spec)), size, manner))


def _contents(spec: RunSpec) -> str:
    if spec.servers is not None:
        return "as its server reports"
    return " + ".join(f"SHA-256 {(model.content or '')[:12]}…" for model in _models(spec))


def _models(spec: RunSpec) -> tuple[ModelFile, ...]:
    return (spec.model, spec.drafter) if spec.drafter else (spec.model,)


def _manner(drafting: Drafting) -> Iterator[str]:
    yield from drafting.manner
    if str(drafting.ngram):
        yield f"ngram {drafting.ngram}"
    if drafting.synthetic:
        yield f"synthetic={','.join(f'{rate:g}' for rate in drafting.synthetic)}"


def settings_of(spec: RunSpec) -> dict[str, object]:
    """Return the settings that may differ between arms that are compared, by their names in tables."""
    return {
        "GPU layers": spec.offload.target.layers,
        "drafter's GPU layers": spec.offload.drafter.layers,
        "threads": spec.threads,
        "KV type": spec.kv_type,
        "ubatch": spec.ubatch,
        "settings": shlex.join(spec.words) or None,
        "context": spec.context,
    }


def find_differences(
    before: ResultSet, after: ResultSet, arms: Iterable[tuple[RunSpec, RunSpec]]
) -> dict[str, tuple[str, str]]:
    """Return in what two benches differ that are compared: builds, machines, models, settings.

    Args:
        before: what is compared with.
        after: what is judged.
        arms: the specification of each arm in both.
    """
    first, second = before.meta, after.meta
    facts: dict[str, tuple[object, object]] = {
        "llama.cpp": (str(releases.identify(first.build)), str(releases.identify(second.build))),
        "commit": (first.build.commit, second.build.commit),
        "backend": (first.build.backend, second.build.backend),
        "engine": (first.engine, second.engine),
        "machine": (first.machine.hostname, second.machine.hostname),
        "processor": (first.machine.cpu, second.machine.cpu),
        "GPUs": (", ".join(first.machine.gpus), ", ".join(second.machine.gpus)),
        "GPU driver": (first.machine.gpu_driver or "", second.machine.gpu_driver or ""),
    }
    facts |= dict(_other_details(first, second))
    facts |= _other_environment(first.environment, second.environment)
    facts |= dict(other_models(before, after))
    if replace(first.build, path="") == replace(second.build, path=""):
        programs = {FileUse.PROGRAM, FileUse.LIBRARY}  # of what calls itself the same llama.cpp
        facts |= dict(_other_files(first.files or (), second.files or (), programs))
    for old, new in arms:
        facts[f"{new.role.value} server"] = _server(old), _server(new)
        ours, theirs = settings_of(old), settings_of(new)
        facts |= {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    return {name: (str(a), str(b)) for name, (a, b) in facts.items() if a != b}


def _server(spec: RunSpec) -> str:
    """Return a server that ran already, in words; an empty text for models that were loaded."""
    endpoint = spec.endpoint
    if endpoint is None:
        return ""
    return " ".join(filter(None, (endpoint.software, endpoint.version, f"at {endpoint.url}")))


_DETAILS = ("microcode", "governor", "smt", "numa_nodes", "kernel", "container", "hypervisor")
"""Details of a machine that may change a speed."""


def _other_details(before: Meta, after: Meta) -> Iterator[tuple[str, tuple[object, object]]]:
    """Yield how llama.cpp was built, and details of the machine, as far as both are recorded."""
    old, new = before.build, after.build
    facts: dict[str, tuple[object, ...]] = {"compiler": (old.compiler, new.compiler)}
    if replace(old, path="") == replace(new, path=""):  # other versions have other flags
        facts["build flags"] = (_list_others(old.flags, new.flags), _list_others(new.flags, old.flags))
    details = before.machine.details, after.machine.details
    if None not in details:
        facts |= {name: tuple(getattr(first, name) for first in details) for name in _DETAILS}
    for name, (first, second) in facts.items():
        if first not in {None, ""} and second not in {None, ""}:
            yield name, (first, second)


def _list_others(flags: Sequence[str], others: Sequence[str]) -> str:
    """Return the flags that are not among others; ``none`` if they all are, nothing if none are recorded."""
    return " ".join(flag for flag in flags if flag not in others) or ("none" if flags else "")


def _other_environment(
    before: Mapping[str, str] | None, after: Mapping[str, str] | None
) -> dict[str, tuple[object, object]]:
    """Return the variables that may change a speed and differ."""
    names = sorted((before or {}).keys() | (after or {}).keys())
    return {
        name: (
            "not recorded" if before is None else before.get(name, "not set"),
            "not recorded" if after is None else after.get(name, "not set"),
        )
        for name in names
    }


def other_models(before: ResultSet, after: ResultSet) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the model files that have the same name in both benches, and another content."""
    yield from _other_files(before.meta.files or (), after.meta.files or (), {FileUse.MODEL})


def _other_files(
    before: Sequence[FileIdentity], after: Sequence[FileIdentity], uses: Set[FileUse]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in dict.fromkeys(file.name for file in before if file.use in uses):
        ours, theirs = (
            {file.sha256: file for file in files if file.name == name and file.use in uses}
            for files in (before, after)
        )
        if theirs and not ours.keys() & theirs.keys():
            yield name, (_described(ours.values()), _described(theirs.values()))


def _described(files: Iterable[FileIdentity]) -> str:
    return ", ".join(str(file.summary) for file in files)
