"""Prompt suites: the built-in ones, TOML, plain text, and the JSONL of public benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ggufspec import paths
from ggufspec.errors import GgufspecError
from ggufspec.prompts import jsonl, tables
from ggufspec.prompts.suite import BadPromptError, Entry, PromptSuite, assemble, build, check_text

__all__ = [
    "BUILT_IN",
    "CONTINUATIONS",
    "DEFAULT",
    "EMBEDDED",
    "BadPromptError",
    "PromptSuite",
    "check_text",
    "default",
    "load",
    "suite",
]

EMBEDDED = "demo"
"""The embedded pair's suite: it fits the little world that the pair was trained on."""
DEFAULT = "domains"
"""Nine kinds of work, as messages to an assistant."""
CONTINUATIONS = "general"
"""Texts to continue, for models without a chat template."""

BUILT_IN: Mapping[str, str] = {
    EMBEDDED: "demo/prompts.toml",
    DEFAULT: "prompts/domains.toml",
    CONTINUATIONS: "prompts/general.toml",
    "seven": "prompts/seven.toml",
}
"""The names of the built-in suites, and where each one is below models/."""

_MOST_BYTES = 64 << 20
_JSON = {".jsonl", ".ndjson", ".json"}
_TO_JSONL = "pandas.read_parquet('{0}').to_json('{0}.jsonl', orient='records', lines=True)"


def suite(name: str) -> PromptSuite:
    """Return a built-in suite.

    Raises:
        GgufspecError: there is none of this name.
    """
    if name not in BUILT_IN:
        raise GgufspecError(f"there is no prompt suite {name!r}", f"there are {', '.join(sorted(BUILT_IN))}")
    return replace(load(paths.models_dir() / BUILT_IN[name]), name=name)


def default(*, embedded: bool, has_template: bool) -> PromptSuite:
    """Return what is measured where nobody names a prompt: a bench of minutes, not of hours.

    Args:
        embedded: whether the embedded pair is measured.
        has_template: whether messages can be put into the target's own chat template.
    """
    if embedded:
        return suite(EMBEDDED)
    return suite(DEFAULT).sample(1) if has_template else suite(CONTINUATIONS)


def load(path: Path) -> PromptSuite:
    """Read a suite from a file; its ending tells the form, and anything unknown is one plain text.

    Raises:
        GgufspecError: the file cannot be read, is too large, is no valid suite or holds no prompt.
    """
    ending = path.suffix.lower()
    if ending == ".parquet":
        raise GgufspecError(
            f"{path} is parquet, not JSONL", f"convert it with pandas: {_TO_JSONL.format(path)}"
        )
    text = _read(path)
    if ending == ".toml":
        return tables.read(path, text)
    if ending in _JSON:
        return jsonl.read(path, text)
    try:
        prompt = build(name=path.stem, turns=[text.removesuffix("\n")])
    except BadPromptError as problem:
        raise GgufspecError(f"{path}: {problem}", "write the text to continue into it, in UTF-8") from problem
    return assemble(path.stem, path, [Entry(str(path), prompt)], instructions=False)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise GgufspecError(
                f"the prompt file {path} is larger than {_MOST_BYTES >> 20} MiB",
                "keep the part that you want to measure",
            )
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise GgufspecError(
            f"cannot read the prompt file {path}: {reason}", "check its path and encoding"
        ) from error
