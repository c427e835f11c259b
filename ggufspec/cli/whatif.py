"""``ggufspec whatif``: forecast what drafting would gain, without downloading or running a model."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of, usage_errors
from ggufspec.cli.entry.output import echo, echo_sentence
from ggufspec.cli.entry.tables import emit
from ggufspec.options import WhatIfOptions


@command_of(WhatIfOptions)
def command(asked: WhatIfOptions) -> None:
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

    --machine gives a roofline: tokens/s are estimated from peak rates. For layers that stay on the CPU
    (--ngl, --n-cpu-moe), --host names the machine whose processor computes them.

    With --parallel, that many users draft in step on one llama-server, and share the batches of both models.

    With --rtt, workers on other machines hold the target (`bench --rpc`), and the drafter is here. Costs are
    those without a network. Each pass of the target then pays the round trips, once for a draft of any size.
    llama.cpp 0.3.36 makes one for each worker; --round-trips says how many there are.

    \b
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --alpha 0.5-0.9 --verify-ratio 1.5
    ggufspec whatif --target-tps 2.01 --drafter-tps 87.02 --accept 0.708 --observed 2.58 --draft 3 \\
        --program speculative
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8
    ggufspec whatif --pair llama-3-70b --machine rtx-3090 --ngl 45 --host ryzen-7950x --alpha 0.8
    ggufspec whatif --profile last --alpha 0.5-0.9
    ggufspec whatif --pair llama-3-70b --like theirs.zip --alpha 0.8
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8 --parallel 16 --depth 4096
    ggufspec whatif --pair llama-3-70b --machine h100 --alpha 0.8 --rtt 2ms --bandwidth 1G
    """
    from ggufspec.forecast import costs, whatif
    from ggufspec.report import frames
    from ggufspec.report.text import formats, projections, tables

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
    with usage_errors():
        answer = api.whatif(asked)
    for note in answer.notes:
        echo_sentence(note, err=True)
    if asked.output in tables.FOR_PEOPLE:
        emit(projections.surface(answer, asked.output), asked.out)
    else:
        emit(formats.render(frames.outlooks(answer), asked.output), asked.out)
