"""Where does a text leave the target's own? Compared prompt by prompt, greedy runs only; the target judges.

``locate`` finds the place where two texts part; ``judge`` asks the target itself how likely each of the two
tokens was there. Batches of other sizes are computed by other kernels, which round differently, and that
decides between tokens that are almost equally likely. Only such near-ties are harmless.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple, Protocol

from ggufspec import engines
from ggufspec.analysis import texts
from ggufspec.domain import (
    CONSTRAINTS,
    Difference,
    Failure,
    Program,
    Prompt,
    PromptAnswer,
    Role,
    RunResult,
    RunSpec,
    Sample,
    Status,
    TextVerdict,
    TrafficSample,
)
from ggufspec.engines.server import TokenCandidate, load_of, ranker
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import tools
from ggufspec.llama.install import Install
from ggufspec.measure.deadline import NO_DEADLINE, Deadline
from ggufspec.serving import RankServed

TIE_MARGIN = 0.25
"""Nats up to which two tokens count as tied: neither is more than 1.28 times as likely, as 56 to 44.

Nearly equal means that rounding may decide. Reported runs of 4-bit models on CUDA part from plain decoding
about once in 100 tokens whenever anything is verified in a batch (llama.cpp #25618, #27407). As some 5 % of a
text's places have their two likeliest tokens within half a nat, that speaks of rounding by 0.1 nat on
average. If it is normal, with a standard deviation of 0.125, 98 % of the places where such texts part lie
within this margin. Half a nat would also hold 62 to 38, which is a choice, and hide a fault that takes the
second likeliest token there.
"""

LONGEST_S = 600.0
"""Seconds for a load of the judge, and for each question."""

_LONGEST_WORD = 32  # tokens from a blank to where texts part


def compare(drafting: str, target: str) -> int | None:
    """Return the first differing character, or None where the shorter text begins the longer one.

    Drafting programs write up to a draft more than they were asked for, so only what both wrote counts.
    """
    at = _in_common(drafting, target)
    return None if at == min(len(drafting), len(target)) else at


def _in_common(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """Return how many characters, or tokens, two texts have in common at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def has_text(sample: Sample) -> bool:
    """Whether a run wrote something that can be compared: a text, or answers to several users."""
    return sample.text is not None or (sample.status is Status.OK and sample.traffic is not None)


def pair_answers(drafting: TrafficSample, target: TrafficSample) -> list[tuple[PromptAnswer, PromptAnswer]]:
    """Return the answers to the prompts that both runs have answered, the first one of each prompt."""
    alone = {answer.prompt: answer for answer in target.answers}
    return [(answer, alone[answer.prompt]) for answer in drafting.answers if answer.prompt in alone]


def is_same_answer(drafting: PromptAnswer, target: PromptAnswer, *, n_predict: int) -> bool:
    """Return whether two answers are the same; one that was cut after ``n_predict`` tokens may be shorter."""
    if compare(drafting.text, target.text) is not None:
        return False
    shorter, longer = sorted((drafting, target), key=lambda answer: len(answer.text))
    return not _goes_on(shorter.text, longer.text) or shorter.tokens >= n_predict


def compare_answers(run: RunResult, own: RunResult) -> bool | None:
    """Return whether the answers to several users are those of another run; None where no prompt has two."""
    assert run.sample.traffic is not None
    assert own.sample.traffic is not None
    assert run.spec.traffic is not None
    pairs = pair_answers(run.sample.traffic, own.sample.traffic)
    most = run.spec.traffic.tokens_of(run.spec.n_predict)
    same = all(is_same_answer(*pair, n_predict=most[pair[0].prompt]) for pair in pairs)
    return same if pairs else None


def was_cut(sample: Sample, n_predict: int) -> bool | None:
    """Return whether a text reached its length; else it ended by itself. None where that is unknown.

    Servers up to b9102 keep back tokens of the last round, but count them.
    """
    counts = [] if sample.tokens is None else [len(sample.tokens)]
    if sample.gen_tokens is not None:
        counts.append(sample.gen_tokens + (sample.program is Program.PLAIN))  # which counts evaluations
    return max(counts) >= n_predict if counts else None


def locate(
    drafting: Sample, target: Sample, install: Install, model: str, *, n_predict: int
) -> Difference | None:
    """Return where what two samples wrote parts, or None for the same; both samples have a text.

    Samples that know their tokens are compared token by token. Elsewhere texts are compared, and tokenised
    again to count tokens; that count is None where the install has no tokenizer program, or where it fails.
    A text that ended before the other one is different, unless it was cut after ``n_predict`` tokens.
    """
    assert drafting.text is not None
    assert target.text is not None
    at = compare(drafting.text, target.text)
    if drafting.tokens is not None and target.tokens is not None:
        place = _in_common(drafting.tokens, target.tokens)
        shorter = min(drafting, target, key=lambda sample: len(sample.tokens or ()))
        is_same = drafting.tokens == target.tokens
        if is_same or (place == len(shorter.tokens or ()) and was_cut(shorter, n_predict)):
            return None
        return Difference(
            at_char=at if at is not None else min(len(drafting.text), len(target.text)),
            at_token=place,
            target_token=next(iter(target.tokens[place:]), None),
            drafting_token=next(iter(drafting.tokens[place:]), None),
        )
    if at is None:
        shorter, longer = sorted((drafting, target), key=lambda sample: len(sample.text or ""))
        if not _goes_on(shorter.text or "", longer.text or "") or was_cut(shorter, n_predict) is not False:
            return None
        at = len(shorter.text or "")
    with suppress(GgufspecError, OSError):  # a run is stored, whatever becomes of this count
        return Difference(at_char=at, at_token=_token_at(drafting.text, target.text, install, model))
    return Difference(at_char=at, at_token=None)


def _goes_on(shorter: str, longer: str) -> bool:
    """Whether a text goes on behind one that it begins with; line breaks at an end are not stored."""
    return longer[len(shorter) :].strip("\n") != ""


def _token_at(drafting: str, target: str, install: Install, model: str) -> int | None:
    """Return the first differing token of two texts, BOS not counted; None without a tokenizer program."""
    ours, theirs = (tools.tokenize(install, model, text) for text in (drafting, target))
    if ours is None or theirs is None:
        return None
    if ours == theirs:
        return None
    has_bos = ours[:1] == theirs[:1] and tools.tokenize(install, model, "") == ours[:1]
    return _in_common(ours, theirs) - has_bos


class Judge(Protocol):
    """Whose target is asked: that of a llama.cpp, or the server with the target alone that runs already."""

    @property
    def hides_text(self) -> bool:
        """Whether a template may hide text, such as the marks around thinking.

        Then the target reads another text than it wrote, and would choose otherwise.
        """
        ...

    def ranker(self, spec: RunSpec, *, timeout_s: float | None = None) -> AbstractContextManager[RankServed]:
        """Return the context of a function that asks for the target's likeliest next tokens.

        Raises:
            Failure: it does not load, or cannot be asked.
            GgufspecError: there is no server that could load it.
        """
        ...

    def find_library(self) -> Install:
        """Return a llama.cpp whose library can score texts.

        Raises:
            NoInstallError: there is none.
        """
        ...

    def ranks(self, spec: RunSpec) -> bool:
        """Whether a server can be asked where texts of a run part."""
        ...


@dataclass(frozen=True)
class InstallJudge:
    """The judge of a llama.cpp that measured."""

    install: Install

    @property
    def hides_text(self) -> bool:
        """No: it reads the text as it was written."""
        return False

    @contextmanager
    def ranker(self, spec: RunSpec, *, timeout_s: float | None = None) -> Iterator[RankServed]:
        """Yield what asks its server; see ``Judge``."""
        if not self.ranks(spec):
            raise GgufspecError(f"the llama.cpp in {self.install.root} has no server")
        with ranker(spec, self.install, timeout_s=timeout_s) as rank:
            yield lambda prompt, beginning, ids: rank(prompt.text + beginning, ids)

    def find_library(self) -> Install:
        """Return the llama.cpp, if its library can score."""
        engines.check_library(self.install)
        return self.install

    def ranks(self, spec: RunSpec) -> bool:  # those of running servers depend on it
        """Whether it has a server."""
        return Program.SERVER in self.install.programs


def judge_texts(
    runs: Sequence[RunResult], judge: Judge, *, deadline: Deadline = NO_DEADLINE
) -> Iterator[RunResult]:
    """Yield each run whose text parts from the target's own, with the verdict on its difference.

    Of several users, the worst verdict on an answer counts; they are asked about where no library can score
    them, see ``scoring``.

    Answers to requests stay without one, because what the target read is not known; except that no near-tie
    explains an answer that its own grammar or schema does not allow.

    The target is loaded once for all runs that load it alike, and the same question is asked once. Without a
    server in the install, or where it fails, differences stay without a verdict, and say why.

    Args:
        runs: of one bench, the target's own among them.
        judge: that of what measured.
        deadline: after it, no target is loaded, and a load or a question that takes too long is ended.
    """
    target_runs = {
        run.spec.baseline.key: run.sample
        for run in reversed(runs)
        if run.spec.role is Role.TARGET and has_text(run.sample)
    }
    pending: dict[RunSpec, list[tuple[RunResult, list[_Parting]]]] = {}
    for run in runs:
        is_judged = run.difference is not None and run.difference.verdict is not None
        own = target_runs.get(run.spec.baseline.key)
        if is_judged or own is None or run.spec.role is Role.DRAFTER:
            continue
        if run.spec.asks:
            if run.difference is not None and _breaks_schema(run, own):
                yield replace(run, difference=replace(run.difference, verdict=TextVerdict.DIVERGENCE))
            continue
        partings = [*_partings(run, own, judge)]
        if any(parting.question is not None for parting in partings):
            load = load_of(replace(run.spec.baseline, traffic=None))
            pending.setdefault(load, []).append((run, partings))
    for load, asked in pending.items():
        questions = [
            parting.question for _, partings in asked for parting in partings if parting.question is not None
        ]
        answers, failure = _answers(load, questions, judge, deadline)
        for run, partings in asked:
            judged = (parting.judge(answers, failure) for parting in partings)
            difference = max(judged, key=lambda one: _SEVERITY[one.verdict])
            if difference != run.difference:
                yield replace(run, difference=difference)


def _breaks_schema(run: RunResult, own: Sample) -> bool:
    """Whether an answer that is complete does not satisfy its schema, and the target's own one does.

    Masks that are applied to the draft and not to the token behind it do that.
    """
    request, sample = run.spec.request, run.sample
    if request is None or CONSTRAINTS.isdisjoint(request.fields) or sample.text is None or own.text is None:
        return False
    own_is_valid, is_valid = (texts.is_valid(request, text) for text in (own.text, sample.text))
    return was_cut(sample, run.spec.n_predict) is False and own_is_valid is True and is_valid is False


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What the target and the drafting run wrote after the same beginning: tokens, or text."""

    prompt: Prompt
    beginning: str  # generated by both, where only texts are known
    common: tuple[int, ...]  # generated by both, where tokens are known
    target: int | str
    drafting: int | str


@dataclass(frozen=True, kw_only=True)
class _Parting:
    """Where a text or an answer parts from the target's own; nothing can be asked where a text ended."""

    difference: Difference
    question: _Question | None

    def judge(self, answers: Mapping[_Question, _AnsweredTokens | None], failure: str | None) -> Difference:
        """Return the difference with what was answered, or with why it was not."""
        if self.question is None:
            return self.difference
        if self.question not in answers:
            return replace(self.difference, unjudged=failure)
        return _judged(self.difference, answers[self.question])


_SEVERITY = {TextVerdict.NEAR_TIE: 0, None: 1, TextVerdict.DIVERGENCE: 2}
"""How much a verdict weighs: a divergence decides, and without it what was not judged."""


def _partings(run: RunResult, own: Sample, judge: Judge) -> Iterator[_Parting]:
    """Yield where a run's text, or each answer to several users, parts from the target's own."""
    if run.difference is not None and run.sample.traffic is None:
        question = _question(run.spec.prompt, run.sample, own, run.difference)
        yield _Parting(difference=run.difference, question=question)
    if run.text_identical is not False or run.sample.traffic is None or own.traffic is None:
        return
    assert run.spec.traffic is not None
    with suppress(NoInstallError):
        judge.find_library()
        return  # it scores every token of every answer
    most = run.spec.traffic.tokens_of(run.spec.n_predict)
    for pair in pair_answers(run.sample.traffic, own.traffic):
        if is_same_answer(*pair, n_predict=most[pair[0].prompt]):
            continue
        answer, alone = (Sample(status=Status.OK, text=written.text) for written in pair)
        at = compare(pair[0].text, pair[1].text)
        shorter = min(len(written.text) for written in pair)
        difference = Difference(at_char=shorter if at is None else at, at_token=None)
        prompt = run.spec.traffic.prompts[pair[0].prompt]
        yield _Parting(difference=difference, question=_question(prompt, answer, alone, difference))


class _AnsweredTokens(NamedTuple):
    best: TokenCandidate  # the target's choice now
    target: TokenCandidate
    drafting: TokenCandidate | None  # None where it is not among the likeliest


def _question(prompt: Prompt, sample: Sample, own: Sample, difference: Difference) -> _Question | None:
    """Return what to ask about a text behind a prompt; None where there is none, or a text ended.

    Servers do not say how likely the end of a text was; ``scoring`` asks for that.
    """
    place = difference.at_token
    if own.text is None or sample.text is None:
        return None
    if difference.at_char >= min(len(own.text), len(sample.text)) and compare(sample.text, own.text) is None:
        return None
    if own.tokens is not None and sample.tokens is not None and place is not None:
        return _Question(
            prompt=prompt,
            beginning="",
            common=own.tokens[:place],
            target=own.tokens[place],
            drafting=sample.tokens[place],
        )
    common = own.text[: difference.at_char]
    # where the last word begins, with all blanks before it: a token begins there, too
    cut = len(common[: max(common.rfind(" "), common.rfind("\n")) + 1].rstrip())
    return _Question(
        prompt=prompt, beginning=own.text[:cut], common=(), target=own.text[cut:], drafting=sample.text[cut:]
    )


def _answers(
    load: RunSpec, questions: Sequence[_Question], judge: Judge, deadline: Deadline
) -> tuple[dict[_Question, _AnsweredTokens | None], str | None]:
    """Return the answers by question, each asked once, and why there are no more; None for all of them."""
    answers: dict[_Question, _AnsweredTokens | None] = {}
    if deadline.is_over():
        return answers, f"{deadline.describe()} was over"
    try:
        with judge.ranker(load, timeout_s=deadline.timeout_s(LONGEST_S)) as rank:
            for question in dict.fromkeys(questions):
                if deadline.is_over():
                    return answers, f"{deadline.describe()} was over"
                answer = _ask(question, rank)
                is_other = answer is not None and answer.best.logprob - answer.target.logprob > TIE_MARGIN
                answers[question] = None if is_other and judge.hides_text else answer
    except Failure as failure:
        return answers, failure.reason
    except GgufspecError as error:
        return answers, error.message
    except OSError as error:
        return answers, f"the server's files cannot be written: {error.strerror}"
    return answers, None


def _ask(question: _Question, rank: RankServed) -> _AnsweredTokens | None:
    """Ask for the place where both part; None where the target's own token is not found there.

    Where only texts are known, the likeliest token that begins the rest of a text is taken for what was
    written. While both begin with the same one, that one is common to them, and the next place is asked for.
    """
    if isinstance(question.target, int) or isinstance(question.drafting, int):
        likeliest = rank(question.prompt, question.beginning, question.common)
        likely: Mapping[object, TokenCandidate] = {one.token: one for one in likeliest}
        target, drafting = likely.get(question.target), likely.get(question.drafting)
        return None if target is None else _AnsweredTokens(likeliest[0], target, drafting)
    own, other = question.target.encode(), question.drafting.encode()
    common: list[int] = []
    for _ in range(_LONGEST_WORD):
        likeliest = rank(question.prompt, question.beginning, common)
        target, drafting = _beginning(own, likeliest), _beginning(other, likeliest)
        if target is None or target.token is None:
            return None
        if target != drafting:
            return _AnsweredTokens(likeliest[0], target, drafting)
        own, other = own[len(target.piece) :], other[len(target.piece) :]
        common.append(target.token)
    return None


def _beginning(text: bytes, likely: Iterable[TokenCandidate]) -> TokenCandidate | None:
    fitting = (one for one in likely if one.piece and text.startswith(one.piece))
    return max(fitting, key=lambda one: one.logprob, default=None)


def _judged(difference: Difference, answer: _AnsweredTokens | None) -> Difference:
    """Add a verdict; a drafting token that is not among the likeliest is a divergence without a margin."""
    if answer is None:
        return difference
    margin = None if answer.drafting is None else answer.target.logprob - answer.drafting.logprob
    if margin is not None and not math.isfinite(margin):  # a token that the target finds impossible
        margin = None
    is_tie = margin is not None and abs(margin) <= TIE_MARGIN
    own, drafted = answer.target.token, answer.drafting and answer.drafting.token
    return replace(
        difference,
        target_token=own if difference.target_token is None else difference.target_token,
        drafting_token=drafted if difference.drafting_token is None else difference.drafting_token,
        margin=margin,
        unjudged=None,
        verdict=TextVerdict.NEAR_TIE if is_tie else TextVerdict.DIVERGENCE,
    )
