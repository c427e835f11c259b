"""What must not be published, and one function that replaces it everywhere in the same way.

Names are replaced by placeholders that are different for different names, so that paths and command lines
stay readable and arms stay apart.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
from html import escape
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from ggufspec.domain import Endpoint, FileUse, ModelFile
from ggufspec.redaction import HIDDEN, is_secret, token_spans
from ggufspec.results import ResultSet

Value = TypeVar("Value")

_LEAST_SECRET = 8  # characters; a shorter value of a variable is no token, and may be a word of a log
_LEAST_NAME = 3  # characters of a name that is replaced outside of paths
_ORDINARY = (
    "admin debian docker ec2-user guest home jovyan localhost nobody public root runner shared ubuntu user "
    "users vscode www-data"
)
"""Names of users and hosts that name nobody. They are replaced in paths only."""
_PART = r"[^/\s\"'\\:,;<>|*]+"  # of a path
_HOMES = rf"(?:/(?:var/|export/|usr/|data/)?home|/Users)/{_PART}"
_HOME = re.compile(_HOMES)
_REPOSITORY = re.compile(
    r"models--(?P<owner>[A-Za-z0-9][\w.-]*?)--(?P<name>[A-Za-z0-9][\w.-]*)"
    r"|(?:huggingface\.co|hf\.co)/(?P<owner2>[A-Za-z0-9][\w.-]*)/(?P<name2>[A-Za-z0-9][\w.-]*[A-Za-z0-9])"
)
_SERVED_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ENDING = re.compile(r"[-_.]gguf$", re.IGNORECASE)
_METADATA = re.compile(
    r"(general\.(?:name|basename|finetune|description|author|organization|url|repo_url|doi|uuid|tags"
    r"|quantized_by|source\.[\w.]+|base_model\.[\w.]+|dataset\.[\w.]+)\b[^=\n]*=)[^\n]*"
)
_KEPT = "content sha256 revision quant type_k type_v flash_attn numa started_at backend commit"
"""Fields of texts that are hashes, dates or words of llama.cpp."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who publishes: names of users and hosts, home folders, and values that give access."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


def read_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """Return the identity of the user of this process."""
    try:
        login = getpass.getuser()
    except (OSError, KeyError):  # a container may run a user without a name
        login = ""
    home = Path.home()
    users = (login, home.name, *(environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")))
    secrets = (value for name, value in environ.items() if is_secret(name, value))
    return Identity(
        users=_distinct((*users, *_full_name())),
        hosts=_distinct((platform.node(), environ.get("HOSTNAME", ""))),
        homes=_distinct((str(home), str(home.resolve()))),
        secrets=_distinct(value for value in secrets if len(value) >= _LEAST_SECRET),
    )


def _full_name() -> tuple[str, ...]:
    """Return the user's full name, as the system knows it."""
    try:
        import pwd

        return (pwd.getpwuid(os.getuid()).pw_gecos.partition(",")[0],)
    except (ImportError, KeyError):
        return ()


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Replaces tokens and what matches a pattern, all found in the text as it was written.

    A token may stand in the name of a folder, and a folder's path in an address with a token. So one is not
    replaced before the other is looked for.

    Attributes:
        patterns: each with its placeholder; of two that match at one place, the first one counts.
        secrets: values that give access, however they are written.
        hides_metadata: whether logs also lose what a model's file says of its origin.
    """

    patterns: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    hides_metadata: bool = False

    def __call__(self, text: str) -> str:
        """Return a text without anything private."""
        private = [*token_spans(text)]
        if self._secret is not None:
            private += [(*match.span(), HIDDEN) for match in self._secret.finditer(text)]
        if self.patterns:
            private += [
                (*match.span(), self.patterns[int(str(match.lastgroup)[1:])][1])
                for match in self._pattern.finditer(text)
            ]
        pieces, end = [], 0
        # of two that begin at one character the longer one first: it may be all that is replaced there
        for start, stop, placeholder in sorted(private, key=lambda span: (span[0], -span[1])):
            if start >= end:
                pieces += [text[end:start], placeholder]
            elif stop > end:
                pieces.append(HIDDEN)  # a token that begins in a path or a name and ends behind it
            end = max(end, stop)
        return "".join((*pieces, text[end:]))

    def redact_log(self, log: bytes) -> bytes:
        """Return a log without anything private; all other bytes stay, whatever their encoding."""
        text = log.decode(errors="surrogateescape")
        text = _METADATA.sub(r"\1 ***", text) if self.hides_metadata else text
        return self(text).encode(errors="surrogateescape")

    def redact_value(self, value: Value) -> Value:
        """Return a value with all of its texts redacted, except those that have a meaning for ggufspec."""
        redacted: Value = _map_texts(value, self)
        return redacted

    @cached_property
    def _secret(self) -> re.Pattern[str] | None:
        written = dict.fromkeys(form for secret in self.secrets for form in _written_forms(secret))
        longest_first = sorted(written, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE) if written else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?P<p{n}>{pattern})" for n, (pattern, _) in enumerate(self.patterns)))


def _written_forms(secret: str) -> tuple[str, ...]:
    """Return a value as it is, and as JSON, Python, a URL, HTML and a shell write it."""
    return (
        *(secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]),
        *(quote(secret), quote(secret, safe=""), quote_plus(secret), escape(secret), shlex.quote(secret)),
    )


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Path):
        return Path(change(str(value)))
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            field.name: _map_texts(getattr(value, field.name), change)
            for field in fields(value)
            if field.init and field.name not in _KEPT.split()
        }
        return replace(value, **changed)
    if isinstance(value, Mapping):
        return {change(key): _map_texts(item, change) for key, item in value.items()}
    if type(value) is tuple:
        return tuple(_map_texts(item, change) for item in value)
    return value


def find_repositories(benches: Iterable[ResultSet], logs: Iterable[bytes]) -> tuple[str, ...]:
    """Return the Hub's repositories that benches and their logs name, such as ``owner/name``."""
    texts = (log.decode(errors="replace") for log in logs)
    benches = list(benches)
    return _distinct(
        (
            *(model.repo for bench in benches for model in _models(bench) if model.repo),
            *(
                name
                for bench in benches
                for endpoint in _endpoints(bench)
                for name in (endpoint.model, endpoint.model_path)
                if name is not None and _SERVED_REPOSITORY.fullmatch(name)
            ),
            *(
                f"{match['owner'] or match['owner2']}/{match['name'] or match['name2']}"
                for text in (*_recorded_texts(benches), *texts)
                for match in _REPOSITORY.finditer(text)
            ),
        )
    )


def make_redactor(
    benches: Iterable[ResultSet],
    logs: Iterable[bytes],
    identity: Identity,
    private: Collection[str],
    *,
    is_word: Callable[[str], bool] = lambda _: False,
) -> Redactor:
    """Return the redactor for some benches.

    Args:
        benches: what is published.
        logs: their raw logs; they may name home folders of other machines.
        identity: of the user who publishes.
        private: repositories whose names are private, such as ``owner/name``.
        is_word: whether replacing a pattern would change a figure of a log, because a name is a word of
            llama.cpp's; such a name is replaced in paths only.
    """
    benches = list(benches)
    texts = (*_recorded_texts(benches), *(log.decode(errors="replace") for log in logs))
    users = _distinct(
        (
            *identity.users,
            *(match[0].rpartition("/")[2].rstrip(".") for text in texts for match in _HOME.finditer(text)),
        )
    )
    hosts = _distinct(
        name
        for host in (*identity.hosts, *(bench.meta.machine.hostname for bench in benches))
        for name in (host, host.partition(".")[0])
    )
    hosts = _distinct((*hosts, *_worker_hosts(benches)))
    return Redactor(
        patterns=(
            *_address_patterns(benches),
            *_repository_patterns(private, is_word),
            *_folder_patterns(benches),
            *_home_patterns(identity.homes),
            *_name_patterns(hosts, "host", is_word),
            *_name_patterns(users, "user", is_word),
        ),
        secrets=identity.secrets,
        hides_metadata=bool(private),
    )


def _worker_hosts(benches: Iterable[ResultSet]) -> Iterator[str]:
    """Yield the names and addresses of the machines on which workers were; a loopback address names none."""
    for bench in benches:
        of_runs = (address for spec in bench.runs.specs for address in spec.offload.rpc)
        for address in (*(worker.address for worker in bench.meta.workers), *of_runs):
            host = address.rpartition(":")[0]
            if host != "localhost" and not host.startswith("127."):
                yield host


def _address_patterns(benches: Iterable[ResultSet]) -> Iterator[tuple[str, str]]:
    """Yield the patterns of running servers' addresses; those of this machine itself say nothing."""
    urls = _distinct(endpoint.url for bench in benches for endpoint in _endpoints(bench))
    hosts = _distinct(urlsplit(url).hostname or "" for url in urls)
    aliases = {host: f"server-{number}" for number, host in enumerate(hosts, start=1) if not _is_local(host)}
    for url in sorted(urls, key=len, reverse=True):
        parts = urlsplit(url)
        if parts.hostname in aliases:
            yield rf"{re.escape(url)}(?![\w-])", f"{parts.scheme}://{aliases[parts.hostname]}"
    for host in sorted(aliases, key=len, reverse=True):
        yield rf"(?i:(?<![\w.-])\[?{re.escape(host)}\]?(?::\d+)?(?![\w-]))", aliases[host]


def _is_local(host: str) -> bool:
    """Whether an address is that of the machine itself."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _home_patterns(homes: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the patterns of home folders; folders in them, which may name a project, are replaced, too."""
    homes_pattern = "|".join(rf"{re.escape(home)}(?![\w-])" for home in (*_long_paths(homes), "/root"))
    home = rf"(?<![\w.~-])(?:{homes_pattern}|{_HOMES})"
    yield rf"{home}(?:/{_PART})+(?=/{_PART})", "~/…"
    yield home, "~"


def word_pattern(name: str) -> str:
    """Return the pattern of a name as a word."""
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"


def _name_patterns(
    names: Iterable[str], noun: str, is_word: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield the patterns of users or hosts, longer names first; each name has a placeholder of its own."""
    placeholders = {name: f"{noun}-{number}" for number, name in enumerate(names, start=1)}
    for name in sorted(placeholders, key=len, reverse=True):
        escaped, word = re.escape(name), word_pattern(name)
        if len(name) >= _LEAST_NAME and name.lower() not in _ORDINARY.split() and not is_word(word):
            yield word, placeholders[name]
        else:
            yield (
                rf"(?<=/){escaped}(?=/)|(?<![\w.-]){escaped}(?=@)|(?<=@){escaped}(?![\w])",
                placeholders[name],
            )


def _repository_patterns(
    private: Collection[str], is_word: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield the patterns of private repositories: complete, as a cache's folder, and their names alone."""
    for number, repository in enumerate(sorted(private, key=lambda name: (-len(name), name)), start=1):
        owner, _, name = repository.rpartition("/")
        both = re.escape(owner), re.escape(name)
        yield rf"(?i:{both[0]}/{both[1]})(?![A-Za-z0-9])", f"private/model-{number}"
        yield rf"(?i:models--{both[0]}--{both[1]})(?![A-Za-z0-9])", f"models--private--model-{number}"
        for word in dict.fromkeys((name, _ENDING.sub("", name))):
            if len(word) > _LEAST_NAME and not is_word(f"(?i:{word_pattern(word)})"):
                yield f"(?i:{word_pattern(word)})", f"model-{number}"
    for owner in dict.fromkeys(name.rpartition("/")[0] for name in private):
        if len(owner) > _LEAST_NAME and not is_word(f"(?i:{word_pattern(owner)})"):
            yield f"(?i:{word_pattern(owner)})", "private"


def _folder_patterns(benches: Iterable[ResultSet]) -> Iterator[tuple[str, str]]:
    """Yield the patterns of folders of llama.cpps and models, which may name projects; longer ones first."""
    placeholders: dict[str, str] = {}
    for bench in benches:
        builds = (bench.meta.build, *bench.meta.builds.values())
        programs = [file for file in bench.meta.files or () if file.use is not FileUse.MODEL]
        weights = [file for file in bench.meta.files or () if file.use is FileUse.MODEL]
        started = {argv[0] for argv in dict.fromkeys(bench.runs.column("argv")) if argv}
        paths = [str(model.path) for model in _models(bench) if model.path is not None]
        for noun, folders in {
            "/llama.cpp": (
                *(build.path for build in builds),
                *map(_folder, (file.path for file in programs)),
            ),
            "/models": (
                *map(_folder, paths),
                *map(_folder, (file.path for file in weights)),
                *map(_folder, _served_paths(bench)),
            ),
            "/programs": map(_folder, sorted(started)),  # such as the Python of a worker
        }.items():
            for folder in _long_paths(folders):
                number = sum(name.startswith(noun) for name in placeholders.values())
                placeholders.setdefault(folder, noun if number == 0 else f"{noun}-{number + 1}")
    for folder in sorted(placeholders, key=len, reverse=True):
        yield rf"(?<![\w.~-]){re.escape(folder)}(?![\w-])(?!\.\w)", placeholders[folder]


def _long_paths(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the absolute paths that are not the root of the file system, without a slash at the end."""
    return _distinct(path.rstrip("/") for path in paths if path.startswith("/"))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _models(bench: ResultSet) -> Iterator[ModelFile]:
    pairs = dict.fromkeys(spec.pair for spec in bench.runs.specs)
    return (model for pair in pairs for model in pair.models)


def _endpoints(bench: ResultSet) -> Iterator[Endpoint]:
    """Yield the servers that ran already."""
    urls = dict.fromkeys(spec.servers for spec in bench.runs.specs if spec.servers is not None)
    yield from (endpoint for servers in urls for endpoint in servers.endpoints)


def _served_paths(bench: ResultSet) -> Iterator[str]:
    """Yield the paths of models on the machines of running servers."""
    for endpoint in _endpoints(bench):
        yield from (name for name in (endpoint.model, endpoint.model_path) if name and name.startswith("/"))


def _recorded_texts(benches: Iterable[ResultSet]) -> Iterator[str]:
    """Yield the texts of benches in which paths can stand."""
    for bench in benches:
        meta = bench.meta
        yield from meta.command
        yield from (build.path for build in (meta.build, *meta.builds.values()))
        yield from (file.path for file in meta.files or ())
        yield from (meta.environment or {}).values()
        yield from (str(model.path) for model in _models(bench) if model.path is not None)
        yield from _served_paths(bench)
        for words in dict.fromkeys(bench.runs.column("argv")):
            yield from words


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))
