"""Judgements for people: a finding with what it rests on, or what is missing and the command for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ggufspec import results as stores, stats, units
from ggufspec.analysis import SERVER_LOADS, Arm, TextGain, arms, differing_gains, judge_categories, rank
from ggufspec.domain import Missing, Role, SpeedJudgement
from ggufspec.options import AutoOptions, BenchOptions, Options, SweepOptions, TuneOptions, divide_words
from ggufspec.report.text import figures
from ggufspec.results import ResultSet

if TYPE_CHECKING:  # most benches are measured without one
    from ggufspec.pasting import PastedCommand

_COMMANDS: Mapping[str, type[Options]] = {
    "bench": BenchOptions,
    "sweep": SweepOptions,
    "tune": TuneOptions,
    "auto": AutoOptions,
}
_REPLACED = frozenset({"name", "resume", "repeats", "max_time"})  # others take their place
_TEXTS = frozenset({"prompt", "prompt_file", "suite", "per_category", "system", "chat"})
_MOST_NAMED = 4  # categories or prompts in a sentence; of more, the two ends
_NEEDS: Mapping[Missing, str] = {
    Missing.RUNS: "more runs would decide it",
    Missing.LOADS: "loads of the models differ by chance, and fewer than three were measured",
    Missing.QUIET: "other programs, swapping or heat changed the runs by more than all else that varies, so"
    " a quiet machine would decide it",
    Missing.FAILURES: "more runs or requests of one arm failed than of the other, and the slow ones may be"
    " those that fail",
}


def ratio(judgement: SpeedJudgement) -> str:
    """Return a speed-up with its interval: ``1.14× [0.95×, 1.37×]``; ``unknown`` without any run."""
    return figures.factor(judgement.ratio) or "unknown"


def assumption(spread: float) -> str:
    """Return what an interval rests on that assumes how much loads differ, as a clause."""
    return (
        f"the interval assumes that loads differ by {units.format_percent(spread, 0)} (one standard "
        f"deviation), because fewer than {stats.MIN_LOADS} were measured"
    )


def runs(judgement: SpeedJudgement) -> str:
    """Return how many runs there are: ``34 of 36 runs``, or ``36 runs`` where all are there."""
    done, planned = judgement.runs_done, judgement.runs_planned
    if planned is None or done >= planned:
        return units.counted(done, "run")
    return f"{done} of {planned} runs"


def basis(judgement: SpeedJudgement) -> str:
    """Return what a judgement rests on: ``8 prompts × 3 repeats, 3 loads, best of 4 arms``."""
    best = f", best of {judgement.family} arms" if judgement.family > 1 else ""
    return (
        f"{units.counted(judgement.prompts, 'prompt')} × {units.counted(judgement.repeats, 'repeat')}, "
        f"{units.counted(judgement.loads, 'load')}{best}"
    )


def choice(judgement: SpeedJudgement) -> str:
    """Return a sentence on the choice among several arms, with a space before it; nothing of a single arm."""
    if judgement.family < 2:
        return ""
    return f" Speed-up and interval account for the choice among {judgement.family} arms."


def undecided(judgement: SpeedJudgement) -> str:
    """Return that nothing was found: ``0.98× [0.73×, 1.32×] after 34 of 36 runs``."""
    return f"{ratio(judgement)} after {runs(judgement)}"


def sentence(clause: str) -> str:
    """Return a clause as a sentence; nothing of nothing."""
    return f"{clause[:1].upper()}{clause[1:]}." if clause else ""


def needs(judgement: SpeedJudgement) -> str:
    """Return what an undecided judgement needs, as a clause; empty for a decided one."""
    return "; ".join(_NEEDS[missing] for missing in judgement.missing)


def depends_on_text(arm: Arm | None, baseline: Arm | None = None) -> Iterator[str]:
    """Yield a sentence where categories differ in what was found, or texts in their speed-up.

    Args:
        arm: the arm that a verdict is about; None where there is none.
        baseline: what it is compared with; by default its own.
    """
    if arm is None:
        return
    found = policy(judge_categories(arm, baseline))
    if found is not None:
        yield found
        return
    gains = differing_gains(arm, baseline)
    if not gains:
        return
    if len(gains) > _MOST_NAMED:
        highest, lowest = gains[0], gains[-1]
        named = f"from {_gain(highest)} down to {_gain(lowest)}"
    else:
        named = ", ".join(map(_gain, gains))
    yield f"The answer depends on the text: {named}."


def _gain(gain: TextGain) -> str:
    return f"{gain.name} {units.format_factor(gain.ratio)}"


def policy(
    judged: Mapping[str, SpeedJudgement], drafts: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """Return on which categories drafting pays, as a sentence; None where the same was found of all.

    Args:
        judged: by category, each over the target alone.
        drafts: what drafts for a category, where that is something else than for the others.
    """
    pays: list[str] = []
    fails: list[str] = []
    unknown: list[str] = []
    for category, judgement in judged.items():
        names = pays if judgement.pays else fails if judgement.is_decided else unknown
        beside = f" with {drafts[category]}" if category in drafts else ""
        names.append(f"{category} ({units.format_factor(judgement.factor)}{beside})")
    if not drafts and len(judged) in map(len, (pays, fails, unknown)):
        return None
    clauses = [f"pays on {_listed(pays)}"] if pays else []
    clauses += [f"{'not' if pays else 'does not pay'} on {_listed(fails)}"] if fails else []
    undecided = [f"it is undecided on {_listed(unknown)}"] if unknown else []
    return f"By category, drafting {'; '.join((', '.join(clauses), *undecided))}."


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def deciding(
    results: ResultSet, judgement: SpeedJudgement | None, *, names_command: bool = True
) -> Iterator[str]:
    """Yield what would decide an open verdict, with the command for it; nothing where it is decided.

    Args:
        results: the bench.
        judgement: what its verdict is about; None without one.
        names_command: whether the command is part of the sentence.
    """
    if judgement is None or judgement.is_decided:
        return
    words = deciding_command(results, judgement)
    command = "." if words is None or not names_command else f": `{shlex.join(words)}`"
    if Missing.FAILURES in judgement.missing:
        yield f"See why runs failed (`ggufspec show {results.meta.id} --runs`), and measure again{command}"
    elif Missing.QUIET in judgement.missing:
        yield f"Stop other programs and measure again{command}"
    elif Missing.LOADS in judgement.missing and results.runs[0].spec.servers is not None:
        yield f"For a verdict, {SERVER_LOADS}."
    elif judgement.needed_repeats is not None:
        resumes = words is None or "--resume" in words
        repeats = units.counted(judgement.needed_repeats, "repeat")
        time = _time(results, judgement.needed_repeats, resumes=resumes)
        yield f"{time} would probably decide it, with {repeats} of each prompt{command}"
    elif judgement.needed_prompts is not None:
        yield (
            "The speed-up differs too much from prompt to prompt for more repeats: about "
            f"{judgement.needed_prompts} prompts like these would probably decide it."
        )
    elif judgement.ratio is not None:
        yield "That takes more runs than are worth the time: runs vary too much for so small a difference."


def deciding_command(results: ResultSet, judgement: SpeedJudgement) -> list[str] | None:
    """Return the command that would probably decide an open verdict; None where there is none."""
    if {Missing.QUIET, Missing.FAILURES} & {*judgement.missing}:
        return _anew(results)
    if judgement.needed_repeats is None or results.runs[0].spec.servers is not None:
        return None
    return _command(results, judgement.needed_repeats, anew=Missing.LOADS in judgement.missing)


def leading_arm(groups: Sequence[Arm]) -> Arm | None:
    """Return the arm that a bench's verdict is about; None where none was compared."""
    return rank([(arm, arm.judgement) for arm in groups if arm.judgement is not None]).best


def _time(results: ResultSet, needed: int, *, resumes: bool) -> str:
    """Return how long some repeats would take, by those that were measured, as a sentence begins."""
    current = results.current
    spent_s = sum(current.column("wall_s"))
    if not spent_s:
        return "More runs"
    repeats = len(set(current.column("repeat")))
    done = min(1.0, len(current) / (results.meta.planned_runs or len(current)))
    per_repeat_s = spent_s / max(1.0, repeats * done)
    left_s = max(per_repeat_s * needed - (spent_s if resumes else 0.0), per_repeat_s)
    # a tuning with a time limit measures some of the prompts that the command measures
    about = "At least" if stores.has_configuration(results.folder) else "About"
    return f"{about} {units.format_duration(left_s)}{' more' if resumes else ''}"


def _command(results: ResultSet, repeats: int, *, anew: bool) -> list[str] | None:
    """Return the command that makes so many repeats; None where a notebook began the bench.

    It goes on with the bench, unless that has loads of several repeats, which stay so.
    """
    name, words = results.meta.id, results.meta.command[1:]
    if stores.has_configuration(results.folder):
        return [*_tuned_command(results), "--repeats", str(repeats)]
    if _subcommand(words) != "bench" or results.meta.stopping is not None:
        return None
    if anew:
        return ["ggufspec", *_without(words, _REPLACED | {"loads"}), "--repeats", str(repeats)]
    return ["ggufspec", *_without(words, _REPLACED), "--resume", name, "--repeats", str(repeats)]


def _anew(results: ResultSet) -> list[str] | None:
    """Return the command that measures a bench again from the start; None where a notebook began it."""
    words = results.meta.command[1:]
    command = _subcommand(words)
    if stores.has_configuration(results.folder):
        return _tuned_command(results)
    if command not in _COMMANDS:
        return None
    repeats = len(set(results.current.column("repeat")))
    if command in {"bench", "sweep"} and results.meta.stopping is None and repeats < stats.MIN_LOADS:
        fewer = _REPLACED | {"loads"}  # no machine is quiet enough for so few repeats
        return ["ggufspec", *_without(words, fewer), "--repeats", str(stats.MIN_LOADS)]
    return ["ggufspec", *_without(words, frozenset({"name", "resume"}))]


def _tuned_command(results: ResultSet) -> list[str]:
    """Return the command that measures a tuned configuration on its tuning's texts, as long as its runs."""
    lengths = {spec.n_predict for spec in results.current.specs}
    length = ("-n", str(*lengths)) if len(lengths) == 1 else ()
    divided = _divided(results.meta.command[1:])
    texts = [word for option, part in divided if option in _TEXTS for word in part]
    return ["ggufspec", "bench", "--tuned", results.meta.id, *texts, *length]


def _without(words: Sequence[str], options: frozenset[str]) -> Iterator[str]:
    """Yield the words of a command line without some options and their values."""
    for option, part in _divided(words):
        if option not in options:
            yield from part


def _divided(words: Sequence[str]) -> Iterator[tuple[str | None, tuple[str, ...]]]:
    """Yield the words of a command line, those of an option together, behind its name in Python."""
    known = _COMMANDS.get(_subcommand(words) or "", BenchOptions).options.values()
    for option, part in divide_words(words, known):
        yield None if option is None else option.python_name, part


def _subcommand(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def advise_on_pasted(results: ResultSet, pasted: PastedCommand, tune: str) -> Iterator[str]:
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
        found = undecided(ranking.judgement)
        yield f"Whether the drafting of this command pays is undecided: {found}."
    elif ranking.drafts:
        yield f"The drafting of this command pays: {ratio(ranking.judgement)}. Keep it."
    else:
        yield (
            f"The drafting of this command does not pay: {ratio(ranking.judgement)}. Leave its options out "
            "(-md, --spec-… and --draft-…)."
        )
    for change in pasted.to_change:
        yield f"To change: {change}."
    pays = ranking.judgement is None or not ranking.judgement.is_decided or ranking.drafts
    if pasted.drafts and not pays:
        yield f"The command without drafting: `{shlex.join(pasted.without_drafting)}`."
    elif pasted.to_change:
        yield f"The command for today's llama.cpp: `{shlex.join(pasted.today)}`."
    yield f"Whether other settings are faster: `{tune}`."
