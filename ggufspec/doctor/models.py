"""The Hub and what came from it: login, reachability, cached models and pairs; and the stored results."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from ggufspec import paths, results, units
from ggufspec.doctor.finding import Finding, ok, remark
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.hub import client

PATIENCE_S = 2.5
_SOME_MODEL = "ggml-org/models"


class Question:
    """A question to the Hub, on its way while other things are looked at."""

    def __init__(self, access: hub.Access) -> None:
        """Ask who we are; nothing waits for the answer yet."""
        self._access, self._asked_at = access, time.monotonic()
        self._came: list[str | Exception] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)
        if not access.is_offline:
            self._thread.start()

    def answer(self, patience_s: float = PATIENCE_S) -> str | Exception | None:
        """Return what came within so many seconds of asking, whatever the network does; else None."""
        if not self._access.is_offline:
            self._thread.join(max(0.0, self._asked_at + patience_s - time.monotonic()))
        return self._came[0] if self._came else None

    def _ask(self) -> None:
        try:
            self._came.append(_greet(self._access))
        except Exception as error:  # noqa: BLE001  # whatever the network does is a remark
            self._came.append(error)


def reached(access: hub.Access, said: str | Exception | None) -> Finding:
    """Judge the answer to a question; None is one that did not come in time."""
    name = "Hub"
    login = "a token is set" if access.has_token else "not logged in: public models only"
    if access.is_offline:
        return ok(name, f"not checked: offline; {login}")
    if isinstance(said, str):
        return ok(name, said)
    if said is None:
        problem = f"{access.host} did not answer within {PATIENCE_S:g} s"
    elif getattr(getattr(said, "response", None), "status_code", None) == 401:
        return remark(name, f"{access.host} does not accept the access token", "hf auth login")
    else:
        problem = f"{access.host} cannot be reached: {client.reason(said)}"
    return remark(
        name, f"{problem}; {login}", "check the connection, proxies and HF_ENDPOINT; cached models work"
    )


def cached(access: hub.Access) -> Finding:
    """Say how many models the cache holds."""
    sizes = {path.resolve(): path.stat().st_size for _, _, path in hub.cached_files(access)}
    total = units.format_bytes(sum(sizes.values()))
    return ok(
        "models", f"{len(sizes)} GGUF files, {total}, in {access.cache_dir}" if sizes else "none cached yet"
    )


def pairs() -> Finding:
    """Say which pairs of the catalogue can be measured at once."""
    try:
        known = catalog.load_catalogue()
    except GgufspecError as error:
        return remark("pairs", error.message, error.hint)
    here = [name for name, pair in known.items() if _is_here(name)]
    said = f"{len(here)} of {len(known)} downloaded: {', '.join(here)}"
    return ok("pairs", said) if set(here) - {"demo"} else remark("pairs", said, "ggufspec fetch")


def stored(ids: Sequence[str], folder: Path) -> Finding:
    """Say how many benches are stored, and which was the last."""
    if not ids:
        return ok("results", f"none yet in {folder}")
    return ok("results", f"{len(ids)} in {folder}, the last is {ids[-1]}")


def now(access: hub.Access, question: Question) -> Iterator[Finding]:
    """Look at what is here; the answer of the Hub is waited for."""
    yield reached(access, question.answer())
    yield cached(access)
    yield pairs()
    yield stored(results.ids(), paths.runs_dir())


def _greet(access: hub.Access) -> str:
    api = access.api()
    if access.has_token:
        return f"logged in at {access.host} as {api.whoami()['name']}"
    try:
        api.model_info(_SOME_MODEL, timeout=PATIENCE_S)  # whether it exists does not matter: no answer does
    except client.HTTP_ERROR as error:
        if getattr(error, "response", None) is None:
            raise
    return f"{access.host} answers; not logged in: public models only"


def _is_here(name: str) -> bool:
    with suppress(GgufspecError):
        hub.resolve(catalog.find_pair(name), offline=True)
        return True
    return False
