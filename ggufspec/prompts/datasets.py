"""Suites of rows: JSONL, Parquet, and datasets on the Hub, in the formats of public benchmarks.

Spec-Bench (and MT-Bench)   question_id, category, turns: [text, ...]
SPEED-Bench                 the same with a text as question_id; as its own preparation writes it,
                            ``messages``: [{role, content}, ...], where every turn is a message of the user
                            The category of a throughput split gets the length of its prompts, which
                            only the name of the split has: ``throughput_8k``.
other files                 prompt, text or messages; optional id and category, and whatever else a body of a
                            request has, see ``bodies``: then messages are one request, with its answers,
                            and requests that go on with one another are turns of a conversation

Sources: data/spec_bench/question.jsonl of hemingkx/Spec-Bench; the dataset card of nvidia/SPEED-Bench and
nemo_skills/dataset/speed-bench/prepare.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ggufspec import digests, userfiles
from ggufspec.choices import ON_HUB
from ggufspec.domain import Request
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import hub
from ggufspec.prompts import bodies
from ggufspec.prompts.suite import BadPromptError, PromptEntry, PromptSuite, assemble, build
from ggufspec.units import format_bytes

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
_OWN = frozenset({"question_id", "id", "category", "turns", "prompt", "text"})
FIELDS = _OWN | {bodies.EVERY_TURN} | {"messages"} | bodies.ASKED
"""The fields of a row that are read."""

_LENGTH = re.compile(r"throughput[_-](\d+k)", re.IGNORECASE)
_FORM = 'each line is an object with turns, messages, prompt or text, such as {"id": "a", "prompt": "Hello"}'
_PREPARE = "run SPEED-Bench's own prepare script, which downloads these texts"


class SuiteRow(NamedTuple):
    """A row with its place and its number in a file."""

    where: str
    number: int
    values: dict[str, Any]


def read_rows(path: Path, text: str, hint: str = _FORM) -> Iterator[SuiteRow]:
    """Yield the JSON object of each line.

    Args:
        path: of the file, for messages.
        text: what is in it.
        hint: what the objects should be.

    Raises:
        GgufspecError: a line is not one.
    """
    for number, line in enumerate(text.split("\n"), start=1):  # splitlines would cut texts at U+2028
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise GgufspecError(f"{where}: this is not JSON: {error}", hint) from error
        if not isinstance(row, dict):
            raise GgufspecError(f"{where}: this is not a JSON object", hint)
        yield SuiteRow(where, number, row)


def make_suite(path: Path, rows: Iterable[SuiteRow], *, name: str | None = None) -> PromptSuite:
    """Make a suite of messages to an assistant from rows.

    Args:
        path: of the file; its name and its folder's may say how long the prompts are.
        rows: of the file.
        name: of the suite; None for that of the file.

    Raises:
        GgufspecError: a row has an unknown format, or texts are still placeholders. A file with
            placeholders is refused, because a part of SPEED-Bench is not SPEED-Bench.
    """
    entries = _join_turns(_entries(path, rows, length=find_length(name or "", path.parent.name, path.stem)))
    return assemble(name or path.stem, path, entries, instructions=True)


def find_length(*names: str) -> str | None:
    """Return the length of the prompts of a throughput split of SPEED-Bench, such as 8k; None for others."""
    matches = (match for name in reversed(names) if (match := _LENGTH.search(name)))
    return next((match[1].lower() for match in matches), None)


def _entries(path: Path, rows: Iterable[SuiteRow], *, length: str | None) -> Iterator[PromptEntry]:
    masked: list[str] = []
    count = 0
    for where, number, row in rows:
        count += 1
        try:
            asks = bodies.is_request(row)
            turns = [] if asks and "messages" in row else _turns(row)
            if any(isinstance(turn, str) and turn.strip() == _PLACEHOLDER for turn in turns):
                masked.append(where)
                continue
            name = row.get("question_id", row.get("id"))
            name = f"{path.stem}-{number}" if name is None else name
            category = row.get("category")
            if length is not None and (category is None or isinstance(category, str)):
                category = length if category is None else f"{category}, {length}"
            make = partial(bodies.build_asking, row, own=_OWN) if asks else build
            yield PromptEntry(where, make(name=name, turns=turns, category=category))
        except BadPromptError as problem:
            raise GgufspecError(f"{where}: {problem}", problem.hint or _FORM) from problem
    if masked:
        raise GgufspecError(
            f"{masked[0]}: the text is a placeholder, here and in {len(masked) - 1} more of {count} rows",
            _PREPARE,
        )


def _join_turns(entries: Iterable[PromptEntry]) -> Iterator[PromptEntry]:
    """Yield entries, those as one conversation that each go on where the one before was asked.

    So an agent sends them: with each result, all messages so far.
    """
    joined: PromptEntry | None = None
    last: Request | None = None  # with all messages of the conversation
    for entry in entries:
        asked = entry.prompt.request
        later: list[dict[str, Any]] = []
        if last is not None and asked is not None and asked == last.replace(messages=asked.messages):
            n_known = len(last.messages)
            later = asked.messages[n_known:] if asked.messages[:n_known] == last.messages else []
        if joined is not None and later:
            turns = (*joined.prompt.followups, Request("{}").replace(messages=later))
            joined = joined._replace(prompt=replace(joined.prompt, followups=turns))
        else:
            yield from () if joined is None else (joined,)
            joined = entry
        last = None if entry.prompt.followups else asked
    yield from () if joined is None else (joined,)


def _turns(row: Mapping[str, Any]) -> list[Any]:
    """Return the user's turns."""
    if (turns := row.get("turns")) is not None:
        if not isinstance(turns, list):
            raise BadPromptError("turns is not a list")
        return turns
    if row.get("messages") is not None:
        return _read_messages(row["messages"])
    texts = [row[key] for key in ("prompt", "text") if row.get(key) is not None]
    if not texts:
        raise BadPromptError("there are no turns, messages, prompt or text")
    return texts[:1]


def _read_messages(value: Any) -> list[Any]:
    """Return the user's messages; recorded answers are left out, because each model gives its own.

    A system message is put before the user's first message, as for chat templates without that role.
    """
    if not isinstance(value, list):
        raise BadPromptError("messages is not a list")
    system: list[str] = []
    turns: list[str] = []
    for number, message in enumerate(value, start=1):
        if isinstance(message, dict) and message.get("role") == "assistant":
            continue
        read = bodies.read_message(number, message)
        (turns if read["role"] == "user" else system).append(read["content"])
    return ["\n\n".join([*system, turns[0]]), *turns[1:]] if turns else []


_AT_ONCE = 256  # rows


def read_parquet(path: Path) -> Iterator[SuiteRow]:
    """Yield the rows of a file; columns that no suite has are not read.

    Raises:
        GgufspecError: pyarrow is not installed, or the file cannot be read.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise GgufspecError(
            f"{path} is Parquet, which pyarrow reads, and that is not installed",
            "pip install 'ggufspec[parquet]'",
        ) from error
    try:
        userfiles.check_regular(path)
        with parquet.ParquetFile(path) as file:
            columns = [name for name in file.schema_arrow.names if name in FIELDS]
            number = 0
            for batch in file.iter_batches(batch_size=_AT_ONCE, columns=columns):
                rows: list[dict[str, Any]] = batch.to_pylist()
                for row in rows:
                    number += 1
                    yield SuiteRow(f"{path}, row {number}", number, row)
    except (OSError, pa.ArrowException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise GgufspecError(f"cannot read {path} as Parquet: {reason}", "download it again") from error


JSON_ENDINGS = frozenset({".jsonl", ".ndjson", ".json"})
_PARQUET = ".parquet"
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_MOST_BYTES = 512 << 20
_MOST_NAMED = 12


@cache
def read_dataset(name: str, access: hub.Access) -> PromptSuite:
    """Return the suite of a dataset; its files come from the cache if they are there.

    What it is read from is pinned for the life of the process, whatever happens to the dataset meanwhile.

    Args:
        name: ``hf:USER/DATASET``, and what follows.
        access: to the Hub.

    Raises:
        GatedRepositoryError: the terms of the dataset have to be accepted first.
        GgufspecError: there is no such dataset or part, it is too large, or it is no suite.
    """
    reference = hub.parse_dataset(name.removeprefix(ON_HUB))
    listing = hub.list_files(reference.repo, reference.revision, access, hub.DATASET)
    part, files = _choose_part(reference, listing.files)
    size_bytes = sum(file.size_bytes for file in files)
    if size_bytes > _MOST_BYTES:
        raise GgufspecError(
            f"{reference} has {format_bytes(size_bytes)} of prompts, more than {format_bytes(_MOST_BYTES)}",
            "keep the prompts that you want to measure in a file, and name it with --prompt-file",
        )
    paths = hub.fetch_dataset_files(listing, files, access)
    label = replace(reference, revision=None, part=part)
    suite = make_suite(Path(*PurePosixPath(part).parts), _read_files(paths), name=f"{ON_HUB}{label}")
    pinned = replace(reference, revision=listing.commit, part=part)
    sums = ", ".join(digests.of_file(path).sha256 for path in paths)
    return replace(suite, origin=f"{ON_HUB}{pinned}, SHA-256 {sums}")


def _read_files(paths: Sequence[Path]) -> Iterator[SuiteRow]:
    """Yield the rows of all files, numbered through."""
    number = 0
    for path in paths:
        if path.suffix.lower() == _PARQUET:
            rows = read_parquet(path)
        else:
            try:
                rows = read_rows(path, userfiles.read_text(path, most_bytes=_MOST_BYTES))
            except OSError as error:
                hint = "remove it, and run the command again"
                raise GgufspecError(f"cannot read {path}: {error.strerror}", hint) from error
        for row in rows:
            number += 1
            yield row._replace(number=number)


def _choose_part(
    reference: hub.DatasetReference, files: Sequence[hub.RepoFile]
) -> tuple[str, tuple[hub.RepoFile, ...]]:
    """Return the part that is meant, and its files in order.

    Raises:
        GgufspecError: there is no such part, or there are several and none is named.
    """
    parts = _group_files(files)
    names = {part: _short_name(part, parts) for part in parts}
    wanted = reference.part
    matching = [part for part in parts if wanted is None or wanted in {part, *_names_of(part)}]
    listed = ", ".join(sorted(set(names.values()))[:_MOST_NAMED])
    if not parts:
        raise GgufspecError(
            f"the dataset {reference.repo} has neither JSONL nor Parquet files",
            "name a file with --prompt-file",
        )
    if not matching:
        raise GgufspecError(f"{reference.repo} has no part {wanted!r}", f"it has {listed}")
    if len(matching) > 1:
        example = replace(reference, part=names[matching[0]])
        several = ", ".join(sorted(names[part] for part in matching)[:_MOST_NAMED])
        raise GgufspecError(
            f"{reference} has several parts: {several}", f"name one, such as {ON_HUB}{example}"
        )
    (part,) = matching
    return names[part], tuple(parts[part])


def _group_files(files: Sequence[hub.RepoFile]) -> Mapping[str, list[hub.RepoFile]]:
    """Return the files of each part: shards together, and JSONL where a part has Parquet as well."""
    by_part: dict[str, dict[bool, list[hub.RepoFile]]] = {}
    for file in sorted(files, key=lambda file: file.path):
        path = PurePosixPath(file.path)
        ending = path.suffix.lower()
        if ending in JSON_ENDINGS or ending == _PARQUET:
            part = str(path.with_name(_SHARD.sub("", path.stem)))
            by_part.setdefault(part, {}).setdefault(ending == _PARQUET, []).append(file)
    return {part: by_split.get(False) or by_split[True] for part, by_split in by_part.items()}


def _names_of(part: str) -> set[str]:
    """Return by what names a part may be called: its folder, that is a configuration, or its file's."""
    folder, _, name = part.rpartition("/")
    return {name, folder.rpartition("/")[2]} - {""}


def _short_name(part: str, parts: Mapping[str, object]) -> str:
    """Return the shortest name that only this part has: its folder's, its file's, or both."""
    folder, _, name = part.rpartition("/")
    for short in (folder.rpartition("/")[2], name):
        if short and sum(short in _names_of(other) for other in parts) == 1:
            return short
    return part
