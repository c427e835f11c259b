"""Test how a running llama-server treats the drafting keys of a request.

Builds b4164 to b9108 take the draft size from each request; later ones silently ignore it. Up to b6722, a
request that disables the prompt cache silently disables drafting. Version numbers may be missing or wrong, so
every server with a drafter gets a few short requests after it has loaded.

The drafter of all those builds keeps the last text that it drafted for, independently of the prompt cache
(common_speculative_gen_draft). For a repeated prompt its draft is the last answer, without any evaluation;
another prompt with the same beginning may get a part of it. So before each run the drafter drafts for an
unrelated text.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ggufspec.domain import Drafting, Failure, RunSpec, Sample, Status
from ggufspec.engines.library import BEFORE_MTP
from ggufspec.engines.server import response
from ggufspec.engines.server.response import send
from ggufspec.llama.server import AnswerEvent, Server, decode, path_of, read_slot_drafts

_PROMPTS = ("Once upon a time there was", "The weather was", "In the village", "A good recipe needs")
_DISTRACTION = (100, 100)  # token ids that every vocabulary has, without a BOS
_TOKENS = 6  # the first one, a draft of up to four, and one more


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a loaded server supports."""

    slot_drafts: bool | None = None  # according to /slots; None if it does not say
    drafts: bool = False  # a draft was seen
    per_request: bool = False  # a request can set any draft size, 0 included
    caches_to_draft: bool = False  # it drafts only with the prompt cache enabled
    remembers: bool = False  # its drafter keeps the last text between runs

    @property
    def inactive(self) -> bool:
        """Whether it certainly does not draft."""
        return self.slot_drafts is False and not self.drafts


def probe(server: Server, drafting: Drafting, *, timeout_s: float | None = None) -> Capabilities:
    """Test a server that was started to draft.

    N-gram methods draft only if a text repeats itself, and they remember what they see: they, and chains with
    them, get no requests.

    Args:
        server: newly loaded.
        drafting: the draft size and limits it was started with.
        timeout_s: time limit for each of up to five short requests.

    Raises:
        Failure: the server died or did not answer in time.
    """
    prompts = iter(_PROMPTS)
    loaded_drafts = slot_drafts(server)
    if not drafting.method.drafts_with_model or drafting.first:
        return Capabilities(slot_drafts=loaded_drafts)

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
        return Capabilities(slot_drafts=loaded_drafts)
    known = Capabilities(slot_drafts=loaded_drafts, drafts=True, caches_to_draft=caches)
    if drafted(0, caches=caches).n_drafted:
        return known
    try:
        longer = drafted(size + 1, caches=caches, n_predict=size + 4).rounds or ()
    except Failure as refusal:  # ik_llama.cpp refuses more than its start said, where layers are recurrent
        if refusal.status is not Status.FAILED or not server.is_alive:
            raise
        longer = ()
    longest = max((round_.drafted for round_ in longer), default=0)
    distract_drafter(server, drafting, timeout_s=timeout_s)
    return replace(known, per_request=longest == size + 1, remembers=True)


def slot_drafts(server: Server) -> bool | None:
    """Return whether a slot drafts, as the server says; None if it does not."""
    return read_slot_drafts(server.get("/slots"))


def _question(prompt: str | Sequence[int], n_predict: int, *, n_max: int, caches: bool) -> dict[str, Any]:
    keys = {"speculative.n_max": n_max, "speculative.n_min": 0, "speculative.p_min": 0.0}
    body = {"prompt": prompt, "n_predict": n_predict, "ignore_eos": True, "cache_prompt": caches}
    return body | {"temperature": 0.0, "top_k": 1, "stream": False} | keys


def distract_drafter(server: Server, drafting: Drafting, *, timeout_s: float | None = None) -> None:
    """Let the drafter draft for an unrelated text, which replaces the text that it keeps.

    Raises:
        Failure: the server died or did not answer in time.
    """
    question = _question(_DISTRACTION, 4, n_max=min(2, drafting.n_max), caches=True)
    server.post("/completion", question, timeout_s=timeout_s)


def fix_first_state(server: Server, *, timeout_s: float | None = None) -> None:
    """Let the slot read the same tokens before each run of a layer for MTP; see ``BEFORE_MTP``.

    The target's choice of one token ends the request, so nothing is drafted.

    Raises:
        Failure: the server died or did not answer in time.
    """
    server.post("/completion", _question(BEFORE_MTP, 1, n_max=0, caches=False), timeout_s=timeout_s)


def read_history(server: Server, spec: RunSpec, timeout_s: float | None) -> int:
    """Let the slot read the conversation before a turn, and return how many of its tokens are certain.

    Of a chat, that is the prompt of the turn before: only the server's template knows what follows it.

    Raises:
        Failure: the server died or did not answer in time.
    """
    asked = _question(spec.prompt.text[: spec.prompt.history], 1, n_max=0, caches=True)
    if spec.request is not None and spec.request.is_chat:
        roles = [message["role"] for message in spec.request.messages]
        before = len(roles) - 1 - roles[::-1].index("assistant")  # the last answer, which begins the turn
        earlier = spec.request.replace(messages=spec.request.messages[:before])
        asked = {name: value for name, value in asked.items() if name != "prompt"} | earlier.fields
    answer = server.post(path_of(asked), asked, timeout_s=timeout_s)
    return decode(answer, AnswerEvent).n_prompt or 0


def erase_slot(server: Server) -> None:
    """Empty the prompt cache of the slot, for servers on which requests cannot disable the cache."""
    server.post("/slots/0?action=erase", {})
