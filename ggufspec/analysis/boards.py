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
from ggufspec.domain import Estimate, Role, RunSpec, SpeedJudgement
from ggufspec.results import Meta, ResultSet


class BundleState(StrEnum):
    """Whether a bundle's figures were recomputed from its raw logs."""

    VERIFIED = "verified"
    REFUTED = "does not verify"
    UNCHECKED = "not verified"


@dataclass(frozen=True, kw_only=True)
class BoardRow:
    """An arm that drafts, of a published bench.

    Attributes:
        bundle: the name of its bundle.
        sha256: of that bundle.
        state: whether the bundle was verified.
        meta: of the bench.
        arm: what was measured.
        recommended: the speed-up after the choice among all arms beside the same target alone; of the arm
            that may be recommended there, None for all others.
    """

    bundle: str
    sha256: str
    state: BundleState
    meta: Meta
    arm: Arm
    recommended: Estimate | None = None

    @property
    def pair(self) -> str:
        """The files of target and drafter, or the target and the drafting method."""
        return " + ".join(self.arm.models)

    @property
    def machine(self) -> str:
        """Its GPUs and its processor: ``2 × NVIDIA H100, AMD EPYC, 16 cores``."""
        machine = self.meta.machine
        gpus = (f"{count} × {gpu}" if count > 1 else gpu for gpu, count in Counter(machine.gpus).items())
        return ", ".join((*gpus, machine.cpu, units.counted(machine.cores, "core")))


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
class Board(notebooks.Shown):
    """Bundles of many machines, side by side."""

    bundles: tuple[PublishedBundle, ...]

    @property
    def rows(self) -> tuple[BoardRow, ...]:
        """The rows of all bundles, the largest speed-up first."""
        rows = [row for bundle in self.bundles for row in bundle.rows]
        return tuple(
            sorted(rows, key=lambda row: row.arm.gain.ratio.value if row.arm.gain else 0, reverse=True)
        )

    @property
    def best(self) -> BoardRow | None:
        """The row with the largest speed-up among those that their benches recommend.

        A row that stands for itself does not account for how many were looked at.
        """
        recommended = [(row.recommended.value, row) for row in self.rows if row.recommended is not None]
        return max(recommended, key=lambda pair: pair[0], default=(0.0, None))[1]


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
        if arm.role is Role.DRAFTING and not arm.synthetic and arm.rate is not None:
            yield BoardRow(
                bundle=bundle,
                sha256=sha256,
                state=state,
                meta=bench.meta,
                arm=arm,
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
