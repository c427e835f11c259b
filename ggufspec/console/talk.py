"""One pair, ready to talk: its engine, the settings, and the conversation so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ggufspec.console.commands import Command, Draft, Gamma, System
from ggufspec.console.conversation import (
    Answer,
    AnswerComparison,
    ChatSettings,
    Cleared,
    Conversation,
    Turn,
    changed,
)
from ggufspec.domain import Prompt, Role, RunSpec
from ggufspec.engines.server import Ending, ServerEngine, Stream, StreamingEngine
from ggufspec.errors import GgufspecError
from ggufspec.measure import Request, Session, prepare_session, texts
from ggufspec.modelfiles import gguf
from ggufspec.prompts import Message, chat

_CONTEXT = 4096  # tokens, where the models allow as many and nobody says otherwise
_MOST_LOADS = 3  # target, drafter, both together
_LEAST = 2  # tokens of an answer, so that its length is no reason to refuse a context


@dataclass(kw_only=True)
class Talk:
    """A conversation with a pair. Close it to end the servers."""

    session: Session
    engine: StreamingEngine
    card: gguf.ModelCard  # the target's
    most_context: int | None  # that both models were trained for
    uses_template: bool
    settings: ChatSettings
    conversation: Conversation = field(default_factory=Conversation)

    @property
    def arms(self) -> dict[Role, RunSpec]:
        """The target alone and, with a drafter, the drafter alone and drafting; without prompts."""
        return {arm.role: arm for arm in self.session.suite.blocks[0].arms}

    @property
    def has_drafter(self) -> bool:
        """Whether anything can be drafted."""
        return Role.DRAFTING in self.arms

    @property
    def context(self) -> int:
        """How many tokens prompt and answer may have together."""
        return self.arms[Role.TARGET].context

    def context_full(self) -> tuple[str, str]:
        """Say that there is no room left, and what to do about it."""
        larger = self.most_context is None or self.context < self.most_context
        most = f" of up to {self.most_context}" if self.most_context else ""
        advice = f", or start with a larger -c{most}" if larger else ", or use models with a larger one"
        return f"the context of {self.context} tokens is full", f"/clear begins anew{advice}"

    def facts(self) -> dict[str, str | int | None]:
        """Return what answers, as it heads a transcript."""
        target, drafter = self.arms[Role.TARGET], self.arms.get(Role.DRAFTER)
        install = self.session.install
        return {
            "pair": self.session.name,
            "target": str(target.model.path),
            "drafter": str(drafter.model.path) if drafter else None,
            "llama_cpp": f"{install.version or 'unknown version'} in {install.root}",
            "context": target.context,
            "threads": target.threads,
            "template": "the target's own" if self.uses_template else None,
        }

    @property
    def role(self) -> Role:
        """Who answers next."""
        return Role.DRAFTING if self.settings.drafts else Role.TARGET

    def spec(self, role: Role, text: str = "") -> RunSpec:
        """Return what to ask of one of the arms, under today's settings."""
        arm = self.arms[role]
        drafting = replace(arm.drafting, n_max=self.settings.draft_size) if arm.drafting else None
        return replace(
            arm,
            prompt=Prompt(id="chat", text=text),
            n_predict=self.settings.n_predict,
            sampling=self.settings.sampling,
            drafting=drafting,
        )

    def ask(self, said: str) -> Stream:
        """Return the answer to what is said after all that was said before.

        Raises:
            GgufspecError: there is nothing to answer, it is not text, or the template fails.
            Failure: a server does not load.
        """
        if said.strip():
            texts.check_text(said, "the prompt")
        elif self.uses_template or not self.conversation.turns:
            raise GgufspecError("nothing was said", "type a text, or /help")
        text = self._rendered(self.conversation.messages(said)) if self.uses_template else ""
        return self.engine.stream(self.spec(self.role, text or self.conversation.raw(said)))

    def keep(self, said: str, answer: Answer) -> None:
        """Make an answer a part of the conversation; one without a word is none."""
        if answer.spans or answer.ending is not Ending.STOPPED:
            turn = Turn(said=said, answer=answer, settings=self.settings)
            self.conversation = self.conversation.add(turn)

    def compared(self, prompt: str) -> Iterator[tuple[Role, Stream]]:
        """Yield the answer of each arm to one prompt, apart from the conversation, evaluated from nothing.

        Raises:
            GgufspecError: the template fails.
            Failure: a server does not load.
        """
        texts.check_text(prompt, "the prompt")
        text = self._rendered([Message("user", prompt)]) if self.uses_template else prompt
        for role in self.arms:
            yield role, self.engine.stream(self.spec(role, text), cold=True)

    def keep_comparison(self, prompt: str, answers: tuple[Answer, ...]) -> AnswerComparison:
        """Remember what a comparison measured."""
        comparison = AnswerComparison(prompt=prompt, answers=answers, settings=self.settings)
        self.conversation = self.conversation.add(comparison)
        return comparison

    def clear(self) -> None:
        """Forget the conversation; what was measured stays for the transcript."""
        self.conversation = self.conversation.add(Cleared())

    def change(self, command: Command) -> bool:
        """Change the settings; return whether the next answer needs another load of the models.

        Raises:
            GgufspecError: there is no drafter, or no template for a system prompt.
        """
        if not self.has_drafter and isinstance(command, Draft | Gamma):
            raise GgufspecError("this pair has no drafter", "start with -md FILE, or with another --pair")
        if isinstance(command, System) and command.text and not self.uses_template:
            raise GgufspecError(
                "no chat template is in use, so there is no place for a system prompt",
                "write it at the beginning of the text",
            )
        self.settings = changed(self.settings, command)
        return self.engine.needs_load(self.spec(self.role))

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Take settings back that cannot be loaded."""
        before = self.settings
        try:
            yield
        except BaseException:
            self.settings = before
            raise

    def close(self) -> None:
        """End the servers."""
        self.engine.close()

    def _rendered(self, messages: list[Message]) -> str:
        return chat.render(self.card, [messages], system=self.settings.system)[0]


def begin(asked: Request) -> Talk:
    """Check what is asked for as a bench does, and return the pair, with nothing loaded yet.

    Args:
        asked: a request with one value on every axis; ``chat``, ``system`` and ``n_predict`` are the first
            settings. Without ``ctx``, the context is what both models allow, at most 4096 tokens.

    Raises:
        GgufspecError: a subclass for each thing that cannot work, before any model is loaded.
    """
    # The prompts come later: the shortest one passes every check that is not about them.
    bare = replace(
        asked, engine="server", prompt=("x",), n_predict=_LEAST, chat=asked.chat or None, system=None
    )
    session = prepare_session(bare)
    arms = {arm.role: arm for arm in session.suite.blocks[0].arms}
    cards = [
        gguf.validate_file(arm.model.path) for arm in arms.values() if arm.model.path and not arm.drafting
    ]
    most = min((card.context_length for card in cards if card.context_length), default=None)
    if asked.ctx is None:
        session = prepare_session(replace(bare, ctx=min(most or _CONTEXT, _CONTEXT)))
    uses_template = chat.has_template(cards[0]) and asked.chat is not False
    if asked.system and not uses_template:
        raise GgufspecError("a system prompt needs a chat template", "leave --system out")
    if asked.system:
        texts.check_text(asked.system, "the system prompt")
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
        card=cards[0],
        most_context=most,
        uses_template=uses_template,
        settings=ChatSettings(
            drafts=drafting is not None,
            draft_size=drafting.drafting.n_max if drafting and drafting.drafting else 0,
            sampling=arms[Role.TARGET].sampling,
            n_predict=asked.n_predict,
            system=asked.system,
        ),
    )
