"""``ggufspec policy``: what rules for the draft size would gain on the rounds of a stored bench."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo, echo_json, echo_table
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import PolicyOptions
from ggufspec.units import counted, format_factor, format_number

if TYPE_CHECKING:
    from ggufspec.domain import Estimate
    from ggufspec.forecast.policies import PolicyComparison, PolicyGain


@command_of(PolicyOptions)
def policy(asked: PolicyOptions) -> None:
    """Replay rules for the draft size over the rounds of BENCH, and say whether any beats a fixed γ.

    BENCH is a bench of a draft model with llama-server at several draft sizes. The rounds of the largest tell
    what shorter drafts would have done; the times of all tell what a round costs. Built in are "follow" (one
    token more than were accepted), "mean" (more than eight rounds accepted on average), "epsilon-greedy" (the
    fastest size so far, and now and then another), each fixed γ, and the oracle, which knows the text.

    A rule of your own is a function in a Python file, named with --rule:

    \b
    def halve(rounds, seconds, largest):
        if not rounds:
            return largest
        drafted, accepted = rounds[-1]
        return drafted + 1 if accepted == drafted else drafted // 2

    \b
    ggufspec bench --engine server --draft 1,4,16 && ggufspec policy
    ggufspec policy b9102 --rule mine.py
    """
    compared = api.policy(asked, sink=Terminal())
    if asked.output == "json":
        echo_json(asdict(compared))
        return
    for group in dict.fromkeys(gain.category for gain in compared.gains):
        rows = [
            [
                gain.rule,
                format_number(round(gain.mean_size, 1)),
                *map(_format_ratio, (gain.gain, gain.over_fixed, gain.of_oracle)),
            ]
            for gain in compared.gains
            if gain.category == group
        ]
        echo_table([group or "rule", "mean γ", "speed-up", "over best γ", "of the oracle"], rows)
    echo(_conclude(compared))


def _format_ratio(ratio: Estimate) -> str:
    text = format_factor(ratio.value)
    if ratio.lo is None or ratio.hi is None:
        return text
    return f"{text} [{format_factor(ratio.lo)}, {format_factor(ratio.hi)}]"


def _conclude(compared: PolicyComparison) -> str:
    from ggufspec.analysis import judge_ratio
    from ggufspec.domain import SpeedVerdict

    prompts, fixed = counted(compared.prompts, "prompt"), f"γ {compared.best_fixed}"
    by_verdict: dict[SpeedVerdict, list[PolicyGain]] = {}
    for gain in compared.rules:
        by_verdict.setdefault(judge_ratio(gain.over_fixed), []).append(gain)
    if faster := by_verdict.get(SpeedVerdict.FASTER):
        times = _format_ratio(faster[0].over_fixed)
        return f"{faster[0].rule} is {times} as fast as {fixed}, the best fixed γ, on {prompts}."
    if undecided := by_verdict.get(SpeedVerdict.UNDECIDED):
        names = ", ".join(gain.rule for gain in undecided)
        return (
            f"Undecided on {prompts} whether a rule ({names}) is faster than {fixed}: "
            f"more prompts would decide it. Keep {fixed} until then."
        )
    return f"No rule is faster than {fixed} on {prompts}: a fixed γ is as good."
