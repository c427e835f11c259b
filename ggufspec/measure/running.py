"""A bench of servers that run already: what they say of themselves is checked, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from ggufspec import serving, stats
from ggufspec.analysis import SERVER_LOADS, MeasurementWarning
from ggufspec.domain import (
    IMAGE,
    NO_PROMPT,
    Asking,
    Endpoint,
    ModelFile,
    Pair,
    Prompt,
    Role,
    RunningServers,
    RunSpec,
    Traffic,
)
from ggufspec.errors import GgufspecError
from ggufspec.llama import server
from ggufspec.measure import loading, texts, traffic
from ggufspec.measure.configured import choose_sampling
from ggufspec.measure.runplan import RunPlan
from ggufspec.measure.session import LEAST_REPEATS, Session
from ggufspec.measure.sweep import Block
from ggufspec.options import BenchOptions
from ggufspec.units import counted


def prepare_session(request: BenchOptions) -> Session:
    """Ask the servers of a request what they serve, and plan what they are sent.

    Raises:
        NetworkError: a server does not answer.
        GgufspecError: an option means nothing to a server that runs, or the servers cannot be compared.
    """
    if request.until is not None or request.max_repeats is not None:
        raise GgufspecError(
            "--until decided measures one request after another",
            "at servers that run already, use --repeats or --precision",
        )
    keys = server.read_keys((*(request.url or ()), *(request.url_drafting or ())), request.api_key_file)
    servers = _describe(request, keys)
    recording = texts.read_recording(request)
    if recording is None:
        sent, is_chat, origin = _read_prompts(request, servers, keys)
    else:
        listed = texts.list_recording(recording, is_warm=request.turns != "cold")
        sent, is_chat, origin = {0: listed}, recording.is_chat, None
    _check_requests(request, servers, [prompt for prompts in sent.values() for prompt in prompts])
    keeps_turns = {*request.users} == {1} and not request.rate  # else one turn would wait for another user's
    traffics = tuple(traffic.plan_traffics(request, sent, recording, keeps_turns=keeps_turns))
    servers = replace(servers, chat=is_chat, system=request.system)
    suite = RunPlan(
        blocks=tuple(
            _make_block(request, servers, sent_at_once, asking)
            for sent_at_once, asking in product(traffics, request.askings)
        ),
        prompts=(),
        repeats=request.repeats or loading.REPEATS,
        seed=request.seed,
        precision=request.precision,
        max_time_s=request.max_time,
        warm_turns=request.turns != "cold",
    )
    endpoints = servers.endpoints
    return Session(
        name=endpoints[0].model,
        suite=traffic.send_together(suite),
        engine=serving.RunningEngine(keys=keys, timeout_s=request.timeout),
        llama=None,
        render=None,
        notes=(
            *(f"server: {endpoint.summary}" for endpoint in endpoints),
            *_describe_comparison(servers),
            *(
                f"server: the key is sent without encryption to {endpoint.url}"
                for endpoint in endpoints
                if server.sends_in_clear(endpoint.url, keys.get(endpoint.url))
            ),
            *texts.describe_origin(origin),
            f"prompts: {'in the chat template of the server' if is_chat else 'as they are'}",
            *traffic.describe(traffics),
            *loading.describe_turns(traffics[0].prompts, suite.warm_turns),
            *traffic.describe_replay(recording, request.n_predict),
            *_describe_slots(endpoints, traffics),
        ),
        doubts=(MeasurementWarning.FEW_REPEATS,) if suite.repeats < LEAST_REPEATS else (),
        origin=origin,
    )


def _read_prompts(
    request: BenchOptions, servers: RunningServers, keys: Mapping[str, str]
) -> tuple[dict[int, tuple[Prompt, ...]], bool, str | None]:
    """Return the prompts behind each depth of other text, whether they are messages, and their origin."""
    counter = _make_counter(servers, keys)
    prompts: dict[int, tuple[Prompt, ...]] = {}
    is_chat, origin = False, None
    for depth in request.depths:
        preface = texts.read_preface(request.context_file, depth, counter)
        suite, is_chat = texts.read_for_servers(request, preface)
        prompts[depth], origin = suite.prompts, suite.origin
    return prompts, is_chat, origin


_OF_LLAMA_SERVER = frozenset({"grammar", "json_schema", "reasoning_budget_tokens", "thinking_budget_tokens"})
"""Fields of requests that other servers do not have, and would ignore."""


def _check_requests(request: BenchOptions, servers: RunningServers, prompts: Sequence[Prompt]) -> None:
    """Raise where a prompt asks for what a server does not have."""
    sent = (asking.change(prompt.request) for asking, prompt in product(request.askings, prompts))
    needs = {name for asked in sent if asked is not None for name in asked.needs}
    for endpoint in servers.endpoints:
        if IMAGE in needs and endpoint.sees_images is False:
            raise GgufspecError(
                f"prompts have images, and the server at {endpoint.url} reads none",
                "start it with the target's projector: --mmproj FILE",
            )
        names = ", ".join(sorted(needs & _OF_LLAMA_SERVER))
        if names and not endpoint.is_llama_server:
            raise GgufspecError(
                f"prompts have {names}, which only llama-server takes: {endpoint.url} is "
                f"{endpoint.software or 'another server'}",
                "give schemas as response_format, in OpenAI's form",
            )


def _describe(request: BenchOptions, keys: Mapping[str, str]) -> RunningServers:
    """Return what the servers say, each in its place.

    A single server that drafts has no target alone to be compared with.

    Raises:
        GgufspecError: the same address twice, a server drafts or does not draft against its place, or two
            serve different targets.
    """

    def ask(texts: tuple[str, ...] | None) -> list[Endpoint]:
        urls = map(server.check_url, texts or ())
        return [server.describe_server(url, keys.get(url), model=request.served_model) for url in urls]

    alone, drafting = ask(request.url), ask(request.url_drafting)
    _refuse_repeated([*alone, *drafting])
    if not drafting and any(endpoint.drafts for endpoint in alone):
        alone, drafting = [], alone
    for endpoint in drafting:
        if endpoint.drafts is False:
            raise GgufspecError(
                f"the server at {endpoint.url} does not draft",
                "start it with a drafter, or give it with --url to measure the target alone",
            )
    for endpoint in alone if drafting else ():
        if endpoint.drafts:
            raise GgufspecError(
                f"the server at {endpoint.url} drafts, so it does not show the target alone",
                "give a server that does not draft with --url, or leave --url out",
            )
    if alone and drafting and len(alone) != len(drafting):
        raise GgufspecError(
            f"--url names {counted(len(alone), 'server')} and --url-drafting {len(drafting)}",
            "name as many that draft as serve the target alone",
        )
    first, *others = (*alone, *drafting)
    for other in others:
        _refuse_other_target(first, other)
    return RunningServers(
        alone=alone[0] if alone else None,
        drafting=drafting[0] if drafting else None,
        more_alone=tuple(alone[1:]),
        more_drafting=tuple(drafting[1:]),
    )


def _refuse_repeated(endpoints: Sequence[Endpoint]) -> None:
    urls = [endpoint.url for endpoint in endpoints]
    twice = next((url for place, url in enumerate(urls) if url in urls[:place]), None)
    if twice is not None:
        raise GgufspecError(
            f"{twice} is named twice",
            "start a server for each: --url without drafting, --url-drafting with it",
        )


def _refuse_other_target(alone: Endpoint, drafting: Endpoint) -> None:
    for name, what in (("n_params", "weights"), ("model_bytes", "bytes")):
        one, other = getattr(alone, name), getattr(drafting, name)
        if None not in (one, other) and one != other:
            raise GgufspecError(
                f"the servers serve different targets: {alone.model} has {one:,} {what}, "
                f"{drafting.model} {other:,}",
                "start both with the same model file",
            )


def _make_counter(servers: RunningServers, keys: Mapping[str, str]) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text with the first server's tokenizer."""
    endpoint = servers.endpoints[0]
    ask = partial(server.count_tokens, endpoint.url, keys.get(endpoint.url), endpoint)

    def count(text: str) -> int:
        tokens = ask(text)
        if tokens is None:
            raise GgufspecError(
                f"{endpoint.url} has no /tokenize, and --depth needs to count tokens", "leave --depth out"
            )
        return tokens

    return count


def _make_block(request: BenchOptions, servers: RunningServers, sent: Traffic, asking: Asking) -> Block:
    """Return the target alone, drafting, or both, under the same traffic."""
    first = servers.endpoints[0]
    target = ModelFile(filename=first.file_name, size_bytes=first.model_bytes)
    drafting = RunSpec(
        pair=Pair(name=first.model, target=target),
        role=Role.DRAFTING,
        prompt=NO_PROMPT,
        n_predict=request.n_predict,
        context=first.context or 0,
        threads=1,
        sampling=choose_sampling(request),
        traffic=sent,
        servers=servers,
        asking=asking,
    )
    if servers.drafting is None:
        return Block(arms=(drafting.baseline,))
    return Block(arms=(drafting,) if servers.alone is None else (drafting.baseline, drafting))


def _describe_comparison(servers: RunningServers) -> Iterator[str]:
    if servers.drafting is None:
        yield "speed-up: none, because one server is measured; name one that drafts with --url-drafting"
    if servers.alone is None:
        yield (
            "speed-up: none, because one server is measured, and it drafts; name it with --url-drafting, and "
            "one that does not draft with --url"
        )
    if servers.alone is not None and servers.drafting is not None:
        if servers.alone.model_path != servers.drafting.model_path:
            names = [one.model_path or one.model for one in (servers.alone, servers.drafting)]
            yield f"server: the targets are called {names[0]} and {names[1]}; they must be the same model"
        loads = 1 + len(servers.more_alone)
        yield "interleaved: the servers are measured in turn, and stay loaded between repeats"
        if loads < stats.MIN_LOADS:
            yield (
                f"loads: {counted(loads, 'server')} of each kind, and each is one load of the model until it "
                f"is started again, so the speed-up is an estimate without a verdict; for one, {SERVER_LOADS}"
            )
            silent = next((endpoint.url for endpoint in servers.endpoints if endpoint.start is None), None)
            if silent is not None:
                yield f"loads: {silent} does not tell when it is started again, so it is one load in any case"
    if any(not endpoint.is_llama_server for endpoint in servers.endpoints):
        yield (
            "prompt cache: prompts are sent more than once, and a server may keep them; the time to the "
            "first token is then that of a cached prompt"
        )


def _describe_slots(endpoints: Sequence[Endpoint], traffics: Sequence[Traffic]) -> Iterator[str]:
    most = max(one.users for one in traffics)
    for endpoint in endpoints:
        if endpoint.slots is not None and endpoint.slots < most:
            yield (
                f"server: {endpoint.url} answers {counted(endpoint.slots, 'request')} at once, so "
                f"{most - endpoint.slots} of {counted(most, 'user')} wait"
            )
