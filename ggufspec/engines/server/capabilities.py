"""What a running llama-server does with the drafting keys of a request: asked, never assumed.

Builds b4164 to b9108 take the draft size from each request, later ones ignore it without a word; up to b6722
a request that forbids the prompt cache silently switches drafting off. Version numbers may be absent or
wrong, so every server with a drafter answers a few short requests after it has loaded.

The drafter of all those builds remembers the last text that it drafted for, whatever becomes of the prompt
cache (common_speculative_gen_draft). A repeated prompt gets its last answer as the draft, and nothing is
evaluated for it; another prompt with the same beginning may get a piece of it. So that every run is a first
one, the drafter is given something else before, which begins like no text.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec

from ggufspec.domain import Drafting, Sample
from ggufspec.engines.server import response
from ggufspec.engines.server.launch import Server
from ggufspec.engines.server.request import send

_PROMPTS = ("Once upon a time there was", "The weather was", "In the village", "A good recipe needs")
_DISTRACTION = (100, 100)  # tokens as such, in every vocabulary, with no BOS before them
_TOKENS = 6  # the first one, a draft of up to four, and one more


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """How a loaded server has to be asked."""

    slot_drafts: bool | None = None  # what /slots says; None where it says nothing
    drafts: bool = False  # a short answer was drafted
    per_request: bool = False  # any draft size, and none, can be had without another load
    caches_to_draft: bool = False  # it drafts only where the prompt cache is allowed
    remembers: bool = False  # its drafter has a memory of its own, which outlives a run

    @property
    def inactive(self) -> bool:
        """Whether it is certain that nothing will be drafted."""
        return self.slot_drafts is False and not self.drafts

    def to_json(self) -> dict[str, Any]:
        """Return what is kept with the raw answers."""
        return asdict(self)


def probe(server: Server, drafting: Drafting, *, timeout_s: float | None = None) -> Capabilities:
    """Find out how a server that was started to draft behaves.

    N-gram methods draft only where a text repeats itself, and what they see they remember: nothing is asked.

    Args:
        server: just loaded.
        drafting: the draft size and limits that it was started with.
        timeout_s: for each of up to five short requests.

    Raises:
        Failure: the server died or did not answer in time.
    """
    prompts = iter(_PROMPTS)
    slot_drafts = _slot_drafts(server)
    if not drafting.method.needs_drafter:
        return Capabilities(slot_drafts=slot_drafts)

    def drafted(n_max: int, *, caches: bool, n_predict: int = _TOKENS) -> Sample:
        body = _question(next(prompts), n_predict, n_max=n_max, caches=caches)
        if caches:
            erase_slot(server)
        out = io.StringIO()
        send(server, body | {"stream": True, "timings_per_token": True}, out, timeout_s=timeout_s)
        return response.parse_response(out.getvalue()).sample

    size = drafting.n_max
    caches = not drafted(size, caches=False).n_drafted
    if caches and not drafted(size, caches=True).n_drafted:
        return Capabilities(slot_drafts=slot_drafts)
    known = Capabilities(slot_drafts=slot_drafts, drafts=True, caches_to_draft=caches)
    if drafted(0, caches=caches).n_drafted:
        return known
    longer = drafted(size + 1, caches=caches, n_predict=size + 4).rounds or ()
    longest = max((one.drafted for one in longer), default=0)
    distract_drafter(server, timeout_s=timeout_s)
    return replace(known, per_request=longest == size + 1, remembers=True)


class _Slot(msgspec.Struct):
    speculative: bool | None = None


def _slot_drafts(server: Server) -> bool | None:
    """Return what /slots says of drafting; None where it says nothing, or nothing that can be read."""
    slots = server.get("/slots")
    with suppress(msgspec.MsgspecError, RecursionError):
        listed = msgspec.json.decode(slots.content if slots is not None else b"[]", type=list[_Slot])
        return listed[0].speculative if listed else None
    return None


def _question(prompt: str | Sequence[int], n_predict: int, *, n_max: int, caches: bool) -> dict[str, Any]:
    keys = {"speculative.n_max": n_max, "speculative.n_min": 0, "speculative.p_min": 0.0}
    body = {"prompt": prompt, "n_predict": n_predict, "ignore_eos": True, "cache_prompt": caches}
    return body | {"temperature": 0.0, "top_k": 1, "stream": False} | keys


def distract_drafter(server: Server, *, timeout_s: float | None = None) -> None:
    """Let the drafter draft two tokens for something else, which is all that it remembers then.

    Raises:
        Failure: the server died or did not answer in time.
    """
    server.post("/completion", _question(_DISTRACTION, 4, n_max=2, caches=True), timeout_s=timeout_s)


def erase_slot(server: Server) -> None:
    """Make the next prompt a cold one where the prompt cache cannot be forbidden."""
    server.post("/slots/0?action=erase", {})
