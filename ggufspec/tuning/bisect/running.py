"""The trials of a bisection: benches of a few builds, read as values for each complete repeat."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from ggufspec import paths, results
from ggufspec.analysis import Arm, arms
from ggufspec.choices import Quantity
from ggufspec.domain import Role
from ggufspec.errors import ResultsError
from ggufspec.measure import Block, Session, prepare_session
from ggufspec.options import BenchOptions, BisectOptions
from ggufspec.results import ResultSet
from ggufspec.tuning.bisect.decisions import Trial
from ggufspec.tuning.bisect.values import Bisection

_ENDING = ".json"


def save_bisection(bisection: Bisection) -> None:
    """Store a bisection under its name."""
    file = _file(bisection.name)
    with results.disk(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        results.write_object(file, asdict(bisection))


def load_bisection(name: str) -> Bisection:
    """Return a stored bisection.

    Raises:
        ResultsError: there is none of this name, or it cannot be read.
    """
    file = _file(name)
    try:
        facts = json.loads(results.read_object(file))
        return Bisection(
            name=facts["name"],
            source=facts["source"],
            versions=tuple(facts["versions"]),
            quantity=Quantity(facts["quantity"]),
            most_repeats=int(facts["most_repeats"]),
            skipped=dict(facts.get("skipped", {})),
        )
    except FileNotFoundError as error:
        raise ResultsError(f"there is no bisection {name}", f"its file would be {file}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"cannot read the bisection in {file}: {error}") from error


def is_stored(name: str) -> bool:
    """Return whether a bisection or a trial of one has this name."""
    return _file(name).exists()


def prepare_trial(asked: BisectOptions, llamas: Sequence[Path], repeats: int) -> Session:
    """Return the session that measures some builds in turn, only the arms that a quantity needs.

    Raises:
        GgufspecError: something cannot work with one of the builds.
    """
    session = prepare_session(asked.to(BenchOptions, llama=tuple(llamas), repeats=repeats, max_repeats=None))
    suite = session.suite
    roles = {*Quantity(asked.quantity).roles}
    if any(prompt.followups for prompt in suite.prompts):
        roles.add(Role.TARGET)  # its answers stand between the turns of a conversation
    blocks = tuple(
        Block(arms=tuple(arm for arm in block.arms if arm.role in roles)) for block in suite.blocks
    )
    return replace(session, suite=replace(suite, blocks=blocks))


def read_trial(indices: Sequence[int], bench: ResultSet, quantity: Quantity, measured: int) -> Trial:
    """Return a trial's values, of its builds in their order, for each repeat that is complete.

    Speeds are natural logarithms, averaged over prompts and arms. Prompts that a build failed on count for
    none of them.

    Args:
        indices: of the builds in the history.
        bench: the trial's.
        quantity: what the bisection compares.
        measured: repeats that the bench has, complete or not.

    Raises:
        ResultsError: no prompt was measured with every build.
    """
    groups = [arm for arm in arms.group(bench) if arm.role in quantity.roles]
    by_build: Mapping[str | None, list[Arm]] = {
        build: [arm for arm in groups if arm.spec.build == build] for build in bench.meta.builds
    }
    cells = [{*arm.rates} for arm in groups]
    repeats = sorted(set.union(*({repeat for _, repeat in rates} for rates in cells)))
    prompts = set.intersection(*({prompt for prompt, _ in rates} for rates in cells))
    complete = [
        repeat
        for repeat in repeats
        if all((prompt, repeat) in rates for rates in cells for prompt in prompts)
    ]
    if not prompts:
        raise ResultsError(
            f"no prompt of {bench.meta.id} was measured with every build", f"`ggufspec show {bench.meta.id}`"
        )
    value = _mean_log if quantity.is_ratio else _acceptance
    return Trial(
        places=tuple(indices),
        repeats=tuple(
            tuple(value(build_arms, prompts, repeat) for build_arms in by_build.values())
            for repeat in complete
        ),
        lost=max(0, measured - len(complete)),
    )


def _mean_log(groups: Sequence[Arm], prompts: set[str], repeat: int) -> float:
    """Return the mean logarithm of one build's tokens/s; of its speed-up, where the target is among them."""
    by_role = {
        role: fmean(
            math.log(arm.rates[prompt, repeat]) for arm in groups if arm.role is role for prompt in prompts
        )
        for role in {arm.role for arm in groups}
    }
    if by_role.keys() == Quantity.SPEED_UP.roles:
        return by_role[Role.DRAFTING] - by_role[Role.TARGET]
    return next(iter(by_role.values()))


def _acceptance(groups: Sequence[Arm], prompts: set[str], repeat: int) -> float:
    """Return accepted over drafted tokens of one build."""
    drafted = accepted = 0
    for arm in groups:
        columns = (arm.good.specs, arm.good.column("repeat"), arm.good.outputs)
        for spec, run_arm, output in zip(*columns, strict=True):
            if run_arm == repeat and spec.prompt.id in prompts:
                drafted += output.n_drafted or 0
                accepted += output.n_accepted or 0
    if not drafted:
        raise ResultsError(
            "nothing was drafted, so there is no acceptance rate", "check the pair and --draft"
        )
    return accepted / drafted


def _file(name: str) -> Path:
    return paths.data_dir() / "bisections" / f"{name}{_ENDING}"
