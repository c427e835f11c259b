"""Judgements for people: a finding with what it rests on, or what is missing and the command for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from ggufspec import results as stores
from ggufspec import units
from ggufspec.analysis import Arm, rank
from ggufspec.domain import Missing, Role, SpeedJudgement
from ggufspec.report.text import figures
from ggufspec.results import ResultSet

_WITH_VALUE = frozenset({"--name", "--resume", "--repeats", "-r", "--max-time"})
"""Options of ``bench`` that the command which goes on with it replaces; each takes a value."""

_TUNINGS = frozenset({"tune", "auto"})
_NEEDS: Mapping[Missing, str] = {
    Missing.RUNS: "more runs would decide it",
    Missing.LOADS: "loads of the models differ by chance, so three or more of them would decide it",
    Missing.QUIET: "other programs, swapping or heat disturbed more than a fifth of the runs, so a quiet "
    "machine would decide it",
}


def ratio(judgement: SpeedJudgement) -> str:
    """Return a speed-up with its interval: ``1.14× [0.95×, 1.37×]``; ``unknown`` without any run."""
    return figures.factor(judgement.ratio) or "unknown"


def runs(judgement: SpeedJudgement) -> str:
    """Return how many runs there are: ``34 of 36 runs``, or ``36 runs`` where all are there."""
    done, planned = judgement.runs_done, judgement.runs_planned
    if planned is None or done >= planned:
        return units.counted(done, "run")
    return f"{done} of {planned} runs"


def basis(judgement: SpeedJudgement) -> str:
    """Return what a judgement rests on: ``8 prompts × 3 repeats, 3 loads``."""
    return (
        f"{units.counted(judgement.prompts, 'prompt')} × {units.counted(judgement.repeats, 'repeat')}, "
        f"{units.counted(judgement.loads, 'load')}"
    )


def undecided(judgement: SpeedJudgement) -> str:
    """Return that nothing was found: ``0.98× [0.73×, 1.32×] after 34 of 36 runs``."""
    return f"{ratio(judgement)} after {runs(judgement)}"


def needs(judgement: SpeedJudgement) -> str:
    """Return what an undecided judgement needs, as a clause; empty for a decided one."""
    return "; ".join(_NEEDS[missing] for missing in judgement.missing)


def deciding(results: ResultSet, groups: Sequence[Arm]) -> Iterator[str]:
    """Yield what would decide a bench whose verdict is open, with the command for it; nothing otherwise.

    Args:
        results: the bench.
        groups: its arms.
    """
    judged = [(arm, arm.judgement) for arm in groups if arm.role is Role.DRAFTING and arm.judgement]
    judgement = rank(judged).judgement
    if judgement is None or judgement.is_decided:
        return
    command = _command(results, judgement)
    asked = f": `{command}`" if command else ""
    if Missing.QUIET in judgement.missing:
        yield f"Stop other programs and measure again{f': `{_anew(results)}`' if _anew(results) else '.'}"
    elif judgement.needed_repeats is not None:
        repeats = units.counted(judgement.needed_repeats, "repeat")
        more = f"{_time(results, judgement)}would probably decide it, with {repeats} of each prompt"
        yield more + (asked or ".")
    elif judgement.needed_prompts is not None:
        yield (
            "The speed-up differs too much from prompt to prompt for more repeats: about "
            f"{judgement.needed_prompts} prompts like these would probably decide it."
        )
    else:
        yield "It is too close to 1 for any number of runs that is worth the time."


def _time(results: ResultSet, judgement: SpeedJudgement) -> str:
    """Return the time of the missing repeats, by that of the measured ones, as a sentence begins."""
    current = results.current
    spent_s = sum(current.column("wall_s"))
    repeats = len(set(current.column("repeat")))
    done = len(current) / (results.meta.planned_runs or len(current) or 1)
    per_repeat_s = spent_s / max(1.0, repeats * min(1.0, done))
    left_s = per_repeat_s * (judgement.needed_repeats or 0) - spent_s
    return f"About {units.format_duration(max(left_s, per_repeat_s))} more " if spent_s else "More runs "


def _command(results: ResultSet, judgement: SpeedJudgement) -> str | None:
    """Return the command that goes on with a bench; None where a notebook began it, or it cannot go on."""
    name, (_, *words) = results.meta.id, results.meta.command or ("",)
    repeats = str(judgement.needed_repeats)
    if stores.has_configuration(results.folder):
        return shlex.join(["ggufspec", "bench", "--tuned", name, "--repeats", repeats])
    is_bench = next((word for word in words if not word.startswith("-")), None) == "bench"
    if not is_bench or results.meta.stopping is not None:
        return None
    resumed = ["--resume", name] if Missing.LOADS not in judgement.missing else ["--loads", repeats]
    return shlex.join(["ggufspec", *_without(words), *resumed, "--repeats", repeats])


def _anew(results: ResultSet) -> str | None:
    """Return the command that measures a bench again from the start."""
    words = results.meta.command[1:]
    if stores.has_configuration(results.folder):
        return shlex.join(["ggufspec", "bench", "--tuned", results.meta.id])
    command = next((word for word in words if not word.startswith("-")), None)
    if command not in {"bench", *_TUNINGS}:
        return None
    fresh = ["--fresh"] if command in _TUNINGS and "--fresh" not in words else []
    return shlex.join(["ggufspec", *_without(words, ("--name", "--resume")), *fresh])


def _without(words: Sequence[str], options: Sequence[str] | frozenset[str] = _WITH_VALUE) -> Iterator[str]:
    """Yield the words of a command line without some options and their values."""
    rest = iter(words)
    for word in rest:
        if word in options:
            next(rest, None)
        elif word.partition("=")[0] not in options:
            yield word
