"""A verdict of a tuning as a configuration that can be stored and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata

from ggufspec.analysis import review
from ggufspec.domain import NO_PROMPT, FileIdentity, ModelFile, RunSpec, Serving, Traffic
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.hub import cache
from ggufspec.results import Configuration, PassedOver, Recommendation
from ggufspec.tuning.values import Choice, Tuned

Files = Mapping[str, FileIdentity]


def configuration_of(tuned: Tuned) -> Configuration:
    """Return what a tuning recommends, for the folder of the bench that confirmed it."""
    meta, spec, launch = tuned.results.meta, tuned.overall.arm.spec, tuned.launch
    files = {file.path: file for file in meta.files or ()}
    measured = tuned.overall.arm.good
    return Configuration(
        id=meta.id,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        ggufspec_version=metadata.version("ggufspec"),
        overall=_recommendation(tuned.overall, files),
        by_category={
            choice.category: _recommendation(choice, files)
            for choice in tuned.by_category
            if choice.category is not None
        },
        engine=meta.engine,
        serving=tuned.serving or Serving(context=spec.context),
        measured_argv=measured[0].argv if measured else (),
        serving_argv=launch.argv if launch is not None and launch.failure is None else (),
        launch=launch,
        passed_over=tuple(
            PassedOver(spec=_described(spec, files), reason=reason) for spec, reason in tuned.passed_over
        ),
        warnings=review.warnings(tuned.results),
        build=meta.build,
        files=meta.files,
        machine=meta.machine,
        environment=meta.environment,
    )


def _recommendation(choice: Choice, files: Files) -> Recommendation:
    return Recommendation(
        spec=_described(choice.arm.spec, files),
        tokens_per_s=choice.rate,
        candidate=None if choice.candidate is None else _described(choice.candidate.spec, files),
        judgement=choice.judgement,
        prompts=choice.prompts,
    )


def _described(spec: RunSpec, files: Files) -> RunSpec:
    """Return a specification without prompts, whose models have origin, size and checksum.

    Of the traffic of several users, their number stays.
    """
    pair = spec.pair
    users = None if spec.traffic is None else Traffic(users=spec.traffic.users)
    described = replace(
        pair,
        target=_with_origin(pair.target, files),
        draft=None if pair.draft is None else _with_origin(pair.draft, files),
    )
    return replace(spec, pair=described, prompt=NO_PROMPT, n_predict=0, traffic=users)


def _with_origin(model: ModelFile, files: Files) -> ModelFile:
    """Return a model with its repository, revision and size; with its checksum, if it is one file."""
    path = model.path
    if path is None:
        return model
    origin = cache.origin(path)
    if origin is not None:
        model = replace(model, repo=origin.repo, filename=origin.filename, revision=origin.revision)
    parts = [files.get(str(part)) for part in gguf.part_paths(path)]
    origins = [part for part in parts if part is not None]
    if len(origins) < len(parts):
        return model
    return replace(
        model,
        size_bytes=sum(part.size_bytes for part in origins),
        sha256=origins[0].sha256 if len(origins) == 1 else None,
    )
