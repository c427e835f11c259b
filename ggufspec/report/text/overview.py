"""Benches for people, measured or growing: a table, what its numbers rest on, warnings; and their list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ggufspec import units
from ggufspec.analysis import Arm, ListedBench, arms, review
from ggufspec.domain import LoadedModel, Role, RunSpec, Status
from ggufspec.harmless import one_line
from ggufspec.report.columns import FilledTable, TableLayout
from ggufspec.report.rows.benches import BLANK_IS_DEFAULT, MANNER, ArmRow, MachineRow
from ggufspec.report.rows.listing import ListedBenchRow, LocalModelRow, LocalPairRow
from ggufspec.report.text import judgements, tables
from ggufspec.report.text.figures import engine, extent, factor, llama_cpp
from ggufspec.report.text.verdict import audit_line, verdicts
from ggufspec.results import ResultSet

_USERS = TableLayout(
    row=ArmRow,
    names=(
        *("what", "draft", "users", "depth", "rate", "goodput", "user_tps", "user_speedup"),
        *("ttft_p50_s", "ttft_p95_s", "ttft_p99_s", "token_p50_s", "token_p95_s", "token_p99_s"),
        *("prompt_tps", "requests", "failures"),
    ),
    always=("what", "users"),
    labels=("what", "draft", "users", "depth", "rate"),
)
_VIEW = "This is the client's view: token counts are the server's, and times are the client's."


def describe_users(groups: Sequence[Arm]) -> Iterator[str | FilledTable]:
    """Yield the table of several users, and what it means; nothing for a bench without traffic."""
    served = [arm for arm in groups if arm.spec.traffic is not None and arm.traffic is not None]
    if not served:
        return
    is_deep = any(arm.spec.traffic and arm.spec.traffic.depth for arm in served)
    yield (_USERS if is_deep else _USERS.without("depth")).fill(served)
    yield from _explain(groups)


def describe_servers(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield which servers were measured that ran already, and where their acceptance is from."""
    endpoints = {arm.spec.endpoint: arm for arm in groups if arm.spec.endpoint is not None}
    for endpoint, arm in endpoints.items():
        role = "Drafting" if arm.role is Role.DRAFTING else "Target alone"
        yield f"{role}: {endpoint.summary}, by its own account."
        if endpoint.is_llama_server:
            yield "Its tokens and acceptance are those that it reports with each answer."
        elif arm.acceptance is not None:
            yield f"{_VIEW} Acceptance is that of all requests meanwhile, from the server's /metrics."
        else:
            yield _VIEW


def _explain(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield what the figures of users mean, and how much the client took."""
    traffic = [arm.spec.traffic for arm in groups if arm.spec.traffic is not None]
    is_replay = any(sent.arrivals for sent in traffic)
    if is_replay or any(sent.rate for sent in traffic):
        arrive = "Requests arrive as they were recorded" if is_replay else "Requests/s arrive at random times"
        last = "has ended, so they follow from the recording; times are what differs"
        yield (
            f"{arrive}, and users are slots of the server. Tokens/s are of the time from the first request "
            f"behind as many as there are slots until the last one {last if is_replay else 'that counts'}. "
            "Good/s: requests/s that kept the service level."
        )
    else:
        yield (
            "Users: each sends the next request when the last one was answered. Tokens/s are of all users "
            "together, in the steady window: from every user's first answer until the last request that "
            "counts. Users go on until then, so there is no tail."
        )
    yield (
        "Per user: tokens after the first over the seconds from the first to the last, of requests sent in "
        "the steady window. Times are percentiles of these requests, with at least ten of them beyond; "
        "[95 % interval over loads]."
    )
    figures = [arm.traffic for arm in groups if arm.traffic is not None]
    shares = [arm_figures.client_share for arm_figures in figures if arm_figures.client_share is not None]
    bursts = [arm_figures.burst_share for arm_figures in figures if arm_figures.burst_share is not None]
    if shares:
        yield f"Client: at most {units.format_percent(max(shares))} of the time between two tokens."
    if bursts and max(bursts) > 0:
        low, high = units.format_percent(min(bursts)), units.format_percent(max(bursts))
        share = high if low == high else f"{low} to {high}"
        yield f"Bursts: {share} of the tokens arrived together with the token before them."


_PRECISE = 0.005  # relative half width of an interval: more precise than repeats on a quiet machine
_IF_VARIED = (
    *("llama_build", "threads", "kv_type", "ubatch", "settings", "depth", "rate", "ngram", *MANNER),
)
ARMS = TableLayout(
    row=MachineRow,
    names=(
        *("machine", "what", "models", "llama_build", "layers", "threads", "kv_type", "ubatch", "settings"),
        *("users", "depth", "rate", "draft", "ngram", *MANNER, "gen_tps", "accept_rate", "method_shares"),
        *("mean_accepted_length", "gpu_j_per_token", "cpu_j_per_token", "speedup", "verdict", "new_over_old"),
        *("texts", "valid", "status"),
    ),
    always=("what", "models", "gen_tps"),
    if_varied=_IF_VARIED,
    blank_is_default=BLANK_IS_DEFAULT,
    kind="what",
    first_left_out=(
        *("cpu_j_per_token", "gpu_j_per_token", "mean_accepted_length", "verdict", "layers", "accept_rate"),
    ),
    labels=("machine", "what", "draft", "users", *_IF_VARIED),
)
"""The arms of one machine or of several; the rows are of ``list_arms``."""


_LISTED = ("name", "date", "model_names", "sizes", "gain", "is_complete")
_BENCHES = TableLayout(row=ListedBenchRow, names=_LISTED, always=_LISTED)


_MODEL = ("name", "place", "size_bytes", "quant", "architecture", "context_length", "head")
_MODELS = TableLayout(row=LocalModelRow, names=_MODEL, always=_MODEL[:4])
_PAIR = ("target", "drafter", "method", "ratio", "speedup", "bench")
_PAIRS = TableLayout(row=LocalPairRow, names=_PAIR, always=_PAIR[:4])


def model_list(models: Sequence[Any], pairs: Sequence[Any], output: str = "md") -> str:
    """Return a table of models on this machine, and one of those that can draft for others.

    Args:
        models: see ``LocalModelRow``.
        pairs: see ``LocalPairRow``.
        output: of the tables.
    """
    filled = [layout.fill(items) for layout, items in ((_MODELS, models), (_PAIRS, pairs)) if items]
    return "\n\n".join(tables.render(table, output) for table in filled)


def bench_list(benches: Iterable[ListedBench], output: str = "md") -> str:
    """Return one row per stored bench, in Markdown or for the terminal; times are UTC."""
    filled = _BENCHES.fill(benches)
    return f"{tables.render(filled, output)}\n" if filled.rows else "No bench is stored yet.\n"


def list_arms(groups: Sequence[Arm], machine: str = "") -> list[Mapping[str, object]]:
    """Return the rows of ``ARMS``."""
    return [{"machine": machine, "summary": {"arm": arm}} for arm in groups]


def note(hidden: int, bench: str, per: str) -> Iterator[str]:
    """Yield the line below a table without some of its columns.

    Args:
        hidden: how many columns are left out.
        bench: the bench's id.
        per: what has a row.
    """
    if hidden:
        verb = "is" if hidden == 1 else "are"
        option = "" if per == "arm" else f" --per {per}"
        yield (
            f"{units.counted(hidden, 'column')} {verb} hidden: "
            f"`ggufspec show {bench}{option} --columns all` shows all of them."
        )


def arm_table(groups: Sequence[Arm], output: str) -> tuple[str, int]:
    """Return the table of a bench's arms, and how many columns it leaves out.

    Args:
        groups: the arms, at least one.
        output: as for ``tables.grid``.
    """
    filled = ARMS.fill(list_arms(groups))
    return tables.render(filled, output), filled.n_left_out


def machine_table(benches: Mapping[str, ResultSet], output: str) -> str:
    """Return the arms of several machines, those of a machine together; an empty text without any.

    A speed-up is over the target alone on the same machine.

    Args:
        benches: machine -> what it measured.
        output: as for ``tables.grid``.
    """
    listed = [
        row
        for machine, bench in benches.items()
        for row in list_arms([arm for arm in arms.group(bench) if arm.role is not Role.DRAFTER], machine)
    ]
    return tables.render(ARMS.fill(listed), output) if listed else ""


def list_warnings(benches: Mapping[str, ResultSet]) -> Iterator[str]:
    """Yield a line for each machine that has warnings; its own table has their advice."""
    for machine, bench in benches.items():
        names = ", ".join(review.warnings(bench)) if bench.runs else ""
        if names:
            yield f"warning on {machine}: {names}: `ggufspec show {bench.meta.id}`"


def overview(results: ResultSet, output: str = "md") -> str:
    """Return the table of a bench, what its numbers rest on, and its warnings.

    Args:
        results: a bench.
        output: ``md``, or ``table`` for the terminal, where the verdict comes first.
    """
    return page(results, arms.group(results)).text(output)


def page(results: ResultSet, groups: Sequence[Arm], layout: TableLayout = ARMS) -> tables.Page:
    """Return what ``overview`` prints of the arms of a bench; ``layout`` has the columns of the table."""
    warnings = review.warnings(results, groups)
    if not groups:
        return tables.Page(found=("Nothing was measured.",), warnings=warnings)
    table, leading = layout.fill(list_arms(groups)), judgements.leading_arm(groups)
    # by its id the store finds it; a bench of a bundle is named by its folder there
    name = results.meta.id if results.folder.is_absolute() else str(results.folder)
    return tables.Page(
        found=(
            *verdicts(groups),
            *judgements.deciding(results, None if leading is None else leading.judgement),
            *judgements.depends_on_text(leading),
        ),
        engine=engine(results.meta.engine),
        table=table,
        notes=(*note(table.n_left_out, name, "arm"), *describe_users(groups), *_basis(results, groups, name)),
        warnings=warnings,
    )


def _basis(results: ResultSet, groups: Sequence[Arm], name: str) -> Iterator[str]:
    """Yield what was measured with what, and what the numbers mean; ``name`` is what ``show`` takes."""
    build = results.meta.build
    backend = build.backend or "unknown backend"
    measured = f"{llama_cpp(build)}, {backend}; " if not results.meta.builds else ""
    servers = groups[0].spec.servers
    if servers is None:
        yield f"{extent(groups[0])}; {measured}{results.meta.machine.cpu}."
    else:
        yield f"{extent(groups[0])}; the client on {results.meta.machine.cpu}."
        yield from describe_servers(groups)
    yield from _builds(results)
    if groups[0].traffic is None:
        yield (
            "Tokens/s: geometric mean over the cells (prompt, repeat) that all arms have, of tokens decoded "
            "after the prompt per second; [95 % interval over prompts and loads]."
        )
    excluded = len({cell for arm in groups for cell in arm.excluded})
    dropped = sum(arm.dropped for arm in groups)
    if dropped:
        yield (
            f"{units.counted(dropped, 'run')} left out, because another arm lacks its cell or the cell was "
            f"disturbed ({excluded} excluded): `ggufspec show {name} --all` has both results."
        )
    placement = offload(groups)
    if placement is not None:
        yield f"{placement}."
    yield from _precision(groups)
    if any("grammar" in prompt.needs for spec in results.current.by_spec()[0] for prompt in spec.prompts):
        yield "Valid: answers under a grammar (GBNF) are not judged; those under a schema are."
    audited = audit_line(results)
    if audited is not None:
        yield audited
    yield (
        f"Stored as {results.meta.id}: `ggufspec show {name}` prints this again, "
        f"raw logs are in {results.folder / 'logs'}"
    )


def _builds(results: ResultSet) -> Iterator[str]:
    """Yield which llama.cpps were compared, where there are several."""
    for name, build in results.meta.builds.items():
        yield f"{name}: {llama_cpp(build)}, {build.backend or 'unknown backend'}, in {build.path}."
    if results.meta.builds:
        yield (
            f"New/old: tokens/s over the same arm's with {next(iter(results.meta.builds))}; the runs of both "
            "are interleaved; [95 % interval over loads, on these prompts], as in `ggufspec compare`."
        )


def _precision(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield how precise the speed-ups are, and what would make them twice as precise."""
    if groups[0].stopping is not None:
        yield from describe_looks(groups)
        return
    gains = [arm.gain.ratio.assumed_spread for arm in groups if arm.gain is not None]
    assumed = next((spread for spread in gains if spread is not None), None)
    if assumed is not None:
        yield f"Estimates: {judgements.assumption(assumed)}; no verdict follows from them."
    judged = [arm.judgement.ratio for arm in groups if arm.judgement is not None]
    widths = [width for ratio in judged if ratio is not None and (width := ratio.relative_half_width)]
    if not widths or max(widths) < _PRECISE:
        return
    requested = max(widths) / 2
    needs = review.wanting(groups, requested).values()
    repeats = [need.repeats for need in needs if need.repeats is not None]
    prompts = [need.prompts for need in needs if need.prompts is not None]
    effort = (
        f"about {units.counted(max(repeats), 'repeat')}"
        if repeats and len(repeats) == len(needs)
        else f"about {max(prompts)} prompts like these"
        if prompts
        else ""
    )
    if effort:
        now, twice = units.format_percent(max(widths)), units.format_percent(requested)
        yield f"Speed-ups are within ±{now}; {effort} would give ±{twice}."


def describe_looks(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield at which looks a bench that is measured until its verdicts are decided stands, and what is open.

    Args:
        groups: the arms of such a bench.
    """
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING]
    rule = groups[0].stopping
    assert rule is not None
    looks = sorted({arm.look for arm in drafting if arm.look is not None})
    if not looks:
        yield f"No verdicts yet: the first look is after {rule.looks[0]} complete repeats."
        return
    span = str(looks[0]) if len(looks) == 1 else f"{looks[0]} to {looks[-1]}"
    n_open = sum(not arm.is_decided for arm in drafting)
    state = (
        "every speed-up is decided"
        if not n_open
        else f"{n_open} of {units.counted(len(drafting), 'speed-up')} not decided"
    )
    yield (
        f"Measured until decided: {state} after {span} of at most {rule.most_repeats} repeats. The intervals "
        "of speed-ups are over repeats of these prompts; all of them hold at once, at every look, in 95 % of "
        f"benches ({units.counted(len(rule.looks), 'look')}, "
        f"{units.counted(rule.comparisons, 'comparison')})."
    )


_MOST_PHRASES = 3  # in one line; a sweep over layers has more


def offload(groups: Sequence[Arm]) -> str | None:
    """Return what is on GPUs: ``offload: 45/81 layers, 17.2 GiB on CUDA0``; None where nothing is."""
    outputs = [(arm.role, output) for arm in groups for output in arm.outputs if output.status is Status.OK]
    targets = _join(_phrase(output.target) for role, output in outputs if role is not Role.DRAFTER)
    drafters = _join(
        _phrase(output.target if role is Role.DRAFTER else output.drafter)
        for role, output in outputs
        if role is not Role.TARGET
    )
    parts = (targets, drafters and f"drafter {drafters}")
    return "offload: " + "; ".join(filter(None, parts)) if any(parts) else None


def _phrase(model: LoadedModel | None) -> str | None:
    """Return a model's layers and the memory that it takes on each GPU; None where it is on none."""
    on_gpus = [device for device in model.placement if not device.on_host] if model is not None else []
    if model is None or not on_gpus:
        return None
    memory = " + ".join(f"{units.format_bytes(device.total_bytes)} on {device.device}" for device in on_gpus)
    layers = model.offloaded_layers
    return memory if layers is None else f"{layers}/{model.total_layers} layers, {memory}"


def _join(phrases: Iterable[str | None]) -> str:
    """Return the phrases that differ between arms, the first few of them."""
    distinct = list(dict.fromkeys(filter(None, phrases)))
    others = len(distinct) - _MOST_PHRASES
    return " or ".join(distinct[:_MOST_PHRASES]) + (f" or {others} others" if others > 0 else "")


_MOST_NAMED = 3  # arms in one line
_LINES_BELOW = 2  # an empty one, and the state
_SOON_S = 60.0
_GROWING = ARMS.without(
    *("layers", "method_shares", "mean_accepted_length", "gpu_j_per_token", "cpu_j_per_token"),
    *("texts", "status"),
)
"""Without what does not change, or comes with the last run only."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a bench is.

    Attributes:
        n_done: counted runs, failed ones included.
        n_planned: how many there will be.
        is_most: whether there may be fewer.
        left_s: the expected seconds to the end; None if they are not known.
        running: what is being measured; None between runs.
    """

    n_done: int
    n_planned: int
    is_most: bool = False
    left_s: float | None = None
    running: RunSpec | None = None


def describe_count(results: ResultSet) -> str:
    """Return the number of runs: ``3 of 24 runs``; ``3 runs`` where the plan is not recorded."""
    planned = results.meta.planned_runs
    return f"{len(results.current)}{'' if planned is None else f' of {planned}'} runs"


def growing_table(groups: Sequence[Arm], progress: Progress, *, height: int) -> str:
    """Return the table of the arms so far, with the state below, for a terminal.

    Args:
        groups: the arms, none before the first run.
        progress: how far the bench is.
        height: lines of the terminal. Of a long table, the arms that are compared with what runs are shown.
    """
    shown = groups
    room = max(1, height - _LINES_BELOW - 1)
    if len(groups) + _LINES_BELOW > room and progress.running is not None:
        baseline = progress.running.baseline
        shown = [arm for arm in groups if arm.spec.baseline == baseline] or groups
    layout = _GROWING
    if len({arm.models for arm in shown if arm.role is Role.DRAFTING}) < 2:
        layout = _GROWING.without("models")
    lines = tables.render(layout.fill(list_arms(shown)), tables.TERMINAL).split("\n") if shown else []
    if len(lines) + _LINES_BELOW > room:
        lines = [*lines[: room - _LINES_BELOW - 1], "…"]
    return "\n".join((*lines, *([""] if lines else []), describe_state(progress)))


def growing_line(groups: Sequence[Arm], progress: Progress) -> str:
    """Return the state of a bench as one line, with the speed-ups so far, the largest first."""
    gains = [(arm.spec.drafts_by, arm.gain.ratio) for arm in groups if arm.gain is not None]
    gains.sort(key=lambda gain: -gain[1].value)
    speedups = [
        f"{drafting.chain} γ={drafting.n_max}: {factor(ratio)}" for drafting, ratio in gains[:_MOST_NAMED]
    ]
    speedups += [f"{len(gains) - _MOST_NAMED} more"] if len(gains) > _MOST_NAMED else []
    return "; ".join(filter(None, (describe_state(progress), ", ".join(speedups))))


def describe_state(progress: Progress) -> str:
    """Return how many runs are done, the time left, and what is being measured."""
    bounds = ("of at most", "at most") if progress.is_most else ("of", "about")
    parts = [f"{progress.n_done:,} {bounds[0]} {units.counted(progress.n_planned, 'run')}"]
    if progress.left_s is not None and progress.n_done < progress.n_planned:
        left_s = progress.left_s  # without fractions of a second
        left = f"{max(1, round(left_s))} s" if left_s < _SOON_S else units.format_duration(left_s)
        parts.append(f"{bounds[1]} {left} left")
    if progress.running is not None:
        parts.append(f"running {describe_run(progress.running)}")
    return ", ".join(parts)


def describe_run(spec: RunSpec) -> str:
    """Return what a run measures: ``drafting with draft-model γ=3 on the prompt code1``."""
    drafting = spec.drafting
    role = spec.role.value if spec.role is not Role.TARGET else "target alone"
    what = role if drafting is None else f"{role} with {drafting.chain} γ={drafting.n_max}"
    return one_line(f"{what} on the prompt {spec.prompt.id}")
