"""From a model's name to its bytes: a cached file's path, or an open header, here or on the Hub.

A header on the Hub is read by HTTP range, so that a few megabytes tell what gigabytes hold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from huggingface_hub import constants, utils

from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import CorruptDownloadError, ModelFileError, NotCachedError
from ggufspec.hosts import BrokenAnswerError
from ggufspec.modelfiles.gguf import HeaderSource, ModelCard, open_parts, parse_complete
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.cache import refuse_damage
from ggufspec.modelfiles.hub.choice import split_names
from ggufspec.modelfiles.hub.client import Access, Subject, call, file_size
from ggufspec.modelfiles.hub.limits import LEAST_BYTES_PER_S, LeastRate

_FIRST_BYTES = 1 << 20
_FETCH_IT = "fetch the file, then give its path"
_CONTENT_RANGE = re.compile(r"bytes\s+(\d{1,19})-(\d{1,19})/(\d{1,19}|\*)", re.ASCII)


class RemoteFile:
    """A GGUF on the Hub as a source for ``gguf.parse_header``, which reads from front to back.

    Args:
        repo: the repository.
        filename: the file within it.
        revision: a branch, a tag or a commit.
        access: how the Hub may be asked.

    Raises:
        GgufspecError: the file is not available; the class says why.
    """

    def __init__(self, repo: str, filename: str, revision: str, access: Access) -> None:
        self._subject = Subject(repo=repo, filename=filename, revision=revision)
        self._access = access
        self._name = f"{repo}/{filename}"
        self._url = access.url(repo, filename, revision)
        self._ask_size = partial(file_size, repo, filename, revision, access)
        self._size: int | None = None
        self._front = self._range(0, _FIRST_BYTES)

    @property
    def size(self) -> int:
        """The size of the complete file in bytes, as the server states it."""
        if self._size is None:  # it was sent without
            self._size = self._ask_size()
        if self._size is None:
            raise CorruptDownloadError(
                f"{self._access.host} does not state the size of {self._name}", _FETCH_IT
            )
        return self._size

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""
        end = min(offset + n, self.size)
        front = self._front[offset:end]
        start = offset + len(front)
        return front + self._range(start, end) if start < end else front

    def _range(self, start: int, end: int) -> bytes:
        body_s = (end - start) / LEAST_BYTES_PER_S
        return call(partial(self._request, start, end), self._subject, self._access, more_s=body_s)

    def _request(self, start: int, end: int) -> bytes:
        """Ask for the bytes from ``start`` to ``end``, and learn the file's size from the answer.

        Raises:
            BrokenAnswerError: fewer bytes came than are there, or they came too slowly.
            CorruptDownloadError: the server sends other bytes, or from a file that has changed meanwhile.
        """
        headers = self._access.headers() | {"Range": f"bytes={start}-{end - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with utils.get_session().stream(
            "GET", self._url, headers=headers, timeout=timeout, follow_redirects=True
        ) as response:
            if start == 0 and response.status_code == 416:  # an empty file has no first byte
                self._learn_size(0)
                return b""
            utils.hf_raise_for_status(response)
            if response.status_code == 206:
                part = read_content_range(response.headers)
                if part is None or part.first != start:
                    raise CorruptDownloadError(
                        f"{self._access.host} does not state which part of {self._name} it sends", _FETCH_IT
                    )
                total = part.total_bytes
            elif start == 0:  # the server knows no ranges: take the front, drop the rest
                length = response.headers.get("Content-Length")
                total = None if length is None else int(length)
            else:
                raise CorruptDownloadError(
                    f"{self._access.host} ignores the range in a request for {self._name}", _FETCH_IT
                )
            self._learn_size(total)
            body, rate = bytearray(), LeastRate()
            for chunk in response.iter_raw():
                rate.count(len(chunk))
                body += chunk
                if len(body) >= end - start:
                    break
        due = min(end, self.size) - start
        if len(body) < due:
            raise BrokenAnswerError(f"{self._name} ended after {len(body)} of {due} bytes from {start}")
        return bytes(body[: end - start])

    def _learn_size(self, stated: int | None) -> None:
        if stated is None:
            return
        if self._size not in (None, stated):
            raise CorruptDownloadError(
                f"{self._name} had {self._size} bytes, and now has {stated}: it was changed meanwhile",
                "run the same command again",
            )
        self._size = stated


@dataclass(frozen=True, kw_only=True)
class ContentRange:
    """The bytes from ``first`` to ``last`` of a file; its size where the server knows it."""

    first: int
    last: int
    total_bytes: int | None


def read_content_range(headers: Mapping[str, str]) -> ContentRange | None:
    """Return what Content-Range states (RFC 9110, section 14.4); None where it is missing or malformed."""
    match = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
    if match is None:
        return None
    first, last = int(match[1]), int(match[2])
    total = None if match[3] == "*" else int(match[3])
    if first > last or (total is not None and last >= total):
        return None
    return ContentRange(first=first, last=last, total_bytes=total)


def resolve(pair: Pair, *, offline: bool, access: Access | None = None) -> Pair:
    """Return the pair with the paths of its files on this machine; nothing is downloaded.

    Args:
        pair: files with a path, or with repository and name.
        offline: only decides what the hint of an error recommends.
        access: where the cache is, if not at its usual place.

    Raises:
        ModelFileError: a local file is missing.
        NotCachedError: a file of the Hub or one of its parts is not on this machine.
    """
    access = access or Access(offline=offline)
    hint = f"ggufspec fetch {pair.name}" + (" (without --offline)" if access.is_offline else "")
    return pair.with_models(lambda model: _placed(model, access, hint))


def read_card(model: ModelFile, access: Access | None = None, *, pair: Pair | None = None) -> ModelCard:
    """Read a model's header: from this machine, or from the Hub by HTTP range.

    Args:
        model: a model with a path or a repository.
        access: access to the Hub.
        pair: the pair that it belongs to, for the command that restores a damaged file.

    Raises:
        GgufspecError: the model is not available, its header is damaged, or its files are not complete.
    """
    access = access or Access()
    path = _local_path(model, access)
    if path is not None:
        refuse_damage(replace(model, path=path), pair, read=False)
    return parse_complete(open_headers(model, access))


def open_headers(model: ModelFile, access: Access) -> dict[str, HeaderSource]:
    """Open the files of a model, each for ``gguf.parse_header``, by their names in messages.

    Raises:
        GgufspecError: it is neither on this machine nor available on the Hub.
    """
    path = _local_path(model, access)
    if path is not None:
        return open_parts(path)
    assert model.repo is not None
    if access.is_offline:
        raise NotCachedError(f"{model.reference} is not in the cache", "leave out --offline, or fetch it")
    revision = model.revision or "main"
    return {
        f"{model.repo}/{name}": RemoteFile(model.repo, name, revision, access)
        for name in split_names(model.filename)
    }


def _local_path(model: ModelFile, access: Access) -> Path | None:
    """Return a model's path on this machine; None if it is not here."""
    if model.path is not None:
        return model.path
    assert model.repo is not None
    return cache.find_cached_file(model.repo, model.filename, model.revision, access)


def _placed(model: ModelFile, access: Access, hint: str) -> ModelFile:
    path = _local_path(model, access)
    if path is None:
        raise NotCachedError(f"{model.reference} is not on this machine", hint)
    if not path.is_file():
        raise ModelFileError(f"there is no file {path}", "check the path, or fetch the pair again")
    return model if model.path is not None else replace(model, path=path, size_bytes=path.stat().st_size)
