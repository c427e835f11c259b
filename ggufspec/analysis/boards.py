"""A board: what drafting gained on many machines, as one row for each arm of published benches, pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ggufspec import notebooks, units
from ggufspec.analysis import arms
from ggufspec.analysis.arm import Arm
from ggufspec.analysis.judging import rank
from ggufspec.domain import Estimate, Machine, Role, RunSpec, SpeedJudgement
from ggufspec.llama.install import releases
from ggufspec.results import ResultSet


class BundleState(StrEnum):
    """Whether a bundle's figures were recomputed from its raw logs."""

    VERIFIED = "verified"
    REFUTED = "does not verify"
    UNCHECKED = "not verified"


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """An arm that drafts, of a published bench; intervals are of 95 %, and absent is None.

    Attributes:
        bundle: the name of its bundle.
        sha256: of that bundle.
        bench: the id of the bench.
        state: whether the bundle was verified.
        pair: the files of target and drafter, or the target and the drafting method.
        machine: processor and GPUs.
        build: llama.cpp's version and compute backend.
        engine: what ran llama.cpp.
        gamma: the draft size γ.
        p_min: the least probability of a drafted token.
        layers: layers of the target on the GPU.
        threads: of the processor.
        users: how many shared a server.
        target_tps: tokens/s of the target alone.
        tps: tokens/s of the arm.
        speedup: over the target alone.
        verdict: whether the arm is faster.
        recommended: the speed-up after the choice among all arms beside the same target alone; of the arm
            that may be recommended there, None for all others.
        accept_rate: accepted over drafted tokens.
        runs: how many runs count.
    """

    bundle: str
    sha256: str
    bench: str
    state: BundleState
    pair: str
    machine: str
    build: str
    engine: str
    gamma: int | None
    p_min: float | None
    layers: int | None
    threads: int | None
    users: int | None
    target_tps: float | None
    tps: Estimate
    speedup: Estimate | None
    verdict: str | None
    accept_rate: float | None
    runs: int
    recommended: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedBundle:
    """A bundle of benches, as a board shows it.

    Attributes:
        name: of its folder or zip.
        report: its page, or the zip.
        sha256: of its ``verify.txt``.
        made_at: when it was published, ISO 8601.
        version: of the ggufspec that published it.
        state: whether it was verified.
        findings: what does not follow from its raw logs, as sentences.
        rows: one for each arm that drafts.
    """

    name: str
    report: Path
    sha256: str
    made_at: str
    version: str
    state: BundleState
    findings: tuple[str, ...]
    rows: tuple[BoardRow, ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """Bundles of many machines, side by side."""

    bundles: tuple[PublishedBundle, ...]

    @property
    def rows(self) -> tuple[BoardRow, ...]:
        """The rows of all bundles, the largest speed-up first."""
        rows = [row for bundle in self.bundles for row in bundle.rows]
        return tuple(sorted(rows, key=lambda row: -(row.speedup.value if row.speedup else 0.0)))

    @property
    def best(self) -> BoardRow | None:
        """The row with the largest speed-up among those that their benches recommend.

        A row that stands for itself does not account for how many were looked at.
        """
        recommended = [(row.recommended.value, row) for row in self.rows if row.recommended is not None]
        return max(recommended, key=lambda pair: pair[0], default=(0.0, None))[1]

    def _repr_html_(self) -> str:
        return notebooks.html(self)


def make_board(bundles: Sequence[PublishedBundle]) -> Board:
    """Return a board; of equal bundles, such as a folder and its zip, the first one counts."""
    distinct: dict[str, PublishedBundle] = {}
    for bundle in bundles:
        distinct.setdefault(bundle.sha256, bundle)
    return Board(bundles=tuple(distinct.values()))


def list_rows(bench: ResultSet, *, bundle: str, sha256: str, state: BundleState) -> Iterator[BoardRow]:
    """Yield a row for each arm of a bench that drafts and was measured; synthetic acceptance is left out.

    Args:
        bench: of the bundle.
        bundle: its name.
        sha256: of the bundle.
        state: whether the bundle was verified.
    """
    groups = arms.group(bench)
    recommended = _recommended(groups)
    for arm in groups:
        if arm.role is not Role.DRAFTING or arm.synthetic or arm.rate is None:
            continue
        alone = arm.baseline.rate if arm.baseline else None
        drafting = arm.spec.drafting
        yield BoardRow(
            bundle=bundle,
            sha256=sha256,
            bench=bench.meta.id,
            state=state,
            pair=" + ".join(arm.models),
            machine=describe_machine(bench.meta.machine),
            build=f"{releases.identify(arm.build)}, {arm.build.backend or 'unknown backend'}",
            engine=bench.meta.engine,
            gamma=arm.draft_size,
            p_min=drafting.p_min if drafting else None,
            layers=arm.layers.offloaded if arm.layers else None,
            threads=arm.spec.threads,
            users=arm.spec.traffic.users if arm.spec.traffic else None,
            target_tps=alone.value if alone else None,
            tps=arm.rate,
            speedup=arm.gain.ratio if arm.gain else None,
            verdict=arm.judgement.verdict.value if arm.judgement else None,
            accept_rate=arm.acceptance.accept_rate if arm.acceptance else None,
            runs=len(arm.rates),
            recommended=recommended.get(arm.spec),
        )


def _recommended(groups: Sequence[Arm]) -> dict[RunSpec, Estimate]:
    """Return the speed-up of each arm that may be recommended beside its target alone."""
    judged: dict[RunSpec, list[tuple[Arm, SpeedJudgement]]] = {}
    for arm in groups:
        if arm.baseline is not None and arm.judgement is not None and not arm.synthetic:
            judged.setdefault(arm.baseline.spec, []).append((arm, arm.judgement))
    rankings = [ranking for ranking in map(rank, judged.values()) if ranking.drafts]
    return {
        ranking.best.spec: ranking.judgement.ratio
        for ranking in rankings
        if ranking.best is not None and ranking.judgement is not None and ranking.judgement.ratio is not None
    }


def describe_machine(machine: Machine) -> str:
    """Return a machine in a few words: ``2 × NVIDIA H100, AMD EPYC, 16 cores``."""
    gpus = (f"{count} × {gpu}" if count > 1 else gpu for gpu, count in Counter(machine.gpus).items())
    return ", ".join((*gpus, machine.cpu, units.counted(machine.cores, "core")))
