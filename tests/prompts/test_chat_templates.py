from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path

import pytest

from ggufspec import proc
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.prompts import chat
from ggufspec.prompts.chat import Message
from tests.support import models
from tests.support.models import Value

# Templates in the formats that their families document, written for these tests.
CHATML = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
LLAMA_3 = """
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{%- if tools is not none %}{{ raise_exception("tools were never given") }}{% endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + date_string + "\n\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""
MISTRAL = """
{{- bos_token }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' + message['content'] + ' [/INST]' }}
    {%- else %}
        {{- ' ' + message['content'] + eos_token }}
    {%- endif %}
{%- endfor %}"""
GEMMA = """
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
    {%- set role = 'model' if message.role == 'assistant' else message.role %}
    {{- '<start_of_turn>' + role + '\n' + message.content | trim + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""
DEAF_TO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'user' %}User: {{ m.content }}\nBot:{% endif %}{% endfor %}"
)

HELLO = [Message("user", "Hello, you")]
TALK = [*HELLO, Message("assistant", "Good day."), Message("user", "And now?")]


def card(template: str | None, **special: Value) -> ModelCard:
    """Make a card; without ``special`` its vocabulary is SentencePiece's, to which llama.cpp adds <s>."""
    vocabulary = dict(models.tokens(64, **special))
    if template is not None:
        vocabulary["tokenizer.chat_template"] = template
    return models.card(models.llama(vocabulary=vocabulary))


def byte_pair(template: str, *, pre: str) -> ModelCard:
    """Make a card with Llama 3's special tokens; llama.cpp adds BOS for the pre-tokenizer llama-bpe only."""
    texts = ["a", "b", "<|begin_of_text|>", "<|eot_id|>"]
    vocabulary: dict[str, Value] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.eos_token_id": 3,
        "tokenizer.chat_template": template,
    }
    return models.card(models.llama(vocabulary=vocabulary))


def refusal(template: str, system: str | None = None) -> GgufspecError:
    with pytest.raises(GgufspecError, match="the chat template of made up cannot be used") as caught:
        chat.render(card(template), [HELLO], system=system)
    assert "--raw" in str(caught.value.hint)
    assert len(caught.value.message.splitlines()) == 1
    return caught.value


def test_known_templates() -> None:
    (rendered,) = chat.render(card(CHATML), [TALK], system="Be brief.")
    assert rendered == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello, you<|im_end|>\n"
        "<|im_start|>assistant\nGood day.<|im_end|>\n<|im_start|>user\nAnd now?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    (rendered,) = chat.render(byte_pair(LLAMA_3, pre="llama-bpe"), [HELLO])
    assert rendered == (
        "<|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHello, you<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert chat.render(card(MISTRAL), [TALK]) == (
        "[INST] Hello, you [/INST] Good day.</s>[INST] And now? [/INST]",
    )
    assert chat.render(card(GEMMA), [TALK])[0].endswith(
        "<start_of_turn>model\nGood day.<end_of_turn>\n"
        "<start_of_turn>user\nAnd now?<end_of_turn>\n<start_of_turn>model\n"
    )


@pytest.mark.parametrize(
    ("template", "begins"),
    [
        (GEMMA, "<start_of_turn>user\nBe brief.\n\nHello, you<end_of_turn>\n"),
        (MISTRAL, "[INST] Be brief.\n\nHello, you [/INST]"),
        (DEAF_TO_SYSTEM, "User: Be brief.\n\nHello, you\nBot:"),
    ],
    ids=["refused", "out of order", "left out"],
)
def test_a_system_prompt_without_a_place_goes_before_the_first_message(template: str, begins: str) -> None:
    assert chat.render(card(template), [TALK], system="Be brief.")[0].startswith(begins)


def test_roles_out_of_order_give_the_templates_own_words() -> None:
    with pytest.raises(GgufspecError, match="Conversation roles must alternate"):
        chat.render(card(MISTRAL), [[*HELLO, *HELLO]])


@pytest.mark.parametrize(
    ("made", "begins"),
    [
        (card(MISTRAL), "[INST]"),
        (card("{{ bos_token }}" + MISTRAL), "[INST]"),
        (card(MISTRAL, add_bos_token=False), "<s>[INST]"),
        (card(MISTRAL, bos_token_id=2), "[INST]"),
        (byte_pair(MISTRAL, pre="llama-bpe"), "[INST]"),
        (byte_pair(MISTRAL, pre="qwen2"), "<|begin_of_text|>[INST]"),
    ],
    ids=["added", "added to two", "told not to", "another BOS", "added to Llama 3", "not to Qwen 2"],
)
def test_there_is_never_a_second_bos(made: ModelCard, begins: str) -> None:
    assert chat.render(made, [HELLO])[0].startswith(begins)


def test_a_bos_that_the_user_writes_stays() -> None:
    rendered = chat.render(card("{{ messages[0].content }}"), [[Message("user", "What is <s> for?")]])
    assert rendered == ("What is <s> for?",)


def test_many_conversations_come_back_in_their_order() -> None:
    asked = [[Message("user", f"Number {n}")] for n in range(500)]
    rendered = chat.render(card(CHATML), asked)
    assert len(rendered) == 500
    assert all(f"\nNumber {n}<" in text for n, text in enumerate(rendered))
    assert chat.render(card(CHATML), []) == ()


def test_any_text_survives_unchanged() -> None:
    said = 'Größe 日本語 \U0001f642 \u2028 {{ 7 * 7 }} {% raw %} <b>&amp;</b> "\\n"\ttab'
    template = "{{ messages[0].content }}|{{ {'ü': messages[0].content} | tojson }}"
    (rendered,) = chat.render(card(template), [[Message("user", said)]])
    assert rendered.startswith(said + '|{"ü": "Größe 日本語')
    assert "<b>&amp;</b>" in rendered


def test_what_templates_expect_of_transformers_is_there() -> None:
    template = (
        "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% break %}{% endfor %}"
        "{% generation %}{{ messages[-1].content }}{% endgeneration %}\n"
        "    {% set ns = namespace(n=1) %}\n"
        "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ documents is none }}"
    )
    assert chat.render(card(template), [HELLO]) == ("Hello, you2True",)


def test_a_model_without_a_template_is_told_from_one_with() -> None:
    assert chat.has_template(card(CHATML))
    assert not chat.has_template(card(" \n"))
    assert not chat.has_template(card(None))
    with pytest.raises(GgufspecError, match="made up has no chat template") as caught:
        chat.render(card(None), [HELLO])
    assert "--raw" in str(caught.value.hint)


SAYS = "{{ messages[0].content }}"
REFUSED = {
    "the sandbox forbids": (
        *("{{ ''.__class__.__mro__ }}", "{{ messages.__class__.__base__.__subclasses__() }}"),
        *("{{ raise_exception.__globals__.os }}", "{{ cycler.__init__.__globals__.os.system('true') }}"),
        *("{{ '{0.__class__.__mro__}'.format('') }}", "{{ messages.append(1) }}"),
        "{% set f = '{0.__class__.__mro__}'.format %}{{ f('') }}",
    ),
    "memory": (
        *("{{ 'a' * 10**12 }}", "{{ '%01000000000000d' % 1 }}", "{{ 'a'.ljust(10**12) }}"),
        *("{% set kept = 'a' * (2 * 10**9) %}", "{% for i in range(9999) %}{{ 'a' * 10**6 }}{% endfor %}"),
    ),
    "does not end": (
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    ),
    "": (  # what is not there
        *("{% import 'os' as os %}{{ os }}", "{% include '/etc/passwd' %}", "{% extends '/etc/passwd' %}"),
        *("{{ open('/etc/passwd').read() }}", "{{ undefined.thing }}", "{{ 1 / 0 }}", "{{ '\\ud800' }}"),
    ),
    "line 2: ": ("ok\n{% if %}",),
    "cannot be used: \\[2J no$": ("{{ raise_exception('\\x1b[2J\\nno\\n') }}",),
    "NUL": ("{{ '\\x00' }}",),
    "more than 1,048,576 characters": ("{# " + "a" * (1 << 20) + " #}",),
}
"""What is said -> templates that cannot be used."""


@pytest.mark.parametrize("reason", REFUSED)
def test_a_template_that_cannot_be_used_says_why_in_one_line_of_plain_characters(reason: str) -> None:
    for template in REFUSED[reason]:
        error = refusal(template + SAYS)
        assert error.message.isprintable()
        assert re.search(reason, error.message), template[:60]


def test_a_template_that_leaves_the_message_out_is_refused() -> None:
    assert "it leaves out the user's message" in refusal("a template that does not listen").message


@pytest.mark.parametrize(
    "template",
    [
        *("{{ raise_exception.__globals__ }}", "{{ ''|attr('__class__')|attr('__mro__') }}"),
        *("{{ strftime_now.__self__.__class__ }}", "{{ messages|map(attribute='__class__')|join }}"),
    ],
)
def test_what_the_sandbox_hides_is_nothing(template: str) -> None:
    assert chat.render(card(template + SAYS), [HELLO]) == ("Hello, you",)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 10) }}",
    ],
)
def test_endless_work_is_ended(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_TIME_S", 0.8)
    started = time.monotonic()
    assert "did not end within" in refusal(template).message
    assert time.monotonic() - started < 30


def test_a_template_sees_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    seen: dict[str, str] = {}
    capture = proc.capture

    def watch(argv: list[str], *, env: dict[str, str], cwd: Path, timeout_s: float) -> object:
        seen.update(env)
        return capture(argv, env=env, cwd=cwd, timeout_s=timeout_s)

    monkeypatch.setattr(proc, "capture", watch)
    assert chat.render(card(CHATML), [HELLO])
    assert "PATH" in seen
    assert "HF_TOKEN" not in seen


def test_messages_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        HELLO[0].content = "x"  # type: ignore[misc]
