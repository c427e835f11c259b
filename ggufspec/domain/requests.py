"""What is asked of servers and what they answer: prompts, traffic, servers that run already, and launches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

from ggufspec.choices import Reasoning

LLAMA_SERVER = "llama-server"
"""The name of llama.cpp's server, as an ``Endpoint`` has it."""


IMAGE = "image_url"
"""The type of a part of a message that is an image, in OpenAI's form."""
SHOWN_IMAGE = "[image]"


def message_text(message: Mapping[str, Any]) -> str:
    """Return what a message of a chat says to readers."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", SHOWN_IMAGE) for part in content)


@dataclass(frozen=True)
class Request:
    """What is asked beside a text, or instead of it: fields of a request in OpenAI's or llama-server's form.

    ``body`` is canonical JSON, so that equal requests are equal values. With ``messages`` it is a chat, which
    the server puts into the model's chat template; else the fields stand beside a text to continue.
    """

    body: str

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Request | None:
        """Return the request with these fields; None without any.

        Raises:
            ValueError: a number is not finite.
        """
        if not fields:
            return None
        # Only the fields themselves are sorted: llama.cpp writes a schema's properties and a tool's
        # parameters in their given order, into the grammar and into the prompt.
        ordered = {name: fields[name] for name in sorted(fields)}
        return cls(json.dumps(ordered, ensure_ascii=False, allow_nan=False, separators=(",", ":")))

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields, decoded once: they are not to be changed."""
        fields: dict[str, Any] = json.loads(self.body)
        return fields

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages of a chat, in a new list; none beside a text."""
        return [*self.fields.get("messages", ())]

    @property
    def is_chat(self) -> bool:
        """Whether the server puts it into the model's chat template."""
        return bool(self.messages)

    @cached_property
    def images(self) -> int:
        """How many images its messages have."""
        contents = (message.get("content") for message in self.messages)
        parts = (part for content in contents if isinstance(content, list) for part in content)
        return sum(part["type"] == IMAGE for part in parts)

    @property
    def needs(self) -> frozenset[str]:
        """The fields, and ``IMAGE`` where it has some, which whatever answers it must know."""
        return frozenset(self.fields) | ({IMAGE} if self.images else frozenset())

    def replace(self, **fields: Any) -> Request:
        """Return the same with other values of some fields."""
        changed = Request.of(self.fields | fields)
        assert changed is not None
        return changed


CONSTRAINTS = frozenset({"grammar", "json_schema", "response_format"})
"""The fields of a request that say which answers there may be."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a run asks what its prompts ask; the defaults change nothing.

    ``constrain`` is whether grammars and schemas hold, ``reasoning`` whether chats think.
    """

    constrain: bool = True
    reasoning: Reasoning = "auto"

    @property
    def words(self) -> tuple[str, ...]:
        """What differs from the defaults, as options of a bench."""
        constrain = () if self.constrain else ("--constrain", "off")
        return (*constrain, *(() if self.reasoning == "auto" else ("--reasoning", str(self.reasoning))))

    def change(self, request: Request | None) -> Request | None:
        """Return a prompt's request as it is sent."""
        if request is None or self == Asking():
            return request
        left_out = frozenset() if self.constrain else CONSTRAINTS
        fields = {name: value for name, value in request.fields.items() if name not in left_out}
        if self.reasoning != "auto" and request.is_chat:
            thinks = self.reasoning != "off"
            words = fields.get("chat_template_kwargs", {})
            fields["chat_template_kwargs"] = words | {"enable_thinking": thinks}
            if not thinks or fields.get("reasoning_effort") == "none":  # which decides whether there is any
                fields.pop("reasoning_effort", None)
            if isinstance(self.reasoning, int):
                fields.pop("thinking_budget_tokens", None)
                fields["reasoning_budget_tokens"] = self.reasoning
        return Request.of(fields)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One text to continue, with a name that is stable between runs.

    ``message`` is the user's message, if a chat template made the text. In a suite, ``followups`` are the
    later turns: what the user says to the answer, or, of recorded ones, messages that begin with the answer
    before them. In a run there are none: each turn is a prompt of its own, whose text includes the target's
    answers to the earlier turns, or the recorded ones. ``request`` is what is asked beside the text; of a
    chat that a server puts into its template, ``text`` only shows what its messages say.

    ``turn`` is the place in a conversation, from 1; 0 for a prompt that stands alone. ``history`` is how many
    characters at the start of ``text``, or of the messages, the turn before leaves in its slot's cache: its
    own text and the target's answer. 0 for first turns, and for those that begin with nothing in the cache.
    """

    id: str
    text: str
    category: str | None = None
    message: str | None = None
    followups: tuple[str | Request, ...] = ()
    request: Request | None = None
    turn: int = 0
    history: int = 0

    @property
    def n_turns(self) -> int:
        """How many requests a prompt of a suite makes: one, and one for each later turn."""
        return 1 + len(self.followups)

    @property
    def turn_before(self) -> str | None:
        """The id of the turn before, as ``prompts.PromptTurns`` names turns; None for a first one."""
        first = self.id.removesuffix(f"#{self.turn}")
        return None if self.turn < 2 else first if self.turn == 2 else f"{first}#{self.turn - 1}"

    @property
    def content(self) -> tuple[str, Request | None]:
        """What a model reads of it: prompts of one name with the same content are the same."""
        return self.text, self.request

    @property
    def is_chat(self) -> bool:
        """Whether the server puts it into the model's chat template."""
        return self.request is not None and self.request.is_chat

    @property
    def needs(self) -> frozenset[str]:
        """What whatever answers its request must know."""
        return frozenset() if self.request is None else self.request.needs


NO_PROMPT = Prompt(id="", text="")
"""The prompt of a specification that stands for an arm or a load with any prompt."""


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """Latency limits for goodput, in seconds; None for no limit.

    Attributes:
        ttft_s: most time to the first token.
        token_s: most mean time between tokens.
    """

    ttft_s: float | None = None
    token_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Several users at once, each of whom sends a request as soon as the last one was answered.

    With ``rate``, requests arrive instead at random times, whether earlier ones are answered or not, and with
    ``arrivals`` at recorded ones.

    Attributes:
        users: how many; the server has a slot for each.
        prompts: what they send, in the order in which prompts are dealt, over and over. Empty in a
            specification that stands for a load of the models.
        n_requests: how many requests count.
        depth: tokens of other text before each prompt, which is part of its text.
        rate: mean number of requests that arrive in a second (a Poisson process); None for users who wait.
        service_level: which requests count as good, where they arrive by themselves.
        arrivals: seconds from the first request to each, as recorded; each prompt is sent once.
        answer_tokens: the most tokens of the answer to each prompt, with ``arrivals``.
    """

    users: int
    prompts: tuple[Prompt, ...] = ()
    n_requests: int = 0
    depth: int = 0
    rate: float | None = None  # requests/s
    service_level: ServiceLevel | None = None
    arrivals: tuple[float, ...] = ()
    answer_tokens: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether requests arrive by themselves."""
        return self.rate is not None or bool(self.arrivals)

    @property
    def mean_rate(self) -> float | None:
        """Requests/s that arrive; None for users who wait for their answers."""
        if self.arrivals:
            return (len(self.arrivals) - 1) / self.arrivals[-1] if self.arrivals[-1] else None
        return self.rate

    def tokens_of(self, n_predict: int) -> tuple[int, ...]:
        """Return the most tokens of the answer to each prompt, where ``n_predict`` is that of the others."""
        return self.answer_tokens or (n_predict,) * len(self.prompts)


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A server that runs already, as it describes itself. What it does not report is None.

    Attributes:
        url: its address.
        model: the name by which it serves the model.
        software: ``llama-server``, ``vLLM`` or ``SGLang``.
        version: of that software.
        model_path: the file or repository that it has loaded.
        model_bytes: size of the model.
        n_params: weights of the model.
        context: tokens of one request, its answer included.
        slots: requests that it answers at once.
        drafts: whether it drafts.
        draft_size: tokens that it drafts in a round, γ.
        sees_images: whether it reads images.
        start: what differs from one start of the server to the next. It is no part of what a run measures.
    """

    url: str
    model: str
    software: str | None = None
    version: str | None = None
    model_path: str | None = None
    model_bytes: int | None = None
    n_params: int | None = None
    context: int | None = None
    slots: int | None = None
    drafts: bool | None = None
    draft_size: int | None = None
    sees_images: bool | None = None
    start: str | None = field(default=None, compare=False)

    @property
    def is_llama_server(self) -> bool:
        """Whether it is llama.cpp's, which reports times and drafts with each answer."""
        return self.software == LLAMA_SERVER

    @property
    def file_name(self) -> str:
        """The model's name without folders: llama-server names models by their path."""
        return PurePath(self.model).name if self.model.endswith(".gguf") else self.model

    @property
    def summary(self) -> str:
        """The server in words: ``model.gguf on llama-server b9976-1a2b3c4 at http://…, drafting``."""
        software = " ".join(filter(None, (self.software or "an unknown server", self.version)))
        size = "" if self.draft_size is None else f" γ = {self.draft_size}"
        drafts = {True: f", drafting{size}", False: ", not drafting", None: ""}[self.drafts]
        return f"{self.file_name} on {software} at {self.url}{drafts}"


@dataclass(frozen=True, kw_only=True)
class RunningServers:
    """Servers that run already, in place of models that are loaded for the bench.

    Attributes:
        alone: serves the target alone; None where only a server that drafts is measured.
        drafting: serves the same target and drafts; None in a run of the target alone.
        chat: whether prompts are messages, which the servers put into their own chat template.
        system: the system prompt, with ``chat``.
        more_alone: other servers that are started like ``alone``; each repeat asks the next one.
        more_drafting: the same of ``drafting``.
    """

    alone: Endpoint | None = None
    drafting: Endpoint | None = None
    chat: bool = False
    system: str | None = None
    more_alone: tuple[Endpoint, ...] = ()
    more_drafting: tuple[Endpoint, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All servers, those of the target alone first."""
        sides = (self.alone, *self.more_alone), (self.drafting, *self.more_drafting)
        return tuple(endpoint for side in sides for endpoint in side if endpoint is not None)

    @property
    def target_alone(self) -> RunningServers:
        """The servers of the target alone."""
        return replace(self, drafting=None, more_drafting=())

    def at_repeat(self, repeat: int) -> RunningServers:
        """Return the one server of each kind that answers in a repeat."""
        alone, drafting = (self.alone, *self.more_alone), (self.drafting, *self.more_drafting)
        return replace(
            self,
            alone=alone[repeat % len(alone)],
            drafting=drafting[repeat % len(drafting)],
            more_alone=(),
            more_drafting=(),
        )


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
        switches: whether it answered without drafts where a request asked for none; None where it drafted
            nothing for the short one.
        failure: why it cannot serve, in one line; None if it can.
    """

    argv: tuple[str, ...]
    load_s: float | None = None
    slot_context: int | None = None
    requests: tuple[ServedRequest, ...] = ()
    switches: bool | None = None
    failure: str | None = None
