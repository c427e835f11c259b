"""``ggufspec whatif --url``: what other draft sizes would do on a server that runs, without a restart.

What would be accepted follows from the rounds of the server's traffic so far: from its log, or from the
counters of /metrics. What a round costs follows from a few requests. A server drafts no more tokens than are
left to write, so short requests show rounds of every size up to its own.
"""

from __future__ import annotations

import io
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, cycle
from pathlib import Path
from statistics import fmean
from typing import Any

from ggufspec import units, userfiles
from ggufspec.domain import Drafting, Endpoint, Failure, Round, Sample, Status
from ggufspec.engines.server import response
from ggufspec.errors import GgufspecError
from ggufspec.forecast.forecasting import Forecast, best, ratio
from ggufspec.forecast.replaying import RoundsRun, from_counts, replays, time_rounds
from ggufspec.llama import server
from ggufspec.llama.logs import find_rounds, find_statistics
from ggufspec.options import WhatIfOptions, takes
from ggufspec.stats import Estimate

_METHOD = "draft-simple"  # what llama-server calls drafts of a draft model
_BLOCKS = 16  # of the traffic, each with as many tokens; their differences give the interval
_FEWEST_BLOCKS = 4  # of little traffic
_BLOCK_ROUNDS = 12  # of the longest, at least, in a block: at its end drafts are shortened
_LEAST_ROUNDS = 64
_WHOLE = 0.9  # of the draft size that drafts have on average, at least: otherwise a p-min ends them
_SIZES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64)  # of drafts that are timed; others lie between
_REPEATS = 5
_LONG = 96  # tokens of the requests that show the server's own draft size, and the target alone
_PROMPTS = ("Once upon a time there was", "The weather was", "In the village", "A good recipe needs")
_LONGEST_LOG = 1 << 30  # bytes
_NEEDED = (
    "start it with --metrics; or, for rounds in their order, with LLAMA_TRACE=1 in its environment and "
    "--log-file FILE, and name that file with --server-log"
)


@dataclass(frozen=True, kw_only=True)
class ServedForecast:
    """What draft sizes would do on a server that runs.

    Attributes:
        n_max: the draft size that it was started with.
        forecasts: of draft sizes up to it.
        has_baseline: whether a server with the target alone was asked; otherwise speed-ups are unknown.
        basis: what the forecasts rest on, as sentences.
    """

    n_max: int
    forecasts: tuple[Forecast, ...]
    has_baseline: bool
    basis: tuple[str, ...]

    @property
    def now(self) -> Forecast:
        """The forecast of the server's own draft size."""
        return next(forecast for forecast in self.forecasts if forecast.drafting.n_max == self.n_max)

    @property
    def best(self) -> Forecast:
        """The fastest; of those that are alike the smallest draft size."""
        return best(self.forecasts)

    @property
    def gain(self) -> Estimate:
        """How many times as fast the best draft size is as the server's own."""
        by_blocks = ratio(self.best, self.now)
        gain = self.best.tokens_per_s.value / self.now.tokens_per_s.value
        return by_blocks.moved_to(gain, scale=gain / by_blocks.value)


@takes(WhatIfOptions)
def whatif_served(asked: WhatIfOptions) -> ServedForecast:
    """Forecast other draft sizes of a server that drafts and runs, as ``ggufspec whatif --url`` does.

    The server gets a few short requests, and so does one with the target alone, if it is named.

    Raises:
        NetworkError: a server does not answer.
        GgufspecError: it does not draft with a draft model, tells too little of its rounds, or other options
            contradict this.
    """
    asked.refuse(
        [name for name in asked.given if name not in _OPTIONS], "the server that runs (--url) decides"
    )
    addresses = asked.url or ()
    keys = server.read_keys(addresses, asked.api_key_file)
    alone, drafting = _describe(addresses, keys, asked.served_model)
    rounds, basis = _read_rounds(drafting, keys, asked.server_log)
    n_max = max(entry.drafted for entry in rounds)
    _refuse_few(drafting, rounds, n_max)
    with ExitStack() as opened:
        drafter, *others = (
            _Timed(opened.enter_context(server.connect(endpoint.url, keys.get(endpoint.url))))
            for endpoint in (drafting, *([] if alone is None else [alone]))
        )
        methods = drafter.methods()
        if methods not in {None, _METHOD}:
            raise GgufspecError(
                f"the server at {drafting.url} drafts with {methods}, whose rounds do not tell what smaller "
                "drafts would do",
                "measure its draft sizes with `ggufspec tune` or `ggufspec bench --draft`",
            )
        runs, token_s = _time(drafter, others, [*(size for size in _SIZES if size < n_max), n_max])
    if (own := max(run.n_max for run in runs)) != n_max:
        raise GgufspecError(
            f"the server at {drafting.url} drafts up to {own} tokens now, and up to {n_max} in its traffic "
            "so far",
            "name the log of this start, and let it answer more",
        )
    curve = time_rounds(runs, resizes=True)
    if token_s is not None:
        without_s = curve.verify[0].seconds.value
        curve = replace(curve, plain_overhead_s=Estimate.around(token_s - without_s))
    sizes = sorted({size for size in asked.draft if size <= n_max} | {n_max})
    draftings = [Drafting(n_max=size) for size in sizes]
    return ServedForecast(
        n_max=n_max,
        forecasts=tuple(map(weigh_tokens, replays(traffic_runs(rounds), curve, draftings))),
        has_baseline=alone is not None,
        basis=(
            basis,
            f"costs: {_REPEATS * len(runs)} requests, one at a time; users at once share the time of a round",
        ),
    )


_OPTIONS = {"url", "api_key_file", "served_model", "server_log", "draft", "output", "out"}


def _describe(
    addresses: Sequence[str], keys: Mapping[str, str], model: str | None
) -> tuple[Endpoint | None, Endpoint]:
    """Return the server with the target alone, if one is named, and the one that drafts.

    Raises:
        GgufspecError: there is not exactly one that drafts, or one is not llama-server.
    """
    urls = map(server.check_url, addresses)
    endpoints = [server.describe_server(url, keys.get(url), model=model) for url in urls]
    for endpoint in endpoints:
        if not endpoint.is_llama_server:
            raise GgufspecError(
                f"{endpoint.url} is not llama-server, whose answers tell what a round takes",
                "compare it with `ggufspec bench --url … --url-drafting …`",
            )
    drafting = [endpoint for endpoint in endpoints if endpoint.drafts]
    alone = [endpoint for endpoint in endpoints if not endpoint.drafts]
    if len(drafting) != 1 or len(alone) > 1:
        raise GgufspecError(
            f"{units.counted(len(drafting), 'server')} of {len(endpoints)} drafts; one must, and one may not",
            "name the one that drafts with --url, and beside it one with the target alone for the speed-up",
        )
    return next(iter(alone), None), drafting[0]


def _read_rounds(
    drafting: Endpoint, keys: Mapping[str, str], log: Path | None
) -> tuple[tuple[Round, ...], str]:
    """Return the rounds of the server's traffic, and a sentence that says where they are from.

    Raises:
        GgufspecError: neither a log nor counters tell them.
    """
    told: tuple[float | None, Sequence[float] | None, float | None] | None
    if log is not None:
        try:
            content = userfiles.read(log, most_bytes=_LONGEST_LOG)
        except OSError as error:
            raise GgufspecError(f"{log} cannot be read: {error.strerror}", "check its path") from error
        if by_task := find_rounds(content):
            rounds = tuple(chain.from_iterable(by_task))
            requests = units.counted(len(by_task), "request")
            said = f"acceptance: {len(rounds):,} rounds of {requests}, in their order, from the server's log"
            return rounds, said
        where, last = str(log), next(reversed(find_statistics(content)), None)  # counts since the start
        told = last and (last.judged, [last.judged * float(rate) for rate in last.rates], last.drafted)
    else:
        with server.connect(drafting.url, keys.get(drafting.url)) as client:
            counters = server.read_counters(server.read_metrics(client) or "")
        where = f"the server at {drafting.url}"
        told = None if counters is None else (counters.rounds, counters.accepted_at, counters.drafted)
    n_rounds, accepted_at, drafted = told or (None, None, None)
    if not n_rounds or not accepted_at:
        raise GgufspecError(f"{where} does not tell its rounds: totals say too little", _NEEDED)
    size = max(len(accepted_at), math.ceil((drafted or 0) / n_rounds))  # where nothing came as far as that
    if (drafted or 0) < _WHOLE * n_rounds * size:
        raise _ended_early(drafting)
    accepted_at = (*accepted_at, *[0] * (size - len(accepted_at)))
    return from_counts([round(count) for count in accepted_at], round(n_rounds)), (
        f"acceptance: {round(n_rounds):,} rounds counted by position, without their order: intervals allow "
        "for it"
    )


def _ended_early(drafting: Endpoint) -> GgufspecError:
    return GgufspecError(
        f"the server at {drafting.url} ends drafts early, as with a p-min or short answers, and its rounds "
        "do not tell where others would end",
        "start it with --draft-p-min 0, let it write longer answers, or measure with `ggufspec tune`",
    )


def _refuse_few(drafting: Endpoint, rounds: Sequence[Round], n_max: int) -> None:
    """Make sure that there are enough rounds, and that nothing but the end of an answer shortens drafts."""
    if len(rounds) < _LEAST_ROUNDS:
        raise GgufspecError(
            f"the server at {drafting.url} has drafted in {units.counted(len(rounds), 'round')} so far, "
            "which says too little",
            f"let it answer until there are {_LEAST_ROUNDS} or more",
        )
    if sum(entry.drafted for entry in rounds) < _WHOLE * len(rounds) * n_max:
        raise _ended_early(drafting)


def traffic_runs(rounds: Sequence[Round]) -> list[RoundsRun]:
    """Return the traffic in blocks of about as many tokens, which show how it varies."""
    tokens = sum(entry.accepted + 1 for entry in rounds)
    longest = max(entry.drafted for entry in rounds) + 1
    n_blocks = min(_BLOCKS, max(_FEWEST_BLOCKS, tokens // (_BLOCK_ROUNDS * longest)))
    blocks: list[list[Round]] = [[] for _ in range(n_blocks)]
    before = 0
    for entry in rounds:
        blocks[before * n_blocks // tokens].append(entry)
        before += entry.accepted + 1
    return [
        RoundsRun(prompt_id=f"block {number}", rounds=tuple(block))
        for number, block in enumerate(blocks)
        if block
    ]


def weigh_tokens(forecast: Forecast) -> Forecast:
    """Return a forecast whose rates are those of all blocks together, each token with the same weight."""
    rate = forecast.mean_accepted_length / forecast.round_s

    def moved(estimate: Estimate, value: float) -> Estimate:
        return estimate.moved_to(value, scale=value / estimate.value)

    return replace(
        forecast,
        tokens_per_s=moved(forecast.tokens_per_s, rate),
        speedup=moved(forecast.speedup, rate * forecast.target_s),
    )


def _time(
    drafter: _Timed, others: Sequence[_Timed], sizes: Sequence[int]
) -> tuple[list[RoundsRun], float | None]:
    """Return runs that begin by drafting so many tokens, long ones, and seconds of a token without drafts.

    All are repeated in turn, so that what slows the machine down for a while meets all of them. Other work
    only adds to times, so the fastest of each counts.

    Args:
        drafter: drafts.
        others: one with the target alone, or none.
        sizes: the server's own is the last.
    """
    lengths = [*(size + 2 for size in sizes), _LONG, _LONG]
    requests = [
        (drafter, prompt, n_predict) for prompt, n_predict in zip(cycle(_PROMPTS), lengths, strict=False)
    ]
    requests += [(alone, prompt, _LONG) for alone in others for prompt in _PROMPTS[:2]]
    fastest: dict[int, Sample] = {}
    for number, (timed, prompt, n_predict) in [*enumerate(requests)] * _REPEATS:
        sample = timed.ask(prompt, n_predict)
        fastest[number] = max(fastest.get(number, sample), sample, key=lambda one: one.decode_tps or 0.0)
    drafted, plain = ([*fastest.values()][part] for part in (slice(len(lengths)), slice(len(lengths), None)))
    runs = [
        RoundsRun(
            prompt_id=f"{number}",
            rounds=sample.rounds or (Round(0, 0),) * (sample.decoded or 0),
            seconds=sample.gen_s or 0.0,
        )
        for number, sample in enumerate(drafted)
    ]
    return runs, fmean(1 / (sample.decode_tps or 1.0) for sample in plain) if plain else None


class _Timed:
    """A server that gets short requests."""

    def __init__(self, client: server.ServerClient) -> None:
        self._client = client

    def stream_lines(
        self, body: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> Generator[tuple[float, str], None, None]:
        """Request a completion; yield its lines as they arrive.

        Raises:
            Failure: the server refused the request, or did not answer.
        """
        try:
            yield from self._client.stream_lines("/completion", body, timeout_s=timeout_s)
        except server.RequestError as error:
            raise Failure(Status.FAILED, error.reason) from error

    def methods(self) -> str | None:
        """Return what drafts, by the server's names; None where it does not say."""
        return server.read_slot_methods(self._client.ask("/slots").content)

    def ask(self, prompt: str, n_predict: int) -> Sample:
        """Return what a request shows.

        Raises:
            GgufspecError: it failed.
        """
        request = {
            "prompt": prompt,
            "n_predict": n_predict,
            "temperature": 0.0,
            "stream": True,
            "cache_prompt": False,
            "return_tokens": True,
            "timings_per_token": True,
            "ignore_eos": True,
        }
        out = io.StringIO()
        try:
            response.send(self, request, out)
            sample = response.parse_response(out.getvalue()).sample
        except Failure as failure:
            raise GgufspecError(f"the server at {self._client.url} failed: {failure.reason}") from failure
        if sample.status is not Status.OK or not sample.decode_tps:
            raise GgufspecError(f"the server at {self._client.url} told no times of its answer")
        return sample
