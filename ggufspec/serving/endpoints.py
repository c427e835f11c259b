"""Servers that run already: addresses that a user names, keys for them, and what they say of themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from ggufspec import redaction, userfiles
from ggufspec.domain import LLAMA_SERVER, Endpoint
from ggufspec.errors import GgufspecError, NetworkError
from ggufspec.serving.counters import read_counters, read_start

KEY_VARIABLE = "GGUFSPEC_API_KEY"
_LONGEST_KEY = 64 << 10  # bytes
_ANSWER_S = 10.0  # for what a server says of itself
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_OWNERS = {"llamacpp": LLAMA_SERVER, "vllm": "vLLM", "sglang": "SGLang"}
_FORM = "give http://HOST:PORT or https://HOST"


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


def sends_in_clear(url: str, key: str | None) -> bool:
    """Whether a key would be sent over a network without encryption."""
    parts = urlsplit(url)
    return key is not None and parts.scheme == "http" and parts.hostname not in _LOOPBACK


def headers_for(key: str | None) -> Mapping[str, str]:
    """Return the headers of all requests to a server."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


@contextmanager
def connect(url: str, key: str | None) -> Iterator[httpx2.Client]:
    """Yield a client for questions about a server. It follows no redirects and uses no proxy."""
    with httpx2.Client(
        base_url=url, headers=dict(headers_for(key)), timeout=_ANSWER_S, trust_env=False
    ) as client:
        yield client


class _Meta(msgspec.Struct, frozen=True):
    size: int | None = None
    n_params: int | None = None


class _Model(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    root: str | None = None
    max_model_len: int | None = None
    meta: _Meta | None = None


class _Models(msgspec.Struct, frozen=True):
    data: tuple[_Model, ...]


class _Settings(msgspec.Struct, frozen=True):
    n_ctx: int | None = None


class _Properties(msgspec.Struct, frozen=True):
    """llama-server's /props."""

    build_info: str | None = None
    model_path: str | None = None
    total_slots: int | None = None
    media_marker: str | None = None  # drawn at each start, unless LLAMA_MEDIA_MARKER fixes it
    default_generation_settings: _Settings = _Settings()


class _Slot(msgspec.Struct, frozen=True):
    speculative: bool | None = None


class _Version(msgspec.Struct, frozen=True):
    """vLLM's /version."""

    version: str | None = None


class _ServerInfo(msgspec.Struct, frozen=True):
    """SGLang's /server_info."""

    version: str | None = None
    speculative_algorithm: str | None = None
    speculative_num_draft_tokens: int | None = None  # with the root of the draft, the target's own token


T = TypeVar("T")


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
        content = _get(client, "/v1/models")
        listed = None if content is None else _decoded(content, _Models)
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
            return Endpoint(**(known | _describe_llama(client, served)))
        if software == "SGLang":
            return Endpoint(**(known | _describe_sglang(client)))
        return Endpoint(**(known | _describe_vllm(client)))


def read_metrics(client: httpx2.Client) -> str | None:
    """Return the text of /metrics; None where there is none, or the server does not answer any more."""
    try:
        response = client.get("/metrics")
    except httpx2.HTTPError:
        return None
    return response.text if response.status_code == httpx2.codes.OK else None


def count_tokens(url: str, key: str | None, endpoint: Endpoint, text: str) -> int | None:
    """Return how many tokens a server makes of a text; None where it has no endpoint for that.

    llama-server's and vLLM's /tokenize are known.

    Raises:
        NetworkError: nothing answers there.
    """
    body = {"content": text, "model": endpoint.model, "prompt": text, "add_special_tokens": False}
    with connect(url, key) as client:
        try:
            response = client.post("/tokenize", json=body)
        except httpx2.HTTPError as error:
            raise _unreachable(client, error) from error
    answer = _decoded(response.content, _Tokens) if response.status_code == httpx2.codes.OK else None
    return None if answer is None else len(answer.tokens)


class _Tokens(msgspec.Struct, frozen=True):
    tokens: list[Any]


def _choose(url: str, models: Sequence[_Model], name: str | None) -> _Model:
    chosen = [model for model in models if name is None or model.id == name]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(model.id for model in models)
    problem = "serves several models" if name is None else f"serves no model {name!r}"
    raise GgufspecError(f"{url} {problem}: {names}", "name one of them with --served-model")


def _describe_llama(client: httpx2.Client, served: _Model) -> dict[str, Any]:
    properties = _decoded(_get(client, "/props") or b"{}", _Properties) or _Properties()
    slots = _decoded(_get(client, "/slots") or b"[]", list[_Slot])
    meta = served.meta or _Meta()
    return {
        "version": properties.build_info,
        "model_path": properties.model_path,
        "model_bytes": meta.size,
        "n_params": meta.n_params,
        "context": properties.default_generation_settings.n_ctx,
        "slots": properties.total_slots,
        "start": properties.media_marker,
        "drafts": slots[0].speculative if slots else None,
    }


def _describe_vllm(client: httpx2.Client) -> dict[str, Any]:
    """Return what vLLM tells; of other servers the version is not known."""
    version = _decoded(_get(client, "/version") or b"{}", _Version) or _Version()
    metrics = read_metrics(client) or ""
    counters, told = read_counters(metrics), {"version": version.version, "start": read_start(metrics)}
    if counters is None:
        return told
    size = len(counters.accepted_at) or None
    return {**told, "drafts": counters.rounds is not None, "draft_size": size}


def _describe_sglang(client: httpx2.Client) -> dict[str, Any]:
    content = _get(client, "/server_info") or _get(client, "/get_server_info")
    info = _decoded(content, _ServerInfo) if content is not None else None
    start = read_start(read_metrics(client) or "")
    if info is None:
        return {"start": start}
    size = info.speculative_num_draft_tokens
    return {
        "start": start,
        "version": info.version,
        "drafts": info.speculative_algorithm is not None,
        "draft_size": None if size is None else size - 1,
    }


def _get(client: httpx2.Client, path: str) -> bytes | None:
    """Return what a server answers; None if it does not have the path.

    Raises:
        NetworkError: nothing answers there.
        GgufspecError: the server refuses the key, or redirects.
    """
    try:
        response = client.get(path)
    except httpx2.HTTPError as error:
        raise _unreachable(client, error) from error
    url, code = _shown(client), response.status_code
    if response.is_redirect:
        where = redaction.redact(response.headers.get("location", ""))
        raise GgufspecError(
            f"{url} redirects to {where}, and redirects are not followed", "name the address that you mean"
        )
    if code in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN} and path == "/v1/models":
        raise GgufspecError(
            f"{url} refuses the request without a valid key (HTTP {code})",
            f"put its key into a file for --api-key-file, or into {KEY_VARIABLE}",
        )
    return response.content if code == httpx2.codes.OK else None


def _shown(client: httpx2.Client) -> str:
    return str(client.base_url).rstrip("/")


def _unreachable(client: httpx2.Client, error: Exception) -> NetworkError:
    reason = redaction.redact(str(error)) or type(error).__name__
    return NetworkError(f"no server answers at {_shown(client)}: {reason}", "start it, or check the address")


def _decoded(content: bytes, expected: type[T]) -> T | None:
    """Return an answer as a value; None if it is of another form."""
    try:
        return msgspec.json.decode(content, type=expected)
    except (msgspec.MsgspecError, RecursionError):
        return None
