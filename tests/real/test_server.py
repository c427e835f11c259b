"""The engine `server` on real llama-server builds and the embedded pair."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from ggufspec import engines, prompts, serving
from ggufspec.domain import (
    NO_PROMPT,
    Drafting,
    Program,
    Prompt,
    Request,
    Role,
    RunResult,
    RunSpec,
    Sample,
    Status,
    TextVerdict,
)
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.llama.install.installs import Install
from ggufspec.measure import audit
from tests.support import embedded, models, shell, values

TOKENS = 48


def _prompts() -> tuple[Prompt, ...]:
    return tuple(embedded.PROMPTS.values())


def _spec(role: Role, prompt: Prompt, *, draft: int | None = None) -> RunSpec:
    drafting = Drafting(n_max=draft) if draft else None
    return embedded.spec(role, prompt=prompt, n_predict=TOKENS, drafting=drafting)


def _servers(*, beside: Collection[psutil.Process] = ()) -> set[psutil.Process]:
    """Return the servers that this process has started, without some known ones."""
    started = shell.children().difference(beside)
    return {process for process in started if process.name().endswith("server")}


def _engine(llama: Install) -> ServerEngine:
    engine = engines.make("server", llama, timeout_s=120, capacity=4)
    assert isinstance(engine, ServerEngine)
    return engine


def test_drafting_writes_the_targets_own_tokens(llama: Install, tmp_path: Path) -> None:
    alone, drafting = [], []
    before = _servers()
    with _engine(llama) as engine:
        for prompt in _prompts()[:3]:
            alone.append(engine.measure(_spec(Role.TARGET, prompt), tmp_path / "alone"))
            drafting.append(engine.measure(_spec(Role.DRAFTING, prompt, draft=3), tmp_path / "drafting"))
        assert 1 <= len(_servers(beside=before)) <= 2
    assert not _servers(beside=before)
    measured = [*alone, *drafting]
    assert {(one.sample.status, one.error) for one in measured} == {(Status.OK, None)}
    assert sum(one.sample.load_ms is not None for one in measured) == 2  # loaded once each
    for own, drafted in zip(alone, drafting, strict=True):
        _check_text(drafted.sample, own.sample, size=3)
        assert own.sample.n_drafted is None
        _check_counts(drafted.sample, size=3)


def test_several_users_are_answered_at_once(llama: Install, tmp_path: Path) -> None:
    before = _servers()
    traffic = serving.plan_traffic(_prompts()[:3], 3, seed=1)
    samples = []
    with serving.TrafficEngine(install=llama, timeout_s=120, capacity=4) as engine:
        for role, draft in ((Role.TARGET, None), (Role.DRAFTING, 3)):
            spec = replace(_spec(role, NO_PROMPT, draft=draft), traffic=traffic)
            measured = engine.measure(spec, tmp_path / role.value)
            assert (measured.sample.status, measured.error) == (Status.OK, None)
            samples.append(measured.sample)
    assert not _servers(beside=before)
    alone, drafting = samples
    assert drafting.n_accepted
    for sample in samples:
        assert len(sample.traffic.requests) == traffic.n_requests
        assert len(sample.traffic.answers) == len(traffic.prompts)
        assert sample.decode_tps
    assert alone.traffic is not None
    assert drafting.traffic is not None
    pairs = audit.pair_answers(drafting.traffic, alone.traffic)
    assert sum(audit.is_same_answer(*pair, n_predict=TOKENS) for pair in pairs) >= len(pairs) // 2


def _check_text(drafting: Sample, alone: Sample, *, size: int) -> None:
    """Token by token the same; builds up to b9102 may keep back accepted tokens of their last round."""
    assert drafting.tokens
    assert alone.tokens
    assert drafting.text
    assert len(alone.tokens) == TOKENS
    assert TOKENS - size <= len(drafting.tokens) <= TOKENS
    assert alone.tokens[: len(drafting.tokens)] == drafting.tokens
    assert (alone.text or "").startswith(drafting.text)


def _check_counts(sample: Sample, *, size: int) -> None:
    assert (sample.program, sample.n_draft, sample.gen_tokens) == (Program.SERVER, size, TOKENS)
    assert max(one.drafted for one in sample.rounds) == size
    assert sum(one.drafted for one in sample.rounds) == sample.n_drafted
    assert sum(one.accepted for one in sample.rounds) == sum(sample.accepted_at) == sample.n_accepted
    assert sample.n_rounds == len(sample.rounds) == TOKENS - 1 - (sample.n_accepted or 0)
    assert sample.ttft_s is not None
    assert sample.itl_s is not None
    assert sample.devices == ("CPU",)


def _simple(spec: RunSpec, llama: Install, log: Path) -> Sample:
    return embedded.measured(engines.make("binary-simple", llama, timeout_s=120), spec, log)


@pytest.mark.parametrize("size", [3, 8])
def test_a_server_accepts_what_the_simple_program_accepts(llama: Install, tmp_path: Path, size: int) -> None:
    """Counts differ by the end alone, at most one draft: rounds of both are made to begin at the same token.

    The simple program drafts for the very first token, which the server takes from the prompt's evaluation;
    so it gets that token as the end of its prompt. The server cuts its last drafts to what is still asked
    for, while the simple program writes its last round to the end.
    """
    with _engine(llama) as engine:
        for prompt in _prompts():
            if prompt.id in {"story-lantern", "list-recipe"}:
                spec = replace(_spec(Role.DRAFTING, prompt, draft=size), n_predict=120)
                _check_accepted(engine, llama, spec, tmp_path)


def _check_accepted(engine: ServerEngine, llama: Install, spec: RunSpec, tmp_path: Path) -> None:
    size, prompt = spec.drafting.n_max, spec.prompt
    served = engine.measure(spec, tmp_path / "served").sample
    first = _pieces(tmp_path / "served.out")[0]
    later = replace(spec, prompt=replace(prompt, text=prompt.text + first), n_predict=spec.n_predict - 2)
    simple = _simple(later, llama, tmp_path / "simple")
    assert served.status is Status.OK
    assert audit.compare(first + (simple.text or ""), served.text or "") is None
    assert served.n_drafted
    assert simple.n_drafted
    assert 0 <= simple.n_drafted - served.n_drafted <= size
    assert 0 <= simple.n_accepted - served.n_accepted <= size


def _pieces(record: Path) -> list[str]:
    """Return the text of each token that was sent."""
    chunks = (json.loads(line).get("chunk") for line in record.read_text().split("\n")[:-1])
    return [chunk["content"] for chunk in chunks if chunk and not chunk["stop"]]


@pytest.mark.parametrize("size", [3, 8])
def test_each_draft_is_that_of_the_simple_program(llama: Install, tmp_path: Path, size: int) -> None:
    """Counts of both need not agree: servers such as b6170 draft for every other evaluation only."""
    prompt = next(prompt for prompt in _prompts() if prompt.id == "list-recipe")
    spec = _spec(Role.DRAFTING, prompt, draft=size)
    with _engine(llama) as engine:
        rounds = engine.measure(spec, tmp_path / "served").sample.rounds or ()
    pieces, place, compared = _pieces(tmp_path / "served.out"), 1, 0
    for drafted, accepted in rounds:
        before = replace(prompt, text=prompt.text + "".join(pieces[:place]))
        place += accepted + 1
        if drafted < size:  # no draft, or one that the end has cut
            continue
        own = _simple(replace(spec, prompt=before, n_predict=1), llama, tmp_path / "simple")
        if accepted == 0:  # one token is too few for it to stop
            assert own.n_rounds == 2
        else:
            assert (own.n_rounds, own.n_drafted, own.n_accepted) == (1, drafted, accepted)
        compared += 1
        if compared == 6:  # each starts a program
            break
    assert compared >= 4


def test_what_a_build_does_with_draft_sizes_is_what_its_loads_show(llama: Install, tmp_path: Path) -> None:
    prompt = _prompts()[0]
    with _engine(llama) as engine:
        samples = [
            engine.measure(_spec(Role.DRAFTING, prompt, draft=size), tmp_path / f"g{size}").sample
            for size in (2, 5)
        ]
        alone = engine.measure(_spec(Role.TARGET, prompt), tmp_path / "alone").sample
    for size, sample in zip((2, 5), samples, strict=True):
        assert sample.status is Status.OK
        assert max(one.drafted for one in sample.rounds or ()) == size
        _check_text(sample, alone, size=size)
    run = json.loads((tmp_path / "g2.out").read_text().splitlines()[0])["run"]
    loads = sum(sample.load_ms is not None for sample in (*samples, alone))
    assert loads == (1 if run["capabilities"]["per_request"] else 3)
    assert alone.n_drafted is None


def test_repeats_are_cold_and_the_same(llama: Install, tmp_path: Path) -> None:
    """Short drafts of a doubtful drafter tell: one that remembers the answer has no doubts."""
    spec = _spec(Role.DRAFTING, next(one for one in _prompts() if one.id == "list-recipe"), draft=8)
    spec = replace(spec, drafting=Drafting(n_max=8, p_min=0.9))
    with _engine(llama) as engine:
        first, second = (engine.measure(spec, tmp_path / str(i)).sample for i in range(2))
    assert {one.drafted for one in first.rounds or ()} - {0, 8}
    assert (first.prompt_tokens, first.tokens) == (second.prompt_tokens, second.tokens)
    assert first.rounds == second.rounds
    assert first.prompt_tokens > 10


def test_a_prompt_that_does_not_fit_is_said_so(llama: Install, tmp_path: Path) -> None:
    with _engine(llama) as engine:
        measured = engine.measure(_spec(Role.TARGET, embedded.LONG), tmp_path / "log")
        assert measured.sample.status is Status.PROMPT_TOO_LONG
        assert engine.measure(_spec(Role.TARGET, _prompts()[0]), tmp_path / "log").sample.status is Status.OK


@pytest.mark.parametrize("name", ["server", "inprocess"])
def test_a_target_that_cannot_be_loaded_is_said_so(llama: Install, tmp_path: Path, name: str) -> None:
    spec, broken = _spec(Role.TARGET, _prompts()[0]), tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    with engines.make(name, llama, timeout_s=120) as engine:
        measured = engine.measure(embedded.with_models(spec, target=broken), tmp_path / "log")
        assert engine.measure(spec, tmp_path / "again").sample.status is Status.OK
    assert measured.sample.status is Status.LOAD_FAILED
    assert "\n" not in (measured.error or "")
    assert (tmp_path / "log.err").stat().st_size


@pytest.mark.parametrize(("name", "reason"), [("server", ""), ("inprocess", "400 tokens, the target's 2048")])
def test_a_drafter_of_another_vocabulary_is_said_to_be_refused(
    llama: Install, tmp_path: Path, name: str, reason: str
) -> None:
    """Servers of today load it, log an error, and serve on without drafting."""
    shape = models.llama(n_layers=1, n_embd=32, n_ff=32, n_heads=1, vocabulary=models.tokens(400))
    stranger = models.write_model(tmp_path / "stranger.gguf", *shape)
    spec = embedded.with_models(_spec(Role.DRAFTING, _prompts()[0], draft=3), draft=stranger)
    with engines.make(name, llama, timeout_s=120) as engine:
        measured = engine.measure(spec, tmp_path / "log")
    assert measured.sample.status is Status.DRAFTER_REFUSED
    assert measured.error
    assert reason in measured.error


def test_a_made_up_difference_is_a_divergence(llama: Install, tmp_path: Path) -> None:
    prompt = _prompts()[0]
    with _engine(llama) as engine:
        own = engine.measure(_spec(Role.TARGET, prompt), tmp_path / "log").sample
    for tokens_known in (True, False):
        _check_divergence(llama, prompt, own, tokens_known=tokens_known)


def _check_divergence(llama: Install, prompt: Prompt, own: Sample, *, tokens_known: bool) -> None:
    place = own.text.index(" ", 20)
    unlikely = _sample(own, own.text[:place] + " qqq", token=own.tokens[0], known=tokens_known)
    own = own if tokens_known else replace(own, tokens=None)
    difference = audit.locate(
        unlikely, own, llama, str(_spec(Role.TARGET, prompt).model.path), n_predict=TOKENS
    )
    assert difference is not None
    runs = (
        _result(_spec(Role.TARGET, prompt), own),
        replace(_result(_spec(Role.DRAFTING, prompt, draft=3), unlikely), difference=difference),
    )
    (judged,) = audit.judge_texts(runs, audit.InstallJudge(llama))
    assert judged.difference.verdict is TextVerdict.DIVERGENCE
    assert judged.difference.margin is None or judged.difference.margin > audit.TIE_MARGIN
    assert judged.difference.target_token is not None


def _sample(own: Sample, text: str, *, token: int, known: bool) -> Sample:
    """What the target wrote, with another end after ten tokens."""
    return replace(own, text=text, tokens=(*own.tokens[:10], token) if known else None)


def _result(spec: RunSpec, sample: Sample) -> RunResult:
    return replace(values.run(spec.role), spec=spec, sample=sample)


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_warm_conversation_is_read_once(llama: Install, tmp_path: Path, is_chat: bool) -> None:
    first = replace(_prompts()[0], followups=("Then",) * 2)
    if is_chat:
        first = replace(first, request=Request.of({"messages": [{"role": "user", "content": first.text}]}))
    turns = prompts.PromptTurns(first, None, warm=True)
    samples = []
    with _engine(llama) as engine:
        while not turns.is_complete:
            alone = engine.measure(_spec(Role.TARGET, turns.made[-1]), tmp_path / f"{len(turns.made)}")
            turns.add_answer(alone.sample.text or "")
        specs = [_spec(Role.DRAFTING, turn, draft=4) for turn in turns.made]
        for number, spec in enumerate(specs):
            samples.append(engine.measure(spec, tmp_path / f"d{number}").sample)
        again = engine.measure(specs[2], tmp_path / "again").sample  # the slot reads the history first
    assert samples[0].cached_tokens == 0
    for before, after in pairwise(samples):
        read = (before.prompt_tokens or 0) + (before.cached_tokens or 0)
        assert after.kept_tokens == read
        assert read - 8 <= (after.cached_tokens or 0) <= read + TOKENS
        assert after.n_drafted
        assert (after.prompt_tokens or 0) < 10 or is_chat  # a template writes more around messages
    assert again.kept_tokens - 8 <= (again.cached_tokens or 0)
    assert (again.text, again.n_drafted) == (samples[2].text, samples[2].n_drafted)
