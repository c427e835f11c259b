"""Print pip's settings as the environment variables of uv, which reads neither pip.conf nor PIP_* variables.

One ``NAME=value`` a line. uv merges nothing from several indexes by default; pip takes the best version of
all of them, and so does uv with the strategy set here. Variables of uv that are set already win.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

SECTIONS = ("global.", "install.", ":env:.")  # a later one wins, as in pip
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
}
_SEPARATORS = {"UV_FIND_LINKS": ","}  # a space in all others


def translate(listing: str) -> dict[str, str]:
    """Return uv's variables for what ``pip config list`` prints."""
    settings: dict[str, str] = {}
    entries = [line.partition("=") for line in listing.splitlines() if "=" in line]
    for section in SECTIONS:
        for key, _, value in entries:
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}
    for name, variable in VARIABLES.items():
        if words := settings.get(name, "").split():
            variables[variable] = _SEPARATORS.get(variable, " ").join(words)
    return variables


def missing(variables: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return those that the environment does not set."""
    return {name: value for name, value in variables.items() if name not in environ}


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    listing = subprocess.run(pip, capture_output=True, text=True, check=True).stdout
    for name, value in missing(translate(listing), os.environ).items():
        print(f"{name}={value}")
