"""One prompt, one answer: for scripts and pipes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from rich.console import Console

from ggufspec.console.conversation import Answer, answered
from ggufspec.console.figures import figures
from ggufspec.console.talk import Talk
from ggufspec.console.transcript import SCHEMA, answer_to_json
from ggufspec.console.views import coloured
from ggufspec.harmless import harmless, to_json


def show(talk: Talk, said: str, facts: Mapping[str, Any], *, as_json: bool) -> Answer:
    """Write the answer to standard output as it comes, and one line of figures to standard error.

    Args:
        talk: a pair with nothing said yet.
        said: the prompt.
        facts: what JSON begins with.
        as_json: write one object, once the answer is whole.

    Raises:
        GgufspecError: the prompt cannot be answered.
        Failure: the server died, refused or did not answer in time.
    """
    stream = talk.ask(said)
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
                console.print(coloured([span], console), end="", soft_wrap=True)
    answer = answered(stream)
    if as_json:
        whole = {"schema": SCHEMA, **facts, "said": said, **answer_to_json(answer)}
        sys.stdout.write(f"{to_json(whole)}\n")
    elif not answer.text.endswith("\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()
    sys.stderr.write(f"{' · '.join(figures(answer))}\n")
    return answer
