"""Where commands of llama.cpp stand in a text: units, Compose files, llama-swap, presets, scripts, ``ps``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from ggufspec.choices import Program
from ggufspec.pasting import shell
from ggufspec.pasting.flags import flag_of_key, with_hyphens, words_of_setting

PROGRAMS: Mapping[str, Program] = MappingProxyType(
    {
        "llama-server": Program.SERVER,
        "llama-cli": Program.PLAIN,
        "llama-completion": Program.PLAIN,
        "llama-speculative": Program.TREE,
        "llama-speculative-simple": Program.SIMPLE,
    }
)
"""Names that are clear wherever they stand."""

_EARLY: Mapping[str, Program] = MappingProxyType(
    {"main": Program.PLAIN, "server": Program.SERVER, "speculative": Program.TREE}
)
"""Names until June 2024: words of English, so only where an option follows, first or in a path."""

_UNIFIED: Mapping[str, Program] = MappingProxyType(
    {"serve": Program.SERVER, "server": Program.SERVER, "completion": Program.PLAIN, "cli": Program.PLAIN}
)
"""Subcommands of the program ``llama``."""

_IMAGE = re.compile(r"(?:^|[/:-])llama[.-]?cpp[\w.-]*:(server|light|full)[\w.-]*(?:@sha256:\w+)?$")
_OF_IMAGES: Mapping[str, Program] = MappingProxyType({"server": Program.SERVER, "light": Program.PLAIN})
_OWN_IMAGE = re.compile(r"(?:.*[/:-])?llama[.-]?cpp(?!-?python)[\w.-]*(?::[\w.-]+)?")  # that users build
_OF_FULL_IMAGES: Mapping[str, Program] = MappingProxyType(
    {"--server": Program.SERVER, "-s": Program.SERVER, "--run": Program.PLAIN, "-r": Program.PLAIN}
)


_VERSION = re.compile(r"(llama-(?:server|cli))[-_.][\w.-]+(?::[\w.-]+)?")  # llama-server-b9000
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=")
_NAMING = frozenset({"--name", "--hostname", "--network", "-u", "--user", "--unit", "-s", "-S", "-dmS"})
"""Options of docker, sudo, tmux and so on: the name behind one may be that of a program."""


class FoundProgram(NamedTuple):
    """A program, as it was written, and the place of its first option among the words."""

    name: str
    program: Program
    first_option: int

    @property
    def path(self) -> PurePosixPath | None:
        """Where it is; None for a name alone."""
        return PurePosixPath(self.name) if "/" in self.name else None


def find_program(words: Sequence[str]) -> FoundProgram | None:
    """Return the first of llama.cpp's programs among the words of a command; None without any."""
    for place, word in enumerate(words):
        following = words[place + 1] if place + 1 < len(words) else ""
        if (place and words[place - 1] in _NAMING) or _ASSIGNED.match(word):
            continue
        if image := _IMAGE.search(word):
            program = _OF_IMAGES.get(image[1]) or _OF_FULL_IMAGES.get(following)
            if program is not None:
                return FoundProgram(image[0].lstrip("/:-"), program, place + 1 + (image[1] == "full"))
        name = re.split(r"[/\\]", word)[-1].removesuffix(".exe")
        if name in PROGRAMS:
            return FoundProgram(word, PROGRAMS[name], place + 1)
        if following.startswith("-") and (version := _VERSION.fullmatch(name)):
            return FoundProgram(word, PROGRAMS[version[1]], place + 1)
        if name == "llama" and following in _UNIFIED:
            return FoundProgram(word, _UNIFIED[following], place + 2)
        if name in _EARLY and following.startswith("-") and (place == 0 or "/" in word):
            return FoundProgram(word, _EARLY[name], place + 1)
        if "run" in words[:place] and following.startswith("-") and _OWN_IMAGE.fullmatch(word):
            writes = not {"-p", "--prompt", "-f", "--file"}.isdisjoint(words[place:])
            return FoundProgram(word, Program.PLAIN if writes else Program.SERVER, place + 1)
    return None


def program_of_image(image: str) -> FoundProgram | None:
    """Return the program that an image of a container runs by itself."""
    return find_program([image])


_SERVER = FoundProgram("llama-server", Program.SERVER, 0)
_UNIT = re.compile(r"^\s*(?:ExecStart|Exec)\s*=", re.MULTILINE)
_STATUS = re.compile(r"^\s*Process: \d+ ExecStart=", re.MULTILINE)  # of systemctl status
_YAML = re.compile(r"^\s*(?:[\w\"'.${}/-]+\s*:(?:\s|$)|-\s)")
_SECTION = re.compile(r"^\s*\[([^\]\n]+)\]\s*$")
_PRESET_VALUE = re.compile(r"^\s*([A-Za-z][\w-]*)\s*=\s*(.*?)\s*$")
_VARIABLE_LINE = re.compile(r"^\s*(?:export\s+)?LLAMA_ARG_\w+=", re.MULTILINE)
_COMPOSE_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)(?::?([-+?])([^}]*))?\}|\$([A-Za-z_]\w*)")
_UNIT_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_]\w*)\}")
_MACRO = re.compile(r"\$\{([\w.-]+)\}")
_SPECIFIER = re.compile(r"%(.)")
_MOST_MACROS = 10  # one in another
_SHELLS = frozenset({"sh", "bash", "zsh", "ash", "dash"})
_CARRIERS = frozenset({"ssh", "su", "runuser", "tmux"})
"""Programs that give one of their words to a shell."""
_SPAN = re.compile(r"`([^`\n]+)`")  # of Markdown, in a sentence
_MODELS = frozenset({"-m", "--model", "-hf", "-hfr", "--hf-repo", "-mu", "--model-url"})
_MODEL_VARIABLES = frozenset({"LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO", "LLAMA_ARG_MODEL_URL"})


@dataclass(frozen=True, kw_only=True)
class FoundCommand:
    """A command of llama.cpp in a text.

    Attributes:
        name: of the entry in the text: a unit, a service, a model, or its line.
        program: which one, and how it was written.
        words: its options.
        variables: that are set for it.
        folder: from which relative paths count; None for the current one.
        mounts: folders of a container -> those of this machine.
    """

    name: str
    program: FoundProgram
    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)

    @property
    def names_model(self) -> bool:
        """Whether it says which model to run."""
        return not (_MODELS.isdisjoint(self.words) and _MODEL_VARIABLES.isdisjoint(self.variables))


def find_commands(text: str, folder: Path | None = None) -> tuple[FoundCommand, ...]:
    """Return the commands of llama.cpp in a text that name a model; without any, all of them.

    Args:
        text: in any of the forms that this module reads.
        folder: of the file, from which relative paths of a Compose file count.
    """
    found = tuple(_find(text, folder))
    return tuple(command for command in found if command.names_model) or found


def command_of_words(words: Sequence[str]) -> FoundCommand | None:
    """Return the command that the words of a command line are; None where no program is named."""
    return next(iter(_of_words("the command", shell.Words(words=list(words)))), None)


def _find(text: str, folder: Path | None) -> Iterator[FoundCommand]:
    if "\0" in text:  # /proc/PID/cmdline
        yield from _of_words("the process", shell.Words(words=text.strip("\0").split("\0")))
        return
    if _UNIT.search(text):
        yield from _of_unit(text)
        return
    first = next((line for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"), "")
    if _YAML.match(first) or first.lstrip().startswith(("{", "[{")) or first.strip() == "---":
        entries = [*_of_yaml(text, folder)]
        if entries:
            yield from entries
            return
    if _SECTION.match(first) or first.replace(" ", "").startswith("version=1"):
        yield from _of_preset(text)
        return
    text = _STATUS.sub("", text)
    commands = [command for words in shell.read_commands(text) for command in _of_words("", words)]
    if not commands and _VARIABLE_LINE.search(text):
        yield from _of_variables(text)
        return
    if not commands:
        spans = "\n".join(_SPAN.findall(text))
        commands = [command for words in shell.read_commands(spans) for command in _of_words("", words)]
    for place, command in enumerate(commands):
        yield replace(command, name=str(place + 1))


def _of_words(
    name: str, command: shell.Words, mounts: Mapping[str, str] | None = None
) -> Iterator[FoundCommand]:
    """Yield the command of llama.cpp that a simple command starts, perhaps by another program."""
    words = command.words
    inner = _inner_shell(words)
    if inner is not None:
        for nested in shell.read_commands(inner, command.variables):
            nested.folder = nested.folder or command.folder
            yield from _of_words(name, nested, mounts)
        return
    program = find_program(words)
    if program is None:
        return
    before = words[: program.first_option]
    variables, mounted = _options_of_container(before)
    yield FoundCommand(
        name=name,
        program=program,
        words=tuple(map(with_hyphens, words[program.first_option :])),
        variables={**command.variables, **variables},
        folder=command.folder,
        mounts={**(mounts or {}), **mounted},
    )


def _inner_shell(words: Sequence[str]) -> str | None:
    """Return the text that a shell among the words is given: by -c, by cmd's /c or /k, or by ssh."""
    for place, word in enumerate(words[:-2]):
        if word.rpartition("/")[2] in _SHELLS and re.fullmatch(r"-[a-z]*c", words[place + 1]):
            return words[place + 2]
        if word.lower() in {"cmd", "cmd.exe"} and words[place + 1].lower() in {"/c", "/k"}:
            return " ".join(words[place + 2 :])
    if find_program(words) is None and not _CARRIERS.isdisjoint(word.rpartition("/")[2] for word in words):
        return next((word for word in words if find_program(word.split()) is not None), None)
    return None


def _options_of_container(words: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables and the mounts before a program: those of env, docker run and podman run."""
    variables: dict[str, str] = {}
    mounts: dict[str, str] = {}
    for place, word in enumerate(words):
        option, separator, value = word.partition("=")
        if not separator or not option.startswith("-"):
            option, value = word, words[place + 1] if place + 1 < len(words) else ""
        if option in {"-e", "--env"}:
            name, _, setting = value.partition("=")
            variables[name] = setting
        elif option in {"-v", "--volume"}:
            mounts |= _mount(value)
        elif option == "--mount":
            parts = dict(part.partition("=")[::2] for part in value.split(","))
            source = parts.get("source", parts.get("src"))
            target = parts.get("target", parts.get("dst", parts.get("destination")))
            mounts |= {target: source} if source and target else {}
        elif match := _ASSIGNED.match(word):
            variables[match[1]] = word[match.end() :]
    return variables, mounts


def _mount(text: str) -> dict[str, str]:
    source, _, rest = text.partition(":")
    target = rest.partition(":")[0]
    return {target: source} if target and source.startswith(("/", ".", "~", shell.UNKNOWN)) else {}


def _of_unit(text: str) -> Iterator[FoundCommand]:
    """Yield the command of a systemd unit, or of a container as podman's units have it."""
    text = re.sub(r"\\[ \t]*\n", " ", text)
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", ";")):
            values.setdefault(key.strip(), []).append(value.strip())
    assigned = (_unit_words(line, {}) for line in values.get("Environment", ()))
    variables = _split_assignments(word for words in assigned for word in words)
    folder = _specifiers((values.get("WorkingDirectory") or [""])[-1]) or None
    mounts: dict[str, str] = {}
    for line in values.get("Volume", ()):
        mounts |= _mount(_specifiers(line))
    image = program_of_image((values.get("Image") or [""])[-1])
    for line in (*values.get("ExecStart", ()), *values.get("Exec", ())):
        words = _unit_words(re.sub(r"^[-@:+!|]+(?=/|[\w.-]*llama)", "", line), variables)
        if image is not None and find_program(words) is None:
            yield FoundCommand(
                name="the unit", program=image, words=tuple(words), variables=variables, mounts=mounts
            )
        else:
            command = shell.Words(words=words, variables=variables, folder=folder)
            yield from _of_words("the unit", command, mounts)


def _unit_words(line: str, variables: Mapping[str, str]) -> list[str]:
    """Return the words of a line of a unit; ``$NAME`` alone becomes several words, ``${NAME}`` one."""
    try:
        words = shlex.split(line)
    except ValueError:  # quotes that do not close
        words = line.split()
    found: list[str] = []
    for word in words:
        if alone := re.fullmatch(r"\$([A-Za-z_]\w*)", word):
            value = variables.get(alone[1])
            found += [shell.unknown(word)] if value is None else value.split()
        else:
            expanded = _UNIT_VARIABLE.sub(
                lambda match: variables.get(match[1], shell.unknown(f"${match[1]}")) if match[1] else "$",
                word,
            )
            found.append(_specifiers(expanded))
    return found


def _split_assignments(words: Iterable[str], separator: str = "=") -> dict[str, str]:
    """Return the variables of words such as ``NAME=VALUE``; other words are left out."""
    parts = (word.partition(separator) for word in words)
    return {name: value for name, found, value in parts if found}


def _specifiers(text: str) -> str:
    """Return a text of a unit with the home folder for %h and % for %%."""
    known = {"%": "%", "h": str(Path.home())}
    return _SPECIFIER.sub(lambda match: known.get(match[1], shell.unknown(match[0])), text)


def _of_yaml(text: str, folder: Path | None) -> Iterator[FoundCommand]:
    import yaml  # no other command needs it

    try:
        document = yaml.safe_load(text.replace("\t", "    "))
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    macros = document.get("macros") if isinstance(document, dict) else None
    yield from _of_node(document, "", macros if isinstance(macros, dict) else {}, folder, set())


def _of_node(
    node: Any, name: str, macros: Mapping[str, Any], folder: Path | None, seen: set[int]
) -> Iterator[FoundCommand]:
    """Yield the commands below a node: entries of llama-swap have cmd, containers an image or a command.

    A node that an alias repeats is read once: aliases can name each other, and grow without end.
    """
    if not isinstance(node, dict | list) or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, list):
        for entry in node:
            yield from _of_node(entry, name, macros, folder, seen)
        return
    own = node.get("name", name)
    name = own if isinstance(own, str) and own else name
    if isinstance(node.get("cmd"), str):
        own_macros = node.get("macros")
        yield from _of_llama_swap(
            node, name, {**macros, **(own_macros if isinstance(own_macros, dict) else {})}
        )
        return
    if isinstance(node.get("content"), str):  # a file that a Compose file makes
        yield from _of_yaml(node["content"], folder)
    if any(key in node for key in ("image", "command", "args", "entrypoint")):
        found = [*_of_container(node, name, folder)]
        if found:
            yield from found
            return
    for key, entry in node.items():
        yield from _of_node(entry, str(key), macros, folder, seen)


def _of_llama_swap(node: Mapping[str, Any], name: str, macros: Mapping[str, Any]) -> Iterator[FoundCommand]:
    text = node["cmd"]
    for _ in range(_MOST_MACROS):
        text = _MACRO.sub(lambda match: str(macros.get(match[1], match[0])), text)
    variables = dict(_assignments(node.get("env")))
    # ${PORT} and ${MODEL_ID} are those of llama-swap
    command = shell.Words(words=shell.split_words(text, {"PORT": "0", "MODEL_ID": name}), variables=variables)
    yield from _of_words(name, command)


def _of_container(node: Mapping[str, Any], name: str, folder: Path | None) -> Iterator[FoundCommand]:
    image = program_of_image(_interpolate(str(node.get("image") or "")))
    words = [word for key in ("entrypoint", "command", "args") for word in _listed(node.get(key))]
    variables = dict(_assignments(node.get("environment", node.get("env"))))
    mounts: dict[str, str] = {}
    volumes = node.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        if isinstance(volume, str):
            mounts |= _mount(_interpolate(volume))
        elif isinstance(volume, dict) and volume.get("source") and volume.get("target"):
            mounts |= {_interpolate(str(volume["target"])): _interpolate(str(volume["source"]))}
    if folder is not None:
        mounts = {
            target: str(folder / source) if source.startswith(".") else source
            for target, source in mounts.items()
        }
    if image is not None and find_program(words) is None and _inner_shell(words) is None:
        yield FoundCommand(name=name, program=image, words=tuple(words), variables=variables, mounts=mounts)
    else:
        directory = node.get("working_dir", node.get("workingDir"))
        command = shell.Words(words=words, variables=variables, folder=directory and str(directory))
        yield from _of_words(name, command, mounts)


def _listed(value: Any) -> list[str]:
    """Return the words of a command in YAML: a list, or a text as in a shell."""
    if isinstance(value, str):
        return shell.split_words(_interpolate(value.replace("$$", "\1")).replace("\1", "'$'"))
    return [_interpolate(str(word)) for word in value] if isinstance(value, list) else []


def _interpolate(text: str) -> str:
    """Return a text of a Compose file with the defaults of its variables; ``$$`` is a dollar."""

    def expand(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name, operator, default = match[1] or match[4], match[2], match[3]
        if name == "PWD":
            return "."
        return default if operator == "-" else shell.unknown(f"${name}")

    return _COMPOSE_VARIABLE.sub(expand, text)


def _assignments(value: Any) -> Iterator[tuple[str, str]]:
    """Yield variables as YAML files have them: a mapping, a list of texts, or one of names and values."""
    if isinstance(value, dict):
        for name, setting in value.items():
            if setting is not None:
                yield str(name), _interpolate(_text(setting))
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, str) and "=" in entry:
            name, _, setting = entry.partition("=")
            yield name, _interpolate(setting)
        elif isinstance(entry, dict) and "name" in entry and "value" in entry:
            yield str(entry["name"]), _text(entry["value"])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_preset(text: str) -> Iterator[FoundCommand]:
    """Yield the entries of llama-server's file of presets; those under ``[*]`` are of all of them."""
    shared: list[str] = []
    sections: dict[str, list[str]] = {}
    words = shared
    for line in text.splitlines():
        line = re.split(r"[;#]", line)[0]
        if section := _SECTION.match(line):
            words = shared if section[1] == "*" else sections.setdefault(section[1], [])
        elif (value := _PRESET_VALUE.match(line)) and value[1] != "version":
            words += words_of_setting(flag_of_key(value[1]), value[2])
    for name, own in sections.items():
        yield FoundCommand(name=name, program=_SERVER, words=(*shared, *own))


def _of_variables(text: str) -> Iterator[FoundCommand]:
    """Yield the command of a file of variables that llama-server reads."""
    lines = (re.sub(r"^\s*export\s+", "", line).replace("=", "\1", 1) for line in text.splitlines())
    variables = _split_assignments((word for line in lines for word in shell.split_words(line)), "\1")
    yield FoundCommand(name="the variables", program=_SERVER, words=(), variables=variables)
