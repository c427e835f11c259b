"""``ggufspec plan``, ``whatif`` and ``policy``: memory and speed of what is not run."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_json, echo_sentence, echo_table, emit, emit_page
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.options import PlanOptions, PolicyOptions, WhatIfOptions
from ggufspec.units import counted, format_bytes, format_factor, format_number

if TYPE_CHECKING:
    from ggufspec.forecast import planning
    from ggufspec.forecast.policies import PolicyComparison, PolicyGain, ScheduleComparison


@command_of(PlanOptions)
def plan(asked: PlanOptions) -> None:
    """Plan memory for each device, and for each number of layers on the GPU.

    Only the headers of the models are read. Without --pair or -m, the pair is the one fetched last, otherwise
    the embedded one.

    With --machine, and --host for layers on the CPU, there is a column of tokens/s of the target alone. They
    are forecast from the machines' peak rates and what llama.cpp reaches of them, with a full context.

    With both machines and without --ngl, the fastest places that fit are listed for some draft sizes: layers,
    experts of a mixture, and the drafter, as options to paste. --ram limits the host's memory.

    \b
    ggufspec plan --pair llama-3-70b --vram 24G
    ggufspec plan -m user/repo:Q4_K_M --vram 24G --machine rtx-3090 --host ryzen-7950x
    ggufspec plan -m big.gguf -md small.gguf --ngl 45 --kv-type q8_0 -o csv
    ggufspec plan --tuned last --vram 16G
    ggufspec plan --pair llama-3-70b --rpc 192.168.0.7:50052
    """
    from ggufspec.modelfiles import memory
    from ggufspec.modelfiles.compat import mtp_layers
    from ggufspec.report.text import projections

    with usage_errors():
        planned = api.plan(asked)
    for gpu in planned.gpus:
        free, total = format_bytes(gpu.free_bytes), format_bytes(gpu.total_bytes)
        echo(f"detected: {gpu.name}, {free} of {total} free", err=True)
    if planned.method is not None and planned.draft is None:
        echo(f"note: {planned.pair.name} drafts with {planned.method}, which needs no second model", err=True)
    if planned.method is None and mtp_layers(planned.target):
        echo("note: the target has layers for MTP; --method draft-mtp plans memory for them", err=True)
    for role, card in (("target", planned.target), ("drafter", planned.draft)):
        for doubt in memory.doubts(card) if card else ():
            echo(f"note: the memory for the {role} is uncertain: {doubt}", err=True)
    for note in planned.notes:
        echo_sentence(note)
    emit_page(
        lambda: f"{_describe_fit(planned)}\n\n{projections.memory_plan(planned, asked.output)}",
        lambda frames: frames.memory_plans(planned),
        *(asked.output, asked.out),
        title="plan",
        schema="plan",
    )


def _describe_fit(planned: planning.Planned) -> str:
    """Return the sentences above the tables: what fits, what would, and how fast that can be at most."""
    shown, best, complete = planned.shown, planned.best, planned.plans[-1]
    layers = f"{shown.target.gpu_layers} of {shown.target.max_layers} layers"
    takes = f"{format_bytes(shown.gpu_bytes)} on the GPU, {format_bytes(shown.host_bytes)} on the host"
    beside = " beside the drafter" if shown.draft else ""
    if not planned.vram_bytes:
        return f"{layers}{beside} take {takes}.{_describe_rate(planned)}"
    sizes = planned.vram_bytes if planned.is_split else (sum(planned.vram_bytes),)
    room = f"{' + '.join(map(format_bytes, sizes))} with {format_bytes(planned.reserve_bytes)} left free"
    fit = "fit" if planned.fits(shown) else "do not fit"
    answer = f"{layers} {fit}{beside} into {room}: {takes}."
    if best is None:
        answer += " Offload fewer layers of the drafter, or none (--ngld 0)."
    elif best is not shown:
        answer += f" At most {best.target.gpu_layers} fit."
    elif best.target.gpu_layers < best.target.max_layers:
        answer += f" All {complete.target.max_layers} would take {format_bytes(complete.gpu_bytes)}."
    return f"{answer}{_describe_rate(planned)}"


def _describe_rate(planned: planning.Planned) -> str:
    from ggufspec.report.text import figures

    rate = planned.rate(planned.shown)
    if rate is None:
        return ""
    return f"\nForecast: {figures.rate(rate)} tokens/s without drafting, with a full context."


@command_of(WhatIfOptions)
def whatif(asked: WhatIfOptions) -> None:
    """Forecast the speed-up from drafting for each γ, the best γ, and the acceptance needed to break even.

    --accept is the acceptance rate: accepted over drafted tokens, as llama.cpp prints it. 0.708 is the
    rate at every γ of the table. 0.708@3 is the rate at γ = 3; other γ then have the same α. 0.9,0.8,0.7
    are the shares of rounds that accept each position. --alpha is α, the probability that a drafted token
    is accepted. Use it to compare draft sizes: a drafter's acceptance rate falls as γ grows. Both take
    ranges, such as 0.5-0.9 and 0.5-0.9+0.05.

    Costs come from two rates, from headers and a machine's published peak rates, or from a profile of `tune`
    at the depth nearest to --ctx. With --like, they come from a bundle that somebody published after `tune`:
    if another pair was measured there, times are scaled by the bytes that models read for a token, and lie
    on the devices as there. With --observed, they come from the rate measured at one --draft.

    With --machine, tokens/s are forecast from peak rates and what llama.cpp reaches of them. For layers that
    stay on the CPU (--ngl, --n-cpu-moe), --host names the machine whose processor computes them.

    With --vram, each γ is at the places of layers, experts and drafter that are fastest for it by forecast,
    and is compared with the target alone at its own. --ram limits the host's memory.

    With --parallel, that many users draft in step on one llama-server, and share the batches of both models.

    With --rtt, workers on other machines hold the target (`bench --rpc`), and the drafter is here. Costs are
    those without a network. Each pass of the target then pays the round trips, once for a draft of any size.
    llama.cpp 0.3.36 makes one for each worker; --round-trips says how many there are.

    With --url, smaller draft sizes of a llama-server that runs and drafts with a draft model are forecast.
    Its traffic so far tells what would be accepted: the rounds in its log (LLAMA_TRACE=1, --server-log), or
    its counters (--metrics, or any log), with wider intervals. A few short requests tell what rounds cost. It
    is not started again. Beside a server with the target alone, the speed-up is known, too.

    \b
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --alpha 0.5-0.9 --verify-ratio 1.5
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --accept 0.708 --observed 2.58 --draft 3 \\
        --program speculative
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8
    ggufspec whatif --pair llama-3-70b --machine rtx-3090 --ngl 45 --host ryzen-7950x --alpha 0.8
    ggufspec whatif -m big.gguf -md small.gguf --machine rtx-3090 --host ryzen-7950x --vram 24G --alpha 0.8
    ggufspec whatif --profile last --alpha 0.5-0.9
    ggufspec whatif --pair llama-3-70b --like theirs.zip --alpha 0.8
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8 --parallel 16 --ctx 4096
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8 --rtt 2ms --bandwidth 1G
    ggufspec whatif --url http://127.0.0.1:8081 --url http://127.0.0.1:8080
    """
    from ggufspec.forecast import costs, whatif
    from ggufspec.report.text import projections

    if asked.machine == "list":
        lines = (f"{key:12} {whatif.describe_device(device)}\n" for key, device in costs.DEVICES.items())
        emit("".join(lines), asked.out)
        return
    if asked.profile == "list":
        stored = whatif.list_profiles()
        if not stored:
            echo("no profile of a pair is stored yet; `ggufspec tune` measures one", err=True)
        emit(stored, asked.out)
        return
    form = asked.output, asked.out
    if asked.names_servers:
        served = api.whatif_served(asked)
        for sentence in served.basis:
            echo_sentence(sentence)
        page = partial(projections.of_server, served, asked.output)
        emit_page(page, lambda frames: frames.served_forecasts(served), *form)
        return
    with usage_errors():
        answer = api.whatif(asked)
    for note in answer.notes:
        echo_sentence(note)
    page = partial(projections.surface, answer, asked.output)
    emit_page(page, lambda frames: frames.outlooks(answer), *form)


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
