"""Plans and projections for people.

A plan says what a sweep will measure and how long that takes, or the memory of a pair; a projection is the
speed-up over γ, or over γ and acceptance, with the best γ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggufspec import units
from ggufspec.domain import Acceptance, AcceptanceRate, Steady
from ggufspec.errors import GgufspecError
from ggufspec.forecast import whatif
from ggufspec.forecast.costs import PublishedFigure
from ggufspec.forecast.planning import Planned
from ggufspec.forecast.whatif import CostSource, Places, ServedForecast, WhatIf, WhatIfProjection
from ggufspec.llama.command import flags
from ggufspec.measure import Blocks, RunPlan, refuse_endless, runplan, sizes
from ggufspec.modelfiles.memory import MemoryPlan
from ggufspec.report.columns import FilledTable, TableLayout
from ggufspec.report.rows import plans as plan_rows
from ggufspec.report.text import figures, formats, tables

_OUTLOOKS = TableLayout(
    row=plan_rows.OutlookRow,
    names=(
        *("draft", "accept_rate", "mean_accepted_length", "verify_ratio", "draft_share", "tokens_per_s"),
        *("speedup", "break_even_accept_rate", "places"),
    ),
)


_SERVED = TableLayout(
    row=plan_rows.ForecastRow,
    names=("draft", "accept_rate", "mean_accepted_length", "tokens_per_s", "speedup"),
)


def of_server(served: ServedForecast, output: str = "md") -> str:
    """Return a table over γ for a server that runs, and what another draft size would give."""
    layout = _SERVED if served.has_baseline else _SERVED.without("speedup")
    return tables.Page(found=(_better(served),), table=layout.fill(served.forecasts)).text(output)


def _better(served: ServedForecast) -> str:
    """Return what the server's draft size gives, what the best one would, and how to have that."""
    now, best, gain = served.now, served.best, served.gain
    size = best.drafting.n_max
    own, is_best = f"The server's γ {served.n_max}", size == served.n_max or gain.value <= 1
    restart = f"restart with {flags.SPELLINGS['draft_max'][0]} {size}"
    if not served.has_baseline:
        found = f"{own} is as fast as any smaller one"
        if not is_best:
            found = (
                f"γ {size} would be about {figures.factor(gain)} as fast as γ {served.n_max} is: {restart}"
            )
        return f"{found}. A server with the target alone beside it tells the speed-up."
    reached = f"{own} gives about {figures.factor(now.speedup)}"
    if best.speedup.value <= 1:
        return f"{reached}, and no smaller γ pays, at best γ {size} with {figures.factor(best.speedup)}."
    found = "no smaller γ is faster"
    if not is_best:
        found = f"γ {size} would give about {figures.factor(best.speedup)}: {restart}"
    return f"{reached}; {found}. These are estimates of one load of each; `ggufspec bench` measures them."


def surface(answer: WhatIf, output: str = "md") -> str:
    """Return a table over γ for one acceptance, or over both for several, with the best γ and break-even.

    Args:
        answer: the projections; those from headers are marked as such.
        output: ``md``, or ``table`` for the terminal, where the best γ comes first.
    """
    outlooks = answer.projections
    acceptances = list(dict.fromkeys(outlook.acceptance for outlook in outlooks))
    if len(acceptances) == 1:
        items = ({"projection": outlook, "costs": answer.costs} for outlook in outlooks)
        layout = _OUTLOOKS.without("places") if outlooks[0].places is None else _OUTLOOKS
        table, best = layout.fill(items), _best(outlooks, answer.costs)
    else:
        table, best = _over_both(outlooks, acceptances), _best_each(outlooks, acceptances)
    found = [best, _reading(acceptances[0])]
    if outlooks[0].users > 1:
        users = outlooks[0].users
        found.append(f"Tokens/s are of all {users} users together, beside as many of the target alone.")
    if answer.costs is CostSource.HEADERS:
        basis = "Forecast from headers and peak rates, not measured"
        factor = answer.costs.estimate(1, PublishedFigure.SPEEDUP).hi
        rest = "`ggufspec tune` measures what that leaves open"
        found.append(f"{basis}: nine of ten such speed-ups are within a factor of {factor}. {rest}.")
    text = tables.Page(found=found, table=table).text(output)
    return text + _patterns([found.places for found in outlooks if found.places])


def _over_both(outlooks: Sequence[WhatIfProjection], acceptances: Sequence[Acceptance]) -> FilledTable:
    rows = []
    is_rate, places = isinstance(acceptances[0], AcceptanceRate), outlooks[0].places
    for size in dict.fromkeys(outlook.n_max for outlook in outlooks):
        row = [outlook for outlook in outlooks if outlook.n_max == size]
        cells = {outlook.acceptance: units.format_factor(outlook.speedup) for outlook in row}
        even = row[0].break_even_alpha
        alpha = "never" if even is None else f"α = {even:.2f}"
        rows.append(
            [
                str(size),
                *(cells.get(acceptance, "") for acceptance in acceptances),
                plan_rows.break_even(row[0].break_even_accept_rate) if is_rate else alpha,
                *((row[0].places.words,) if row[0].places else ()),
            ]
        )
    heads = ["speed-up at γ", *map(_name, acceptances), "break-even", *(("places",) if places else ())]
    return FilledTable.of_texts(heads, rows)


def _best(outlooks: Sequence[WhatIfProjection], source: CostSource) -> str:
    top = whatif.best(outlooks)
    reached = figures.factor(source.estimate(top.speedup, PublishedFigure.SPEEDUP))
    if top.speedup > 1:
        return f"Best: γ = {top.n_max}, {reached}. Break-even: the acceptance rate above which drafting pays."
    easiest = min(outlooks, key=lambda outlook: outlook.break_even_accept_rate)
    if easiest.break_even_accept_rate > 1:
        return "By this projection, drafting would not pay: at these costs no acceptance rate is high enough."
    return (
        f"By this projection, drafting would not pay: γ = {top.n_max} comes closest with "
        f"{reached}. γ = {easiest.n_max} would pay above an acceptance rate of "
        f"{plan_rows.break_even(easiest.break_even_accept_rate)}."
    )


def _best_each(outlooks: Sequence[WhatIfProjection], acceptances: Sequence[Acceptance]) -> str:
    tops = [
        (acceptance, whatif.best([outlook for outlook in outlooks if outlook.acceptance == acceptance]))
        for acceptance in acceptances
    ]
    answers = [
        f"{_name(acceptance)}: γ = {top.n_max}, {units.format_factor(top.speedup)}"
        if top.speedup > 1
        else f"{_name(acceptance)}: no γ would pay"
        for acceptance, top in tops
    ]
    return "Best: " + "; ".join(answers) + "."


def _name(acceptance: Acceptance) -> str:
    match acceptance:
        case AcceptanceRate():
            return f"{units.format_percent(acceptance.rate)} accepted"
        case Steady():
            return f"α = {acceptance.alpha:.2f}"
        case _:
            return "by position"


def _reading(acceptance: Acceptance) -> str:
    """Return what an acceptance means, as one sentence."""
    match acceptance:
        case AcceptanceRate():
            return "Acceptance: the share of the drafted tokens that is accepted, at every γ."
        case Steady():
            return "Acceptance: the probability α that each drafted token is accepted, at every γ."
        case _:
            return "Acceptance: the share of rounds that accept each position of the draft."


_MOST_READ = 1000  # rows for people
_MOST_ROWS = 20_000  # of a table for programs: a frame of more takes hundreds of megabytes

_MOST_PLANS = 16  # besides the last one and the one that is asked for
_DEVICES = TableLayout(row=plan_rows.DeviceRow, names=("name", "weights", "cache", "compute", "total"))
_PLANS = TableLayout(
    row=plan_rows.PlanRow, names=("requested_ngl", "gpu_bytes", "host_bytes", "fits", "forecast_tps")
)
_PLACES = TableLayout(row=plan_rows.PlaceRow, names=("draft", "words", "gpu_bytes", "host_bytes", "round_s"))


def sweep_plan(suite: RunPlan, output: str, engine: str) -> str | bytes:
    """Return one row per arm with its expected seconds; for people also the engine and the expected time.

    Of a sweep of more than 1000 arms, people see the axes.

    Raises:
        GgufspecError: a table for programs would have more rows than can be measured.
    """
    arms, experience = suite.n_arms, runplan.experience()
    for_people = output in tables.FOR_PEOPLE
    if for_people and arms.total() > _MOST_READ and isinstance(suite.blocks, Blocks):
        summary = _summary(suite, runplan.total(suite, experience))
        axes = ((name, f"{count:,}") for name, count in sizes(suite.blocks.sweep).items())
        table = FilledTable.of_texts(("axis", "values"), axes)
        return tables.Page(engine=figures.engine(engine), table=table, notes=summary).text(output)
    if arms.total() > _MOST_ROWS:
        raise GgufspecError(
            f"{arms.total():,} arms are more than {_MOST_ROWS:,}, the most rows that a plan has",
            "leave out -o to see counts and the expected time",
        )
    from ggufspec.report import frames  # pandas is slow to import, and takes more memory than a plan

    expected = runplan.expect(suite, experience)
    frame = frames.planned_arms(expected, runs=len(suite.prompts) * suite.repeats)
    if not for_people:
        return formats.render(frame, output, title="cells")
    lines = (figures.engine(engine), "", formats.for_people(frame, output))
    return "\n".join((*lines, *_summary(suite, sum(expected.values())), ""))


def _summary(suite: RunPlan, seconds: float) -> list[str]:
    """Return how many arms and runs there are, the expected time, and why it is too much to measure."""
    arms, runs = units.counted(suite.n_arms.total(), "arm"), units.counted(suite.n_runs, "run")
    baselines = units.counted(len(suite.blocks), "baseline")
    n_loads = "" if suite.loads is None else f", {units.counted(suite.n_arms.total() * suite.loads, 'load')}"
    lines = [f"{arms} with {baselines}, {runs}{n_loads}: about {units.format_duration(seconds)}."]
    try:
        refuse_endless(suite)
    except GgufspecError as error:
        lines.append(f"This cannot be measured: {error.message}; {error.hint}.")
    return lines


def memory_plan(planned: Planned, output: str) -> str:
    """Return the memory of the shown plan by device, and some plans, the shown one among them."""
    plans = list(plan_rows.list_plans(planned))
    step = max(1, len(plans) // _MOST_PLANS)
    some = [
        item
        for number, item in enumerate(plans)
        if number % step == 0 or number == len(plans) - 1 or item["plan"] == planned.shown
    ]
    devices = tables.render(_DEVICES.fill(_devices(planned.shown)), output)
    return f"{devices}\n\n{tables.render(_PLANS.fill(some), output)}\n{_places(planned, output)}"


def _places(planned: Planned, output: str) -> str:
    """Return the fastest places for each draft size, and their experts as patterns; nothing where unknown."""
    if not planned.places:
        return ""
    table = tables.render(_PLACES.fill(planned.places), output)
    return f"\nThe fastest places that fit, by forecast:\n\n{table}\n{_patterns(planned.places)}"


def _patterns(places: Sequence[Places]) -> str:
    """Return the experts of some places as patterns."""
    patterns = {place.offload.target.cpu_moe: place.override for place in places if place.override}
    return "".join(f"\n--n-cpu-moe {kept} is -ot '{pattern}'\n" for kept, pattern in patterns.items())


def _devices(plan: MemoryPlan) -> Iterator[Mapping[str, object]]:
    """Yield the memory of each model on each device; each of several GPUs has its own."""
    for name, model in (("target", plan.target), ("drafter", plan.draft)):
        if model is not None:
            gpus = {f"GPU {number}": footprint for number, footprint in enumerate(model.gpus)}
            if len(gpus) <= 1:
                gpus = {"the GPU": model.gpu}
            for device, footprint in {**gpus, "the host": model.host}.items():
                yield {"name": f"{name} on {device}", "footprint": footprint}
    if plan.projector.total:
        yield {"name": "projector on the GPU", "footprint": plan.projector}
