"""Files that start llama-server at a stored configuration: for systemd, containers, routers and shells."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ggufspec.choices import ServerFormat
from ggufspec.errors import GgufspecError
from ggufspec.harmless import CONTROL
from ggufspec.tuning import ServerCommand, ServerOption

_PLAIN = re.compile(r"[\w/.,:=+@-]+", re.ASCII)  # a word that means itself in each format
_PORT = "8080"  # llama-server's own
_ANYWHERE = "0.0.0.0"  # noqa: S104  # inside a container; the host decides who reaches it
_IMAGE = "ghcr.io/ggml-org/llama.cpp:server"
_IMAGES = {"cpu": "", "cuda": "-cuda", "vulkan": "-vulkan", "hip": "-rocm"}
_DEVICES = {"vulkan": ["/dev/dri:/dev/dri"], "hip": ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]}
_BUILD = re.compile(r"\bb(\d{4,})\b")
_AS_MANY_THREADS = ("--threads-batch", "--threads-draft", "--threads-batch-draft")
"""Options without a variable, which are as --threads by default."""
_OF_ROUTER = (
    *("--host", "--port", "--alias"),
    *("--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file"),
)
"""Options that llama.cpp's router sets for the servers that it starts."""


def export(command: ServerCommand, form: ServerFormat) -> str:
    """Return the file that starts llama-server by a command.

    Raises:
        GgufspecError: the format cannot hold a word of the command.
    """
    for word in (*command.argv, *command.environment.values()):
        if re.search(CONTROL, word) or "\n" in word:
            raise _unfit(form, repr(word), "it has a control character, or is not valid UTF-8")
    return _EXPORTS[form](command)


def _systemd(command: ServerCommand) -> str:
    """Return a unit for ``systemctl --user`` or the system; see systemd.service(5) for its quotes.

    systemd takes ``$`` literally in the path of the program, and as a variable in its arguments. It refuses
    programs with quotes or backslashes in their paths.
    """
    program, *subcommand = command.program
    if re.search(r"[\"'\\]", program):
        raise _unfit(ServerFormat.SYSTEMD, f"the program {program!r}", "it has a quote or a backslash")
    options = (" ".join(map(_systemd_argument, option.words)) for option in command.options)
    started = " ".join((_systemd_word(program), *map(_systemd_argument, subcommand)))
    start = " \\\n    ".join((started, *options))
    variables = "".join(
        f"Environment={_systemd_word(f'{name}={value}')}\n" for name, value in command.environment.items()
    )
    return f"""\
[Unit]
Description=llama-server as tuned by ggufspec ({command.name})

[Service]
{variables}ExecStart={start}
Restart=on-failure

[Install]
WantedBy=default.target
"""


def _systemd_word(word: str) -> str:
    if _PLAIN.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _systemd_argument(word: str) -> str:
    return _systemd_word(word).replace("$", "$$")


def _compose(command: ServerCommand) -> str:
    """Return a Compose file that mounts the models where they are, so that the options stay the same."""
    backend = command.build.backend or "cpu"
    if backend not in _IMAGES:
        raise GgufspecError(
            f"there is no image of llama.cpp for the backend {backend}", "use another format, such as systemd"
        )
    number = _BUILD.search(command.build.version or "")
    image = f"{_IMAGE}{_IMAGES[backend]}{f'-b{number[1]}' if number else ''}"
    port = command.value("--port") or _PORT
    words = [word for option in command.without("--host", "--port").options for word in option.words]
    service: dict[str, Any] = {
        "image": f"${{LLAMA_IMAGE:-{image}}}",
        "command": [*map(_compose_word, words), "--host", _ANYWHERE, "--port", port],
        "ports": [
            {"host_ip": command.value("--host") or "127.0.0.1", "published": port, "target": int(port)}
        ],
        "volumes": [
            {
                "type": "bind",
                "source": _compose_word(str(file.resolve())),
                "target": _compose_word(str(file)),
                "read_only": True,
            }
            for file in command.files
        ],
        "restart": "unless-stopped",
    }
    variables = {
        name: _compose_word(value)
        for name, value in command.environment.items()
        if not name.startswith(("LD_", "DYLD_"))  # libraries of this machine
    }
    if variables:
        service["environment"] = variables
    if backend == "cuda":
        gpus = {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [gpus]}}}
    if backend in _DEVICES:
        service["devices"] = _DEVICES[backend]
    return (
        f"# llama-server as tuned by ggufspec ({command.name}).\n"
        "# The image has another build of llama.cpp than the one that was tuned, and may be slower;\n"
        "# LLAMA_IMAGE names another one.\n"
        f"{_yaml({'services': {'llama-server': service}})}"
    )


def _compose_word(word: str) -> str:
    return word.replace("$", "$$")  # otherwise a variable


def _llama_swap(command: ServerCommand) -> str:
    """Return a configuration of llama-swap, which splits the command as a shell does, and knows macros."""
    for word in (*command.argv, *command.environment.values()):
        if "${" in word:
            raise _unfit(ServerFormat.LLAMA_SWAP, repr(word), "it takes ${ as the beginning of a macro")
    words = command.without("--host", "--port").argv
    model: dict[str, Any] = {"cmd": f"{shlex.join(words)} --host 127.0.0.1 --port ${{PORT}}"}
    model["proxy"] = "http://127.0.0.1:${PORT}"
    if command.environment:
        model["env"] = [f"{name}={value}" for name, value in command.environment.items()]
    return f"# llama-server as tuned by ggufspec.\n{_yaml({'models': {command.name: model}})}"


def _preset(command: ServerCommand) -> str:
    """Return a file for ``llama-server --models-preset``, whose values have no quotes and no escapes.

    Its grammar is in llama.cpp's common/preset.cpp: a value ends at the line's end or at a comment, without
    the blanks before that; a key that repeats replaces the one before it.
    """
    lines: dict[str, str] = {}
    for option in command.without(*_OF_ROUTER).options:
        key, value = option.flag.lstrip("-"), "true" if option.value is None else option.value
        if value != value.strip() or re.search("[;#]", value) or not value:
            what = f"the value {value!r} of {option.flag}"
            raise _unfit(ServerFormat.PRESET, what, "it has no quotes, and # and ; begin comments")
        if key in lines:
            raise _unfit(ServerFormat.PRESET, f"{option.flag} twice", "the last one replaces the others")
        lines[key] = value
    variables = "".join(
        f"; start llama-server with {name}={value}\n" for name, value in command.environment.items()
    )
    settings = "".join(f"{key} = {value}\n" for key, value in lines.items())
    return f"; llama-server as tuned by ggufspec.\n{variables}version = 1\n\n[{command.name}]\n{settings}"


def _env(command: ServerCommand) -> str:
    """Return variables that llama-server reads, for a shell or for systemd's EnvironmentFile.

    Raises:
        GgufspecError: no variable stands for an option.
    """
    threads = command.value("--threads")
    variables = dict(command.environment)
    for option in command.options:
        if option.means(*_AS_MANY_THREADS) and option.value == threads:
            continue  # the default
        if option.variable is None and option.is_default:
            continue
        if option.variable is None:
            raise GgufspecError(
                f"llama-server has no variable for {option.flag}", "use another format: --export systemd"
            )
        variables[option.variable] = _truth(option) if option.value is None else option.value
    lines = "".join(f"{name}={_env_value(value)}\n" for name, value in variables.items())
    program = " ".join(command.program)
    return f"# Variables for llama-server as tuned by ggufspec ({command.name}): {program}\n{lines}"


def _truth(option: ServerOption) -> str:
    """Return whether an option without a value turns something on."""
    name = option.flag.lstrip("-")
    turns_off = name.startswith("no-") and f"--{name.removeprefix('no-')}" in option.spellings
    return "0" if turns_off else "1"


def _env_value(value: str) -> str:
    """Return a value that a POSIX shell and systemd read alike."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["$`\\])', r"\\\1", value) + '"'


def _yaml(value: Mapping[str, Any]) -> str:
    import yaml  # no other command needs it

    text: str = yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True, width=float("inf"))
    return text


def _unfit(form: ServerFormat, what: str, why: str) -> GgufspecError:
    return GgufspecError(f"the format {form} cannot hold {what}: {why}", "use another format, or rename it")


_EXPORTS: Mapping[ServerFormat, Callable[[ServerCommand], str]] = MappingProxyType(
    {
        ServerFormat.SYSTEMD: _systemd,
        ServerFormat.COMPOSE: _compose,
        ServerFormat.LLAMA_SWAP: _llama_swap,
        ServerFormat.PRESET: _preset,
        ServerFormat.ENV: _env,
    }
)
