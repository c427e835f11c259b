"""From a model's name to its bytes: a cached file's path, or an open header, here or on the Hub.

A header on the Hub is read by HTTP range, so that a few megabytes tell what gigabytes hold.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants, utils

from ggufspec import hosts
from ggufspec.domain import ModelFile, Pair
from ggufspec.errors import CorruptDownloadError, ModelFileError, NotCachedError
from ggufspec.hosts import BrokenAnswerError
from ggufspec.modelfiles.gguf import HeaderSource, ModelCard, open_parts, parse_complete, split_names
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.answers import LEAST_BYTES_PER_S, at_least_rate, open_answer, read_content_range
from ggufspec.modelfiles.hub.cache import refuse_damage
from ggufspec.modelfiles.hub.client import Access, Subject, call, file_size

if TYPE_CHECKING:
    import httpx2

_FIRST_BYTES = 1 << 20
_FETCH_IT = "fetch the file, then give its path"


class RemoteFile:
    """A GGUF on the Hub as a source for ``gguf.parse_complete``, which reads from front to back.

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
        request = partial(self._request, start, end)
        return call(request, self._subject, self._access, hosts.ANSWER_S + (end - start) / LEAST_BYTES_PER_S)

    def _request(self, start: int, end: int) -> bytes:
        """Ask for the bytes from ``start`` to ``end``, and learn the file's size from the answer.

        Raises:
            BrokenAnswerError: fewer bytes came than are there, or they came too slowly.
            CorruptDownloadError: the server sends other bytes, or from a file that has changed meanwhile.
        """
        headers = self._access.headers() | {"Range": f"bytes={start}-{end - 1}"}
        body = bytearray()
        try:
            with open_answer(self._url, headers, silent_s=constants.HF_HUB_DOWNLOAD_TIMEOUT) as answer:
                self._learn_size(self._stated_size(answer, start))
                for chunk in at_least_rate(answer.iter_raw()):
                    body += chunk
                    if len(body) >= end - start:
                        break
        except utils.HfHubHTTPError as error:
            if start or error.response.status_code != 416:
                raise
            self._learn_size(0)  # an empty file has no first byte
        due = min(end, self.size) - start
        if len(body) < due:
            raise BrokenAnswerError(f"{self._name} ended after {len(body)} of {due} bytes from {start}")
        return bytes(body[: end - start])

    def _stated_size(self, answer: httpx2.Response, start: int) -> int | None:
        """Return the file's size as an answer states it, which must have the bytes from ``start`` on."""
        part = read_content_range(answer)
        if part is not None and part.first == start:
            return part.total_bytes
        if answer.status_code == 206:
            does = f"does not state which part of {self._name} it sends"
        elif start:
            does = f"ignores the range in a request for {self._name}"
        else:  # the server knows no ranges: take the front, drop the rest
            length = answer.headers.get("Content-Length")
            return None if length is None else int(length)
        raise CorruptDownloadError(f"{self._access.host} {does}", _FETCH_IT)

    def _learn_size(self, stated: int | None) -> None:
        if stated is None:
            return
        if self._size not in (None, stated):
            raise CorruptDownloadError(
                f"{self._name} had {self._size} bytes, and now has {stated}: it was changed meanwhile",
                "run the same command again",
            )
        self._size = stated


def resolve(pair: Pair, *, offline: bool) -> Pair:
    """Return the pair with the paths of its files on this machine; nothing is downloaded.

    Args:
        pair: files with a path, or with repository and name.
        offline: only decides what the hint of an error recommends.

    Raises:
        ModelFileError: a local file is missing.
        NotCachedError: a file of the Hub or one of its parts is not on this machine.
    """
    access = Access(offline=offline)
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
    """Open the files of a model, each for ``gguf.parse_complete``, by their names in messages.

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
        problem = f"{path} is not a regular file" if path.exists() else f"there is no file {path}"
        raise ModelFileError(problem, "check the path, or fetch the pair again")
    return model if model.path is not None else replace(model, path=path, size_bytes=path.stat().st_size)
