"""``ggufspec tune``: find the fastest drafter, draft size and offload on this machine."""

from __future__ import annotations

from ggufspec import api
from ggufspec.cli.entry.command import command_of
from ggufspec.cli.entry.output import echo
from ggufspec.cli.entry.terminal import Terminal
from ggufspec.errors import InconclusiveError
from ggufspec.options import TuneOptions


@command_of(TuneOptions)
def command(asked: TuneOptions) -> None:
    """Find the fastest drafter, draft size and offload, or report that drafting does not pay off.

    A short measurement of target and drafters forecasts every configuration. The best few are then measured,
    and the winner and the runner-up are confirmed beside the target alone, with new loads and new runs. Only
    these figures are the verdict. --forecast stops before that, after short
    runs of the target and of one draft size.

    With --parallel N, the choice is for N users at once: the forecast is of a server with N slots, and each
    run is one load of it under the requests of N clients, as `bench --parallel N` measures. Without it, one
    request follows another, and --serve-parallel only reserves memory.

    All runs have memory for the context that --serve-ctx and --serve-parallel ask for. Before the command for
    llama-server is printed, it is started once, and answers a short and a long request. The configuration is
    stored: `ggufspec bench --tuned NAME` measures it again, `chat`, `plan`, `report` and `compare` take it
    as well.

    \b
    ggufspec tune                                     the pair fetched last
    ggufspec tune -m big.gguf -md a.gguf -md b.gguf   two drafters, or none
    ggufspec tune --parallel 4 --serve-ctx 8192       a server for four users
    ggufspec tune --from llama.service                instead of what a unit runs today
    """
    from ggufspec.cli.entry.tables import emit
    from ggufspec.cli.steps import benches, pasting
    from ggufspec.cli.steps import tuning as steps
    from ggufspec.tuning import TuningForecast

    asked, _ = pasting.read_asked(asked)
    terminal = Terminal(steps.describe_ended)
    if asked.forecast:
        outlook = api.forecast_tuning(asked, sink=terminal)
        emit(steps.render_forecasts(outlook, asked.output, terminal), asked.out)
        return
    try:
        tuned = api.tune(asked, sink=terminal)
    except InconclusiveError:
        forecast = terminal.last(TuningForecast)
        if forecast is not None:
            echo("The forecast, which no measurement confirms:", err=True)
            emit(steps.render_forecasts(forecast, asked.output, terminal), asked.out)
        raise
    emit(steps.render(tuned, asked, asked.output, terminal), asked.out)
    benches.raise_for_failures(tuned.results)
    if asked.strict:
        open_ids = () if tuned.overall.is_decided else (tuned.results.meta.id,)
        benches.refuse_doubtful([tuned.results], undecided=open_ids)
