"""What a server is meant to serve, and how it answered when it was started for a trial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Requests of up to ``context`` tokens, prompt and answer together, in each of ``slots`` at once."""

    context: int
    slots: int = 1

    @property
    def total_context(self) -> int:
        """The value of ``--ctx-size``, in tokens; llama-server divides it among its slots."""
        return self.context * self.slots


@dataclass(frozen=True, kw_only=True)
class ServedRequest:
    """One answered request; ``tokens_per_s`` is of the answer after its first token, None if unknown."""

    prompt_tokens: int
    answer_tokens: int
    tokens_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One start of llama-server by the command that users are given, and what it answered.

    Attributes:
        argv: the command.
        load_s: seconds until it was ready; None if it was not.
        slot_context: the context of a slot in tokens, as the server reports it; None if it does not.
        requests: the answered requests, the short one first.
        failure: why it cannot serve, in one line; None if it can.
    """

    argv: tuple[str, ...]
    load_s: float | None = None
    slot_context: int | None = None
    requests: tuple[ServedRequest, ...] = ()
    failure: str | None = None
