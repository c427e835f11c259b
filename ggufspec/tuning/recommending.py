"""A verdict of a tuning as a configuration that can be stored and run, for categories of prompts, too."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ggufspec.analysis import review
from ggufspec.domain import NO_PROMPT, FileIdentity, ModelFile, RunSpec, Serving, Traffic
from ggufspec.modelfiles import gguf
from ggufspec.modelfiles.hub import cache
from ggufspec.results import Configuration, PassedOver, Recommendation
from ggufspec.stats import Cell
from ggufspec.tuning.values import Choice, Tuned

_EXACT = 10_000  # ways to choose the prompts of a category: up to so many are all tried
_SEED = 20240419
_ALPHA = 0.05

Values = NDArray[np.float64]
K = TypeVar("K", bound=Hashable)


def categories_that_differ(
    leader: Mapping[Cell, float], others: Sequence[Mapping[Cell, float]], categories: Mapping[str, str]
) -> frozenset[str]:
    """Return the categories in which another arm gains significantly more on the leader than elsewhere.

    The interaction of arm and category, by a permutation test: if categories made no difference, any other
    prompts of the same number could be those of the category (Good 2005, "Permutation, Parametric and
    Bootstrap Tests of Hypotheses", chapter 3). The statistic is the largest of all arms, so that it does not
    matter how many there are. Several categories: Holm's adjustment.

    Args:
        leader: tokens/s of the best arm over all prompts, by (prompt id, repeat).
        others: the same of the other arms, the target alone among them.
        categories: prompt id -> category.
    """
    logs = [_mean_logs(rates) for rates in (leader, *others)]
    prompts = [prompt for prompt in categories if all(prompt in by_prompt for by_prompt in logs)]
    if not others or not prompts:
        return frozenset()
    best, *rest = ([by_prompt[prompt] for prompt in prompts] for by_prompt in logs)
    gains = np.array(rest) - np.array(best)  # (arms, prompts)
    p_values = {
        category: _p_value(gains, np.array([categories[prompt] == category for prompt in prompts]))
        for category in sorted({categories[prompt] for prompt in prompts})
    }
    return frozenset(significant(p_values, alpha=_ALPHA))


def _mean_logs(rates: Mapping[Cell, float]) -> dict[str, float]:
    by_prompt: dict[str, list[float]] = {}
    for (prompt, _), rate in rates.items():
        by_prompt.setdefault(prompt, []).append(math.log(rate))
    return {prompt: float(np.mean(values)) for prompt, values in by_prompt.items()}


def _p_value(gains: Values, inside: NDArray[np.bool_]) -> float:
    """Return how often the same number of any prompts shows a gain as large as those of the category."""
    n, size = len(inside), int(inside.sum())
    if size in {0, n}:
        return 1.0
    exact = math.comb(n, size) <= _EXACT
    if exact:
        chosen = np.zeros((math.comb(n, size), n))
        for row, indices in enumerate(combinations(range(n), size)):
            chosen[row, list(indices)] = 1.0
    else:
        random = np.random.default_rng(_SEED)
        chosen = random.permuted(np.tile(inside.astype(float), (_EXACT - 1, 1)), axis=1)
    observed = _largest(gains, inside[None].astype(float))[0]
    as_large = int(np.count_nonzero(_largest(gains, chosen) >= observed - 1e-12))
    return as_large / len(chosen) if exact else (as_large + 1) / _EXACT


def _largest(gains: Values, chosen: Values) -> Values:
    """Return for each choice of prompts the largest gain of an arm inside over that outside."""
    sizes = chosen.sum(axis=1)
    inside = chosen @ gains.T
    outside = gains.sum(axis=1) - inside
    means = inside / sizes[:, None] - outside / (chosen.shape[1] - sizes)[:, None]
    return np.asarray(means.max(axis=1), dtype=np.float64)


def significant(p_values: Mapping[K, float], *, alpha: float) -> list[K]:
    """Return what passes the step-down test of Holm 1979, "A simple sequentially rejective multiple test"."""
    passed: list[K] = []
    for rank, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p_value > alpha / (len(p_values) - rank):
            break
        passed.append(name)
    return passed


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
