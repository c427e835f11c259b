"""One prompt, one answer: for scripts and pipes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from rich.console import Console

from ggufspec.console.conversation import ChatAnswer, figures, read_answer
from ggufspec.console.talk import Talk
from ggufspec.console.views import SCHEMA, answer_to_json, mark_tokens
from ggufspec.harmless import harmless, to_json


def show(talk: Talk, prompt: str, facts: Mapping[str, Any], *, as_json: bool) -> ChatAnswer:
    """Write the answer to standard output as it is generated, and a line of measurements to standard error.

    Args:
        talk: a pair with an empty conversation.
        prompt: the prompt.
        facts: the first fields of the JSON object.
        as_json: write one JSON object once the answer is complete.

    Raises:
        GgufspecError: the prompt cannot be answered.
        Failure: the server died, refused or did not answer in time.
    """
    stream = talk.ask(prompt)
    console = Console(highlight=False)
    is_plain = not console.is_terminal or console.no_color
    with closing(stream.spans()) as spans:
        for span in spans:
            if as_json:
                continue
            if is_plain:  # byte for byte into pipes and files
                sys.stdout.write(harmless(span.text) if console.is_terminal else span.text)
                sys.stdout.flush()
            else:
                console.print(mark_tokens([span], console), end="", soft_wrap=True)
    answer = read_answer(stream)
    if as_json:
        record = {"schema": SCHEMA, **facts, "said": prompt, **answer_to_json(answer)}
        sys.stdout.write(f"{to_json(record)}\n")
    elif not answer.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(f"{' · '.join(figures(answer))}\n")
    return answer
