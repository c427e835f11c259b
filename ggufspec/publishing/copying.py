"""A stored bench -> its redacted copy with raw logs. What engines parse stays, so that figures follow.

Texts of prompts that are not built in are left out: such a run has an empty prompt, and no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from ggufspec import prompts, results
from ggufspec.domain import ENGINES, Build, Machine, Program, Prompt, RunResult, Sample
from ggufspec.engines import rereading
from ggufspec.errors import LogError
from ggufspec.publishing.redacting import Redactor
from ggufspec.redaction import is_secret
from ggufspec.results import Meta, ResultSet

LEFT_OUT = "…"
_LEAST_LINE = 8  # characters of a line of a text that is looked for in logs; shorter ones are ordinary words
_UNSAFE = re.compile(r"[^\w.-]+", re.ASCII)  # in a file name
_STREAMS = ("out", "err")
_SYSTEM = re.compile(r"--system(?:=|$)|.*\bsystem=['\"]")
_NOTEBOOK = "ggufspec.bench"
"""The command of a bench that a notebook began; its second word shows the request."""
_PATH = re.compile(r"(?<![\w.~-])~?/[^\s,;:=]+")
_FILES = (".gguf", ".toml", ".jsonl", ".json", ".txt", ".md", ".ndjson")
_OF_TEXT = {"content", "prompt", "text", "generated_text"}
"""Keys of a server's events that hold texts."""


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
            return logs
        logs[f".lost{number}"] = _read_pair(lost)
    raise AssertionError("unreachable: the numbers do not end")


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


def is_built_in(prompt: Prompt) -> bool:
    """Whether everybody who has ggufspec has a prompt's text: of the conversation, the turn's own part."""
    return (prompt.message or prompt.text) in _built_in_texts()


@cache
def _built_in_texts() -> frozenset[str]:
    suites = map(prompts.suite, prompts.BUILT_IN)
    every = [prompt for suite in suites for prompt in (*suite.prompts, *suite.warmups)]
    return frozenset(text for prompt in every for text in (prompt.text, *prompt.followups))


def hidden_prompts(bench: ResultSet) -> frozenset[str]:
    """Return the ids of prompts whose texts are not built in.

    A system prompt stands in every text, so with one no text is.
    """
    distinct = {spec.prompt.id: spec.prompt for spec in bench.runs.specs}
    has_system = any(_SYSTEM.match(word) for word in bench.meta.command)
    return frozenset(name for name, prompt in distinct.items() if has_system or not is_built_in(prompt))


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
    hidden = frozenset[str]() if with_texts else hidden_prompts(bench)
    for run in bench.runs:
        is_hidden = run.spec.prompt.id in hidden
        copied = redact_run(run, redactor, is_hidden=is_hidden)
        for ending, logs in read_logs(bench.folder, run.log).items():
            redacted = redact_logs(run, copied, logs, redactor, is_hidden=is_hidden)
            (folder / "logs" / f"{copied.log}{ending}.out").write_bytes(redacted.out)
            (folder / "logs" / f"{copied.log}{ending}.err").write_bytes(redacted.err)
        copies.append(copied)
    results.write_bench(folder, _redact_meta(bench, folder.name, redactor, hidden), copies)
    return results.load(folder)


def copied_id(bench: ResultSet, redactor: Redactor) -> str:
    """Return the id of a bench's copy."""
    return _safe(redactor(bench.meta.id))


def redact_run(run: RunResult, redactor: Redactor, *, is_hidden: bool) -> RunResult:
    """Return a run as it is published; ``is_hidden`` is whether its texts are left out."""
    sample, spec = run.sample, run.spec
    argv = run.argv
    if is_hidden:
        argv = tuple(_without_texts(word, _texts_of(run)) for word in argv)
        spec = replace(spec, prompt=replace(spec.prompt, text="", message=None, followups=()))
        sample = replace(sample, text=None, tokens=None)
    text = None if sample.text is None else redactor(sample.text)
    return replace(
        run,
        spec=redactor.redact_value(spec),
        sample=replace(sample, text=text, tokens=sample.tokens if text == sample.text else None),
        argv=redactor.redact_value(argv),
        log=_safe(redactor(run.log)),
        error=redactor.redact_value(run.error),
        difference=redactor.redact_value(run.difference),
        audit=redactor.redact_value(run.audit),
    )


def redact_logs(
    run: RunResult, copied: RunResult, logs: RawLogs, redactor: Redactor, *, is_hidden: bool
) -> RawLogs:
    """Return raw logs as they are published.

    Args:
        run: their run.
        copied: the same as it is published.
        logs: as its engine wrote them.
        redactor: replaces what is private.
        is_hidden: whether its texts are left out.
    """
    err = logs.err
    if is_hidden:
        err = _without_texts(err.decode(errors="surrogateescape"), _texts_of(run)).encode(
            errors="surrogateescape"
        )
    if run.engine == "inprocess" or ENGINES.get(run.engine) is Program.SERVER:
        out = _redact_record(logs.out, redactor, is_hidden=is_hidden)
    elif is_hidden:
        out = b""
    else:
        out = redactor.redact_log(logs.out)
        if copied.sample.text is not None and _reread_text(copied, out, logs.err) != copied.sample.text:
            out = copied.sample.text.encode()  # a name stood across the end of the prompt
    return RawLogs(out=out, err=redactor.redact_log(err))


def changes_figures(run: RunResult, logs: RawLogs, redactor: Redactor) -> bool:
    """Whether redacting a run's logs would change what is parsed from them, its text aside."""
    copied = redact_run(run, redactor, is_hidden=False)
    redacted = redact_logs(run, copied, logs, redactor, is_hidden=False)
    if redacted == logs:
        return False
    return _figures(run, logs) != _figures(copied, redacted)


def _figures(run: RunResult, logs: RawLogs) -> tuple[Sample | None, list[Sample]]:
    loads = list(rereading.placements(run.engine, (logs.err,)))
    try:
        sample = rereading.reread_run(run, logs.out, logs.err)
    except LogError:
        return None, loads
    return replace(sample, text=None, tokens=None), loads


def _reread_text(run: RunResult, out: bytes, err: bytes) -> str | None:
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
    text = "".join(str(chunk["content"]) for chunk in pieces)
    clears = is_hidden or any(
        redactor(whole) != whole
        for whole in (text, *(str(value.get("text", "")) for value in values if value))
    )
    redacted = [
        redactor(line) if value is None else _redact_line(line, value, redactor, clears, is_hidden)
        for line, value in zip(lines, values, strict=True)
    ]
    if clears and not is_hidden and pieces:
        place = next(number for number, value in enumerate(values) if _chunk_of(value) is not None)
        first = json.loads(redacted[place])
        first["chunk"]["content"] = redactor(text)
        redacted[place] = json.dumps(first)
    return "\n".join(redacted).encode(errors="surrogateescape")


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
        if (hidden and key in _OF_TEXT) or (clears and key == "content"):
            return ""
        return item if key == "content" else redactor(item)  # pieces are redacted together
    if key == "tokens" and clears:
        return []
    if key == "drafted" and clears and isinstance(item, list):
        return [0] * len(item)  # ids of tokens; how many there are is a figure
    if isinstance(item, dict):
        inner = {name: _redact_item(name, part, redactor, clears, hidden) for name, part in item.items()}
        if clears:
            for name in ("completion_probabilities", "probs") & inner.keys():
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
    return chunk if isinstance(chunk, dict) and isinstance(chunk.get("content"), str) else None


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
        environment=None
        if meta.environment is None
        else {key: _without_paths(redactor(value)) for key, value in kept.items()},
        suite_sha256=None if hidden else meta.suite_sha256,  # it would confirm a guess of a hidden text
    )


def redact_machine(machine: Machine, redactor: Redactor) -> Machine:
    """Return a machine as it is published."""
    return replace(redactor.redact_value(machine), hostname="host")


def redact_build(build: Build, redactor: Redactor) -> Build:
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
    prompts_of = [spec.prompt for spec in bench.runs.specs if spec.prompt.id in hidden]
    texts = [text for prompt in prompts_of for text in (prompt.message, prompt.text) if text]
    without = [_without_texts(word, dict.fromkeys(texts)) for word in command]
    for place, word in enumerate(command):
        if command[place - 1 : place] == ("--system",):
            without[place] = LEFT_OUT
        elif word.startswith("--system="):
            without[place] = f"--system={LEFT_OUT}"
    return tuple(without)


def _without_folder(word: str, redactor: Redactor) -> str:
    """Return a word of ggufspec's command line; of a path, whose folders may name a project, its end."""
    word = redactor(word)
    name, equals, path = word.rpartition("=") if word.startswith("-") else ("", "", word)
    is_path = "/" in path and (path.startswith((".", "/", "~")) or path.endswith(_FILES))
    return f"{name}{equals}{LEFT_OUT}/{path.rpartition('/')[2]}" if is_path else word


def _texts_of(run: RunResult) -> tuple[str, ...]:
    prompt = run.spec.prompt
    texts = (prompt.text, prompt.message, *prompt.followups, run.sample.text)
    return tuple(text for text in texts if text)


def _without_texts(text: str, hidden: Iterable[str]) -> str:
    """Return a text without hidden texts, their lines, and both as JSON writes them."""
    for part in hidden:
        lines = [line for line in part.split("\n") if len(line.strip()) >= _LEAST_LINE]
        for piece in sorted({part, *lines}, key=len, reverse=True):
            for written in dict.fromkeys((piece, json.dumps(piece)[1:-1], repr(piece)[1:-1])):
                text = text.replace(written, LEFT_OUT)
    return text


def _safe(name: str) -> str:
    """Return a name as that of a file; the start of a log's name, a number, keeps them apart."""
    return _UNSAFE.sub("_", name).lstrip(".-") or "bench"
