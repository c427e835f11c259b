"""Which arms of two benches are the same, and which benches cannot be compared."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ggufspec.analysis.arm import Arm, models_of
from ggufspec.domain import Drafting, ModelFile, RunSpec
from ggufspec.errors import ResultsError
from ggufspec.results import ResultSet

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
