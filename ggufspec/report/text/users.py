"""What several users saw, as a table below that of the arms: one row for each arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggufspec import units
from ggufspec.analysis import Arm
from ggufspec.domain import Role
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.benches import ArmRow
from ggufspec.report.text import tables

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


def describe_users(groups: Sequence[Arm], output: str) -> Iterator[str]:
    """Yield the lines about several users; none for a bench without traffic.

    Args:
        groups: the arms of a bench.
        output: ``md``, or ``table`` for the terminal.
    """
    served = [arm for arm in groups if arm.spec.traffic is not None and arm.traffic is not None]
    if not served:
        return
    is_deep = any(arm.spec.traffic and arm.spec.traffic.depth for arm in served)
    yield tables.render((_USERS if is_deep else _USERS.without("depth")).fill(served), output)
    yield ""
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
    shares = [arm_figures.client_share for arm_figures in figures if arm_figures.client_share is not None]
    bursts = [arm_figures.burst_share for arm_figures in figures if arm_figures.burst_share is not None]
    if shares:
        yield f"Client: at most {units.format_percent(max(shares))} of the time between two tokens."
    if bursts and max(bursts) > 0:
        low, high = units.format_percent(min(bursts)), units.format_percent(max(bursts))
        extent = high if low == high else f"{low} to {high}"
        yield f"Bursts: {extent} of the tokens arrived together with the token before them."
