"""What several users saw, as a table below that of the arms: one row for each arm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ggufspec import units
from ggufspec.analysis import Arm
from ggufspec.domain import Role
from ggufspec.report.text import figures as shown
from ggufspec.report.text import tables
from ggufspec.report.text.figures import spread, three_digits
from ggufspec.stats import Estimate

_PERCENTILES = {50: "p50", 95: "p95", 99: "p99"}
_LABELS = ("", "γ", "users", "depth", "requests/s")
_VIEW = "This is the client's view: token counts are the server's, and times are the client's."
_TIMES = {"first token": "ttft_s", "between tokens": "token_s"}


def describe_users(groups: Sequence[Arm], output: str) -> Iterator[str]:
    """Yield the lines about several users; none for a bench without traffic.

    Args:
        groups: the arms of a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    rows = [row(arm) for arm in groups if arm.traffic is not None]
    if not rows:
        return
    names = [name for name in rows[0] if name in {"", "users"} or any(line[name] for line in rows)]
    if {line["depth"] for line in rows} == {"0"}:
        names.remove("depth")
    yield tables.table(names, rows, output, labels=_LABELS)
    yield ""
    yield from _explain(groups)


def row(arm: Arm) -> dict[str, str]:
    """Return an arm's cells by the headings of their columns; times in ms."""
    figures, spec = arm.traffic, arm.spec
    assert figures is not None
    assert spec.traffic is not None
    return {
        "": arm.what,
        "γ": "" if arm.draft_size is None else str(arm.draft_size),
        "users": str(spec.traffic.users),
        "depth": f"{spec.traffic.depth:,}",
        "requests/s": units.format_number(spec.traffic.rate) if spec.traffic.rate else "",
        "good/s": spread(figures.goodput, three_digits),
        "tokens/s per user": shown.rate(arm.user_rate),
        "gain per user": shown.factor(arm.user_gain.ratio if arm.user_gain else None),
        **{
            f"{what} {name} ms": _format_ms(getattr(figures, field), percent)
            for what, field in _TIMES.items()
            for percent, name in _PERCENTILES.items()
        },
        "prompt tokens/s": "" if figures.prompt_tps is None else units.format_rate(figures.prompt_tps),
        "requests": str(figures.requests),
        "failed": ", ".join(f"{n} {outcome.value}" for outcome, n in figures.failed.items()),
    }


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


def _format_ms(estimates: Mapping[int, Estimate], percent: int) -> str:
    return spread(estimates.get(percent), lambda seconds: units.format_number(seconds * 1000, 3))


def _explain(groups: Sequence[Arm]) -> Iterator[str]:
    """Yield what the figures of users mean, and how much the client took."""
    if any(arm.spec.traffic and arm.spec.traffic.arrivals for arm in groups):
        yield (
            "Requests arrive as they were recorded, and users are slots of the server. Tokens/s are of the "
            "time from the first request behind as many as there are slots until the last one has ended, so "
            "they follow from the recording; times are what differs. Good/s: requests/s that kept the "
            "service level."
        )
    elif any(arm.spec.traffic and arm.spec.traffic.rate for arm in groups):
        yield (
            "Requests/s arrive at random times, and users are slots of the server. Tokens/s are of the time "
            "from the first request behind as many as there are slots until the last one that counts. "
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
    shares = [each.client_share for each in figures if each.client_share is not None]
    bursts = [each.burst_share for each in figures if each.burst_share is not None]
    if shares:
        yield f"Client: at most {units.format_percent(max(shares))} of the time between two tokens."
    if bursts and max(bursts) > 0:
        low, high = units.format_percent(min(bursts)), units.format_percent(max(bursts))
        extent = high if low == high else f"{low} to {high}"
        yield f"Bursts: {extent} of the tokens arrived together with the token before them."
