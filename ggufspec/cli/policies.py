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
    from ggufspec.forecast.policies import PolicyComparison, PolicyGain, ScheduleComparison


@command_of(PolicyOptions)
def policy(asked: PolicyOptions) -> None:
    """Replay rules for the draft size over the rounds of BENCH, and say whether any beats a fixed γ.

    BENCH is a bench of a draft model with llama-server at several draft sizes. The rounds of the largest tell
    what shorter drafts would have done; the times of all tell what a round costs. Built in are "follow" (one
    token more than were accepted), "mean" (more than eight rounds accepted on average), the open proposals of
    llama.cpp (#25726, #27210), ik_llama.cpp's autotune, each fixed γ, and the oracle, which knows the text.
    With a p-min measured at the largest size, smaller sizes with it are replayed, too.

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

    Of a bench with several numbers of users, a schedule is compared, as vLLM and TensorRT-LLM have them:

    \b
    ggufspec bench --engine server --parallel 1,4,16 --draft 1,4,8 && ggufspec policy --schedule 4:8,16:1

    With --times, rules are also compared by what rounds take in such a bench, at each number of users and
    depth.
    """
    from ggufspec.forecast.policies import ScheduleComparison

    compared = api.policy(asked, sink=Terminal())
    if asked.output == "json":
        echo_json(asdict(compared))
        return
    if isinstance(compared, ScheduleComparison):
        _print_schedule(compared)
        return
    _print_rules(compared)
    for cell in compared.cells:
        echo(f"\n{counted(cell.users, 'user')} at once, {counted(cell.depth, 'token')} before each prompt:\n")
        _print_rules(cell)


def _print_rules(compared: PolicyComparison) -> None:
    from ggufspec.report.text import figures

    for group in dict.fromkeys(gain.category for gain in compared.gains):
        rows = [
            [
                gain.rule,
                format_number(round(gain.mean_size, 1)),
                *map(figures.factor, (gain.gain, gain.over_fixed, gain.of_oracle)),
            ]
            for gain in compared.gains
            if gain.category == group
        ]
        echo_table([group or "rule", "mean γ", "speed-up", "over best γ", "of the oracle"], rows)
    if compared.checks:
        replayed = (f"{check.rule} {format_factor(check.ratio)}" for check in compared.checks)
        echo(f"Replayed over measured speed: {', '.join(replayed)}.")
    echo(_conclude(compared))


def _print_schedule(compared: ScheduleComparison) -> None:
    from ggufspec.analysis import judge_ratio
    from ggufspec.domain import SpeedVerdict
    from ggufspec.report.text import figures

    rows = [
        [
            str(gain.users),
            *([str(gain.depth)] if any(one.depth for one in compared.gains) else []),
            str(gain.size) if gain.size else "none",
            *map(figures.factor, (gain.gain, gain.over_fixed, gain.of_oracle)),
        ]
        for gain in compared.gains
    ]
    depth = ["depth"] if any(gain.depth for gain in compared.gains) else []
    fixed = f"over γ {compared.best_fixed}"
    echo_table(["users", *depth, "γ", "speed-up", fixed, "of the best here"], rows)
    found = {
        SpeedVerdict.FASTER: "",
        SpeedVerdict.UNDECIDED: " More repeats would decide whether it is faster.",
    }.get(judge_ratio(compared.over_fixed), " A fixed γ is as good.")
    echo(
        f"Over these numbers of users, the schedule is {figures.factor(compared.over_fixed)} as fast as γ "
        f"{compared.best_fixed}, the best fixed γ, which the same runs chose.{found}"
    )
    lists = [list(part) for part in compared.schedule.parts]
    pairs = {last: size for _, last, size in compared.schedule.parts}
    echo(f"vLLM: num_speculative_tokens_per_batch_size = {lists}; TensorRT-LLM: draft_len_schedule = {pairs}")


def _conclude(compared: PolicyComparison) -> str:
    from ggufspec.analysis import judge_ratio
    from ggufspec.domain import SpeedVerdict
    from ggufspec.report.text import figures

    prompts, fixed = counted(compared.prompts, "prompt"), f"γ {compared.best_fixed}"
    by_verdict: dict[SpeedVerdict, list[PolicyGain]] = {}
    for gain in compared.rules:
        by_verdict.setdefault(judge_ratio(gain.over_fixed), []).append(gain)
    if faster := by_verdict.get(SpeedVerdict.FASTER):
        times = figures.factor(faster[0].over_fixed)
        return f"{faster[0].rule} is {times} as fast as {fixed}, the best fixed γ, on {prompts}."
    if undecided := by_verdict.get(SpeedVerdict.UNDECIDED):
        names = ", ".join(gain.rule for gain in undecided)
        return (
            f"Undecided on {prompts} whether a rule ({names}) is faster than {fixed}: "
            f"more prompts would decide it. Keep {fixed} until then."
        )
    return f"No rule is faster than {fixed} on {prompts}: a fixed γ is as good."
