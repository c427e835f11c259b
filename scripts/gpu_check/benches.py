"""Benches and what is read from them: one row for each arm, also for those that were not reached in time."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ggufspec.analysis import arms, review
from ggufspec.analysis.arm import Arm
from ggufspec.domain import Layers, Role, RunSpec, Status
from ggufspec.measure import api, identify, prepare_session
from ggufspec.options import BenchOptions
from ggufspec.results import ResultSet
from gpu_check.models import Models
from gpu_check.presets import ALPHA, PROMPTS, Pairing, Placement, Preset
from gpu_check.steps import NOT_RUN, Row, Section

_USUAL = {"few-repeats", "synthetic-acceptance"}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything that benches share."""

    preset: Preset
    llama: Path
    models: Models
    gpu: bool

    def run(
        self, asked: BenchOptions, seconds: float, *, roles: Collection[Role] = tuple(Role)
    ) -> tuple[ResultSet, tuple[RunSpec, ...]]:
        """Measure for some seconds at most; return the results, and the arms that were asked for.

        Args:
            asked: what to measure.
            seconds: that it may take.
            roles: of the arms to measure.
        """
        shared = asked.replace(
            threads=self.preset.threads,
            llama=self.llama,
            max_time=max(1.0, seconds),
            timeout=max(10.0, seconds),
        )
        session = identify(prepare_session(shared))
        wanted = tuple(
            replace(block, arms=tuple(arm for arm in block.arms if arm.role in roles))
            for block in session.suite.blocks
        )
        store = api.begin(session, command=("gpu_check", repr(shared)))
        with session.engine:
            suite = replace(session.suite, blocks=wanted)
            for latest in api.record(replace(session, suite=suite), store):
                store = latest  # the last one has everything
        return store, tuple(arm for block in wanted for arm in block.arms)

    def demo(self, engine: str, sizes: tuple[int, ...], *, pair: str = "demo", **also: Any) -> BenchOptions:
        """Ask for an embedded pair with its own acceptance, all of it on the GPU."""
        texts = self.preset.demo_texts
        return BenchOptions(
            pair=pair,
            engine=engine,
            ngl="all" if self.gpu else 0,
            ngld="all" if self.gpu else 0,
            draft=sizes,
            n_predict=self.preset.demo_tokens,
            prompt=texts,
            suite=None if texts else "demo",
            per_category=None if texts else self.preset.demo_per_category,
            **also,
        )

    def of(
        self, placement: Placement, sizes: tuple[int, ...], *, synthetic: bool = False, **also: Any
    ) -> BenchOptions:
        """Ask for a random pair, placed so; texts agree by chance unless acceptance is simulated."""
        return BenchOptions(
            target=self.models.path(placement.target),
            draft_model=self.models.path(placement.drafter),
            draft=sizes,
            prompt=PROMPTS[: self.preset.prompts],
            chat=False,
            repeats=1,
            warmup=0,
            synthetic_accept=ALPHA if synthetic else None,
            **{"engine": "server", **placement.options, **also},
        )

    def random(self, pairing: Pairing, layers: Layers) -> BenchOptions:
        """Ask for a random pair at every γ; its drafter is on the GPU whole, unless nothing else is."""
        options = {"ngl": layers, "ngld": 0 if layers == 0 or not self.gpu else "all"}
        placement = Placement(
            name=pairing.name, target=pairing.target, drafter=pairing.drafter, options=options
        )
        return self.of(placement, self.preset.sizes, synthetic=True, n_predict=pairing.n_predict)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The benches of a random pair, by the target's layers on the GPU."""

    by_layers: Mapping[Layers, ResultSet]

    def arms(self) -> Iterator[tuple[Layers, Arm]]:
        """Yield every arm that was reached."""
        for layers, results in self.by_layers.items():
            for arm in arms.group(results):
                yield layers, arm


def sweep(bench: Bench, pairing: Pairing, layers: Layers, seconds: float) -> Section:
    """Measure every γ at the notebook's acceptance, simulated, as far as time allows.

    Raises:
        OutOfMemoryError: these layers do not fit, by the memory plan.
    """
    alone = {Role.DRAFTER} if layers == pairing.layers[0] else set()
    results, wanted = bench.run(
        bench.random(pairing, layers), seconds, roles={Role.TARGET, Role.DRAFTING, *alone}
    )
    return table(results, wanted, prompts=bench.preset.prompts)


def table(results: ResultSet, wanted: Sequence[RunSpec], *, prompts: int) -> Section:
    """Return one row for each arm that was asked for; one that never measured anything is a fault.

    Args:
        results: what was measured.
        wanted: what was asked for.
        prompts: of each arm; time may have ended before all.
    """
    reached = {arm.spec: arm for arm in arms.group(results)}
    broken = [arm for arm in reached.values() if not arm.good and arm.status != Status.TIMED_OUT]
    return Section(
        rows=[row(spec, reached.get(spec), prompts) for spec in wanted],
        notes=doubts(results),
        benches=[results.meta.id],
        fault=f"{len(broken)} arms failed, first {broken[0].what}: {broken[0].status}" if broken else "",
    )


def median_tps(arm: Arm | None) -> float | None:
    """Return the median over prompts of tokens/s: the first answer of a fresh server is a slow one."""
    return statistics.median(arm.rates.values()) if arm is not None and arm.rates else None


def gain(arm: Arm | None) -> float | None:
    """Return an arm's speed over the target alone under the same settings, by their medians."""
    own, alone = median_tps(arm), median_tps(arm.baseline if arm is not None else None)
    return own / alone if own and alone else None


def _offloaded(arm: Arm | None) -> str | None:
    known = arm.layers if arm is not None else None
    if known is None:
        return None
    return f"{known.offloaded}" + (f"/{known.total}" if known.total else "")


def doubts(results: ResultSet) -> list[str]:
    """Return the names of a bench's doubts as a sentence, but for those that every bench here has."""
    found = [name for name in review.warnings(results) if name not in _USUAL]
    return [f"Doubts: {', '.join(found)}."] if found else []


def row(spec: RunSpec, arm: Arm | None, prompts: int) -> Row:
    """Return what a table says of an arm, also of one that was not reached in time."""
    accepted = arm.acceptance if arm is not None else None
    texts = arm.compared if arm is not None else {}
    tps, times = median_tps(arm), gain(arm)
    on_drafter = spec.role is Role.DRAFTER
    status = f"{NOT_RUN}: no time was left" if arm is None else arm.status
    if arm is not None and arm.prompts < prompts:
        status += f", {arm.prompts} of {prompts} prompts"
    return {
        "measured": arm.what if arm is not None else spec.role.value,
        "layers asked": spec.offload.drafter.layers if on_drafter else spec.offload.target.layers,
        "on the GPU": _offloaded(arm),
        "users": spec.traffic.users if spec.traffic else None,
        "γ": spec.drafting.n_max if spec.drafting else None,
        "tokens/s": None if tps is None else round(tps, 2),
        "accepted": None if accepted is None else f"{accepted.accept_rate:.1%}",
        "speed-up": None if times is None else f"{times:.2f}×",
        "text unchanged": f"{sum(texts.values())} of {len(texts)}" if texts else None,
        "status": status,
    }
