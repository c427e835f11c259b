"""The target scores complete texts: every token, in batches, also where nobody told the tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from ggufspec.domain import Failure, Role, RunResult, Sample, Sampling, Status, TextAudit
from ggufspec.engines.library.messages import ModelLoad, ScoreRun, TextScores
from ggufspec.engines.library.model import OUTPUTS, Model
from ggufspec.engines.library.worker import score
from ggufspec.measure import scoring
from ggufspec.measure.audit import InstallJudge
from tests.support import scripted, values

PIECES = [b"", b"a", b"b", b"ab", b"\n", b"c"]
END, A, B, AB, BREAK, C = range(6)
FIRM, TIE = 8.0, 0.25


class Vocabulary:
    """Letters, and one token of two letters that the tokeniser never makes."""

    n_tokens = len(PIECES)
    end_tokens = (END,)

    def tokens(self, text: str) -> list[int]:
        return [A] if text else []

    def continuation(self, text: bytes) -> list[int] | None:
        letters = {piece: token for token, piece in enumerate(PIECES) if len(piece) == 1}
        return [letters[text[at : at + 1]] for at in range(len(text))] if b"?" not in text else None

    def piece(self, token: int) -> bytes:
        return PIECES[token]

    def ends(self, token: int) -> bool:
        return token == END


class Scripted:
    """A model that always wants to write one text; ``second`` is the likelihood of all other tokens."""

    vocabulary = Vocabulary()

    def __init__(self, wanted: Sequence[int], *, behind: float = FIRM) -> None:
        self.wanted, self.behind = wanted, behind
        self.cached: list[int] = []
        self.batches: list[int] = []
        self._rows = np.empty((0, len(PIECES)))

    def use_threads(self, threads: int) -> None: ...

    def check_rollback(self) -> None: ...

    def clear(self) -> None:
        self.cached = []

    def forget(self, at: int) -> None:
        del self.cached[at:]

    def evaluate(self, tokens: Sequence[int], at: int, *, outputs: int = 0) -> None:
        assert at == len(self.cached)
        assert outputs <= OUTPUTS
        self.cached += tokens
        self.batches.append(len(tokens))
        places = range(len(self.cached) - outputs, len(self.cached))
        self._rows = np.array([self._logits(place) for place in places])

    def _logits(self, place: int) -> list[float]:
        wanted = self.wanted[place] if place < len(self.wanted) else END
        return [0.0 if token == wanted else -self.behind for token in range(len(PIECES))]

    def rows(self, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return self._rows[:count]

    def step(self, token: int, at: int) -> Any:
        self.evaluate([token], at, outputs=1)
        return self._rows[0]


def _margins(
    answer: tuple[int, ...] | str,
    wanted: Sequence[int],
    *,
    ended: bool = False,
    prompt: str = "p",
    behind: float = FIRM,
) -> tuple[float, ...]:
    run = ScoreRun(
        target=ModelLoad(path="target.gguf", context_tokens=100),
        prompt=prompt,
        n_predict=0,
        answer=answer,
        ended=ended,
        threads=1,
        sampling=Sampling(),
    )
    return score(cast(Model, Scripted(wanted, behind=behind)), run).margins


@pytest.mark.parametrize(
    ("answer", "wanted", "ended", "margins"),
    [
        ((A, B), (A, B), False, (0, 0)),
        ((A, C), (A, B), False, (0, FIRM)),
        ((A, B), (A, B), True, (0, 0, 0)),  # the target would end there, too
        ((A, B), (A, B, C), True, (0, 0, FIRM)),  # it would go on
        ((A, B, END), (A, B, C), True, (0, 0, FIRM)),  # the end is a token that was told
        ((), (), False, ()),
        ("ab", (A, B), False, (0, 0)),
        ("ab", (AB,), False, (0,)),  # as the target writes it, not as the tokeniser does
        ("abc", (AB, C), True, (0, 0, 0)),
        ("abab", (A, B, AB), False, (0, 0, 0)),
        ("ac", (A, B), False, (0, FIRM)),
        ("ab", (A, B, BREAK, BREAK), True, (0, 0, 0)),  # line breaks at the end are not stored
        ("ab", (A, B, BREAK, C), True, (0, 0, FIRM)),
        ("ab\N{REPLACEMENT CHARACTER}c", (A, B), True, (0, 0)),  # what follows is not known
        ("", (C,), True, (FIRM,)),
    ],
)
def test_every_token_is_compared_with_the_targets_choice(
    answer: tuple[int, ...] | str, wanted: tuple[int, ...], ended: bool, margins: tuple[float, ...]
) -> None:
    assert _margins(answer, wanted, ended=ended) == margins


def test_long_texts_take_few_batches() -> None:
    wanted = [A] * 10 + [C] + [A] * 200
    for answer in ("a" * 211, (A,) * 211):
        margins = _margins(answer, wanted)
        assert [place for place, margin in enumerate(margins) if margin] == [10]
        assert len(margins) == 211


def test_what_cannot_be_scored_has_a_reason() -> None:
    with pytest.raises(Failure, match="no tokens that write this text"):
        _margins("a?", (A,))
    with pytest.raises(Failure, match="the prompt has no tokens"):
        _margins("a", (A,), prompt="")


def test_a_text_has_near_ties_and_divergent_tokens() -> None:
    scores = TextScores(margins=(0.0, 0.1, 0.25, math.log(60 / 40), 9.0))
    assert scoring.summarize_scores(scores, greedy=True) == TextAudit(
        tokens=5, near_ties=2, divergent=2, first_divergent=3, worst_margin=9.0
    )
    endless = scoring.summarize_scores(TextScores(margins=(float("inf"),)), greedy=True)
    assert (endless.divergent, endless.worst_margin) == (1, None)
    sampled = scoring.summarize_scores(TextScores(places=(0.05, None, 0.95)), greedy=False)
    assert sampled == TextAudit(tokens=3, places=(1, 0, 0, 0, 0, 0, 0, 0, 0, 1), impossible=1)


def _run(role: Role, text: str | None, *, status: Status = Status.OK) -> RunResult:
    run = values.run(role, draft=3 if role is Role.DRAFTING else None)
    return replace(run, sample=Sample(status=status, text=text))


def test_without_the_library_texts_have_a_reason_once() -> None:
    runs = [
        _run(Role.TARGET, "a"),
        _run(Role.DRAFTING, "a"),
        _run(Role.DRAFTER, "a"),
        _run(Role.DRAFTING, None, status=Status.CRASHED),
    ]
    audited = list(scoring.score_texts(runs, InstallJudge(scripted.INSTALL)))
    assert [run.spec.role for run in audited] == [Role.TARGET, Role.DRAFTING]
    for run in audited:
        assert run.audit.tokens == 0
        assert "has no shared library beside its programs" in (run.audit.unjudged or "")
    assert list(scoring.score_texts(audited, InstallJudge(scripted.INSTALL))) == []


def test_the_distribution_of_sampled_texts_is_refused_by_name_without_the_library() -> None:
    run = _run(Role.DRAFTING, "a")
    sampled = replace(run, spec=replace(run.spec, sampling=Sampling(temperature=1.0, top_k=0)))
    (audited,) = scoring.score_texts([sampled], InstallJudge(scripted.INSTALL))
    assert str(audited.audit.unjudged).startswith(
        "only llama.cpp's library can test the distribution of sampled texts, and the llama.cpp in"
    )
