"""What a bench compares: its runs grouped into arms, each with its estimates, pure and ready to print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ggufspec import stats
from ggufspec.domain import Role, RunResult, Status
from ggufspec.doubts import ADVICE, Doubt
from ggufspec.results import ResultSet

PARTIAL = "partial"


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Layers on the GPU as llama.cpp counts them: one more than the model has blocks."""

    offloaded: int
    total: int | None


@dataclass(frozen=True, kw_only=True)
class Arm:
    """All measured runs of one thing: target alone, drafter alone, or drafting at one size.

    ``rate`` is in tokens/s (see ``Sample.decode_tps``), ``gain`` is the speed-up over the target alone,
    paired by prompt and repeat; both carry a 95 % interval over repeats.
    """

    role: Role
    draft_size: int | None
    runs: tuple[RunResult, ...]
    rate: stats.Estimate | None
    gain: stats.Estimate | None
    layers: Layers | None
    draft_layers: Layers | None

    @property
    def good(self) -> tuple[RunResult, ...]:
        """The runs that ended well."""
        return tuple(run for run in self.runs if run.sample.status is Status.OK)

    @property
    def prompts(self) -> int:
        """Number of distinct prompts."""
        return len({run.spec.prompt.id for run in self.runs})

    @property
    def repeats(self) -> int:
        """Number of repeats of each prompt."""
        return len({run.repeat for run in self.runs})

    @property
    def n_drafted(self) -> int | None:
        """Drafted tokens in all good runs; None where nothing drafts."""
        return sum(run.sample.n_drafted or 0 for run in self.good) if self.draft_size else None

    @property
    def n_accepted(self) -> int | None:
        """Accepted tokens in all good runs; None where nothing drafts."""
        return sum(run.sample.n_accepted or 0 for run in self.good) if self.draft_size else None

    @property
    def accept_rate(self) -> float | None:
        """Accepted over drafted tokens of all good runs together, 0 to 1."""
        return self.n_accepted / self.n_drafted if self.n_drafted and self.n_accepted is not None else None

    @property
    def compared(self) -> dict[str, bool]:
        """Prompt id -> whether every one of its compared texts is the target's own."""
        found: dict[str, bool] = {}
        for run in self.good:
            if run.text_identical is not None:
                name = run.spec.prompt.id
                found[name] = found.get(name, True) and run.text_identical
        return found

    @property
    def status(self) -> str:
        """``ok``, ``partial``, or the most frequent failure where no run ended well."""
        if len(self.good) == len(self.runs):
            return Status.OK.value
        if self.good:
            return PARTIAL
        return Counter(run.sample.status.value for run in self.runs).most_common(1)[0][0]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Names of the warnings about this arm's runs."""
        failed = () if self.status == Status.OK else (Doubt.RUNS_FAILED.value,)
        return tuple(dict.fromkeys((*(name for run in self.runs for name in run.doubts), *failed)))


def group(results: ResultSet) -> tuple[Arm, ...]:
    """Return the arms of a bench in the order in which they were first measured."""
    runs: dict[tuple[Role, int | None], list[RunResult]] = {}
    for run in results.measured:
        size = run.spec.drafting.n_max if run.spec.drafting else None
        runs.setdefault((run.spec.role, size), []).append(run)
    baseline = _rates(runs.get((Role.TARGET, None), []))
    drafter = _layers(runs.get((Role.DRAFTER, None), []), results)
    return tuple(
        Arm(
            role=role,
            draft_size=size,
            runs=tuple(members),
            rate=stats.mean_rate(_rates(members)),
            gain=stats.speedup(_rates(members), baseline) if role is Role.DRAFTING else None,
            layers=None if role is Role.DRAFTER else _layers(members, results),
            draft_layers=None if role is Role.TARGET else drafter,
        )
        for (role, size), members in runs.items()
    )


def warnings(results: ResultSet) -> dict[str, str]:
    """Return the named warnings of a bench: advice, and how many runs showed it."""
    found = dict(results.meta.doubts)
    measured = results.measured
    for name in dict.fromkeys(name for arm in group(results) for name in arm.doubts):
        doubt = Doubt(name)
        hit = [
            run
            for run in measured
            if name in run.doubts or (doubt is Doubt.RUNS_FAILED and run.sample.status is not Status.OK)
        ]
        detail = _where_texts_part(hit) if doubt is Doubt.TEXT_DIFFERS else ""
        found[name] = f"{ADVICE[doubt]} ({len(hit)} of {len(measured)} runs{detail})"
    return found


def _rates(members: Sequence[RunResult]) -> dict[stats.Cell, float]:
    return {
        (run.spec.prompt.id, run.repeat): rate
        for run in members
        if run.sample.status is Status.OK and (rate := run.sample.decode_tps) is not None
    }


def _layers(members: Sequence[RunResult], results: ResultSet) -> Layers | None:
    """Return what the logs say went to the GPU; a build for the processor alone offloads nothing.

    Such a build may still claim that it offloaded (a library with remote devices compiled in does), so its
    claim is not asked.
    """
    samples = [run.sample for run in members if run.sample.status is Status.OK]
    total = next((sample.total_layers for sample in samples if sample.total_layers), None)
    if results.meta.build.backend == "cpu":
        return Layers(offloaded=0, total=total) if samples else None
    offloaded = next(
        (sample.offloaded_layers for sample in samples if sample.offloaded_layers is not None), None
    )
    return None if offloaded is None else Layers(offloaded=offloaded, total=total)


def _where_texts_part(hit: Sequence[RunResult]) -> str:
    first = {
        run.spec.prompt.id: f"token {run.difference.at_token}"
        if run.difference.at_token is not None
        else f"character {run.difference.at_char}"
        for run in reversed(hit)
        if run.difference
    }
    return "".join(f"; {prompt} from {where}" for prompt, where in sorted(first.items()))
