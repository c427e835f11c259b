"""The turns of a conversation as prompts; the text of each includes the target's earlier answers."""

from __future__ import annotations

from dataclasses import replace

from ggufspec.domain import Prompt
from ggufspec.prompts.chat import Message, Render


class PromptTurns:
    """The turns of one prompt of a suite, made one by one as the target answers them.

    Attributes:
        made: the turns so far, without followups; at first the prompt's own text.
    """

    def __init__(self, prompt: Prompt, render: Render | None) -> None:
        """Start with the first turn.

        Args:
            prompt: of a suite; its ``followups`` are the later turns.
            render: makes the text of a later turn; None joins turns and answers as they are.
        """
        self.made = [replace(prompt, followups=())]
        self._followups = prompt.followups
        self._render = render
        self._messages: list[Message] = []

    @property
    def is_complete(self) -> bool:
        """Whether all turns are made."""
        return len(self.made) > len(self._followups)

    def add_answer(self, answer: str) -> None:
        """Make the next turn from the target's answer to the last one.

        Args:
            answer: the target's text.

        Raises:
            IndexError: all turns are made.
        """
        last, followup = self.made[-1], self._followups[len(self.made) - 1]
        self._messages += [Message("user", last.message or last.text), Message("assistant", answer)]
        text = (
            f"{last.text}{answer}\n\n{followup}\n\n"
            if self._render is None
            else self._render([*self._messages, Message("user", followup)])
        )
        number = len(self.made) + 1
        name = f"{self.made[0].id}#{number}"
        self.made.append(Prompt(id=name, text=text, category=last.category, message=followup))
