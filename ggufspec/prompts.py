"""Prompt suites: the built-in one, TOML and plain text files."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ggufspec import paths
from ggufspec.domain import Prompt
from ggufspec.errors import GgufspecError

_BUILT_IN = {"demo": "demo/prompts.toml", "general": "prompts/general.toml"}


def suite(name: str) -> tuple[Prompt, ...]:
    """Return a built-in suite: ``demo`` fits the embedded pair's little world, ``general`` any other pair."""
    return load(paths.models_dir() / _BUILT_IN[name])


def load(path: Path) -> tuple[Prompt, ...]:
    """Read a suite: TOML with ``[[prompt]]`` tables (id, text, category), or a file that is one prompt.

    Raises:
        GgufspecError: the file cannot be read, is no valid suite or holds no prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise GgufspecError(
            f"cannot read the prompt file {path}: {reason}", "check its path and encoding"
        ) from error
    if path.suffix != ".toml":
        if not text.strip():
            raise GgufspecError(f"the prompt file {path} is empty", "write the text to continue into it")
        return (Prompt(id=path.stem, text=text.removesuffix("\n")),)
    try:
        tables = tomllib.loads(text).get("prompt", [])
        prompts = tuple(
            Prompt(id=str(t["id"]), text=str(t["text"]), category=t.get("category")) for t in tables
        )
    except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError) as error:
        raise GgufspecError(
            f"{path} is no prompt suite: {error}", "each [[prompt]] table needs an id and a text"
        ) from error
    names = [prompt.id for prompt in prompts]
    if not names or len(set(names)) < len(names):
        what = "holds no [[prompt]]" if not names else "uses a prompt id twice"
        raise GgufspecError(f"{path} {what}", "each [[prompt]] table needs an id of its own and a text")
    return prompts
