"""Write the reference pages of the documentation from the code.

python scripts/write_reference.py
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import ggufspec
from ggufspec import cli, errors, paths, results, settings

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"

_ENDS = {
    0: "all went well",
    2: "the command line is wrong",
    129: "the terminal was closed (SIGHUP); what was measured is stored",
    130: "interrupted by Ctrl-C, likewise",
    141: "the program that reads standard output has ended, such as `head`",
    143: "ended by SIGTERM, likewise",
}
_OTHERS = (
    ("`XDG_CACHE_HOME` `XDG_DATA_HOME` `XDG_CONFIG_HOME`", "where those three are by default (Linux)"),
    (
        "`HF_TOKEN` `HF_ENDPOINT` `HF_HOME` `HF_HUB_CACHE` `HF_HUB_OFFLINE` `HF_HUB_VERBOSITY`",
        "as for all tools of the Hugging Face Hub",
    ),
    (
        "`CXX` `CUDACXX` `CUDAHOSTCXX` `CUDA_PATH` `CUDA_HOME` `CUDAARCHS`",
        "compilers, toolkit and GPU architectures of a build",
    ),
    ("`CUDA_VISIBLE_DEVICES`", "the GPUs that may be used"),
    (
        "`PIP_INDEX_URL` `PIP_EXTRA_INDEX_URL` `PIP_FIND_LINKS` `PIP_NO_INDEX` `PIP_CONFIG_FILE`",
        "where sources come from, as for pip",
    ),
    (
        "`UV_DEFAULT_INDEX` `UV_INDEX` `UV_INDEX_URL` `UV_EXTRA_INDEX_URL` `UV_FIND_LINKS`",
        "the same, as for uv",
    ),
    ("`PIP_TRUSTED_HOST` `UV_INSECURE_HOST`", "hosts whose certificates are not checked, as for pip and uv"),
    (
        "`PIP_CERT` `REQUESTS_CA_BUNDLE` `SSL_CERT_FILE` `CURL_CA_BUNDLE`",
        "certificates for that download; the first one that is set",
    ),
    ("`NO_COLOR`", "no colours"),
    ("`LLAMA_…`", "not passed to llama.cpp's programs, like everything not needed and not listed below"),
    (
        "`GGML_…` `OMP_…` `GOMP_…` `CUDA_…` and others that may change a speed",
        "passed to llama.cpp and stored with each bench; `compare` names a difference, `--resume` refuses it",
    ),
    (
        "`CC` `CFLAGS` `CMAKE_…` and others that may change a build",
        "passed to compilers and recorded with the build",
    ),
    ("tokens, passwords and keys", "not passed to llama.cpp, compilers or build scripts"),
)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):$")
_ITEM = re.compile(r"^ {4}(\*{0,2}\w+): (.*)$")


class Markdown(click.HelpFormatter):
    """Writes a command's help as Markdown instead of text for a terminal."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how the command is called."""
        self.write(f"```text\n{prog} {args}\n```\n")

    def write_heading(self, heading: str) -> None:
        """Write the title of a section of options."""
        self.write(f"**{heading}**\n\n")

    def write_text(self, text: str) -> None:
        """Write paragraphs; after click's mark for lines that stay as they are, a block."""
        for paragraph in text.split("\n\n"):
            marked = paragraph.startswith("\b")
            body = paragraph.removeprefix("\b\n")
            self.write(f"```text\n{body}\n```\n\n" if marked else f"{' '.join(body.split())}\n\n")

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write options or commands as a list."""
        self.write("".join(f"- `{term}`: {' '.join(text.split())}\n" for term, text in rows))


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    made: dict[str, Callable[[], Iterator[str]]] = {
        "commands.md": commands,
        "environment.md": environment,
        "exit-codes.md": exit_codes,
        "python.md": python,
        "schemas.md": schemas,
    }
    return {
        name: re.sub(r"\n{3,}", "\n\n", "\n".join(lines())).rstrip() + "\n" for name, lines in made.items()
    }


def commands() -> Iterator[str]:
    """Every command with its options, from click."""
    yield "# Commands\n"
    yield "What `ggufspec COMMAND --help` says. `-q`, `-v` and `--debug` may stand before the command, too.\n"
    root = click.Context(cli.cli, info_name="ggufspec", **cli.cli.context_settings)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(root, name)
        assert command is not None
        yield from _command(command, click.Context(command, info_name=name, parent=root), level=2)


def _command(command: click.Command, ctx: click.Context, *, level: int) -> Iterator[str]:
    written = Markdown()
    command.format_help(ctx, written)
    yield f"{'#' * level} {ctx.command_path}\n"
    yield written.getvalue()
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _command(inner, click.Context(inner, info_name=name, parent=ctx), level=level + 1)


def exit_codes() -> Iterator[str]:
    """Every exit code, from the classes of errors."""
    kinds = [each for each in vars(errors).values() if inspect.isclass(each)]
    found = {each.exit_code: each for each in kinds if issubclass(each, errors.GgufspecError)}
    yield "# Exit codes\n"
    yield "Each error has a code of its own. In Python it is the class in `ggufspec.errors`.\n"
    yield "| code | meaning | class |"
    yield "|---|---|---|"
    for code in sorted(_ENDS.keys() | found.keys()):
        kind = found.get(code)
        if kind is None:
            yield f"| {code} | {_ENDS[code]} | |"
        else:
            said = "Anything that has no class of its own." if code == 1 else _first(kind)
            yield f"| {code} | {_lowered(said)} | `{kind.__name__}` |"


def environment() -> Iterator[str]:
    """Every environment variable: settings and places from the code, then those of other programs."""
    variables = {key: settings.PREFIX + key.upper() for key in settings.KEYS}
    places = re.findall(r"^(GGUFSPEC_\w+)\s+(.+?)\s+\(default: (.+?)\)$", paths.__doc__ or "", re.MULTILINE)
    assert {name for name, *_ in places} == {f"GGUFSPEC_{place.upper()}" for place in paths.PLACES}
    yield "# Settings and environment\n"
    yield "The command line wins over the environment, the environment over the settings file."
    yield "`ggufspec config set KEY VALUE` writes the file, `ggufspec config` says who set what.\n"
    yield "## Settings\n"
    yield "| key | variable | without it |"
    yield "|---|---|---|"
    for key, (_, default, _) in settings.KEYS.items():
        yield f"| `{key}` | `{variables[key]}` | {default} |"
    yield "\n## Places\n"
    yield "| variable | what lies there | default |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {what} | {default} |" for name, what, default in places)
    yield "\n## Variables of other programs\n"
    yield "| variable | what it does |"
    yield "|---|---|"
    yield from (f"| {names} | {meaning} |" for names, meaning in _OTHERS)


def schemas() -> Iterator[str]:
    """What is stored, from the JSON Schemas in the package."""
    yield "# Stored results\n"
    yield "A bench is a folder: `meta.json`; `runs.jsonl`, a line of JSON for each record; `logs/`, all that"
    yield "llama.cpp wrote. JSON Schemas of both files are in `ggufspec/results/schemas`."
    yield "`ggufspec show` makes tables of them: Markdown, CSV, JSON, SQL, Parquet.\n"
    for kind, name in (("meta", "meta.json"), ("run", "runs.jsonl")):
        file = f"{kind}-{results.SCHEMA_VERSION}.json"
        schema = json.loads((ROOT / "ggufspec" / "results" / "schemas" / file).read_text(encoding="utf-8"))
        yield f"## {name}\n"
        yield f"{schema['title']}. The schema is `{file}`.\n"
        if "anyOf" in schema:
            lines = ", ".join(_kind(each) for each in schema["anyOf"])
            yield f"Each line is one of {lines}; `kind` says which.\n"
        for title, definition in schema["$defs"].items():
            yield from _definition(title, definition)


def _definition(title: str, definition: dict[str, Any]) -> Iterator[str]:
    yield f"### {title}\n"
    if "description" in definition:
        yield inspect.cleandoc(definition["description"]) + "\n"
    if "properties" not in definition:
        yield f"{_kind(definition)}\n"
        return
    yield "| field | type | always there |"
    yield "|---|---|---|"
    needed = definition.get("required", ())
    for name, kind in definition["properties"].items():
        yield f"| `{name}` | {_kind(kind)} | {'yes' if name in needed else ''} |"
    yield ""


def _kind(schema: dict[str, Any]) -> str:
    """Return a type in words, with links to what is defined elsewhere on the page."""
    if "$ref" in schema:
        return _link(schema["$ref"])
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        inner = (
            schema.get("prefixItems") or [schema["items"]]
            if schema.get("items")
            else schema.get("prefixItems")
        )
        return f"list of {', '.join(_kind(each) for each in inner)}" if inner else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {_kind(values)}" if isinstance(values, dict) else "object"
    return str(schema.get("type", "anything"))


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return f"[{name}](#{name.lower()})"


def python() -> Iterator[str]:
    """The public names of the package with their docstrings."""
    yield "# Python\n"
    yield f"{inspect.getdoc(ggufspec)}\n"
    for name in ggufspec.__all__:
        found = getattr(ggufspec, name)
        if isinstance(found, ModuleType):
            yield f"## ggufspec.{name}\n"
            yield f"{inspect.getdoc(found)}\n"
            for inner in found.__all__:
                if inspect.isfunction(getattr(found, inner)):
                    yield from _object(f"ggufspec.{name}.{inner}", getattr(found, inner), level=3)
        else:
            yield from _object(f"ggufspec.{name}", found, level=2)


def _object(name: str, found: Any, *, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    if is_dataclass(found):
        yield from _docstring(found)
        yield "```py"
        for each in fields(found):
            yield f"{each.name}: {each.type}{_default(each.default)}"
        yield "```\n"
        for member, value in vars(found).items():
            if isinstance(value, property | cached_property):
                yield f"- `{member}`: {_first(value)}"
        yield ""
    else:
        yield f"```py\n{name}{_signature(found)}\n```\n"
        yield from _docstring(found)


def _signature(function: Any) -> str:
    """Return a signature in the source's own words; ``str(inspect.signature(…))`` differs between Pythons."""
    signature = inspect.signature(function)
    words, starred = [], False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            words.append("*")
        starred |= each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        words.append(f"{stars}{each.name}: {each.annotation}{_default(each.default)}")
    return f"({', '.join(words)}) -> {signature.return_annotation}"


def _default(value: Any) -> str:
    return "" if value is MISSING or value is inspect.Parameter.empty else f" = {value!r}"


def _docstring(found: Any) -> Iterator[str]:
    """Yield a docstring, the items of its sections as a list."""
    listed = False
    for line in (inspect.getdoc(found) or "").splitlines():
        if _SECTION.match(line):
            listed = True
            yield f"**{line.rstrip(':')}**\n"
        elif listed and (item := _ITEM.match(line)):
            yield f"- `{item[1]}`: {item[2]}"
        elif listed and line.startswith("        "):
            yield f"  {line.strip()}"
        else:
            yield line.strip() if listed else line
    yield ""


def _first(found: Any) -> str:
    """Return a docstring's first sentence."""
    return (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ")


def _lowered(sentence: str) -> str:
    head = sentence.split(" ")[0]
    kept = sentence if any(letter.isupper() for letter in head[1:]) else sentence[:1].lower() + sentence[1:]
    return kept.rstrip(".")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
