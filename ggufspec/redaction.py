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
from collections.abc import Iterator, Mapping, Sequence

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
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[\d;\[]m))"
"""Where a short prefix begins a token: behind no letter, or behind an escape of JSON, a URL or a terminal."""

_FORMATS = "|".join(
    (
        # whatever is before it: no word contains such a prefix with so many letters behind it
        r"(?:hf|api_org)_[A-Za-z0-9]{16,}",  # Hugging Face
        r"gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}",  # GitHub, GitLab
        r"AIza[\w-]{30,}|GOCSPX-[\w-]{20,}|ya29\.[\w.-]{20,}",  # Google: API, OAuth client, access
        r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{32,}",
        r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,}",  # Stripe
        r"(?:AKIA|ASIA)[A-Z0-9]{12,}",  # AWS
        # Azure: connection strings, signed addresses, client secrets, storage keys (64 bytes in base64)
        r"(?:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{16,}={0,2}",
        r"sig=[\w%+=-]{16,}",
        r"[\w~.-]{3}8Q~[\w~.-]{28,}",
        r"[A-Za-z0-9+/]{86}==",
        r"xox[abeprs]-[\w-]{10,}|xapp-[\w-]{16,}",  # Slack
        r"gsk_[A-Za-z0-9]{20,}|nvapi-[\w-]{20,}|sk-(?:ant|or|proj|svcacct)-[\w-]{12,}",  # hosts of models
        r"-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        # only at the start of a word, because words end like that: "task-…", "keyJson…"
        rf"{_START}(?:sk-[\w-]{{16,}}|r8_[A-Za-z0-9]{{20,}}|xai-[A-Za-z0-9]{{20,}})",
        rf"eyJ[\w-]{{8,}}\.eyJ[\w-]{{4,}}\.[\w-]*|{_START}eyJ[\w-]{{8,}}\.[\w-]{{8,}}\.[\w-]*",  # web tokens
    )
)
_TOKEN = re.compile(rf"{_FORMATS}|\b(?:Bearer|Basic) [\w+/=.~-]{{8,}}", re.DOTALL)
_PUBLISHED = re.compile(
    rf"{_FORMATS}|(?<=[Bb]earer )[\w+/=.~-]{{16,}}|(?<=[Bb]asic )(?=\S*\d)[\w+/=.~-]{{16,}}", re.DOTALL
)
"""Tokens in a text that is to be read by others; what may be an ordinary word, such as "Basic", stays."""

SECRET_OPTIONS = frozenset({"--token", "--hf-token", "-hft", "--api-key"})
"""Options whose value is a secret, here and in llama.cpp."""

HIDDEN = "***"
_PATTERNS = (
    (re.compile(r"\?[\w.~%+\[\]-]+=[^\s'\"<>]*"), f"?{HIDDEN}"),
    (
        re.compile(
            r"\b((?:proxy-)?authorization|(?:set-)?cookie|x-[\w-]*(?:token|signature|credential)[\w-]*)"
            r"(['\"]?\s*[:,=]\s*b?['\"]?)[^'\"\r\n]+",
            re.IGNORECASE,
        ),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"(hf|api_org)_[A-Za-z0-9]{16,}"), rf"\1_{HIDDEN}"),
    (re.compile(_FORMATS, re.DOTALL), HIDDEN),
)


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without variables that hold a secret."""
    return {name: value for name, value in environ.items() if not is_secret(name, value)}


def without_token_option(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line without options for secrets, and their values."""
    kept, rest = [], iter(words)
    for word in rest:
        if word in SECRET_OPTIONS:
            next(rest, None)
        elif word.partition("=")[0] not in SECRET_OPTIONS:
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


def token_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where tokens, private keys and credentials of addresses stand, and what replaces each of them.

    It is for texts that are published: unlike ``redact``, it finds nothing in a sentence about "basic"
    things. Tokens may overlap with credentials.
    """
    for match in _ADDRESS.finditer(text):
        if _hide_credentials(match) != match[0]:
            yield (*match.span("user"), HIDDEN)
    for match in _PUBLISHED.finditer(text):
        yield (*match.span(), HIDDEN)


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
    return match[0] if login_only else f"{match['scheme']}://{HIDDEN}@"
