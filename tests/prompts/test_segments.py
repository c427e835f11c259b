"""Answers whose parts are marked by hand, in the forms in which models write them."""

from __future__ import annotations

import re

import pytest

from ggufspec.domain import Segment
from ggufspec.prompts import label_text, label_tokens

THINKING, NAME, KEYS, VALUES, CODE, PROSE = Segment
MARKS = {"T": THINKING, "N": NAME, "K": KEYS, "V": VALUES, "C": CODE, "P": PROSE}
"""What «T» and so on, before a part of an answer, say of it."""
MARKED = {
    "prose alone": "«P»It rains [1] in {Oslo}. See [2].",
    "thinking, then prose": "«T»<think>\nRain?\n</think>«P»\n\nYes.",
    "thinking that a template opened": "«T»Rain? {no}\n</think>«P»\nNo. <b>Sun</b>.",
    "thinking that was cut": "«T»<think>I could write ```py",
    "an object": '«K»{"«K»city«K»": "«V»Oslo«K»", "«K»wet«K»": «V»true«K»}',
    "nested values, then prose": (
        '«K»{"a": [«V»1«K», «V»-2.5e3«K»], "b": {"name": "«V»x \\" y«K»"}}«P»\nDone: 3.'
    ),
    "an object that was cut inside of a string": '«K»{"text": "«V»It ra',
    "an object that was cut behind its first brace": "«P»So:\n«K»{",
    "an object with a name is no call": '«K»{"name": "«V»Ada«K»", "age": «V»3«K»}',
    "a call as a bare object": '«K»{"name": "«N»get_weather«K»", "parameters": {"name": "«V»Oslo«K»"}}',
    "a call between tags, after prose": (
        '«P»I look it up.\n«K»<tool_call>\n{"name": "«N»get_weather«K»", "arguments": {"city": "«V»Oslo'
        '«K»", "days": «V»2«K»}}\n</tool_call>«P»\n«K»<tool_call>\n{"name": "«N»stop«K»", "argu'
    ),
    "a call in XML": (
        "«K»<tool_call>\n<function=«N»edit«K»>\n<parameter=path>«V»\na.py\n«K»</parameter>\n<parameter=new>"
        "«V»\nif a < b:\n«K»</parameter>\n</function>\n</tool_call>«P»\nThere."
    ),
    "a call by keys and values": (
        "«K»<tool_call>«N»find«K»<arg_key>q</arg_key><arg_value>«V»a [b]«K»</arg_value></tool_call>"
    ),
    "harmony's channels": (
        "«T»<|channel|>analysis<|message|>Rain? {no}<|end|>"
        "«P»<|start|>assistant<|channel|>final<|message|>Sun [1].<|return|>"
    ),
    "a call in harmony's channel, after a preamble": (
        "«P»<|channel|>commentary<|message|>I look it up.<|end|>"
        "«K»<|start|>assistant<|channel|>commentary to=functions.«N»get_weather"
        '«K» <|constrain|>json<|message|>{"city":"«V»Oslo«K»"}<|call|>'
    ),
    "a call in harmony that names its receiver first": (
        '«K» to=functions.«N»stop«K»<|channel|>commentary json<|message|>{"days":«V»2«K»}<|call|>'
    ),
    "calls of DeepSeek V3.1": (
        "«T»<think>Two.</think>«P»So:«K»<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>«N»add"
        '«K»<｜tool▁sep｜>{"a": «V»1«K»}<｜tool▁call▁end｜><｜tool▁call▁begin｜>«N»function'
        "«K»<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "a call of DeepSeek V3 and R1": (
        "«K»<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>«N»add"
        '«K»\n```json\n{"a": "«V»x«K»"}\n```<｜tool▁call▁end｜>'
    ),
    "a call of DeepSeek V3.2": (
        '«P»I look it up.\n\n«K»<｜DSML｜function_calls>\n<｜DSML｜invoke name="«N»find'
        '«K»">\n<｜DSML｜parameter name="q" string="true">«V»a [b] <c>'
        "«K»</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>«P»\nWait."
    ),
    "a list of calls": '«K»[TOOL_CALLS][{"name": "«N»add«K»", "arguments": {"a": «V»1«K»}}]',
    "two calls by name": '«K»[TOOL_CALLS]«N»add«K»[ARGS]{"a": «V»1«K»}[TOOL_CALLS]«N»stop«K»[ARGS]{}',
    "code between prose": "«P»Like this:\n\n«C»```python\nx = {'a': [1]}\n\n```«P»\nThat is all.",
    "JSON between fences": '«K»```json\n{"a": "«V»b«K»"}\n```«P»\nOK',
    "code that was cut": "«C»```\nfor a in b:\n    pri",
}


@pytest.mark.parametrize("name", MARKED)
def test_the_parts_of_an_answer_are_those_that_a_reader_marks(name: str) -> None:
    _, *parts = re.split("«([TNKVCP])»", MARKED[name])
    marked = [MARKS[mark] for mark, text in zip(parts[::2], parts[1::2], strict=True) for _ in text]
    assert label_text("".join(parts[1::2])) == marked


def test_segments_at_edges() -> None:
    assert set(label_text("It may rain", "user\nRain?\nassistant\n<think>\n")) == {THINKING}
    assert set(label_text("It may rain", "user\n<think> Rain?\nassistant\n")) == {PROSE}
    pieces = ['{"', "city", '":', ' "Os', "lo", '"}', "", "\n", "Yes"]
    assert label_tokens(pieces) == [KEYS, KEYS, KEYS, VALUES, VALUES, KEYS, PROSE, PROSE, PROSE]
