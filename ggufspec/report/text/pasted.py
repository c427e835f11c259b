"""Whether the drafting of a pasted command pays, and what to change in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ggufspec.analysis import arms, rank
from ggufspec.domain import Role
from ggufspec.pasting import PastedCommand
from ggufspec.report.text import judgements
from ggufspec.results import ResultSet


def advice(results: ResultSet, pasted: PastedCommand, tune: str) -> Iterator[str]:
    """Yield sentences on a command that was measured as it is and without drafting.

    Args:
        results: the bench.
        pasted: the command.
        tune: the command that looks for a faster configuration.
    """
    groups = arms.group(results)
    ranking = rank([(arm, arm.judgement) for arm in groups if arm.judgement is not None])
    if not any(arm.role is Role.DRAFTING for arm in groups):
        target = shlex.quote(str(pasted.values.get("target", "")))
        yield f"This command does not draft. What may draft for its model: `ggufspec suggest {target}`."
    elif ranking.judgement is None:
        yield "Whether the drafting of this command pays is not known: nothing of it could be compared."
    elif not ranking.judgement.is_decided:
        found = judgements.undecided(ranking.judgement)
        yield f"Whether the drafting of this command pays is undecided: {found}."
    elif ranking.drafts:
        yield f"The drafting of this command pays: {judgements.ratio(ranking.judgement)}. Keep it."
    else:
        ratio = judgements.ratio(ranking.judgement)
        yield (
            f"The drafting of this command does not pay: {ratio}. Leave its options out (-md, --spec-… and "
            "--draft-…)."
        )
    for change in pasted.to_change:
        yield f"To change: {change}."
    pays = ranking.judgement is None or not ranking.judgement.is_decided or ranking.drafts
    if pasted.drafts and not pays:
        yield f"The command without drafting: `{shlex.join(pasted.without_drafting)}`."
    elif pasted.to_change:
        yield f"The command for today's llama.cpp: `{shlex.join(pasted.today)}`."
    yield f"Whether other settings are faster: `{tune}`."
