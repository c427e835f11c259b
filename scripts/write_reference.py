"""Write the reference pages of the documentation from the code.

    python scripts/write_reference.py

The pages are complete as plain Markdown; only the docstrings of Python names are added to the site, by
mkdocstrings. Commands are written by click's own formatter for help: mkdocs-click 0.9 drops the sections of
options and the line breaks of examples, and with click 8.4 prints ``Sentinel.UNSET`` for no default.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import ggufspec
from ggufspec import cli, errors, paths, results
from ggufspec.cli.entry.parameters import FieldOption
from ggufspec.llama import server
from ggufspec.options import Option, settings
from ggufspec.report.schemas.outputs import output_schemas

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
    (
        "`GGUFSPEC_RELEASES`",
        "a mirror of GitHub's list of llama.cpp's releases, for `build --prebuilt`",
    ),
    ("`MODEL_ENDPOINT`", "llama.cpp's name for `HF_ENDPOINT`, which wins"),
    ("`LLAMA_CACHE` `OLLAMA_MODELS`", "where `models` looks for the models of llama.cpp and Ollama"),
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
    (
        "`LLAMA_API_KEY` `LLAMA_ARG_HOST` `LLAMA_ARG_PORT` `LLAMA_ARG_API_…` `LLAMA_ARG_SSL_…`",
        "passed to the server of `serve`, which gets the complete environment but other `LLAMA_ARG_…`",
    ),
)
_FLAGS = {"quiet", "verbose", "debug"}  # of every command
_PROMISES = """\
- Every format has a version, which is 1. What a newer version of ggufspec wrote is refused with one line.
- JSON for programs names its schema in the field `schema`, such as `summary-1`; tables have it in each row,
  `jsonl` too. CSV, SQL and Parquet have the columns of the table itself, without schema and origin.
- Within a version, every field keeps its name, type and meaning. Every change raises the version, a new field
  too.
"""
_RANGE = re.compile(r"\[(\S*x[<>]\S*)\]")


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
        for term, text in rows:
            description = _RANGE.sub(r"[range: \1]", " ".join(text.split()))
            self.write(f"- `{term}`: {description}\n")


def pages() -> dict[str, str]:
    """Return every page by its file's name."""
    made: dict[str, Callable[[], Iterator[str]]] = {
        "commands.md": commands,
        "environment.md": environment,
        "options.md": options,
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


def options() -> Iterator[str]:
    """Every option with the commands that have it; an option has one name and one meaning everywhere."""
    found: dict[tuple[str, ...], list[str]] = {}
    root = click.Context(cli.cli)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(root, name)
        assert command is not None
        for path, inner in _all_commands(command, name):
            for option in inner.params:
                if isinstance(option, click.Option) and not option.hidden and option.name not in _FLAGS:
                    found.setdefault(_shown_names(option), []).append(path)
    commands_with_options = list(dict.fromkeys(path for paths_ in found.values() for path in paths_))
    yield "# Options\n"
    yield "Which command has which option. An option has the same name and meaning in every command;"
    yield "[the glossary](../glossary.md#names) has its name in Python, in tables and in stored results."
    yield "`-q`, `-v` and `--debug` are options of all commands.\n"
    yield f"| option | {' | '.join(commands_with_options)} |"
    yield f"|---|{'|'.join(':-:' for _ in commands_with_options)}|"
    for names, having in sorted(found.items(), key=lambda item: item[0][-1].lstrip("-")):
        cells = ("✓" if path in having else "" for path in commands_with_options)
        yield f"| `{', '.join(names)}` | {' | '.join(cells)} |"

    yield from _llama_cpp_names()


def _shown_names(option: click.Option) -> tuple[str, ...]:
    """Return the names of an option without the spellings that are understood, too."""
    field = option.option if isinstance(option, FieldOption) else None
    if field is None or (isinstance(option, FieldOption) and option.constant is not None):
        return (*option.opts, *option.secondary_opts)
    return tuple(name for names in field.names for name in names.split("/"))


def _llama_cpp_names() -> Iterator[str]:
    """The spellings of llama.cpp that are understood, and the names that mean something else there."""
    fields: dict[str, Option] = {}
    elsewhere: dict[str, dict[str, None]] = {}
    root = click.Context(cli.cli)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(root, name)
        assert command is not None
        for path, inner in _all_commands(command, name):
            for option in inner.params:
                if isinstance(option, FieldOption) and option.option.names and not option.option.is_argument:
                    fields.setdefault(option.option.name, option.option)
                    if option.option.elsewhere:
                        key = f"`{', '.join(option.option.names)}` | {option.option.elsewhere}"
                        elsewhere.setdefault(key, {})[f"`{path}`"] = None
    yield "\n## llama.cpp's spellings\n"
    yield "Options have the names that llama.cpp gave them in any version, too. A command that has the option"
    yield "understands them; help and printed commands do not show them.\n"
    yield "| option | also understood |"
    yield "|---|---|"
    for field in sorted(fields.values(), key=lambda field: field.name.lstrip("-")):
        shown = {word for names in field.names for word in names.split("/")}
        shown |= {word for names, (_, text) in field.constant.items() if text for word in names.split()}
        others = sorted(field.spellings - shown, key=lambda name: name.lstrip("-"))
        if others:
            yield f"| `{field.name}` | {' '.join(f'`{other}`' for other in others)} |"
    yield "\n## Names that mean something else in llama.cpp\n"
    yield "| option | in llama.cpp | commands |"
    yield "|---|---|---|"
    for key, paths_ in sorted(elsewhere.items(), key=lambda item: item[0].lstrip("`-")):
        yield f"| {key} | {', '.join(paths_)} |"


def _all_commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _all_commands(inner, f"{path} {name}")


def exit_codes() -> Iterator[str]:
    """Every exit code, from the classes of errors."""
    classes = [value for value in vars(errors).values() if inspect.isclass(value)]
    by_code = {error.exit_code: error for error in classes if issubclass(error, errors.GgufspecError)}
    yield "# Exit codes\n"
    yield "Each error has a code of its own. In Python it is the class in `ggufspec.errors`.\n"
    yield "| code | meaning | class |"
    yield "|---|---|---|"
    for code in sorted(_ENDS.keys() | by_code.keys()):
        if code in _ENDS:
            yield f"| {code} | {_ENDS[code]} | |"
        else:
            meaning = "Anything that has no class of its own." if code == 1 else _first(by_code[code])
            yield f"| {code} | {_lowered(meaning)} | `{by_code[code].__name__}` |"


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
    for key, option in settings.KEYS.items():
        default = option.shown or option.kind.format(option.default).lower()
        yield f"| `{key}` | `{variables[key]}` | {default} |"
    yield "\n## Places\n"
    yield "| variable | what lies there | default |"
    yield "|---|---|---|"
    yield from (f"| `{name}` | {what} | {default} |" for name, what, default in places)
    yield "\n## Keys\n"
    yield "| variable | what it is for |"
    yield "|---|---|"
    yield f"| `{server.KEY_VARIABLE}` | servers that run already (`--url`), without `--api-key-file` |"
    yield "\n## Variables of other programs\n"
    yield "| variable | what it does |"
    yield "|---|---|"
    yield from (f"| {names} | {meaning} |" for names, meaning in _OTHERS)


def schemas() -> Iterator[str]:
    """What is stored and what programs read, from the JSON Schemas in the package."""
    yield "# Stored results and outputs\n"
    yield "## What is promised\n"
    yield _PROMISES
    yield "## Stored benches\n"
    yield "A bench is a folder: `meta.json`; `runs.jsonl`, a line of JSON for each record; `logs/`, all that"
    yield "llama.cpp wrote. The bench that confirmed a tuning also has `configuration.json`, the recommended"
    yield "configuration, which `--tuned NAME` reads; that of a crossover has `crossover.json`, the users and"
    yield "depths of its map. JSON Schemas of these files are in"
    yield "`ggufspec/results/schemas`."
    yield "`ggufspec show` makes tables of a bench: Markdown, CSV, JSON, SQL, Parquet."
    yield "A command that meets a file that was edited or damaged, or that a newer ggufspec wrote, says so in"
    yield "one line and ends with exit code 13.\n"
    described: set[str] = set()
    for record, name, version in (
        ("meta", "meta.json", results.SCHEMA_VERSION),
        ("run", "runs.jsonl", results.SCHEMA_VERSION),
        ("configuration", "configuration.json", results.CONFIGURATION_VERSION),
        ("crossover", "crossover.json", results.CROSSOVER_VERSION),
    ):
        file = f"{record}-{version}.json"
        schema = json.loads((ROOT / "ggufspec" / "results" / "schemas" / file).read_text(encoding="utf-8"))
        yield f"### {name}\n"
        yield f"{schema['title']}. The schema is `{file}`.\n"
        if "anyOf" in schema:
            lines = ", ".join(_type(inner) for inner in schema["anyOf"])
            yield f"Each line is one of {lines}; `kind` says which.\n"
        for title, definition in schema["$defs"].items():
            if title not in described:
                yield from _definition(title, definition)
        described |= schema["$defs"].keys()
    yield "## Outputs\n"
    yield "JSON Schemas of the outputs for programs are in `ggufspec/report/schemas`.\n"
    for file, schema in output_schemas().items():
        yield f"### {file.removesuffix('.json')}\n"
        yield f"{schema['title'].rpartition(',')[0]}. The schema is `{file}`.\n"
        for title, definition in schema["$defs"].items():
            if title not in described:
                yield from _definition(title, definition)
        described |= schema["$defs"].keys()


def _definition(title: str, definition: dict[str, Any]) -> Iterator[str]:
    yield f"#### {title}\n"
    if "description" in definition:
        yield inspect.cleandoc(definition["description"]) + "\n"
    if "properties" not in definition:
        yield f"{_type(definition)}\n"
        return
    is_explained = any("description" in field for field in definition["properties"].values())
    yield "| field | type | always there |" + " meaning |" * is_explained
    yield "|---|---|---|" + "---|" * is_explained
    needed = definition.get("required", ())
    for name, field in definition["properties"].items():
        meaning = f" {field.get('description', '')} |" if is_explained else ""
        yield f"| `{name}` | {_type(field)} | {'yes' if name in needed else ''} |{meaning}"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    """Return a type in words, with links to what is defined elsewhere on the page."""
    if "$ref" in schema:
        return _link(schema["$ref"])
    if "anyOf" in schema:
        return " or ".join(_type(inner) for inner in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [item for item in (schema.get("items"),) if item]
        return f"list of {', '.join(_type(item) for item in items)}" if items else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) else "object"
    return str(schema.get("type", "anything"))


def _link(reference: str) -> str:
    name = reference.rpartition("/")[2]
    return f"[{name}](#{name.lower()})"


def python() -> Iterator[str]:
    """The public names of the package; mkdocstrings adds their signatures and docstrings to the site."""
    modules = {"ggufspec": ggufspec, "ggufspec.frames": ggufspec.frames, "ggufspec.plot": ggufspec.plot}
    yield "# Python\n"
    yield "`help(NAME)` prints the parameters, the result and the errors of a name. The documentation's"
    yield "site has them below each table.\n"
    for title, module in modules.items():
        yield f"## {title}\n"
        yield "| name | what it does |"
        yield "|---|---|"
        public = {name: getattr(module, name) for name in public_names(module)}
        for name, value in public.items():
            if inspect.isclass(value) or inspect.isfunction(value):
                yield f"| `{title}.{name}` | {_first(value)} |"
        yield f"\n::: {title}\n    options:\n      members: [{', '.join(public)}]\n"


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module lists, or else those of its own classes and functions."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    own = {name: getattr(value, "__module__", None) or "" for name, value in vars(module).items()}
    return sorted(name for name, place in own.items() if name[0] != "_" and place.startswith(module.__name__))


def _first(value: object) -> str:
    """Return the first paragraph of a docstring as one line."""
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


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
