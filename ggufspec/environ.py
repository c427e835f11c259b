"""Which environment variables hold a secret, and text without the credentials in its addresses.

llama.cpp, compilers, build scripts and git need no access token. They get an environment without any, so
that nothing that they run, print or upload can contain one. Names decide first (``HF_TOKEN``,
``AWS_SECRET_ACCESS_KEY``), then values: a known form of token, or an address with credentials in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
"""Variables, in lower case, that programs which use the network need even where they hold a password."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of API_KEY, apiKey and api-key
_SECRET_WORDS = frozenset(
    {"auth", "bearer", "cookie", "dsn", "jwt", "key", "keys", "pass", "pat", "psk", "pwd", "token", "tokens"}
)
_SECRET_PARTS = ("apikey", "credential", "passphrase", "passwd", "password", "secret")
_SECRET_ENDS = ("accesskey", "privatekey", "token")
_HARMLESS = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})  # folders, and where the agent that keeps keys is
_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^\s/?#\"'<>]+)@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{12,}|eyJ[\w-]{8,}\.[\w-]{8,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:Bearer|Basic) [\w+/=.~-]{8,}"
)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that hold a secret."""
    return {name: value for name, value in environ.items() if not is_secret(name, value)}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a token, a password, a key, or an address with credentials."""
    if name in _HARMLESS:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    plain = "".join(words)
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or any(part in plain for part in _SECRET_PARTS)
        or any(word.endswith(_SECRET_ENDS) for word in words)
        or _TOKEN.search(value) is not None
        or without_credentials(value) != value
    )


def without_credentials(text: str) -> str:
    """Return a text in which ``***`` stands for the credentials of every address.

    A user name without a password stays where it is no secret: ``ssh://git@host`` is an address, while
    ``https://name@host`` may well carry a token for a name.
    """
    return _ADDRESS.sub(_hide, text)


def _hide(match: re.Match[str]) -> str:
    login_only = ":" not in match["user"] and "ssh" in match["scheme"].lower()
    return match[0] if login_only else f"{match['scheme']}://***@"
