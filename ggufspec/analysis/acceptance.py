"""How much of what was drafted the target accepted: one definition of each figure, from raw counts.

Counts of several runs are added before anything is divided, so a long run weighs more than a short one.
A round is one evaluation of the target after the prompt's own, whether it had drafts to verify or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from ggufspec import stats
from ggufspec.domain import MethodCounts, Sample


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What was accepted; fractions are from 0 to 1, and what some run does not tell is None.

    Attributes:
        n_drafted: tokens that the drafter proposed and the target verified.
        n_accepted: those among them that the target took; its own corrections are not counted.
        n_rounds: the target's evaluations.
        n_drafts: those of them that had drafts to verify; all of them where the program does not tell. Some
            servers of 2025 evaluate the target without a draft after every draft.
        accept_rate: accepted over drafted tokens.
        mean_accepted_length: tokens per round with the target's own, 1 + accepted / rounds. 1 is no gain;
            papers that leave the target's token out give 1 less.
        tokens_per_draft: the same of the rounds that verified a draft, 1 + accepted / drafts: what
            llama-server (``mean len``) and vLLM print.
        coverage: accepted over all generated tokens, the share of the output that came from drafts.
        by_position: for a draft's first, second, … token, the share of all drafts of which it was accepted.
        conditional: the same among the drafts of which the token before it was: α at each position. It ends
            where no draft got that far.
        by_method: what each method of a chain drafted, in the order in which they are asked; None for a
            single method.
    """

    n_drafted: int
    n_accepted: int
    n_rounds: int | None
    n_drafts: int | None
    accept_rate: float
    mean_accepted_length: float | None
    tokens_per_draft: float | None
    coverage: float | None
    by_position: tuple[float, ...] | None
    conditional: tuple[float, ...] | None
    by_method: tuple[MethodCounts, ...] | None = None


def of(samples: Iterable[Sample]) -> Acceptance | None:
    """Return the acceptance of runs taken together, see ``of_counted``."""
    return of_counted((1, sample) for sample in samples)


def of_counted(samples: Iterable[tuple[int, Sample]]) -> Acceptance | None:
    """Return the acceptance of runs taken together, or None if they drafted nothing.

    Each sample is behind how many of the runs have it: greedy ones repeat a few.

    Runs that do not draft at all are left out. Take runs of one draft size together: positions that some of
    the runs never drafted count as not accepted there.
    """
    drafting = [
        (n, sample) for n, sample in samples if sample.n_drafted is not None and sample.n_accepted is not None
    ]
    n_drafted = _total((n, sample.n_drafted) for n, sample in drafting)
    n_accepted = _total((n, sample.n_accepted) for n, sample in drafting)
    if not n_drafted or n_accepted is None:
        return None
    n_rounds = _total((n, _n_rounds(sample)) for n, sample in drafting)
    n_drafts = _total((n, _n_drafts(sample)) for n, sample in drafting)
    generated = _total((n, sample.gen_tokens) for n, sample in drafting)
    accepted_at = _columns((n, accepted_at_of(sample) if sample.n_drafted else ()) for n, sample in drafting)
    return Acceptance(
        n_drafted=n_drafted,
        n_accepted=n_accepted,
        n_rounds=n_rounds,
        n_drafts=n_drafts,
        accept_rate=n_accepted / n_drafted,
        mean_accepted_length=1 + n_accepted / n_rounds if n_rounds else None,
        tokens_per_draft=1 + n_accepted / n_drafts if n_drafts else None,
        coverage=n_accepted / generated if generated else None,
        by_position=tuple(count / n_drafts for count in accepted_at) if accepted_at and n_drafts else None,
        conditional=_conditional(accepted_at, n_drafts) if accepted_at and n_drafts else None,
        by_method=_by_method([(n, sample.by_method) for n, sample in drafting]),
    )


def _by_method(
    counts: Sequence[tuple[int, tuple[MethodCounts, ...] | None]],
) -> tuple[MethodCounts, ...] | None:
    """Return the sums over runs of the same chain; None if some run does not tell."""
    if any(methods is None for _, methods in counts):
        return None
    sums: dict[str, list[int]] = {}
    for n, (method, *numbers) in ((n, entry) for n, methods in counts for entry in methods or ()):
        before = sums.get(method, (0, 0, 0))
        sums[method] = [total + n * count for total, count in zip(before, numbers, strict=True)]
    return tuple(MethodCounts(method, *numbers) for method, numbers in sums.items()) or None


@dataclass(frozen=True, kw_only=True)
class AcceptanceIntervals:
    """Figures of ``Acceptance`` with 95 % intervals over prompts or conversations; None as there."""

    accept_rate: stats.Estimate | None
    mean_accepted_length: stats.Estimate | None
    tokens_per_draft: stats.Estimate | None


def intervals(
    samples: Mapping[str, Sequence[Sample]], *, repeats: int = 1, draft_size: int | None = None
) -> AcceptanceIntervals | None:
    """Return how far acceptance is known: other prompts of this kind have another one.

    Args:
        samples: by prompt, or by conversation for its turns.
        repeats: how often each prompt was measured. Repeats accept much the same, so that their counts are
            those of one: how sure a share near 1 is depends on how many tokens it is of.
        draft_size: γ, the most tokens of a draft; None where it is not known.

    Returns:
        The estimates, or None if nothing was drafted.
    """
    of_unit = {unit: of(of_this) for unit, of_this in samples.items()}
    counted = {unit: accepted for unit, accepted in of_unit.items() if accepted is not None}
    if not counted:
        return None
    accepted, rounds, drafts, drafted = (
        {
            unit: count / repeats
            for unit, figures in counted.items()
            if (count := getattr(figures, name)) is not None
        }
        for name in ("n_accepted", "n_rounds", "n_drafts", "n_drafted")
    )
    return AcceptanceIntervals(
        accept_rate=stats.ratio_of_sums(accepted, drafted, highest=1.0),
        mean_accepted_length=_tokens_per(rounds, accepted, draft_size)
        if len(rounds) == len(counted)
        else None,
        tokens_per_draft=_tokens_per(drafts, accepted, draft_size) if len(drafts) == len(counted) else None,
    )


def _tokens_per(
    steps: Mapping[str, float], accepted: Mapping[str, float], draft_size: int | None
) -> stats.Estimate | None:
    """Return the tokens of a round, or of a draft, with the target's own.

    A symmetric interval ends above γ + 1 where nearly everything is accepted, and misses what lies below: of
    4 prompts at 95 %, it holds in 87 %. So the interval is that of the share of γ that is accepted.
    """
    if not draft_size or any(accepted[unit] > draft_size * number for unit, number in steps.items()):
        return stats.ratio_of_sums(accepted, steps, offset=1.0)  # a chain may draft more in its first methods
    most = {unit: draft_size * number for unit, number in steps.items()}
    share = stats.ratio_of_sums(accepted, most, highest=1.0)
    return share and stats.Estimate(
        value=1 + draft_size * share.value,
        lo=None if share.lo is None else 1 + draft_size * share.lo,
        hi=None if share.hi is None else 1 + draft_size * share.hi,
    )


def accepted_at_of(sample: Sample) -> tuple[int, ...] | None:
    """Return how often each position of a run's drafts was accepted, from its rounds if it has them."""
    if sample.rounds is None:
        return sample.accepted_at
    longest = max((draft_round.drafted for draft_round in sample.rounds), default=0)
    return tuple(
        sum(draft_round.accepted > position for draft_round in sample.rounds) for position in range(longest)
    )


def _n_rounds(sample: Sample) -> int | None:
    return sample.n_rounds if sample.rounds is None else len(sample.rounds)


def _n_drafts(sample: Sample) -> int | None:
    if sample.rounds is None:
        return sample.n_rounds
    return sum(draft_round.drafted > 0 for draft_round in sample.rounds)


def _total(counts: Iterable[tuple[int, int | None]]) -> int | None:
    """Add counts, each so many times; one that is absent makes the sum absent."""
    total = 0
    for n, count in counts:
        if count is None:
            return None
        total += n * count
    return total


def _columns(rows: Iterable[tuple[int, tuple[int, ...] | None]]) -> tuple[int, ...] | None:
    """Add counts by position, each row so many times; one that is absent makes the sums absent."""
    weighted: list[tuple[int, ...]] = []
    for n, row in rows:
        if row is None:
            return None
        weighted.append(tuple(n * count for count in row))
    return tuple(map(sum, zip_longest(*weighted, fillvalue=0)))


def _conditional(accepted_at: tuple[int, ...], n_drafts: int) -> tuple[float, ...]:
    counts = (n_drafts, *accepted_at)
    return tuple(count / before for before, count in pairwise(counts) if before)
