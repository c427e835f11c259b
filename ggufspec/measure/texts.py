"""What the models will read: prompts and files of a request, rendered, and a context that holds them."""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ggufspec import prompts
from ggufspec.domain import CONSTRAINTS, ModelFile, Prompt, Request, message_text
from ggufspec.errors import ContextTooSmallError, GgufspecError
from ggufspec.llama.command import tools
from ggufspec.llama.install import Install
from ggufspec.measure.models import ChosenModels
from ggufspec.measure.programs import ChosenEngine
from ggufspec.modelfiles import gguf, hub
from ggufspec.options import BenchOptions, MeasureOptions
from ggufspec.prompts import Message, PromptSuite, RecordedRequest, Recording, Render, chat

_JOINT_TEXT = "\n\n"  # between other text and a prompt
_JOINT = 8  # tokens more that two texts may have together than apart
_TEMPLATE = 64  # tokens of a chat template for each turn, at most
_TOOLS = 512  # tokens of a template's own words about tools and schemas, at most
_IMAGE = 4096  # tokens of an image, at most, unless --image-max-tokens allows more (tools/mtmd/clip.cpp)
_CONTEXT_STEP = 256  # llama.cpp pads its key-value cache to this many tokens
_LONGEST_TOKEN = 16  # characters of running text for one token, at most
_OTHER_TEXT = "give the text to continue, e.g. --prompt 'Once upon a time'"
_OF_RECORDING = {"suite", "prompt", "prompt_file", "per_category", "chat", "system", "rate", "depth"}
"""Options that recorded requests decide."""


class Preface(NamedTuple):
    """What stands before each prompt: a text, or the turns of a chat."""

    text: str = ""
    turns: tuple[Message, ...] = ()

    def messages(self, prompt: str) -> tuple[Message, ...]:
        """Return a chat that ends with a prompt; it continues a last message of the user."""
        if self.turns and self.turns[-1].role == "user":
            return (*self.turns[:-1], Message("user", f"{self.turns[-1].content}\n\n{prompt}"))
        return (*self.turns, Message("user", prompt))


NO_PREFACE = Preface()


@dataclass(frozen=True, kw_only=True)
class BenchTexts:
    """The texts of a bench as the models will read them.

    Attributes:
        prompts: those of the suite, or the recorded requests.
        warmups: prompts of runs that do not count.
        render: makes the later turns of conversations.
        notes: where they are from, and how they were rendered.
        origin: the files of the Hub that they are from, see ``PromptSuite``.
        sent: what users send, by the number of tokens of other text before each prompt; empty without users.
        most_turns: of the other text.
        recording: the recorded requests.
    """

    prompts: tuple[Prompt, ...]
    warmups: tuple[Prompt, ...] = ()
    render: Render | None = None
    notes: tuple[str, ...] = ()
    origin: str | None = None
    sent: Mapping[int, tuple[Prompt, ...]] = field(default_factory=dict)
    most_turns: int = 0
    recording: Recording | None = None


class AskedTexts(NamedTuple):
    """The prompts of a request as they were read, or recorded requests in their place."""

    suite: PromptSuite | None
    recording: Recording | None = None

    @property
    def needs(self) -> frozenset[str]:
        """What all requests need, which the engine must be able to ask."""
        asked = () if self.suite is None else (*self.suite.prompts, *self.suite.warmups)
        recorded = () if self.recording is None else self.recording.requests
        requests = {prompt.request for prompt in asked} | {sent.request for sent in recorded}
        return frozenset(name for request in requests if request is not None for name in request.needs)


def read_asked(request: BenchOptions, models: ChosenModels) -> AskedTexts:
    """Read what is asked for, before the engine is chosen that can ask it.

    Raises:
        GgufspecError: a file is not here or cannot be used, or ids repeat.
    """
    recording = read_recording(request)
    if recording is not None:
        return AskedTexts(None, recording)
    has_template = chat.has_template(models.cards[models.targets[0]])
    return AskedTexts(read_suite(request, embedded=models.is_embedded, has_template=has_template))


def read_recording(request: BenchOptions) -> Recording | None:
    """Return the recorded requests that are asked for; chats as requests where reasoning is set.

    Raises:
        GgufspecError: the file cannot be used, or has no chats or schemas where these are set; or an option
            is given that it decides.
    """
    if request.replay is None:
        return None
    request.refuse(_OF_RECORDING, "recorded requests decide")
    recording = prompts.read_recording(request.replay)
    if request.sets_reasoning:
        chats = (
            replace(asked, request=prompt.request, turns=(), system=None)
            for asked, prompt in zip(recording.requests, list_recording(recording), strict=True)
        )
        recording = replace(recording, requests=tuple(chats))
    _check_asking(request, [asked.request for asked in recording.requests])
    return recording


def _check_asking(asked: MeasureOptions, requests: Iterable[Request | None]) -> None:
    """Raise where nothing can be left out, or cannot think."""
    requests = [*requests]
    constrained = any(request is not None and CONSTRAINTS & request.fields.keys() for request in requests)
    if asked.constrain and not constrained:
        raise GgufspecError(
            "no prompt has a grammar or a schema",
            "leave --constrain out, or give prompts with json_schema, response_format or grammar",
        )
    if asked.sets_reasoning and not any(request is not None and request.is_chat for request in requests):
        raise GgufspecError(
            "only chats can think, and the prompts are texts to continue",
            "add --chat, or leave --reasoning out",
        )


def read_bench_texts(
    request: BenchOptions, asked: AskedTexts, models: ChosenModels, engine: ChosenEngine
) -> BenchTexts:
    """Return the prompts, rendered for the first target.

    Raises:
        GgufspecError: a text before the prompts cannot be used, or the template cannot render them.
    """
    target = models.targets[0]
    card = models.cards[target]
    recording, suite = asked.recording, asked.suite
    if recording is not None:
        rendered = render_recording(recording, card, is_warm=request.turns != "cold")
        return BenchTexts(prompts=rendered, sent={0: rendered}, recording=recording)
    assert suite is not None
    count_tokens = make_counter(target, engine.install)
    prefaces = {depth: read_preface(request.context_file, depth, count_tokens) for depth in request.depths}
    sent = {
        depth: read_texts(request, suite, card, preface=preface).prompts
        for depth, preface in (prefaces if request.users else {}).items()
    }
    most_turns = max(len(preface.turns) for preface in prefaces.values())
    return replace(read_texts(request, suite, card), sent=sent, most_turns=most_turns)


def read_texts(
    asked: MeasureOptions, suite: PromptSuite, target: gguf.ModelCard, *, preface: Preface = NO_PREFACE
) -> BenchTexts:
    """Put prompts into the target's chat template where that is due.

    Chats with tools, schemas and the like stay requests: the server puts them into the template.

    Args:
        asked: whether prompts are messages, and their system prompt.
        suite: the prompts.
        target: the target.
        preface: stands before each prompt.

    Raises:
        GgufspecError: no template where one is needed, or it fails.
    """
    has_template = chat.has_template(target)
    suite, wanted = _put_behind(asked, suite, preface, has_template=has_template)
    everything = [*suite.prompts, *suite.warmups]
    texts = {place: prompt for place, prompt in enumerate(everything) if not prompt.is_chat}
    notes = [*describe_origin(suite.origin)]
    render: Render | None = None
    if wanted and texts and not has_template:
        if asked.chat or asked.system is not None:
            raise GgufspecError("the target has no chat template", "use --raw, or a model that has one")
        notes.append("prompts: as they are, because the target has no chat template")
    elif wanted and texts:
        rendered = chat.render(
            target, [preface.messages(prompt.text) for prompt in texts.values()], system=asked.system
        )
        for (place, prompt), text in zip(texts.items(), rendered, strict=True):
            everything[place] = replace(prompt, text=text, message=prompt.text)
        render = partial(_render, target, asked.system)
        template = asked.chat_template_file or "the target's own chat template"
        notes.append(f"prompts: in {template}")
    if len(texts) < len(everything):
        notes.append("prompts: requests, which llama-server puts into the chat template")
        if any("tools" in prompt.needs for prompt in everything) and "tools" not in (
            target.chat_template or ""
        ):
            notes.append(
                "tools: the target's chat template does not name them, so it may not read what they do"
            )
    return BenchTexts(
        prompts=tuple(everything[: len(suite.prompts)]),
        warmups=tuple(everything[len(suite.prompts) :]),
        render=render,
        notes=tuple(notes),
        origin=suite.origin,
    )


def _in_chat(prompt: Prompt, preface: Preface, system: str | None) -> Prompt:
    """Return a prompt as a request with messages, behind a system prompt and what stands before prompts."""
    request = prompt.request or Request("{}")
    messages = request.messages or [{"role": "user", "content": prompt.text}]
    if system is not None and messages[0]["role"] == "system":
        raise GgufspecError(
            f"prompt {prompt.id} has a system prompt of its own", "leave --system out, or remove that message"
        )
    first = next((place for place, message in enumerate(messages) if message["role"] == "user"), None)
    if first is not None and preface != NO_PREFACE:
        if request.images:
            raise GgufspecError(
                f"prompt {prompt.id} has images, before which no other text is put", "leave --depth out"
            )
        content = _JOINT_TEXT.join(filter(None, (preface.text, messages[first]["content"])))
        messages[first : first + 1] = map(asdict, preface.messages(content))
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return replace(prompt, request=request.replace(messages=messages))


def describe_origin(origin: str | None) -> tuple[str, ...]:
    """Return a note about files of the Hub; none where all prompts are from this machine."""
    return () if origin is None else (f"suite: {origin}",)


def read_for_servers(asked: MeasureOptions, preface: Preface) -> tuple[PromptSuite, bool]:
    """Return a suite for servers that run already, and whether these put it into their chat template.

    Raises:
        GgufspecError: there is nothing to read, or ids repeat.
    """
    suite = read_suite(asked, embedded=False, has_template=True)
    suite, is_chat = _put_behind(asked, suite, preface, has_template=True)
    is_chat = is_chat or all(prompt.is_chat for prompt in suite.prompts)
    preface = preface._replace(text="")  # which is before the prompts already
    chats = (  # messages, where there are others before them, or will be
        _in_chat(prompt, preface, asked.system)
        if is_chat and not prompt.is_chat and (preface.turns or prompt.followups)
        else prompt
        for prompt in suite.prompts
    )
    return replace(suite, prompts=tuple(chats)), is_chat


def render_recording(
    recording: Recording, target: gguf.ModelCard, *, is_warm: bool = True
) -> tuple[Prompt, ...]:
    """Return recorded requests as the target will read them, chats in its own template (``list_recording``).

    Raises:
        GgufspecError: there is no template, or it fails.
    """
    texts: dict[int, str] = {}
    chats = [(place, asked) for place, asked in enumerate(recording.requests) if asked.turns]
    for system in dict.fromkeys(asked.system for _, asked in chats):
        same = {place: asked.turns for place, asked in chats if asked.system == system}
        texts |= dict(zip(same, chat.render(target, [*same.values()], system=system), strict=True))
    listed = list_recording(recording, is_warm=is_warm)
    return tuple(
        replace(prompt, text=texts[place], request=None) if place in texts else prompt
        for place, prompt in enumerate(listed)
    )


def list_recording(recording: Recording, *, is_warm: bool = True) -> tuple[Prompt, ...]:
    """Return recorded requests for servers, which have templates of their own.

    Args:
        recording: the requests.
        is_warm: whether chats that go on from an earlier one are later turns, with its cache.
    """
    listed = tuple(
        prompt if not asked.turns else _recorded_chat(prompt, asked)
        for number, asked in enumerate(recording.requests, 1)
        for prompt in (Prompt(id=f"request-{number}", text=asked.text, request=asked.request),)
    )
    return _as_turns(listed) if is_warm else listed


def _as_turns(listed: Sequence[Prompt]) -> tuple[Prompt, ...]:
    """Return recorded requests, as turns those of which the messages begin with all of an earlier chat."""
    turns: list[Prompt] = []
    chats: dict[str, int] = {}  # all messages -> place
    for place, prompt in enumerate(listed):
        digest, before, history, read = hashlib.sha256(), None, 0, 0
        for message in prompt.request.messages if prompt.request is not None else ():
            if (known := chats.get(digest.hexdigest())) is not None:
                before, history = known, max(1, read)
            digest.update(json.dumps(message, sort_keys=True).encode())
            read += len(message_text(message))
        turns.append(prompt)
        if prompt.is_chat:
            chats[digest.hexdigest()] = place
        if before is not None:
            turns[before] = replace(turns[before], turn=max(1, turns[before].turn))
            turns[place] = replace(prompt, turn=turns[before].turn + 1, history=history)
    return tuple(turns)


def _recorded_chat(prompt: Prompt, asked: RecordedRequest) -> Prompt:
    system = [] if asked.system is None else [Message("system", asked.system)]
    return replace(prompt, request=Request.of({"messages": [*map(asdict, (*system, *asked.turns))]}))


def context(
    wanted: int | None,
    asked: Sequence[Prompt],
    target: ModelFile,
    cards: Sequence[gguf.ModelCard],
    install: Install,
    *,
    n_predict: int,
    longest_draft: int,
    depth: int = 0,
    turns: int = 0,
) -> int:
    """Choose the context in tokens, or check the wanted one: old builds overrun it in silence.

    A token is at least one byte of text, so a context that holds the bytes, a BOS and the space that some
    vocabularies put first, holds the prompt; each later turn adds itself and an answer. ``depth`` is the
    number of tokens before each prompt, in that many ``turns`` of a chat.

    Raises:
        ContextTooSmallError: a prompt and its answer do not fit.
    """
    room = n_predict + longest_draft + 2 + (depth and depth + _JOINT) + _TEMPLATE * turns
    needed = max(_most_tokens(prompt, n_predict) for prompt in asked) + room
    limit = min((card.context_length for card in cards if card.context_length), default=needed)
    chosen = wanted or min(limit, -(-needed // _CONTEXT_STEP) * _CONTEXT_STEP)
    if needed <= chosen:
        return chosen
    for prompt in asked:
        # Of a chat, that is what its messages say: what the template adds, only the server knows.
        ids = tools.tokenize(install, str(target.path), prompts.recorded_turns(prompt)[-1].text)
        if ids is not None and len(ids) + room > chosen:
            other_text = f"{depth} tokens of other text, " if depth else ""
            raise ContextTooSmallError(
                f"{other_text}prompt {prompt.id} ({len(ids)} tokens) and {n_predict} tokens of answer do not "
                f"fit into a context of {chosen}",
                f"use {'a smaller --depth, ' if depth else ''}a shorter prompt or a smaller -n; the models "
                f"allow a context of {limit}",
            )
    return chosen


def make_counter(target: ModelFile, install: Install) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text with llama.cpp's tokenizer program, without a BOS.

    It raises a GgufspecError if there is no such program.
    """

    def count(text: str) -> int:
        ids, without = (tools.tokenize(install, str(target.path), part) for part in (text, ""))
        if ids is None or without is None:
            raise GgufspecError(
                f"the llama.cpp in {install.root} has no tokenizer program for long texts; --depth needs one",
                "`ggufspec build` makes one",
            )
        return len(ids) - len(without)

    return count


def read_preface(file: Path | None, n_tokens: int, count_tokens: Callable[[str], int]) -> Preface:
    """Return the beginning of a long text or chat: as many complete words as have at most so many tokens.

    What a chat template adds to the messages of a chat is not counted.

    Args:
        file: the text, or a chat in JSON or JSONL; None for the built-in text.
        n_tokens: the number of tokens, at least 0.
        count_tokens: returns the number of tokens of a text, the BOS not counted.

    Raises:
        GgufspecError: the file cannot be read, the text is too short, or its tokens cannot be counted.
    """
    if not n_tokens:
        return NO_PREFACE
    turns = None if file is None else prompts.read_conversation(file)
    text = prompts.read_long_text(file) if turns is None else _JOINT_TEXT.join(turn.content for turn in turns)

    def count(end: int) -> int:
        return count_tokens(text[:end])

    head = text[: n_tokens * _LONGEST_TOKEN]
    ends = [*(blank.start() for blank in re.finditer(r"\s+", head)), len(head)]
    end = ends[max(0, bisect_right(ends, n_tokens, key=count) - 1)]
    if end == len(head) and count(end) < n_tokens:
        name = file.name if file else "built-in text"
        raise GgufspecError(
            f"the {name} has {count(end):,} tokens, fewer than a depth of {n_tokens:,}",
            "give a longer text with --context-file, or a smaller --depth",
        )
    return Preface(text=text[:end]) if turns is None else Preface(turns=_cut_turns(turns, end))


def _cut_turns(turns: Sequence[Message], length: int) -> tuple[Message, ...]:
    """Return the turns of which the joined text has so many characters; the last one may be cut."""
    kept: list[Message] = []
    for turn in turns:
        if length > 0:
            kept.append(replace(turn, content=turn.content[:length]))
        length -= len(turn.content) + len(_JOINT_TEXT)
    return tuple(kept)


def check_text(text: str, what: str) -> str:
    """Return a text that a program can be given.

    Raises:
        GgufspecError: it is empty, or contains what no program takes.
    """
    try:
        return prompts.check_text(text, what)
    except prompts.BadPromptError as problem:
        raise GgufspecError(str(problem), problem.hint or _OTHER_TEXT) from problem


def _put_behind(
    asked: MeasureOptions, suite: PromptSuite, preface: Preface, *, has_template: bool
) -> tuple[PromptSuite, bool]:
    """Return the prompts behind the preface, and whether texts are messages for a chat template."""
    wanted = suite.instructions if asked.chat is None else asked.chat
    all_chats = all(prompt.is_chat for prompt in suite.prompts)
    if preface.turns and not (all_chats or (wanted and has_template)):
        raise GgufspecError(
            "a conversation before the prompts needs a chat template",
            "add --chat, or give a plain text with --context-file",
        )
    if asked.system is not None and not (all_chats or wanted):
        raise GgufspecError("a system prompt needs a chat template", "add --chat, or leave --system out")
    if asked.system is not None:
        check_text(asked.system, "the system prompt")
    before = f"{preface.text}{_JOINT_TEXT}" if preface.text else ""

    def put(prompt: Prompt) -> Prompt:
        if prompt.is_chat:
            prompt = _in_chat(prompt, preface, asked.system)
        return replace(prompt, text=before + prompt.text)

    return replace(suite, prompts=tuple(map(put, suite.prompts))), wanted


def read_suite(asked: MeasureOptions, *, embedded: bool, has_template: bool) -> PromptSuite:
    """Put texts, files and a named suite together; without any, take the suite that fits the pair.

    Raises:
        GgufspecError: a file cannot be used, or ids repeat.
    """
    given = tuple(
        text if isinstance(text, Prompt) else Prompt(id=f"p{i}", text=check_text(text, f"prompt p{i}"))
        for i, text in enumerate(asked.prompt, start=1)
    )
    read = [prompts.load(file) for file in asked.prompt_file]
    if len(read) > 1:  # each is a category of its own name, so that a verdict can say whether they differ
        read = [each.with_category(each.name) for each in read]
    if asked.suite is not None:
        read.append(prompts.suite(asked.suite, hub.Access.of(asked)))
    elif not (given or read):
        read.append(prompts.default(embedded=embedded, has_template=has_template))
    if asked.per_category is not None:
        read = [each.sample(asked.per_category, seed=asked.seed) for each in read]
    every = (*given, *(prompt for each in read for prompt in each.prompts))
    names = [prompt.id for prompt in every]
    if len(set(names)) < len(names):
        raise GgufspecError("two prompts have the same id", "rename one of the prompt files or ids")
    instructions = bool(read) and all(each.instructions for each in read) and not given
    if asked.sets_reasoning and (instructions if asked.chat is None else asked.chat):
        # only llama-server knows how a template is told to think, and where thinking ends
        every = tuple(_in_chat(prompt, NO_PREFACE, None) for prompt in every)
    _check_asking(asked, (prompt.request for prompt in every))
    return PromptSuite(
        name=" + ".join(each.name for each in read) or "given",
        prompts=every,
        warmups=tuple(prompt for each in read for prompt in each.warmups),
        instructions=instructions,
        origin=next((each.origin for each in read if each.origin is not None), None),  # one is of the Hub
    )


def _render(target: gguf.ModelCard, system: str | None, messages: Sequence[Message]) -> str:
    return chat.render(target, [messages], system=system)[0]


def _most_tokens(prompt: Prompt, n_predict: int) -> int:
    request = prompts.recorded_turns(prompt)[-1].request
    later = sum(
        len(turn.encode()) + n_predict + _TEMPLATE for turn in prompt.followups if isinstance(turn, str)
    )
    if request is not None and request.is_chat:  # templates write tools and schemas about as JSON does
        without = re.sub(r'"data:[^"]*"', "", request.body) if request.images else request.body
        own = len(without.encode()) + _IMAGE * request.images
        return own + _TEMPLATE * len(request.messages) + _TOOLS + later
    return len(prompt.text.encode()) + 2 + later
