"""One pair in a chat: its engine, settings and conversation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ggufspec.console.commands import ChangeSetting
from ggufspec.console.conversation import (
    AnswerComparison,
    ChatAnswer,
    ChatSettings,
    Cleared,
    Conversation,
    Turn,
    apply_change,
)
from ggufspec.domain import Prompt, Role, RunSpec
from ggufspec.engines.server import AnswerEnd, ServerEngine, Stream, StreamingEngine
from ggufspec.errors import GgufspecError
from ggufspec.measure import Session, prepare_session, texts, with_tuned
from ggufspec.modelfiles import gguf
from ggufspec.options import BenchOptions, TalkOptions
from ggufspec.prompts import Message, chat

_CONTEXT = 4096  # tokens; the default, if the models allow as many
_MOST_LOADS = 3  # target, drafter, drafting
_LEAST = 2  # tokens of an answer; so few that the check of the context passes


@dataclass(kw_only=True)
class Talk:
    """A chat with a pair. Close it to stop the servers."""

    session: Session
    engine: StreamingEngine
    card: gguf.ModelCard  # the target's
    most_context: int | None  # the smaller of the lengths that the models were trained for
    uses_template: bool
    settings: ChatSettings
    conversation: Conversation = field(default_factory=Conversation)

    @property
    def arms(self) -> dict[Role, RunSpec]:
        """The target alone and, with a drafter, the drafter alone and drafting; without prompts."""
        return {arm.role: arm for arm in self.session.suite.blocks[0].arms}

    @property
    def has_drafter(self) -> bool:
        """Whether the pair can draft."""
        return Role.DRAFTING in self.arms

    @property
    def context(self) -> int:
        """Context size in tokens: prompt and answer together."""
        return self.arms[Role.TARGET].context

    def context_full(self) -> tuple[str, str]:
        """Return the message for a full context, and the hint."""
        larger = self.most_context is None or self.context < self.most_context
        most = f" of up to {self.most_context}" if self.most_context else ""
        advice = f", or start with a larger -c{most}" if larger else ", or use models with a larger one"
        return f"the context of {self.context} tokens is full", f"/clear starts a new conversation{advice}"

    def facts(self) -> dict[str, str | int | None]:
        """Return the facts at the head of a transcript."""
        target, drafting = self.arms[Role.TARGET], self.arms.get(Role.DRAFTING)
        drafter = drafting.drafter if drafting else None
        install = self.session.install
        return {
            "pair": self.session.name,
            "target": str(target.model.path),
            "drafter": str(drafter.path) if drafter else None,
            "llama_cpp": f"{install.version or 'unknown version'} in {install.root}",
            "context": target.context,
            "threads": target.threads,
            "template": "the target's own" if self.uses_template else None,
        }

    @property
    def role(self) -> Role:
        """The role of the next answer."""
        return Role.DRAFTING if self.settings.drafts else Role.TARGET

    def spec(self, role: Role, text: str = "") -> RunSpec:
        """Return the run of an arm under the current settings."""
        arm = self.arms[role]
        drafting = replace(arm.drafting, n_max=self.settings.draft_size) if arm.drafting else None
        return replace(
            arm,
            prompt=Prompt(id="chat", text=text),
            n_predict=self.settings.n_predict,
            sampling=self.settings.sampling,
            drafting=drafting,
        )

    def ask(self, prompt: str) -> Stream:
        """Return the stream of the answer to a prompt in this conversation.

        Raises:
            GgufspecError: the prompt is empty or not text, or the template fails.
            Failure: a server does not load.
        """
        if prompt.strip():
            texts.check_text(prompt, "the prompt")
        elif self.uses_template or not self.conversation.turns:
            raise GgufspecError("the prompt is empty", "type a text, or /help")
        text = self._render(self.conversation.messages(prompt)) if self.uses_template else ""
        return self.engine.stream(self.spec(self.role, text or self.conversation.raw(prompt)))

    def add_turn(self, prompt: str, answer: ChatAnswer) -> None:
        """Add an answer to the conversation; a stopped one without text is dropped."""
        if answer.spans or answer.ending is not AnswerEnd.STOPPED:
            turn = Turn(prompt=prompt, answer=answer, settings=self.settings)
            self.conversation = self.conversation.add(turn)

    def stream_comparison(self, prompt: str) -> Iterator[tuple[Role, Stream]]:
        """Yield the stream of each arm for one prompt, outside the conversation and without a cached prompt.

        Raises:
            GgufspecError: the template fails.
            Failure: a server does not load.
        """
        texts.check_text(prompt, "the prompt")
        text = self._render([Message("user", prompt)]) if self.uses_template else prompt
        for role in self.arms:
            yield role, self.engine.stream(self.spec(role, text), cold=True)

    def add_comparison(self, prompt: str, answers: tuple[ChatAnswer, ...]) -> AnswerComparison:
        """Add a comparison to the conversation, and return it."""
        comparison = AnswerComparison(prompt=prompt, answers=answers, settings=self.settings)
        self.conversation = self.conversation.add(comparison)
        return comparison

    def clear(self) -> None:
        """Start a new conversation; measurements stay for the transcript."""
        self.conversation = self.conversation.add(Cleared())

    def change(self, setting: ChangeSetting) -> bool:
        """Change the settings; return whether the models must be loaded again for the next answer.

        Raises:
            GgufspecError: there is no drafter, or no template for a system prompt.
        """
        if not self.has_drafter and setting.field in {"drafts", "draft_size"}:
            raise GgufspecError("this pair has no drafter", "start with -md FILE, or with another --pair")
        if setting.field == "system" and setting.value and not self.uses_template:
            raise GgufspecError(
                "a system prompt needs a chat template, and none is in use",
                "write it at the start of the text",
            )
        self.settings = apply_change(self.settings, setting)
        return self.engine.needs_load(self.spec(self.role))

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Restore the settings if the block raises."""
        before = self.settings
        try:
            yield
        except BaseException:
            self.settings = before
            raise

    def close(self) -> None:
        """Stop the servers."""
        self.engine.close()

    def _render(self, messages: list[Message]) -> str:
        return chat.render(self.card, [messages], system=self.settings.system)[0]


def begin(asked: TalkOptions) -> Talk:
    """Check options as a bench does, and return the chat; no model is loaded yet.

    Args:
        asked: ``chat``, ``system`` and ``n_predict`` are the first settings. Without ``ctx``, the context is
            the longest that both models allow, at most 4096 tokens.

    Raises:
        GgufspecError: they cannot work; the subclass says why.
    """
    request, _ = with_tuned(asked.to(BenchOptions), compares=False)
    # The prompts come later; this one passes the checks of everything else.
    bare = request.replace(
        engine="server",
        prompt=("x",),
        n_predict=_LEAST,
        chat=request.chat or None,
        system=None,
        parallel=None,  # a configuration that was tuned for several users chats with one
    )
    session = prepare_session(bare)
    arms = {arm.role: arm for arm in session.suite.blocks[0].arms}
    cards = [
        gguf.validate_file(arm.model.path) for arm in arms.values() if arm.model.path and not arm.drafting
    ]
    most = min((card.context_length for card in cards if card.context_length), default=None)
    if request.ctx is None:
        session = prepare_session(bare.replace(ctx=min(most or _CONTEXT, _CONTEXT)))
    card = chat.with_template(cards[0], request.chat_template_file)
    uses_template = chat.has_template(card) and request.chat is not False
    if request.system and not uses_template:
        raise GgufspecError("a system prompt needs a chat template", "remove --system")
    if request.system:
        texts.check_text(request.system, "the system prompt")
    engine = session.engine
    assert isinstance(engine, ServerEngine)
    drafting = arms.get(Role.DRAFTING)
    return Talk(
        session=session,
        engine=StreamingEngine(
            install=session.install,
            capacity=min(_MOST_LOADS, engine.capacity or _MOST_LOADS),
            timeout_s=engine.timeout_s,
        ),
        card=card,
        most_context=most,
        uses_template=uses_template,
        settings=ChatSettings(
            drafts=drafting is not None,
            draft_size=drafting.drafting.n_max if drafting and drafting.drafting else 0,
            sampling=arms[Role.TARGET].sampling,
            n_predict=request.n_predict,
            system=request.system,
        ),
    )
