"""Servers that run already: addresses, keys for them, what they say of themselves and what they count."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ggufspec import redaction, userfiles
from ggufspec.domain import LLAMA_SERVER, Endpoint, Failure
from ggufspec.errors import GgufspecError, NetworkError
from ggufspec.llama.server import answers
from ggufspec.llama.server.client import RequestError, ServerClient
from ggufspec.units import counted

KEY_VARIABLE = "GGUFSPEC_API_KEY"
_LONGEST_KEY = 64 << 10  # bytes
_ANSWER_S = 10.0  # for what a server says of itself
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_OWNERS = {"llamacpp": LLAMA_SERVER, "vllm": "vLLM", "sglang": "SGLang"}
_FORM = "give http://HOST:PORT or https://HOST"
_LINE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[0-9.eE+]+)(?:\s|$)")
_POSITION = re.compile(r'position="(\d+)"')
_COUNTERS: tuple[Mapping[str, str], ...] = (
    {
        "generated": "vllm:generation_tokens",
        "rounds": "vllm:spec_decode_num_drafts",
        "drafted": "vllm:spec_decode_num_draft_tokens",
        "accepted": "vllm:spec_decode_num_accepted_tokens",
    },
    {
        "generated": "llamacpp:tokens_predicted",
        "rounds": "llamacpp:spec_decode_num_drafts",
        "drafted": "llamacpp:spec_decode_num_draft_tokens",
        "accepted": "llamacpp:spec_decode_num_accepted_tokens",
    },
    {
        "generated": "sglang:generation_tokens",
        "rounds": "sglang:spec_verify_calls",
        "requests": "sglang:num_requests",
    },
)
"""What each kind of server calls the fields of ``ServerCounters``; a ``_total`` behind it is left out."""
_PER_POSITION = "spec_decode_num_accepted_tokens_per_pos"  # llama.cpp took vLLM's name


def check_url(text: str) -> str:
    """Return the address of a server without a final ``/v1``.

    Raises:
        GgufspecError: it is not the address of an HTTP server, or holds a password or a query.
    """
    shown = redaction.redact(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise GgufspecError(f"{shown} is not an address: {error}", _FORM) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise GgufspecError(f"{shown} is not the address of a server", _FORM)
    if parts.username is not None or parts.password is not None:
        raise GgufspecError(
            f"{shown} holds a name or password, which would be stored",
            f"put the key into a file for --api-key-file, or into {KEY_VARIABLE}",
        )
    if parts.query or parts.fragment:
        raise GgufspecError(f"{shown} has more than a host and a path", _FORM)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1').rstrip('/')}"


def read_key(file: Path | None) -> str | None:
    """Return the key in a file, or that of the environment variable; None if there is none.

    Raises:
        GgufspecError: the file cannot be read, or does not hold exactly one line.
    """
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        key = userfiles.read(file, most_bytes=_LONGEST_KEY, streams=True).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise GgufspecError(f"the key file {file} cannot be read: {reason}", "check its path") from error
    if not key or not key.isprintable() or " " in key:
        raise GgufspecError(f"the key file {file} does not hold one key", "write only the key into it")
    return key


def read_keys(texts: Sequence[str], files: Sequence[Path]) -> dict[str, str]:
    """Return the key for each address that needs one.

    Args:
        texts: the addresses, those of ``--url`` first.
        files: one for all of them, or one for each.

    Raises:
        GgufspecError: an address or a key file is wrong, or it is not clear which file is for which server.
    """
    urls = [check_url(text) for text in texts]
    # no server may get the key of another one
    if len(files) not in {0, 1, len(urls)} or len(files) > len(urls):
        raise GgufspecError(
            f"{len(files)} key files do not go with {counted(len(urls), 'server')}",
            "give one file for all servers, or one for each, those of --url first",
        )
    keys = [read_key(file) for file in files or (None,)]
    keys = keys if len(keys) == len(urls) else keys * len(urls)
    return {url: key for url, key in zip(urls, keys, strict=True) if key is not None}


def sends_in_clear(url: str, key: str | None) -> bool:
    """Whether a key would be sent over a network without encryption."""
    parts = urlsplit(url)
    return key is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK


def connect(url: str, key: str | None) -> closing[ServerClient]:
    """Return the context of a client for questions about a server."""
    return closing(ServerClient(url, key, timeout_s=_ANSWER_S))


class _ModelMeta(msgspec.Struct, frozen=True):
    size: int | None = None
    n_params: int | None = None


class _ListedModel(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    meta: _ModelMeta | None = None


class _ModelList(msgspec.Struct, frozen=True):
    data: tuple[_ListedModel, ...]


class _VllmVersion(msgspec.Struct, frozen=True):
    """vLLM's /version."""

    version: str | None = None


class _SglangInfo(msgspec.Struct, frozen=True):
    """SGLang's /server_info."""

    version: str | None = None
    speculative_algorithm: str | None = None
    speculative_num_draft_tokens: int | None = None  # with the root of the draft, the target's own token


def describe_server(url: str, key: str | None, *, model: str | None = None) -> Endpoint:
    """Ask a server what it serves.

    Args:
        url: from ``check_url``.
        key: for the server.
        model: the name of one of its models; None for the only one.

    Raises:
        NetworkError: nothing answers there.
        GgufspecError: it refuses the key, redirects, is not OpenAI-compatible, or does not serve that model.
    """
    with connect(url, key) as client:
        listed = answers.decode_or_none(_get(client, "/v1/models"), _ModelList)
        if listed is None or not listed.data:
            raise GgufspecError(
                f"{url} lists no models at /v1/models, as OpenAI-compatible servers do",
                "give the address of llama-server, vLLM, SGLang or another such server",
            )
        served = _choose(url, listed.data, model)
        software = _OWNERS.get((served.owned_by or "").lower())
        known: dict[str, Any] = {
            "url": url,
            "model": served.id,
            "software": software,
            "model_path": served.root,
            "context": served.max_model_len,
        }
        if software == LLAMA_SERVER:
            known |= _describe_llama(client, served)
        else:
            known |= _describe_sglang(client) if software == "SGLang" else _describe_vllm(client)
        return Endpoint(**known)


def read_metrics(client: ServerClient) -> str | None:
    """Return the text of /metrics; None where there is none, or the server does not answer any more."""
    try:
        answer = client.ask("/metrics")
    except RequestError:
        return None
    return answer.content.decode(errors="replace") if answer.is_ok else None


def count_tokens(url: str, key: str | None, endpoint: Endpoint, text: str) -> int | None:
    """Return how many tokens a server makes of a text; None where it has no endpoint for that.

    llama-server's and vLLM's /tokenize are known.

    Raises:
        NetworkError: nothing answers there.
    """
    body = {"content": text, "model": endpoint.model, "prompt": text, "add_special_tokens": False}
    with connect(url, key) as client:
        try:
            answer = client.ask("/tokenize", body)
        except RequestError as error:
            raise _unreachable(client, error) from error
    try:
        return len(answers.read_tokens(answer.content)) if answer.is_ok else None
    except Failure:
        return None


def _choose(url: str, models: Sequence[_ListedModel], name: str | None) -> _ListedModel:
    chosen = [model for model in models if name is None or model.id == name]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(model.id for model in models)
    problem = "serves several models" if name is None else f"serves no model {name!r}"
    raise GgufspecError(f"{url} {problem}: {names}", "name one of them with --served-model")


def _describe_llama(client: ServerClient, served: _ListedModel) -> dict[str, Any]:
    properties = answers.read_properties(_get(client, "/props"))
    meta = served.meta or _ModelMeta()
    return {
        "version": properties.build_info,
        "model_path": properties.model_path,
        "model_bytes": meta.size,
        "n_params": meta.n_params,
        "context": properties.slot_context,
        "slots": properties.total_slots,
        "start": properties.media_marker,
        "sees_images": properties.modalities.vision,
        "drafts": answers.read_slot_drafts(_get(client, "/slots")),
    }


def _describe_vllm(client: ServerClient) -> dict[str, Any]:
    """Return what vLLM tells; of other servers the version is not known."""
    version = answers.decode_or_none(_get(client, "/version"), _VllmVersion) or _VllmVersion()
    metrics = read_metrics(client) or ""
    told: dict[str, Any] = {"version": version.version, "start": read_start(metrics)}
    if (counters := read_counters(metrics)) is not None:
        told |= {"drafts": counters.rounds is not None, "draft_size": len(counters.accepted_at) or None}
    return told


def _describe_sglang(client: ServerClient) -> dict[str, Any]:
    content = _get(client, "/server_info") or _get(client, "/get_server_info")
    told: dict[str, Any] = {"start": read_start(read_metrics(client) or "")}
    if (info := answers.decode_or_none(content, _SglangInfo)) is not None:
        size = info.speculative_num_draft_tokens
        told |= {"version": info.version, "drafts": info.speculative_algorithm is not None}
        told["draft_size"] = None if size is None else size - 1
    return told


def _get(client: ServerClient, path: str) -> bytes | None:
    """Return what a server answers; None if it does not have the path.

    Raises:
        NetworkError: nothing answers there.
        GgufspecError: the server refuses the key, or redirects.
    """
    try:
        answer = client.ask(path)
    except RequestError as error:
        raise _unreachable(client, error) from error
    if answer.location:
        raise GgufspecError(
            f"{client.url} redirects to {redaction.redact(answer.location)}, and redirects are not followed",
            "name the address that you mean",
        )
    if answer.refuses_key and path == "/v1/models":
        raise GgufspecError(
            f"{client.url} refuses the request without a valid key (HTTP {answer.code})",
            f"put its key into a file for --api-key-file, or into {KEY_VARIABLE}",
        )
    return answer.content if answer.is_ok else None


def _unreachable(client: ServerClient, error: RequestError) -> NetworkError:
    reason = redaction.redact(error.reason)
    return NetworkError(f"no server answers at {client.url}: {reason}", "start it, or check the address")


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts since the server's start, of all its clients. What it does not count is None.

    Attributes:
        rounds: drafts that were verified.
        drafted: tokens in them.
        accepted: those of them that were accepted.
        accepted_at: how often a draft's first, second, … token was accepted.
        generated: tokens of all answers.
        requests: that were answered.
    """

    rounds: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    generated: int | None = None
    requests: int | None = None


def read_counters(metrics: str) -> ServerCounters | None:
    """Return the counters in a text; None if there are none that are known by name.

    Several engines behind one server are added.
    """
    sums, positions = _sums(metrics)
    for names in _COUNTERS:
        if names["generated"] in sums:
            counts = {field: sums[name] for field, name in names.items() if name in sums}
            return ServerCounters(**counts, accepted_at=tuple(_in_order(positions) or ()))
    return None


def read_start(metrics: str) -> str | None:
    """Return when the server was started, as Prometheus' clients say it; None if they do not.

    The text is compared and never computed with: it is what differs from one start to the next.
    """
    lines = (_LINE.match(line) for line in metrics.splitlines())
    starts = {match["value"] for match in lines if match and match["name"] == "process_start_time_seconds"}
    return ",".join(sorted(starts)) or None


def read_accepted_at(metrics: str) -> list[int] | None:
    """Return how often each position of a draft was accepted since the start; None if it is not counted."""
    if "spec_decode_num_drafts" not in metrics:
        return None
    return _in_order(_sums(metrics)[1])


def _in_order(by_position: Mapping[int, int]) -> list[int] | None:
    """Return the counts of all positions; None if some are missing."""
    places = range(len(by_position))
    return [by_position[place] for place in places] if by_position.keys() == {*places} else None


def _sums(metrics: str) -> tuple[dict[str, int], dict[int, int]]:
    """Return the sum of each metric, by its name without ``_total``, and accepted tokens by position."""
    sums: dict[str, int] = defaultdict(int)
    positions: dict[int, int] = defaultdict(int)
    for line in metrics.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        try:
            value = round(float(match["value"]))
        except (ValueError, OverflowError):
            continue
        name = match["name"].removesuffix("_total")
        sums[name] += value
        position = _POSITION.search(match["labels"] or "")
        if name.endswith(_PER_POSITION) and position is not None:
            positions[int(position[1])] += value
    return sums, positions
