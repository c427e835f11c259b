from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from ggufspec import choices, paths, prompts, results
from ggufspec.domain import Prompt
from ggufspec.errors import GgufspecError
from ggufspec.prompts import Message, PromptSuite
from tests.support import shell

SUITES = Path(__file__).parents[1] / "suites"


COUNTS = dict(zip(choices.SUITES, (9, 8, 36, 10, 4, 7, 9, 8, 54), strict=True))  # of prompts
TO_CONTINUE = {"demo", "general"}


def test_built_in_suites_load() -> None:
    for name in choices.SUITES:
        suite = prompts.suite(name)
        assert (suite.name, suite.instructions) == (name, name not in TO_CONTINUE)
        assert (len(suite.prompts), len(suite.warmups)) == (COUNTS[name], 2 if name == "seven" else 0)
        assert all(prompt.text.strip() and prompt.category for prompt in suite.prompts)
        texts = [prompt.text for prompt in (*suite.prompts, *suite.warmups)]
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("name", sorted({*choices.SUITES} - TO_CONTINUE))
def test_each_of_our_prompts_says_why_it_is_there(name: str) -> None:
    content = (paths.models_dir() / "prompts" / f"{name}.toml").read_text(encoding="utf-8")
    for table in tomllib.loads(content)["prompt"]:
        assert table["reason"].endswith("."), table["id"]
        assert "\n" not in table["reason"]
        # Two backslashes of Go, Rust or a pattern stand within lines.
        assert "\\\n" not in table.get("text", ""), f"{table['id']}: a line was continued in a literal string"


def test_domains_have_nine_kinds_of_work_and_work_has_long_prompts_of_six() -> None:
    suite = prompts.suite("domains")
    assert list(Counter(prompt.category for prompt in suite.prompts).values()) == [4] * 9
    assert [len(p.followups) for p in suite.prompts if p.category == "roleplay"] == [2] * 4
    suite = prompts.suite("work")
    assert suite.licence == "MIT"
    assert Counter(prompt.category for prompt in suite.prompts) == {
        **dict.fromkeys(("edit", "summarize", "rag"), 10),
        **dict.fromkeys(("tools", "support", "translate"), 8),
    }
    assert all(len(prompt.text) >= 1300 for prompt in suite.prompts)
    long = Counter(prompt.category for prompt in suite.prompts if 5000 <= len(prompt.text) <= 8000)
    assert long == dict.fromkeys(("edit", "summarize", "rag"), 2)
    assert all(bool(prompt.followups) == (prompt.category == "support") for prompt in suite.prompts)


def test_the_licence_of_a_suite_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('licence = "CC0-1.0"\n[[prompt]]\nid = "a"\ntext = "Hello"\n')
    assert prompts.load(file).licence == "CC0-1.0"


def test_prompts_list_shows_what_each_suite_holds() -> None:
    rows = json.loads(shell.here("prompts", "list", "-o", "json").stdout)
    assert [row["suite"] for row in rows] == sorted(choices.SUITES)
    work = rows[-1]
    assert work["categories"] == ["edit", "summarize", "rag", "tools", "support", "translate"]
    assert (work["prompts"], work["conversations"], work["licence"]) == (54, 8, "MIT")
    assert 1300 < work["median_characters"] < work["largest_characters"] < 8000
    text = shell.here("prompts", "list").stdout
    assert "domains" in text
    assert "code, " in text


def test_prompts_list_shows_the_prompts_of_a_suite() -> None:
    rows = json.loads(shell.here("prompts", "list", "--suite", "general", "-o", "json").stdout)
    first = prompts.suite("general").prompts[0]
    assert rows[0] == {
        "prompt": first.id,
        "category": first.category,
        "characters": len(first.text),
        "followups": 0,
        "first_words": "Here is a summary of the life of",
    }
    refused = shell.here("prompts", "list", "--suite", "nine")
    assert refused.returncode == 2
    assert "work" in refused.stderr


def test_the_default_fits_the_pair() -> None:
    demo = prompts.default(embedded=True, has_template=False)
    chat = prompts.default(embedded=False, has_template=True)
    base = prompts.default(embedded=False, has_template=False)
    assert (demo.name, chat.name, base.name) == ("demo", "domains", "general")
    assert Counter(prompt.category for prompt in chat.prompts).most_common(1)[0][1] == 1
    assert len(chat.prompts) == 9
    assert not base.instructions


def test_an_unknown_suite_is_answered_with_the_known_ones() -> None:
    with pytest.raises(GgufspecError, match="no prompt suite 'eight'") as caught:
        prompts.suite("eight")
    assert (
        caught.value.hint
        == "there are agent, demo, domains, edits, general, seven, structured, thinking, work"
    )


def test_a_text_file_is_one_prompt_without_its_last_line_break(tmp_path: Path) -> None:
    file = tmp_path / "poem.txt"
    file.write_text("Roses are\nred\n")
    assert prompts.load(file) == PromptSuite(
        name="poem", prompts=(Prompt(id="poem", text="Roses are\nred"),), instructions=False
    )


def test_toml_marks_warm_ups_and_holds_conversations() -> None:
    suite = prompts.load(SUITES / "conversations.toml")
    assert suite.instructions
    assert suite.warmups == (Prompt(id="first", text="Hello?"),)
    talk = Prompt(id="2", text="What is a lake?", category="talk", followups=("And a pond?", "And a puddle?"))
    assert suite.prompts == (talk,)


def test_spec_bench_loads_as_it_is() -> None:
    suite = prompts.load(SUITES / "spec-bench.jsonl")
    assert suite.instructions
    assert [(p.id, p.category, len(p.followups)) for p in suite.prompts] == [
        ("81", "writing", 1),
        ("241", "translation", 0),
        ("401", "math_reasoning", 0),
    ]
    assert suite.prompts[1].text.endswith("Die Brücke ist gesperrt.")


def test_turns_of_a_conversation_without_a_template_are_joined() -> None:
    turns = prompts.PromptTurns(Prompt(id="a", text="Hello", category="c", followups=("More", "Bye")), None)
    answers = iter(("Hi", "Yes"))
    while not turns.is_complete:
        turns.add_answer(next(answers))
    assert turns.made == [
        Prompt(id="a", text="Hello", category="c", turn=1),
        Prompt(id="a#2", text="HelloHi\n\nMore\n\n", category="c", message="More", turn=2),
        Prompt(id="a#3", text="HelloHi\n\nMore\n\nYes\n\nBye\n\n", category="c", message="Bye", turn=3),
    ]
    assert [turn.turn_before for turn in turns.made] == [None, "a", "a#2"]


def test_a_warm_turn_knows_how_much_of_it_the_turn_before_left_in_the_cache() -> None:
    def render(messages: Sequence[Message]) -> str:  # forgets thinking, as templates do
        return "|".join(message.content.rpartition("</think>")[2] for message in messages)

    turns = prompts.PromptTurns(Prompt(id="a", text="Hi", followups=("More", "Bye")), render, warm=True)
    for answer in ("|Yes", "|<think>Hm</think>No"):
        turns.add_answer(answer)
    assert [turn.text[: turn.history] for turn in turns.made] == ["", "Hi|", "Hi||Yes|More|"]


@pytest.mark.parametrize(("name", "later_turns"), [("speed-bench", 2), ("speed-bench-prepared", 1)])
def test_speed_bench_loads_as_it_is(name: str, later_turns: int) -> None:
    talk, code = prompts.load(SUITES / f"{name}.jsonl").prompts
    assert talk.id == "0f3c2a9d5b7e4c1188aa0d6e21f0b7c4"
    assert (talk.category, code.category) == ("roleplay", "coding")
    assert len(talk.followups) == later_turns
    assert talk.followups[0] == "How deep is the river here?"
    assert code.followups == ()


def test_speed_bench_without_its_texts_is_refused_and_counted() -> None:
    with pytest.raises(GgufspecError, match=r"unprepared.jsonl:2: .* and in 1 more of 3 rows") as caught:
        prompts.load(SUITES / "speed-bench-unprepared.jsonl")
    assert "prepare script" in str(caught.value.hint)


def test_requests_that_ask_for_nothing_beyond_their_text_are_prompts(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"prompt": "a", "tools": null, "tool_choice": "auto", "response_format": {"type": "text"}}'
    )
    assert prompts.load(file).prompts[0].text == "a"


def test_simple_lines_are_numbered_and_recorded_answers_left_out() -> None:
    assert prompts.load(SUITES / "simple.jsonl").prompts == (
        Prompt(id="simple-1", text="Why is the sky blue?"),
        Prompt(id="named", text="Name a colour.", category="colours"),
        Prompt(id="simple-4", text="Be brief.\n\nHello", followups=("And now?",)),
    )


def test_a_line_separator_inside_a_text_does_not_end_the_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + '{"prompt": "one\u2028two"}\r\n{"prompt": "b"}'.encode())
    assert [prompt.text for prompt in prompts.load(file).prompts] == ["one\u2028two", "b"]


TABLE = '[[prompt]]\nid = "x"\ntext = "a"\n'
QUOTED_HEADING = "[[prompt]]\nid = 'x'\ntext = '''\n[[prompt]]\n'''\n[[prompt]]\nid = 'y'\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "not toml [", r"is not a prompt suite: .*line 1"),
        ("a.toml", "x = " + "[" * 100_000, "is not a prompt suite"),
        ("a.toml", "", "has no prompt to measure"),
        ("a.toml", TABLE + "warmup = true", "has no prompt to measure"),
        ("a.toml", TABLE + '[[prompt]]\nid = "y"', "a.toml:4: the text is missing"),
        ("a.toml", TABLE + TABLE, r"a.toml:4: the id x is already used in .*a.toml:1"),
        ("a.toml", TABLE + 'followup = ["b"]', "a.toml:1: a prompt has no key 'followup'"),
        ("a.toml", TABLE + 'followups = "b"', "followups must be a list"),
        ("a.toml", TABLE + 'followups = [""]', "a.toml:1: turn 2 is empty"),
        ("a.toml", 'kind = "chat"\n' + TABLE, "the kind is 'chat'"),
        ("a.toml", "licence = 3\n" + TABLE, "the licence is not one line of text"),
        ("a.toml", QUOTED_HEADING, "a.toml, prompt 2: the text is missing"),
        ("a.toml", 'prompts = "x"', "has an unknown key 'prompts'"),
        ("a.toml", "prompt = 3", "not a \\[\\[prompt\\]\\]"),
        ("a.toml", "prompt = [3]", "a.toml, prompt 1: it is not a table"),
        ("a.toml", '[[prompt]]\nid = "x"\ntext = "a\\u0000b"', "the text contains a NUL character"),
        ("a.toml", '[[prompt]]\nid = "a\\nb"\ntext = "a"', "the id has to be one line"),
        ("a.txt", " \n", "is empty"),
        ("a.txt", "one \0 two", "the text contains a NUL character"),
        ("a.jsonl", '{"id": "x", "turns": ["fine", "a \\u0000"]}', "a.jsonl:1: turn 2 contains a NUL"),
        ("a.txt", b"\xff\xfe\xfa", "not UTF-8 text"),
        ("a.txt", b"ab\ncd\xe9", "a.txt: not UTF-8 text: byte 0xe9 at offset 5, line 2"),
        ("a.toml", TABLE.encode() + b"# \xe9", "not UTF-8 text: byte 0xe9 at offset .*, line 4"),
        ("a.jsonl", b'{"prompt": "\xc3"}', "not UTF-8 text: byte 0xc3 at offset 12, line 1"),
        ("a.jsonl", "", "has no prompt to measure"),
        ("a.jsonl", '{"prompt": "a"}\nhello', "a.jsonl:2: this is not JSON"),
        ("a.jsonl", "[" * 100_000, "a.jsonl:1: this is not JSON"),
        ("a.jsonl", '{"prompt": "a"}\n' * 100_001, "more than 100,000 prompts"),
        ("a.json", '[\n{"prompt": "a"}\n]', "a.json:1: this is not JSON"),
        ("a.jsonl", "7", "a.jsonl:1: this is not a JSON object"),
        ("a.jsonl", '{"question": "a"}', "a.jsonl:1: there are no turns, messages, prompt or text"),
        ("a.jsonl", '{"turns": "a"}', "a.jsonl:1: turns is not a list"),
        ("a.jsonl", '{"turns": []}', "a.jsonl:1: it has no text"),
        ("a.jsonl", '{"turns": [{"content": "a"}]}', "a.jsonl:1: the text is not a string"),
        ("a.jsonl", '{"prompt": "\\ud800"}', "a.jsonl:1: the text contains half of a surrogate pair"),
        ("a.jsonl", '{"id": true, "prompt": "a"}', "a.jsonl:1: the id is not a string"),
        (
            "a.jsonl",
            '{"id": "a", "prompt": "b"}\n' * 2,
            r"a.jsonl:2: the id a is already used in .*a.jsonl:1",
        ),
        ("a.jsonl", '{"messages": [{"role": "tool", "content": "a"}]}', "there is no message of a user"),
        ("a.jsonl", '{"messages": [{"role": "user"}]}', "the content of message 1 is not a string"),
        ("a.jsonl", '{"messages": [{"role": "system", "content": "a"}]}', "it has no text"),
        ("a.jsonl", '{"prompt": "a", "category": 3}', "a.jsonl:1: the category is not a string"),
        ("a.jsonl", '{"messages": [{"role": "critic", "content": "a"}]}', "message 1 is not system, d"),
        ("a.jsonl", '{"prompt": "a", "tools": "[{"}', "a.jsonl:1: tools is not JSON"),
        ("a.jsonl", '{"prompt": "a", "response_format": ["json"]}', "response_format is not a table"),
        ("a.jsonl", '{"prompt": "a", "stop": "b", "logit_bias": {"1": 2}}', "logit_bias is not measured"),
        (
            "a.jsonl",
            '{"prompt": "a", "grammar": "b", "json_schema": {"type": "null"}}',
            "both a grammar and a",
        ),
        ("a.jsonl", '{"turns": ["a", "b"], "tools": [{"type": "function"}]}', "tools and later turns"),
        (
            "a.jsonl",
            '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}',
            "the image of message 1 is not a data: URL",
        ),
        ("a.toml", TABLE + 'messages = [{role = "user", content = "b"}]', "both a text and messages"),
        ("a.toml", TABLE + "logprobs = true", "a prompt has no key 'logprobs'"),
        ("a.parquet", b"PAR1", "as Parquet"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(GgufspecError, match=message) as caught:
        prompts.load(file)
    assert caught.value.hint
    assert len(caught.value.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "encoding"), [("Łódź".encode("utf-16"), "UTF-16"), ("naïve".encode("cp1252"), "WINDOWS-1252")]
)
def test_the_hint_converts_a_file_of_another_encoding(tmp_path: Path, content: bytes, encoding: str) -> None:
    file = tmp_path / "it's.txt"
    file.write_bytes(content)
    with pytest.raises(GgufspecError) as caught:
        prompts.load(file)
    command = caught.value.hint.removeprefix("convert it: ")
    assert f" -f {encoding} " in command
    if shutil.which("iconv"):
        subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
        assert prompts.load(tmp_path / "new.txt").prompts[0].text == content.decode(encoding)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "-p", "Hi", "-p", "ab\udcff"), "prompt p2 is not UTF-8: byte 0xff at offset 2"),
        (("bench", "-p", "ü\udc80"), "prompt p1 is not UTF-8: byte 0x80 at offset 2"),
        (("bench", "-p", "Hi", "--chat", "--system", "\udcfe"), "the system prompt is not UTF-8: byte 0xfe"),
        (("bench", "-p", " "), "prompt p1 is empty"),
        (("bench", "-p", "fine", "-p", "a \0 b"), "prompt p2 contains a NUL character"),
        (
            ("bench", "-p", "fine", "--chat", "--system", "be \0 brief"),
            "the system prompt contains a NUL char",
        ),
        (("bench", "-p", "a\ud800"), "prompt p1 contains half of a surrogate pair"),
        (("chat", "--once", "a\udcff"), "the prompt is not UTF-8: byte 0xff at offset 1"),
        (("chat", "--once", ""), "the prompt is empty"),
    ],
)
def test_texts_no_program_takes_are_refused(llama_server: Path, words: tuple[str, ...], message: str) -> None:
    done = shell.here(*words, "--pair", "demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {message}" in done.stderr
    assert "hint: " in done.stderr
    assert not results.ids()


def test_standard_input_that_is_not_text_is_refused_in_one_line(llama_server: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ggufspec", "-q", "chat", "--pair", "demo", "--once", "-"],
        input=b"one\ntw\xff",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.splitlines()[0] == (
        b"error: cannot read standard input: not UTF-8 text: byte 0xff at offset 6, line 2"
    )


def test_a_file_whose_name_is_not_text_can_be_a_prompt(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"a\xff\nb.txt")
    file.write_text("Once")
    (prompt,) = prompts.load(file).prompts
    assert (prompt.id, prompt.text) == ("a\ufffd b", "Once")


@pytest.mark.parametrize(
    ("file", "message"),
    [("/nope", "cannot read the prompt file /nope"), ("/dev/zero", "it is not a regular file")],
)
def test_what_is_no_file_is_named(file: str, message: str) -> None:
    with pytest.raises(GgufspecError, match=message):
        prompts.load(Path(file))


def _suite(*categories: str | None) -> PromptSuite:
    made = tuple(Prompt(id=str(n), text="a", category=name) for n, name in enumerate(categories))
    return PromptSuite(name="made up", prompts=made, warmups=made[:1], instructions=True)


def test_a_sample_takes_the_first_of_each_category_in_order() -> None:
    sample = _suite("a", None, "b", "a", "a", None).sample(2)
    assert [prompt.id for prompt in sample.prompts] == ["0", "1", "2", "3", "5"]
    assert (sample.name, sample.instructions, len(sample.warmups)) == ("made up", True, 1)


def test_a_seeded_sample_is_random_but_the_same_again() -> None:
    suite = _suite(*"ab" * 50)
    picks = {tuple(prompt.id for prompt in suite.sample(3, seed=seed).prompts) for seed in range(5)}
    assert len(picks) == 5
    again = suite.sample(3, seed=0)
    assert again == suite.sample(3, seed=0)
    assert Counter(prompt.category for prompt in again.prompts) == {"a": 3, "b": 3}
    assert [int(p.id) for p in again.prompts] == sorted(int(p.id) for p in again.prompts)
