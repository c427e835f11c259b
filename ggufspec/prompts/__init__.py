"""Prompt suites: built-in ones, TOML, plain text, and public benchmarks as JSONL, Parquet or on the Hub."""

from __future__ import annotations

import codecs
import shlex
from dataclasses import replace
from pathlib import Path

from ggufspec import paths, userfiles
from ggufspec.choices import ON_HUB, SUITES
from ggufspec.errors import GgufspecError
from ggufspec.harmless import one_line
from ggufspec.modelfiles import hub
from ggufspec.prompts import chat, datasets
from ggufspec.prompts.bodies import ASKED
from ggufspec.prompts.chat import Message, PromptTurns, Render, recorded_turns
from ggufspec.prompts.recorded import RecordedRequest, Recording, read_conversation, read_recording
from ggufspec.prompts.segments import label_text, label_tokens
from ggufspec.prompts.suite import (
    LONGEST_NAME,
    BadPromptError,
    PromptEntry,
    PromptSuite,
    assemble,
    build,
    check_text,
)
from ggufspec.prompts.toml_suites import make_prompt as Prompt, read_toml  # noqa: N812  # it makes that value

__all__ = [
    "ASKED",
    "EMBEDDED",
    "BadPromptError",
    "Message",
    "Prompt",
    "PromptSuite",
    "PromptTurns",
    "RecordedRequest",
    "Recording",
    "Render",
    "chat",
    "check_text",
    "decode",
    "default",
    "label_text",
    "label_tokens",
    "load",
    "read_conversation",
    "read_long_text",
    "read_recording",
    "recorded_turns",
    "suite",
]

EMBEDDED = "demo"
"""The suite of the embedded pairs, from the stories that they were trained on."""
DEFAULT = "domains"
"""Messages to an assistant, in nine categories."""
CONTINUATIONS = "general"
"""Texts to continue, for models without a chat template."""

_LONG_TEXT = "texts/shakespeare.txt"  # the first plays of tinyshakespeare, which are in the public domain


def suite(name: str, access: hub.Access | None = None) -> PromptSuite:
    """Return a built-in suite, or one of a dataset on the Hub.

    Args:
        name: one of SUITES, or ``hf:USER/DATASET``.
        access: to the Hub; None for the usual one.

    Raises:
        GgufspecError: no suite has this name, or the dataset cannot be used.
    """
    if name.startswith(ON_HUB):
        return datasets.read_dataset(name, access or hub.Access())
    if name not in SUITES:
        raise GgufspecError(f"there is no prompt suite {name!r}", f"there are {', '.join(SUITES)}")
    file = "demo/prompts.toml" if name == EMBEDDED else f"prompts/{name}.toml"
    return replace(load(paths.models_dir() / file), name=name)


def default(*, embedded: bool, has_template: bool) -> PromptSuite:
    """Return the default prompts: few enough for a bench of minutes.

    Args:
        embedded: whether an embedded pair is measured.
        has_template: whether the target has a chat template for messages.
    """
    if embedded:
        return suite(EMBEDDED)
    return suite(DEFAULT).sample(1) if has_template else suite(CONTINUATIONS)


def load(path: Path) -> PromptSuite:
    """Read a suite from a file. The ending names the format; a file with another ending is one plain text.

    Raises:
        GgufspecError: the file cannot be read, is too large, is not a valid suite or has no prompt.
    """
    ending = path.suffix.lower()
    if ending == ".parquet":
        return datasets.make_suite(path, datasets.read_parquet(path))
    text = _read(path)
    if ending == ".toml":
        return read_toml(path, text)
    if ending in datasets.JSON_ENDINGS:
        return datasets.make_suite(path, datasets.read_rows(path, text))
    try:
        name = one_line(path.stem)[:LONGEST_NAME].strip() or "prompt"
        prompt = build(name=name, turns=[text.removesuffix("\n")])
    except BadPromptError as problem:
        raise GgufspecError(
            f"{path}: {problem}", "the file must hold the text to continue, in UTF-8"
        ) from problem
    return assemble(path.stem, path, [PromptEntry(str(path), prompt)], instructions=False)


def read_long_text(path: Path | None = None) -> str:
    """Return a text to put before prompts: a file, or the built-in plays of Shakespeare (public domain).

    Raises:
        GgufspecError: the file cannot be read, is too large, or is not text.
    """
    return _read(path or paths.models_dir() / _LONG_TEXT)


def decode(content: bytes, source: str, *, name: str = "") -> str:
    """Decode UTF-8, and convert line ends to newlines.

    Args:
        content: the bytes.
        source: their source, for the message: ``the prompt file x.txt``.
        name: the file's name, if there is one.

    Raises:
        GgufspecError: they are not UTF-8; the message names the byte, the hint a command to convert them.
    """
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        offset = error.start
        has_mark = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        convert = f"iconv -f {'UTF-16' if has_mark else 'WINDOWS-1252'} -t UTF-8"
        line = content.count(b"\n", 0, offset) + 1
        byte = f"byte 0x{content[offset]:02x} at offset {offset}, line {line}"
        raise GgufspecError(
            f"cannot read {source}: not UTF-8 text: {byte}",
            f"convert it: {convert} {shlex.quote(name)} > new{Path(name).suffix}"
            if name
            else f"convert it: {convert}",
        ) from error


def _read(path: Path) -> str:
    source = f"the prompt file {path}"
    hint = "name a file with the prompts that you want to measure, or pass them as /dev/stdin"
    return decode(userfiles.load(path, hint, noun=source, streams=True), source, name=path.name)
