"""The console without a terminal: commands, state, transcripts, and answers of a fake server."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ggufspec.console import views
from ggufspec.console.commands import (
    COMMANDS,
    Action,
    ChangeSetting,
    Command,
    Compare,
    Save,
    Say,
    complete,
    parse_line,
)
from ggufspec.console.conversation import (
    AnswerComparison,
    ChatAnswer,
    ChatSettings,
    Cleared,
    Conversation,
    Turn,
    apply_change,
    figures,
    read_answer,
)
from ggufspec.domain import Failure, Program, Role, Sample, Sampling, Status
from ggufspec.engines.server.streaming import AnswerEnd, DraftMarker, Span, Stream, StreamingEngine
from ggufspec.errors import GgufspecError
from ggufspec.harmless import harmless
from ggufspec.llama.install import installs
from tests.support import fake_server, values
from tests.support.fake_server import SPRING_2026, SUMMER_2025, Behaviour

SETTINGS = ChatSettings(drafts=True, draft_size=3, sampling=Sampling(), n_predict=64)
DRAFTING = values.spec(Role.DRAFTING, draft=3)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("Once upon a time", Say("Once upon a time")),
        ("", Say("")),
        ("//usr/bin", Say("/usr/bin")),
        ("two\n/lines", Say("two\n/lines")),
        ("/draft on", ChangeSetting("drafts", value=True)),
        ("/draft OFF ", ChangeSetting("drafts", value=False)),
        ("/draft", ChangeSetting("drafts", None)),
        ("/gamma 8", ChangeSetting("draft_size", 8)),
        ("/gamma", ChangeSetting("draft_size", None)),
        ("/sampler temp=0.8 top-k=20", ChangeSetting("sampling", {"temperature": 0.8, "top_k": 20})),
        (
            "/sampler top_p=1 min_p=0.05 seed=7",
            ChangeSetting("sampling", {"top_p": 1.0, "min_p": 0.05, "seed": 7}),
        ),
        ("/sampler", ChangeSetting("sampling", {})),
        ("/length 100", ChangeSetting("n_predict", 100)),
        ("/system You are a pirate.", ChangeSetting("system", "You are a pirate.")),
        ("/system", ChangeSetting("system", None)),
        ("/compare Why is\nthe sky blue?", Compare("Why is\nthe sky blue?")),
        ("/save notes.md", Save(Path("notes.md"))),
        ("/save two words.JSON", Save(Path("two words.JSON"))),
        ("/clear", Action.CLEAR),
        ("/stats", Action.STATS),
        ("/HELP", Action.HELP),
        ("/quit", Action.QUIT),
    ],
)
def test_lines_are_read(line: str, command: Command) -> None:
    assert parse_line(line) == command


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("/drft on", "did you mean /draft?"),
        ("/h", "did you mean /help?"),
        ("/exit", "did you mean /quit?"),
        ("/usr/bin/ls", "/help lists the commands"),
        ("/", "/help lists the commands"),
        ("/draft maybe", "/draft on|off"),
        ("/gamma 0", "/gamma N"),
        ("/gamma 65", "/gamma N"),
        ("/gamma 3.5", "/gamma N"),
        ("/length 1", "/length N"),
        ("/length many", "/length N"),
        ("/sampler hot", "/sampler temp="),
        ("/sampler heat=1", "/sampler temp="),
        ("/sampler temp=-1", "/sampler temp="),
        ("/sampler temp=nan", "/sampler temp="),
        ("/sampler top_p=1.5", "/sampler temp="),
        ("/sampler top_k=1.5", "/sampler temp="),
        ("/compare", "/compare PROMPT"),
        ("/save", "/save PATH"),
        ("/save notes.txt", "/save PATH"),
        ("/quit now", "/quit"),
    ],
)
def test_what_cannot_be_read_is_met_with_advice(line: str, hint: str) -> None:
    with pytest.raises(GgufspecError) as error:
        parse_line(line)
    assert hint in (error.value.hint or "")


def test_what_the_help_shows_is_typed_and_completed() -> None:
    for usage in COMMANDS.values():
        parse_line(usage.words.replace("on|off", "on").replace(" N", " 3").replace("PATH", "a.md"))
    assert [word for word, _ in complete("/")] == [f"/{name}" for name in COMMANDS]
    assert [word for word, _ in complete("/s")] == ["/sampler", "/system", "/save", "/stats"]
    assert [word for word, _ in complete("/draft o")] == ["on", "off"]
    assert [word for word, _ in complete("/sampler temp=1 top_")] == ["top_k=", "top_p="]
    assert complete("a story") == complete("//s") == complete("/nothing ") == ()


@pytest.mark.parametrize(
    ("lines", "changed"),
    [
        (["/sampler temp=0.8"], {"sampling": Sampling(temperature=0.8, top_k=40)}),
        (["/sampler temp=0.8 top_k=1"], {"sampling": Sampling(temperature=0.8, top_k=1)}),
        (
            ["/sampler temp=0.8 top_k=5", "/sampler temp=0.5"],
            {"sampling": Sampling(temperature=0.5, top_k=5)},
        ),
        (["/sampler temp=0.8", "/sampler temp=0"], {}),
        (["/sampler seed=5"], {"sampling": Sampling(seed=5)}),
        (["/sampler", "/draft", "/gamma"], {}),
        (["/draft off", "/gamma 8", "/length 9"], {"drafts": False, "draft_size": 8, "n_predict": 9}),
        (["/system Be brief."], {"system": "Be brief."}),
        (["/system Be brief.", "/system"], {}),
    ],
)
def test_settings_change_one_at_a_time(lines: list[str], changed: dict[str, Any]) -> None:
    settings = SETTINGS
    for line in lines:
        command = parse_line(line)
        assert isinstance(command, ChangeSetting)
        settings = apply_change(settings, command)
    assert settings == replace(SETTINGS, **changed)


def test_settings_are_shown_in_a_line() -> None:
    assert str(replace(SETTINGS, draft_size=8)) == "drafting γ=8 · greedy · up to 64 tokens"
    assert str(replace(SETTINGS, drafts=False)) == "target alone · greedy · up to 64 tokens"


def _answer(
    text: str, role: Role = Role.DRAFTING, *, ending: AnswerEnd = AnswerEnd.LENGTH, tps: float = 50.0
) -> ChatAnswer:
    size = 3 if role is Role.DRAFTING else None
    sample = Sample(
        status=Status.OK,
        program=Program.SERVER,
        prompt_tokens=4,
        gen_tokens=11,
        gen_s=10 / tps,
        n_draft=size,
        n_drafted=8 if size else None,
        n_accepted=6 if size else None,
        n_rounds=4 if size else 10,
        ttft_s=0.25,
    )
    spans = (Span(text[:1], drafted=False), Span(text[1:], drafted=True))
    return ChatAnswer(role=role, spans=spans, sample=sample, ending=ending, cached_tokens=2, wall_s=0.5)


def _said(*turns: tuple[str, str], ending: AnswerEnd = AnswerEnd.LENGTH) -> Conversation:
    conversation = Conversation()
    for said, text in turns:
        turn = Turn(prompt=said, answer=_answer(text, ending=ending), settings=SETTINGS)
        conversation = conversation.add(turn)
    return conversation


def test_a_text_goes_on_where_it_stopped() -> None:
    assert _said().raw("Once") == "Once"
    assert _said(("Once", " upon a ti")).raw("") == "Once upon a ti"
    assert _said(("Once", " upon a time.")).raw("Then") == "Once upon a time. Then"
    assert _said(("Once", " upon\n")).raw("Then") == "Once upon\nThen"
    assert _said(("Once", " upon")).raw(" a time") == "Once upon a time"
    assert _said(("Once", " upon."), ("Then", " he")).raw("left") == "Once upon. Then he left"
    assert _said(("A.", " B.\n"), ending=AnswerEnd.END_OF_TEXT).raw("C.") == "A. B.\n\nC."


def test_a_template_gets_all_turns_since_the_conversation_began_anew() -> None:
    conversation = _said(("one", "eins")).add(Cleared())
    assert conversation.turns == ()
    conversation = conversation.add(Turn(prompt="two", answer=_answer("zwei"), settings=SETTINGS))
    said = [(message.role, message.content) for message in conversation.messages("three")]
    assert said == [("user", "two"), ("assistant", "zwei"), ("user", "three")]
    assert len([*conversation.answers]) == 2
    assert conversation.add(Cleared()).turns == ()  # after the last time it was cleared, not the first


def _compared(drafting: str, target: str, settings: ChatSettings = SETTINGS) -> AnswerComparison:
    answers = (_answer(target, Role.TARGET, tps=40.0), _answer(drafting, Role.DRAFTING))
    return AnswerComparison(prompt="Say it.", answers=answers, settings=settings)


def test_a_comparison_says_whose_text_it_is() -> None:
    assert _compared("same words", "same words").verdict == "same as the target's"
    assert _compared("same words", "same works").verdict == "differs from character 9 on"
    warm = replace(SETTINGS, sampling=Sampling(temperature=1.0, top_k=40))
    assert _compared("one", "two", warm).verdict == "sampled: may differ"
    assert _compared("one", "one").speed_up == pytest.approx(1.25)
    alone = replace(_compared("one", "one"), answers=(_answer("one", Role.TARGET),))
    assert (alone.verdict, alone.speed_up) == (None, None)


def test_totals_are_those_of_all_answers_of_a_kind() -> None:
    conversation = _said(("a", "b"), ("c", "d")).add(_compared("e", "e"))
    assert [*views.total_rows(conversation)] == [
        ("drafting γ=3", "3", "33", "50.00", "75%", "2.50"),
        ("target alone", "1", "11", "40.00", "", ""),
    ]


def test_tables_of_a_chat_show_what_was_measured() -> None:
    written = io.StringIO()
    console = Console(file=written, width=100)
    compared = _compared("same words", "same words")
    console.print(views.comparison(compared, console), views.stats(Conversation().add(compared)))
    console.print(views.stats(Conversation()), views.help_text(console))
    for words in (
        *("target alone", "drafting γ=3", "same words", "1.25×", "same as the target's", "75%", "2.50"),
        *("nothing has been measured yet", "draft at most N tokens per round", "marked like this"),
    ):
        assert words in written.getvalue()


def test_figures_of_an_answer_are_one_line() -> None:
    words = "11 tokens · 50.00 tokens/s · 75% of 8 drafted accepted · first in 0.25 s · length reached"
    assert " · ".join(figures(_answer("words"))) == words
    assert "accepted" not in " ".join(figures(_answer("words", Role.TARGET)))


TALK = _said(("Write ```code```\n```", "````\nfence")).add(Cleared()).add(_compared("e", "e"))


def test_a_transcript_can_be_read_by_people() -> None:
    text = views.render(TALK, {"pair": "tiny", "drafter": None}, as_json=False)
    assert text.startswith(
        "# ggufspec chat: tiny\n\n- pair: `tiny`\n\n## You\n\n````text\nWrite ```code```\n"
    )
    assert "## Drafting, γ=3\n\n`````text\n````\nfence\n`````\n\n11 tokens · 50.00 tokens/s · 75%" in text
    assert "Drafting: 1.25× the target's tokens/s; text: same as the target's.\n" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == "| who | sampler | tokens | tokens/s | accepted | first token | ended |"
    assert rows[2] == "| drafting, γ=3 | greedy | 11 | 50 | 75.0% | 0.250 s | length |"
    assert rows[3] == "| target | greedy | 11 | 40 |  | 0.250 s | length |"
    assert views.render(Conversation(), {"pair": "tiny"}, as_json=False).endswith("- pair: `tiny`\n")
    assert harmless("\x1b[2J\x07a\tb\r\nc\x9b1m\u202e") == "\ufffd[2J\ufffda\tb\nc\ufffd1m\ufffd"


def test_a_transcript_can_be_read_by_programs() -> None:
    read = json.loads(views.render(TALK, {"pair": "tiny"}, as_json=True))
    assert (read["schema"], read["pair"]) == (1, "tiny")
    turn, cleared, comparison = read["entries"]
    said = (turn["kind"], turn["said"], turn["settings"]["draft_size"])
    assert said == ("turn", "Write ```code```\n```", 3)
    answer = turn["answer"]
    assert (answer["text"], answer["accept_rate"], answer["decode_tps"]) == ("````\nfence", 0.75, 50.0)
    assert [(span["text"], span["drafted"]) for span in answer["spans"]] == [
        ("`", False),
        ("```\nfence", True),
    ]
    assert cleared == {"kind": "cleared"}
    assert comparison["answers"][0]["n_drafted"] is None
    assert comparison["text"] == "same as the target's"


def _events(rounds: Sequence[int], hidden: set[int], *, ahead: bool) -> list[tuple[int, int, bool]]:
    """Return n, accepted, and whether all tokens were drafts, of each event of an answer.

    Args:
        rounds: accepted tokens of each round after the first token.
        hidden: places of tokens that end inside of a character, and come with the next one.
        ahead: whether a round's tokens are counted before any is sent.
    """
    tokens = [(1, 0, False)]
    accepted = 0
    for count in rounds:
        before, accepted = len(tokens), accepted + count
        for place in range(count + 1):
            n = before + count + 1 if ahead else len(tokens) + 1
            tokens.append((n, accepted, place < count))
    events, drafted = [], True
    for place, (n, total, is_draft) in enumerate(tokens):
        drafted = drafted and is_draft
        if place not in hidden:
            events.append((n, total, drafted))
            drafted = True
    return events


@pytest.mark.parametrize("ahead", [False, True])
def test_accepted_drafts_are_told_from_the_targets_own_tokens(ahead: bool) -> None:
    for rounds in itertools.product(range(4), repeat=4):
        marker = DraftMarker(counts_ahead=ahead)
        for n, accepted, drafted in _events(rounds, set(), ahead=ahead):
            assert marker.mark(n, accepted) is drafted


def test_characters_of_several_tokens_are_never_marked_wrongly() -> None:
    dice = random.Random(1)
    missed = marked = 0
    for _ in range(500):
        rounds = [dice.randint(0, 4) for _ in range(6)]
        places = sum(rounds) + len(rounds)
        hidden = {place for place in range(places) if dice.random() < 0.2}
        hidden -= {place for place in hidden if place - 1 in hidden}  # characters of two tokens
        marker = DraftMarker(counts_ahead=False)
        for n, accepted, drafted in _events(rounds, hidden, ahead=False):
            told = marker.mark(n, accepted)
            assert drafted or not told
            marked += told
            missed += drafted and not told
    assert missed < marked / 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "llama"


def _engine(folder: Path, behaviour: Behaviour | None = None, *, timeout_s: float = 20) -> StreamingEngine:
    fake_server.program(folder / "llama-server", behaviour)
    return StreamingEngine(install=installs.find_install(folder), capacity=3, timeout_s=timeout_s)


def _whole(stream: Stream) -> ChatAnswer:
    for _ in stream.spans():
        pass
    return read_answer(stream)


@pytest.mark.parametrize("behaviour", [Behaviour(), SPRING_2026, SUMMER_2025], ids=["now", "spring", "2025"])
def test_an_answer_streams_from_servers_of_every_era(folder: Path, behaviour: Behaviour) -> None:
    with _engine(folder, behaviour) as engine:
        stream = engine.stream(DRAFTING)
        answer = _whole(stream)
    assert answer.text.startswith(fake_server.TEXT)
    assert answer.sample.gen_tokens == DRAFTING.n_predict
    marked = sum(span.drafted for span in stream.spans_so_far)
    unsent = DRAFTING.n_predict - sum(bool(span.text) for span in stream.spans_so_far)
    assert answer.sample.n_accepted is not None
    assert 0 < marked <= answer.sample.n_accepted <= marked + unsent
    assert answer.sample.decode_tps
    assert answer.ending is AnswerEnd.LENGTH


def test_the_target_alone_marks_nothing(folder: Path) -> None:
    with _engine(folder) as engine:
        answer = _whole(engine.stream(values.spec()))
    assert [span.drafted for span in answer.spans] == [False]
    assert (answer.sample.n_drafted, answer.sample.accept_rate) == (None, None)


def test_a_conversation_is_remembered_and_a_comparison_begins_cold(folder: Path) -> None:
    with _engine(folder) as engine:
        for cold in (False, True):
            _whole(engine.stream(DRAFTING, cold=cold))
    asked = [request for request in fake_server.requests(folder) if request.get("n_predict") == 32]
    assert [request["cache_prompt"] for request in asked] == [True, False]


@pytest.mark.parametrize(("era", "needs"), [(Behaviour(), True), (SPRING_2026, False)])
def test_a_draft_size_needs_a_load_where_requests_cannot_change_it(
    folder: Path, era: Behaviour, needs: bool
) -> None:
    others = values.spec(Role.DRAFTING, draft=5), DRAFTING.baseline
    with _engine(folder, era) as engine:
        assert engine.needs_load(DRAFTING)
        engine.load(DRAFTING)
        assert [engine.needs_load(spec) for spec in (DRAFTING, *others)] == [False, needs, needs]


def test_an_answer_can_be_stopped_and_another_one_asked_for(folder: Path) -> None:
    with _engine(folder) as engine:
        stream = engine.stream(DRAFTING)
        with closing(stream.spans()) as spans:
            for _ in itertools.islice(spans, 5):
                pass
        stopped = read_answer(stream)
        assert stopped.ending is AnswerEnd.STOPPED
        assert fake_server.TEXT.startswith(stopped.text)
        assert (stopped.sample.gen_tokens, len(stream.spans_so_far)) == (5, 5)
        assert _whole(engine.stream(DRAFTING)).ending is AnswerEnd.LENGTH


FAILING = {
    "@die": Status.CRASHED,
    "@kill": Status.OUT_OF_MEMORY,
    "@long": Status.PROMPT_TOO_LONG,
    "@error": Status.OUT_OF_MEMORY,
    "@cut": Status.FAILED,
    "@busy": Status.FAILED,
}


def test_a_server_failure_is_said_and_the_next_answer_comes(folder: Path) -> None:
    with _engine(folder) as engine:
        for word, status in FAILING.items():
            with pytest.raises(Failure) as failure:
                _whole(engine.stream(values.spec(Role.DRAFTING, prompt=word, draft=3)))
            assert failure.value.status is status, word
            assert _whole(engine.stream(DRAFTING)).text, word


def test_a_server_that_says_nothing_or_does_not_draft_is_said_so(folder: Path, tmp_path: Path) -> None:
    with _engine(folder, timeout_s=0.5) as engine, pytest.raises(Failure) as failure:
        _whole(engine.stream(values.spec(prompt="@hang")))
    assert failure.value.status is Status.TIMED_OUT
    with _engine(tmp_path / "idle", Behaviour(drafts=False)) as engine, pytest.raises(Failure) as failure:
        engine.load(DRAFTING)
    assert failure.value.status is Status.DRAFTING_INACTIVE
