"""A stored bench -> its redacted copy with raw logs. What engines parse stays, so that figures follow.

Texts of prompts that are not built in are left out: such a run has an empty prompt, and no answer. So are
those of replayed requests, and of prompts behind other text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from ggufspec import domain, prompts, results, serving
from ggufspec.choices import SUITES
from ggufspec.engines import keeps_loads, rereading
from ggufspec.errors import LogError
from ggufspec.llama.command import commands
from ggufspec.llama.server import AnswerEvent, decode, write_answer
from ggufspec.publishing.redacting import Redactor
from ggufspec.redaction import is_secret
from ggufspec.results import Meta, ResultSet

Hidden = frozenset[int]
"""Places of the prompts of a run whose texts are left out; a run of one prompt has place 0."""

NOTHING: Hidden = frozenset()

LEFT_OUT = "…"
_LEAST_LINE = 8  # characters of a line of a text that is looked for in logs; shorter ones are ordinary words
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in a file name
_STREAMS = ("out", "err")
_SYSTEM = re.compile(r"--system(?:=|$)|.*\bsystem=['\"]")
_NOTEBOOK = "ggufspec.bench"
"""The command of a bench that a notebook began; its second word shows the request."""
_PATH = re.compile(r"(?<![\w.~-])~?/[^\s,;:=]+")
_FILES = (".gguf", ".toml", ".jsonl", ".json", ".txt", ".md", ".ndjson")
_OF_TEXT = {"content", "prompt", "text", "generated_text", "reasoning_content", "reasoning", "arguments"}
"""Keys of a server's events that hold texts."""
_PIECES = {"content", "reasoning_content", "reasoning", "arguments"}
"""Those that hold pieces of an answer."""
_ASKED = {"messages", *prompts.ASKED}
"""Keys of a request that hold texts; llama-server repeats some of them in its answer."""
_HIDDEN = _OF_TEXT | _ASKED


@dataclass(frozen=True, kw_only=True)
class RawLogs:
    """The two raw logs of a run, or of a lost attempt; an absent one is empty."""

    out: bytes = b""
    err: bytes = b""


def read_logs(folder: Path, log: str) -> dict[str, RawLogs]:
    """Return the raw logs of a run by the end of their names: ``""``, and ``.lost1`` … for lost attempts.

    Args:
        folder: of the bench.
        log: the run's ``log``.

    Raises:
        OSError: a log cannot be read.
    """
    logs = {"": _read_pair(folder / "logs" / log)}
    for number in count(1):
        lost = folder / "logs" / f"{log}.lost{number}"
        if not any(lost.with_name(f"{lost.name}.{stream}").is_file() for stream in _STREAMS):
            break
        logs[f".lost{number}"] = _read_pair(lost)
    return logs


def _read_pair(log: Path) -> RawLogs:
    files = {stream: log.with_name(f"{log.name}.{stream}") for stream in _STREAMS}
    return RawLogs(**{stream: file.read_bytes() for stream, file in files.items() if file.is_file()})


def all_logs(bench: ResultSet) -> Iterator[bytes]:
    """Yield every raw log of a bench's runs.

    Raises:
        OSError: a log cannot be read.
    """
    for log in bench.runs.column("log"):
        for logs in read_logs(bench.folder, log).values():
            yield from (logs.out, logs.err)


def is_built_in(prompt: domain.Prompt) -> bool:
    """Whether everybody who has ggufspec has a prompt's text: of the conversation, the turn's own part."""
    texts, requests = _built_in_content()
    if prompt.is_chat:
        return prompt.request in requests
    return prompt.request is None and (prompt.message or prompt.text) in texts


@cache
def _built_in_content() -> tuple[frozenset[str], frozenset[domain.Request]]:
    suites = map(prompts.suite, SUITES)
    built_in = [prompt for suite in suites for prompt in (*suite.prompts, *suite.warmups)]
    asked = (turn.request for prompt in built_in for turn in prompts.recorded_turns(prompt))
    texts = (text for prompt in built_in for text in (prompt.text, *prompt.followups))
    return (
        frozenset(text for text in texts if isinstance(text, str)),
        frozenset(request for request in asked if request is not None),
    )


def find_hidden(spec: domain.RunSpec, command: Iterable[str] = ()) -> Hidden:
    """Return which texts of a run are not built in.

    A system prompt stands in every text, and so does what stands before prompts at a depth. What users sent
    is theirs, even where it is the same as a built-in text.

    Args:
        spec: of the run.
        command: ggufspec's command line, which may have a system prompt.
    """
    traffic, servers = spec.traffic, spec.servers
    hides_all = (
        any(_SYSTEM.match(word) for word in command)
        or (servers is not None and servers.system is not None)
        or (traffic is not None and (traffic.depth > 0 or bool(traffic.arrivals)))
    )
    numbered = enumerate(spec.prompts)
    return frozenset(number for number, prompt in numbered if hides_all or not is_built_in(prompt))


def hidden_prompts(bench: ResultSet) -> frozenset[str]:
    """Return the ids of prompts whose texts are not built in, see ``find_hidden``."""
    command = bench.meta.command
    return frozenset(
        spec.prompts[number].id
        for spec in dict.fromkeys(bench.runs.specs)
        for number in find_hidden(spec, command)
    )


def copy_bench(bench: ResultSet, folder: Path, redactor: Redactor, *, with_texts: bool) -> ResultSet:
    """Write the redacted copy of a bench into a new folder, and return it.

    Args:
        bench: what is published.
        folder: to be made; its name becomes the id.
        redactor: replaces what is private.
        with_texts: whether prompts that are not built in are published, and the answers to them.

    Raises:
        ResultsError: the folder cannot be written.
        OSError: a log cannot be read or written.
    """
    (folder / "logs").mkdir(parents=True)
    copies = []
    of_bench = frozenset[str]() if with_texts else hidden_prompts(bench)
    for run in bench.runs:
        hidden = NOTHING if with_texts else find_hidden(run.spec, bench.meta.command)
        copied = redact_run(run, redactor, hidden=hidden)
        for ending, logs in read_logs(bench.folder, run.log).items():
            redacted = redact_logs(run, copied, logs, redactor, hidden=hidden)
            (folder / "logs" / f"{copied.log}{ending}.out").write_bytes(redacted.out)
            (folder / "logs" / f"{copied.log}{ending}.err").write_bytes(redacted.err)
        copies.append(copied)
    results.write_bench(folder, _redact_meta(bench, folder.name, redactor, of_bench), copies)
    return results.load(folder)


def copied_id(bench: ResultSet, redactor: Redactor) -> str:
    """Return the id of a bench's copy."""
    return _safe(redactor(bench.meta.id))


def redact_run(run: domain.RunResult, redactor: Redactor, *, hidden: Hidden) -> domain.RunResult:
    """Return a run as it is published, without the texts of some of its prompts, and the answers to them."""
    sample, spec = run.sample, run.spec
    argv, error = run.argv, run.error
    if hidden:
        texts = _texts_of(run, hidden)
        argv = tuple(_without_texts(word, texts) for word in argv)
        error = None if error is None else _without_texts(error, texts)
        spec = _without_prompts(spec, hidden)
        sample = replace(sample, text=None, tokens=None)
    if sample.traffic is not None:
        answers = tuple(
            answer._replace(text="" if answer.prompt in hidden else redactor(answer.text))
            for answer in sample.traffic.answers
        )
        sample = replace(sample, traffic=replace(sample.traffic, answers=answers))
    text = None if sample.text is None else redactor(sample.text)
    if text is None or text != sample.text:  # segments and tokens follow from the text
        sample = replace(sample, tokens=None, by_segment=None, segment_s=None)
    return replace(
        run,
        spec=redactor.redact_value(spec),
        sample=replace(sample, text=text),
        argv=redactor.redact_value(argv),
        log=_safe(redactor(run.log)),
        error=redactor.redact_value(error),
        difference=redactor.redact_value(run.difference),
        audit=redactor.redact_value(run.audit),
    )


def _without_prompts(spec: domain.RunSpec, hidden: Hidden) -> domain.RunSpec:
    """Return a specification without the texts of some of its prompts, and without a system prompt."""
    kept = tuple(
        replace(prompt, text="", message=None, followups=(), request=None) if number in hidden else prompt
        for number, prompt in enumerate(spec.prompts)
    )
    if spec.traffic is None:
        return replace(spec, prompt=kept[0])
    servers = None if spec.servers is None else replace(spec.servers, system=None)
    return replace(spec, traffic=replace(spec.traffic, prompts=kept), servers=servers)


def redact_logs(
    run: domain.RunResult, copied: domain.RunResult, logs: RawLogs, redactor: Redactor, *, hidden: Hidden
) -> RawLogs:
    """Return raw logs as they are published.

    Args:
        run: their run.
        copied: the same as it is published.
        logs: as its engine wrote them.
        redactor: replaces what is private.
        hidden: prompts whose texts are left out.
    """
    err, texts = logs.err, _texts_of(run, hidden)
    if hidden:
        err = _without_texts(err.decode(errors="surrogateescape"), texts).encode(errors="surrogateescape")
    if run.spec.traffic is not None:
        out = _redact_requests(logs.out, redactor, hidden, texts)
    elif keeps_loads(run.engine):
        out = _redact_record(logs.out, redactor, is_hidden=bool(hidden))
    elif hidden:
        out = b""
    else:
        out = redactor.redact_log(logs.out)
        if copied.sample.text is not None and _reread_text(copied, out, logs.err) != copied.sample.text:
            out = copied.sample.text.encode()  # a name stood across the end of the prompt
    return RawLogs(out=out, err=redactor.redact_log(err))


def changes_figures(run: domain.RunResult, logs: RawLogs, redactor: Redactor) -> bool:
    """Whether redacting a run's logs would change what is parsed from them, its text aside."""
    copied = redact_run(run, redactor, hidden=NOTHING)
    redacted = redact_logs(run, copied, logs, redactor, hidden=NOTHING)
    if redacted == logs:
        return False
    return _figures(run, logs) != _figures(copied, redacted)


def _figures(run: domain.RunResult, logs: RawLogs) -> tuple[domain.Sample | None, list[domain.Sample]]:
    loads = list(rereading.placements(run.engine, (logs.err,)))
    try:
        sample = serving.reread_run(run, logs.out, logs.err)
    except LogError:
        return None, loads
    traffic = None if sample.traffic is None else replace(sample.traffic, answers=())
    return replace(sample, text=None, tokens=None, by_segment=None, segment_s=None, traffic=traffic), loads


def _reread_text(run: domain.RunResult, out: bytes, err: bytes) -> str | None:
    try:
        return rereading.reread_run(run, out, err).text
    except LogError:
        return None


def _redact_record(record: bytes, redactor: Redactor, *, is_hidden: bool) -> bytes:
    """Return a record of JSON lines, of a server or a worker, with its numbers as they are.

    A text arrives in pieces, and a name may stand in several of them. Where the complete text changes, its
    first piece has all of it, and the ids of its tokens are removed.
    """
    lines = record.decode(errors="surrogateescape").split("\n")
    values = [_parse_line(line) for line in lines]
    pieces = [chunk for value in values if (chunk := _chunk_of(value)) is not None]
    text = write_answer(decode(json.dumps(chunk), AnswerEvent) for chunk in pieces)
    clears = is_hidden or any(
        redactor(whole) != whole
        for whole in (text, *(str(value.get("text", "")) for value in values if value))
    )
    redacted = [
        redactor(line) if value is None else _redact_line(line, value, redactor, clears, is_hidden)
        for line, value in zip(lines, values, strict=True)
    ]
    if clears and not is_hidden and pieces:
        column = next(number for number, value in enumerate(values) if _chunk_of(value) is not None)
        first = json.loads(redacted[column])
        whole = {"content": redactor(text)}
        first["chunk"] |= {"choices": [{"delta": whole}]} if "choices" in first["chunk"] else whole
        redacted[column] = json.dumps(first)
    return "\n".join(redacted).encode(errors="surrogateescape")


def _redact_requests(record: bytes, redactor: Redactor, hidden: Hidden, texts: Sequence[str]) -> bytes:
    """Return the record of several users' requests with its numbers as they are.

    Args:
        record: a line of JSON for each request, and lines on the run.
        redactor: replaces what is private.
        hidden: prompts whose answers are left out.
        texts: of these prompts and answers, which a reason for a failure may quote.
    """

    def redact(line: str) -> str:
        value = _parse_line(line)
        if value is None:
            return redactor(_without_texts(line, texts))
        is_hidden = bool(hidden) and value.get("prompt") in {None, *hidden}
        said = value.get("reason")
        if isinstance(said, str) and (reason := _without_texts(said, texts)) != said:
            value["reason"] = reason
            line = json.dumps(value)
        return _redact_line(line, value, redactor, is_hidden, is_hidden)

    lines = record.decode(errors="surrogateescape").split("\n")
    return "\n".join(map(redact, lines)).encode(errors="surrogateescape")


def _redact_line(line: str, value: Mapping[str, Any], redactor: Redactor, clears: bool, hidden: bool) -> str:
    """Return a line of a record; one without anything private stays as it is.

    Args:
        line: as it was written.
        value: its content.
        redactor: replaces what is private.
        clears: whether the pieces of the text are removed.
        hidden: whether all texts are left out.
    """
    redacted = {key: _redact_item(key, item, redactor, clears, hidden) for key, item in value.items()}
    return line if redacted == value else json.dumps(redacted)


def _redact_item(key: str, item: Any, redactor: Redactor, clears: bool, hidden: bool) -> Any:
    if isinstance(item, str):
        if (hidden and key in _HIDDEN) or (clears and key in _PIECES):
            return ""
        return item if key in _PIECES else redactor(item)  # pieces are redacted together
    if key == "tokens" and clears:
        return []
    if key == "drafted" and clears and isinstance(item, list):
        return [0] * len(item)  # ids of tokens; how many there are is a figure
    if isinstance(item, dict):
        whole = key in {"request", *_ASKED}  # what was asked did not arrive in pieces
        inner = {
            name: _redact_item(key if whole and name in _PIECES else name, part, redactor, clears, hidden)
            for name, part in item.items()
            if not (hidden and key == "request" and name in _ASKED)
        }
        if clears:
            for name in ("completion_probabilities", "probs", "tool_calls") & inner.keys():
                del inner[name]
        return inner
    if isinstance(item, list):
        return [_redact_item(key, part, redactor, clears, hidden) for part in item]
    return item


def _parse_line(line: str) -> dict[str, Any] | None:
    """Return a line of JSON as a dictionary; None for any other line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _chunk_of(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the event of a server in a line, if it has a piece of the text."""
    chunk = value.get("chunk") if value else None
    if not isinstance(chunk, dict) or not (isinstance(chunk.get("content"), str) or chunk.get("choices")):
        return None
    return chunk


def _redact_meta(bench: ResultSet, name: str, redactor: Redactor, hidden: Collection[str]) -> Meta:
    meta = bench.meta
    command = meta.command if not hidden else _command_without_texts(bench, hidden)
    variables = (meta.environment or {}).items()
    kept = {key: value for key, value in variables if not is_secret(key, value)}
    return replace(
        meta,
        id=name,
        command=tuple(_without_folder(word, redactor) for word in command),
        build=redact_build(meta.build, redactor),
        builds={redactor(key): redact_build(build, redactor) for key, build in meta.builds.items()},
        machine=redact_machine(meta.machine, redactor),
        files=redactor.redact_value(meta.files),
        workers=redactor.redact_value(meta.workers),
        environment=None
        if meta.environment is None
        else {key: _without_paths(redactor(value)) for key, value in kept.items()},
        suite_sha256=None if hidden else meta.suite_sha256,  # it would confirm a guess of a hidden text
    )


def redact_machine(machine: domain.Machine, redactor: Redactor) -> domain.Machine:
    """Return a machine as it is published."""
    return replace(redactor.redact_value(machine), hostname="host")


def redact_build(build: domain.Build, redactor: Redactor) -> domain.Build:
    """Return a llama.cpp as it is published."""
    flags = tuple(_without_paths(redactor(flag)) for flag in build.flags)
    return replace(redactor.redact_value(build), flags=flags)


def _without_paths(text: str) -> str:
    """Return a value of a variable or a flag without paths, which may name a project."""
    return _PATH.sub(LEFT_OUT, text)


def _command_without_texts(bench: ResultSet, hidden: Collection[str]) -> tuple[str, ...]:
    """Return ggufspec's command line without the texts of prompts, and without a system prompt."""
    command = bench.meta.command
    if command[:1] == (_NOTEBOOK,):
        return (_NOTEBOOK, LEFT_OUT)
    prompts = dict.fromkeys(prompt for spec in bench.runs.specs for prompt in spec.prompts)
    texts = [text for prompt in prompts if prompt.id in hidden for text in _prompt_texts(prompt)]
    without = [_without_texts(word, dict.fromkeys(texts)) for word in command]
    for number, word in enumerate(command):
        if command[number - 1 : number] == ("--system",):
            without[number] = LEFT_OUT
        elif word.startswith("--system="):
            without[number] = f"--system={LEFT_OUT}"
    return tuple(without)


def _without_folder(word: str, redactor: Redactor) -> str:
    """Return a word of ggufspec's command line; of a path, whose folders may name a project, its end."""
    word = redactor(word)
    name, equals, path = word.rpartition("=") if word.startswith("-") else ("", "", word)
    is_path = "/" in path and (path.startswith((".", "/", "~")) or path.endswith(_FILES))
    return f"{name}{equals}{LEFT_OUT}/{path.rpartition('/')[2]}" if is_path else word


def _prompt_texts(prompt: domain.Prompt) -> Iterator[str]:
    yield from filter(None, (prompt.message, prompt.text))
    if prompt.request is not None:
        for said in map(domain.message_text, prompt.request.messages):
            yield from filter(None, said.split(domain.SHOWN_IMAGE))
        yield from (commands.flag_value(value) for value in prompt.request.fields.values())


def _texts_of(run: domain.RunResult, hidden: Hidden) -> tuple[str, ...]:
    """Return the texts of some prompts of a run, and the answers to them; of users, short ones in quotes."""
    if not hidden:
        return ()
    prompts_of = [prompt for number, prompt in enumerate(run.spec.prompts) if number in hidden]
    texts = [text for prompt in prompts_of for text in _prompt_texts(prompt)]
    if run.spec.traffic is None:
        return tuple(filter(None, (*texts, run.sample.text)))
    answers = () if run.sample.traffic is None else run.sample.traffic.answers
    texts += [answer.text for answer in answers if answer.prompt in hidden]
    servers = run.spec.servers
    texts += [servers.system] if servers is not None and servers.system else []
    # a short one, such as "hi", may be part of any word of a log
    distinct = dict.fromkeys(text for text in texts if text)
    return tuple(text if len(text.strip()) >= _LEAST_LINE else f'"{text}"' for text in distinct)


def _without_texts(text: str, hidden: Iterable[str]) -> str:
    """Return a text without hidden texts, their lines, and both as JSON writes them."""
    pieces = {
        piece: None
        for part in hidden
        for piece in (part, *(line for line in part.split("\n") if len(line.strip()) >= _LEAST_LINE))
    }
    for piece in sorted(pieces, key=len, reverse=True):
        for written in dict.fromkeys((piece, json.dumps(piece)[1:-1], repr(piece)[1:-1])):
            text = text.replace(written, LEFT_OUT)
    return text


def _safe(name: str) -> str:
    """Return a name as that of a file; the start of a log's name, a number, keeps them apart."""
    return _UNSAFE.sub("_", name).lstrip(".-") or "bench"
