"""The Hub, cached models and pairs, and stored results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ggufspec import paths, results, units
from ggufspec.doctor.finding import Finding, ok, remark
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.hub import client

PATIENCE_S = 2.5
_EXAMPLE_REPO = "ggml-org/models"


class HubRequest:
    """A request to the Hub that runs in the background of the other checks."""

    def __init__(self, access: hub.Access) -> None:
        """Ask for the login, without waiting for the answer."""
        self._access, self._asked_at = access, time.monotonic()
        self._answers: list[str | Exception] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)
        if not access.is_offline:
            self._thread.start()

    def answer(self, patience_s: float = PATIENCE_S) -> str | Exception | None:
        """Return the answer or the error; None if neither arrived within so many seconds of the request."""
        if not self._access.is_offline:
            self._thread.join(max(0.0, self._asked_at + patience_s - time.monotonic()))
        return self._answers[0] if self._answers else None

    def _ask(self) -> None:
        try:
            self._answers.append(_describe_login(self._access))
        except Exception as error:  # noqa: BLE001  # any failure of the network is a remark
            self._answers.append(error)


def reachability(access: hub.Access, answer: str | Exception | None) -> Finding:
    """Report whether the Hub can be reached; ``answer`` is None if it did not arrive in time."""
    name = "Hub"
    login = "a token is set" if access.known_token else "not logged in: public models only"
    if access.is_offline:
        return ok(name, f"not checked: offline; {login}")
    if isinstance(answer, str):
        return ok(name, answer)
    if answer is None:
        problem = f"{access.host} did not answer within {PATIENCE_S:g} s"
    elif getattr(getattr(answer, "response", None), "status_code", None) == 401:
        return remark(name, f"{access.host} does not accept the access token", "hf auth login")
    else:
        problem = f"{access.host} cannot be reached: {client.reason(answer)}"
    return remark(
        name, f"{problem}; {login}", f"check the connection, proxies and HF_ENDPOINT. {client.WITHOUT_HUB}"
    )


def cached(access: hub.Access) -> Finding:
    """Report the number and size of cached models."""
    sizes = {path.resolve(): path.stat().st_size for _, _, path in hub.cached_files(access)}
    total = units.format_bytes(sum(sizes.values()))
    return ok(
        "models", f"{len(sizes)} GGUF files, {total}, in {access.cache_dir}" if sizes else "none cached yet"
    )


def pairs() -> Finding:
    """Report which pairs of the catalogue are downloaded."""
    catalogue = catalog.read()
    if catalogue.problems:
        return remark("pairs", "; ".join(catalogue.problems), f"correct {catalog.user_file()}")
    entries = catalogue.entries
    downloaded = [name for name in entries if _is_here(name)]
    text = f"{len(downloaded)} of {len(entries)} downloaded: {', '.join(downloaded)}"
    if all(map(catalog.is_embedded, downloaded)):
        return remark("pairs", text, "ggufspec fetch")
    return ok("pairs", text)


def stored(folder: Path) -> Finding:
    """Report the number of stored benches and the last one."""
    try:
        ids = results.ids()
    except GgufspecError as error:
        return remark("results", error.message, error.hint)
    if not ids:
        return ok("results", f"none yet in {folder}")
    return ok("results", f"{len(ids)} in {folder}, the last is {ids[-1]}")


def examine_models(access: hub.Access, request: HubRequest) -> Iterator[Finding]:
    """Check the Hub, the cache, the pairs and the results."""
    yield reachability(access, request.answer())
    yield cached(access)
    yield pairs()
    yield stored(paths.runs_dir())


def _describe_login(access: hub.Access) -> str:
    api = access.api()
    if access.known_token:
        return f"logged in at {access.host} as {api.whoami()['name']}"
    try:
        api.model_info(_EXAMPLE_REPO, timeout=PATIENCE_S)  # any answer will do, even that it does not exist
    except client.failures() as error:
        if getattr(error, "response", None) is None:
            raise
    return f"{access.host} answers; not logged in: public models only"


def _is_here(name: str) -> bool:
    with suppress(GgufspecError):
        hub.resolve(catalog.find_pair(name), offline=True)
        return True
    return False
