"""What each part of an answer is: thinking, the name of a tool, JSON, code or prose. Pure.

The split follows the text alone, as models write it: thinking and calls of tools between their tags, JSON
where a line begins with it, code between fences. A text may end anywhere, because its length was limited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ggufspec.domain import Segment

_THINKING = re.compile(r"<think>|<thinking>|\[THINK\]")
_END_OF_THINKING = re.compile(r"</think>|</thinking>|\[/THINK\]")
_MARK = re.compile(
    r"""(?P<thinking> <think> | <thinking> | \[THINK\] | (?P<analysis> <\|channel\|>analysis<\|message\|> ) )
    | (?P<call> <tool_call> | \[TOOL_CALLS\] | (?=<function=)
        # harmony of gpt-oss: a channel, and to whom the message goes, in either order
        | (<\|start\|>assistant(<\|channel\|>\w+)? | <\|channel\|>\w+ | \A)[ ]to=(functions\.)?(?=\w)
        # DeepSeek: V3.1 and V3, then V3.2 and later; other models have the latter without its mark
        | (<｜tool▁calls▁begin｜>\s*)?<｜tool▁call▁begin｜>(function<｜tool▁sep｜>(?=\w))?
        | (<｜DSML｜\w+_calls>\s*)?(?=<(｜DSML｜)?invoke[ ]name=) )
    | (?P<fence> ^[ \t]*```[ \t]*(?P<language>\w*)[^\n]*(\n|\Z) )
    | (?P<json> ^[ \t]*(?=\{\s*(["}]|\Z) | \[\s*(["{\[]|-?\d[\d.]*\s*,|\Z)) )""",
    re.VERBOSE | re.MULTILINE,
)
_END_OF_ANALYSIS = re.compile(r"<\|end\|>")
_END_OF_CALL = re.compile(
    r"</tool_call>|</function>(?!\s*</tool_call>)|(?=\[TOOL_CALLS\])|<\|call\|>"
    r"|<｜tool▁call▁end｜>(\s*<｜tool▁calls▁end｜>)?|</(｜DSML｜)?invoke>(\s*</｜DSML｜\w+_calls>)?"
)
_FENCE = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)
_JSON_NAMES = frozenset({"json", "jsonc", "json5"})
_ARGUMENTS = frozenset({"arguments", "parameters"})
"""Keys that an object beside its ``name`` has if it calls a tool; within them, a name is any value."""
_TAG = re.compile(
    r'<(?P<what>/?(?:｜DSML｜)?[\w-]+)(?:=(?P<name>[^<>]*)|\s+name="(?P<quoted>[^"<>]*)"[^<>]*)?>?|\[ARGS\]'
)
_ATOM = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*(?P<closed>"?))|(?P<word>[-+.\w]+)|(?P<mark>[{}\[\]:,])|\s+', re.DOTALL
)


def label_tokens(
    pieces: Sequence[str], prompt: str = "", n_tokens: Sequence[int] | None = None
) -> list[Segment]:
    """Return what each token of an answer belongs to: that of most of its characters, blanks left out.

    Args:
        pieces: the text of each token, in order.
        prompt: what the answer continues.
        n_tokens: how many tokens each piece is of; several have even parts of it. None for one each.
    """
    labels = label_text("".join(pieces), prompt)
    found: list[Segment] = []
    end = 0
    for piece, count in zip(pieces, n_tokens or [1] * len(pieces), strict=True):
        start, end = end, end + len(piece)
        if count != 1:
            before = found[-1] if found else Segment.PROSE
            found += [
                labels[start + len(piece) * part // count] if piece else before for part in range(count)
            ]
            continue
        written = [place for place in range(start, end) if not piece[place - start].isspace()]
        of_token = [labels[place] for place in written or range(start, end)]
        # A piece may be empty: a token without text, such as the end of a turn. Of equals, the first counts.
        found.append(Counter(of_token).most_common(1)[0][0] if of_token else Segment.PROSE)
    return found


def label_text(text: str, prompt: str = "") -> list[Segment]:
    """Return what each character of an answer belongs to.

    The quotes of a string are punctuation, and so are the tags around calls.

    Args:
        text: the answer.
        prompt: what it continues, as the model reads it: it may end where thinking begins.
    """
    labels, place = [Segment.PROSE] * len(text), 0

    def fill(start: int, end: int, segment: Segment) -> int:
        labels[start:end] = [segment] * (end - start)
        return end

    closing, opening = _END_OF_THINKING.search(text), _THINKING.search(text)
    is_open = closing is not None and (opening is None or opening.start() > closing.start())
    if is_open or re.search(rf"(?:{_THINKING.pattern})\s*\Z", prompt):  # some templates open it
        place = fill(0, closing.end() if closing else len(text), Segment.THINKING)
    while (mark := _MARK.search(text, place)) is not None:
        start = mark.end()
        if mark["thinking"] is not None:
            closing = (_END_OF_THINKING if mark["analysis"] is None else _END_OF_ANALYSIS).search(text, start)
            place = fill(mark.start(), closing.end() if closing else len(text), Segment.THINKING)
        elif mark["call"] is not None:
            fill(mark.start(), start, Segment.KEYS)
            ending = _END_OF_CALL.search(text, start)
            place = fill(start, ending.end() if ending else len(text), Segment.KEYS)
            for part in _label_call(text, start, ending.start() if ending else len(text)):
                fill(*part)
        elif mark["fence"] is not None:
            ending = _FENCE.search(text, start)
            place = fill(mark.start(), ending.end() if ending else len(text), Segment.CODE)
            if (mark["language"] or "").lower() in _JSON_NAMES:
                fill(mark.start(), place, Segment.KEYS)
                for part in _label_json(text, start, ending.start() if ending else len(text)):
                    fill(*part)
        else:
            place = start + 1
            for part in _label_json(text, start, len(text)):
                place = fill(*part)
    return labels


class _Label(NamedTuple):
    start: int
    end: int
    segment: Segment


class _Value(NamedTuple):
    """A string, number or word of JSON, with the keys of the objects around it."""

    start: int
    end: int
    keys: tuple[str | None, ...]  # None in an array


def _label_call(text: str, start: int, end: int) -> Iterator[_Label]:
    """Yield the names and values of a call between its tags; the rest of it is punctuation.

    Known are ``{"name": …, "arguments": …}``, ``<function=NAME><parameter=KEY>VALUE</parameter>``,
    ``<invoke name="NAME"><parameter name="KEY">VALUE</parameter>``,
    ``NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>``, and ``NAME``, other marks, and ``{…}``.
    """
    before = re.compile(r"\s*(?P<name>[\w.-]+)").match(text, start, end)
    if before is not None:
        yield _Label(*before.span("name"), Segment.TOOL_NAME)
        start = before.end()
    while start < end:
        tag = _TAG.match(text, start, end)
        if tag is not None:
            what, start = (tag["what"] or "").removeprefix("｜DSML｜"), tag.end()
            if what in {"function", "invoke"} and (tag["name"] or tag["quoted"]):
                yield _Label(*tag.span("name" if tag["name"] else "quoted"), Segment.TOOL_NAME)
            if what in {"parameter", "arg_value"}:
                closing = text.find(f"</{tag['what']}>", start, end)
                stop = end if closing < 0 else closing
                yield _Label(start, stop, Segment.VALUES)
                start = stop
        elif text[start] in "{[":
            parts = list(_label_json(text, start, end, is_call=before is None))
            yield from parts
            start = max([start + 1, *(part.end for part in parts)])
        else:
            start += 1


def _label_json(text: str, start: int, end: int, *, is_call: bool | None = None) -> Iterator[_Label]:
    """Yield the parts of the JSON that begins at a place, up to where it is complete or no JSON any more.

    Args:
        text: that contains it.
        start: where it, or a blank before it, begins.
        end: where it ends at the latest.
        is_call: whether it calls a tool; None if that follows from its keys.
    """
    keys: list[str | None] = []  # of the open objects and arrays: the key whose value comes next
    outer: set[str | None] = set()  # the keys of the outermost object
    values: list[_Value] = []
    expects_key, place = False, start
    while (atom := _ATOM.match(text, place, end)) is not None:
        mark = atom["mark"]
        if mark is None and not keys and not atom.group().isspace():
            break  # a bare word is neither object nor array
        place = atom.end()
        if mark in {"{", "["}:
            keys.append("" if mark == "{" else None)
            expects_key = mark == "{"
        elif mark in {"}", "]"}:
            keys = keys[:-1]
            expects_key = False
        elif mark in {",", ":"}:
            expects_key = mark == "," and bool(keys) and keys[-1] is not None
        elif atom["string"] is not None and expects_key:
            keys[-1] = atom["string"].strip('"')
            outer |= {keys[-1]} if len(keys) == 1 + keys.count(None) else set()
        elif atom["string"] is not None:
            values.append(_Value(atom.start() + 1, place - len(atom["closed"]), tuple(keys)))
        elif atom["word"] is not None:
            values.append(_Value(*atom.span(), tuple(keys)))
        if not keys and mark is not None:
            break
    if is_call is None:
        is_call = "name" in outer and not _ARGUMENTS.isdisjoint(outer)
    yield _Label(start, place, Segment.KEYS)
    for value in values:
        is_name = is_call and value.keys[-1] == "name" and _ARGUMENTS.isdisjoint(value.keys)
        yield _Label(value.start, value.end, Segment.TOOL_NAME if is_name else Segment.VALUES)
    yield _Label(place, place, Segment.KEYS)  # where it ends
