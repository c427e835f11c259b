"""Remove secrets from environments and from text.

llama.cpp, compilers, build scripts and git do not need access tokens. Their environment contains none, so
that nothing they run, print or upload can leak one. A variable is a secret by its name (``HF_TOKEN``,
``AWS_SECRET_ACCESS_KEY``) or by its value (a known token format, or an address with credentials).

In messages and logs, ``***`` replaces credentials and queries of addresses, authorization headers and tokens.
A query can hold a signature under any name (X-Amz-Signature, Policy, sig), so all of it is replaced.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
"""Variables, in lower case, that programs need for network access even if they hold a password."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of API_KEY, apiKey and api-key
_SECRET_WORDS = frozenset(
    {"auth", "bearer", "cookie", "dsn", "jwt", "key", "keys", "pass", "pat", "psk", "pwd", "token", "tokens"}
)
_SECRET_PARTS = ("apikey", "credential", "passphrase", "passwd", "password", "secret")
_SECRET_ENDS = ("accesskey", "privatekey", "token")
_NOT_SECRET = frozenset({"PWD", "OLDPWD", "SSH_AUTH_SOCK"})  # folders, and the socket of the SSH agent
_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^\s/?#\"'<>]+)@", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{12,}|eyJ[\w-]{8,}\.[\w-]{8,}\.)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:Bearer|Basic) [\w+/=.~-]{8,}"
)

_PUBLISHED = re.compile(
    r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}|\bgh[opusr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
    r"|\bsk-[\w-]{16,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[A-Z0-9]{12,}|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|(?<=[Bb]earer )[\w+/=.~-]{16,}|(?<=[Bb]asic )(?=\S*\d)[\w+/=.~-]{16,}",
    re.DOTALL,
)
"""Tokens in a text that is to be read by others; what may be an ordinary word, such as "Basic", stays."""

_HIDDEN = "***"
_PATTERNS = (
    (re.compile(r"\?[\w.~%+\[\]-]+=[^\s'\"<>]*"), f"?{_HIDDEN}"),
    (
        re.compile(
            r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]*(?:token|signature|credential)[\w-]*)"
            r"(['\"]?\s*[:,=]\s*b?['\"]?)[^'\"\r\n]+",
            re.IGNORECASE,
        ),
        rf"\1\2{_HIDDEN}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {_HIDDEN}"),
    (re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{16,}"), rf"\1_{_HIDDEN}"),
)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables that hold a secret."""
    return {name: value for name, value in environ.items() if not is_secret(name, value)}


def without_token_option(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line without --token, llama-server's --api-key, and their values."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in {"--token", "--api-key"}:
            next(rest, None)
        elif not word.startswith("--token="):
            kept.append(word)
    return tuple(kept)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a token, a password, a key, or an address with credentials."""
    if name in _NOT_SECRET:
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    joined = "".join(words)
    return (
        not _SECRET_WORDS.isdisjoint(words)
        or any(part in joined for part in _SECRET_PARTS)
        or any(word.endswith(_SECRET_ENDS) for word in words)
        or _TOKEN.search(value) is not None
        or without_credentials(value) != value
    )


def without_credentials(text: str) -> str:
    """Return a text in which ``***`` replaces the credentials of every address.

    A user name without a password stays in an SSH address (``ssh://git@host``). In ``https://name@host`` the
    name may be a token.
    """
    return _ADDRESS.sub(_hide_credentials, text)


def redact(text: str) -> str:
    """Return a text in which ``***`` replaces credentials, queries, authorization headers and tokens."""
    text = without_credentials(text)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def without_tokens(text: str) -> str:
    """Return a text in which ``***`` replaces tokens, private keys and the credentials of addresses.

    It is for texts that are published: unlike ``redact``, it changes no sentence about "basic" things.
    """
    return _PUBLISHED.sub(_HIDDEN, without_credentials(text))


class Redacting(logging.Filter):
    """Removes secrets from every log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record's message and its exception text."""
        record.msg, record.args = redact(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = redact(logging.Formatter().formatException(record.exc_info))
        return True


def _hide_credentials(match: re.Match[str]) -> str:
    login_only = ":" not in match["user"] and "ssh" in match["scheme"].lower()
    return match[0] if login_only else f"{match['scheme']}://{_HIDDEN}@"
