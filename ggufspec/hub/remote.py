"""A file on the Hub whose header is read by HTTP range, so that a few megabytes say what gigabytes hold."""

from __future__ import annotations

from huggingface_hub import constants
from huggingface_hub.utils import get_session, hf_raise_for_status

from ggufspec.errors import CorruptDownloadError
from ggufspec.hub.client import Access, Subject, call

_FIRST_BYTES = 1 << 20


class RemoteFile:
    """A GGUF on the Hub as a source for ``gguf.parse_header``, which reads from front to back.

    Args:
        repo: the repository.
        filename: the file within it.
        revision: a branch, a tag or a commit.
        access: how the Hub may be asked.

    Raises:
        GgufspecError: the file is not to be had; the class says why.
    """

    def __init__(self, repo: str, filename: str, revision: str, access: Access) -> None:
        self._about = Subject(repo=repo, filename=filename, revision=revision)
        self._access = access
        self._name = f"{repo}/{filename}"
        self._url = access.url(repo, filename, revision)
        self._size = 0
        self.bytes_read = 0
        """What the network has carried."""
        self._front = self._range(0, _FIRST_BYTES)

    @property
    def size(self) -> int:
        """The size of the whole file in bytes, as the server states it."""
        return self._size

    def read(self, offset: int, n: int, /) -> bytes:
        """Return ``n`` bytes from ``offset``; fewer only where the file ends."""
        end = min(offset + n, self._size)
        front = self._front[offset:end]
        start = offset + len(front)
        return front + self._range(start, end) if start < end else front

    def _range(self, start: int, end: int) -> bytes:
        body = call(lambda: self._request(start, end), self._about, self._access)
        self.bytes_read += len(body)
        if len(body) < min(end, self._size) - start:
            raise CorruptDownloadError(
                f"{self._access.host} sends only {len(body)} bytes from {start} of {self._name}",
                "try again; if it stays, the repository or a proxy is broken",
            )
        return body

    def _request(self, start: int, end: int) -> bytes:
        headers = self._access.headers() | {"Range": f"bytes={start}-{end - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream(
            "GET", self._url, headers=headers, timeout=timeout, follow_redirects=True
        ) as response:
            hf_raise_for_status(response)
            if response.status_code == 206:
                self._size = int(response.headers["Content-Range"].rpartition("/")[2])
            elif start == 0:  # the server knows no ranges: take the front, drop the rest
                self._size = int(response.headers.get("Content-Length", 0))
            else:
                raise CorruptDownloadError(
                    f"{self._access.host} ignores the range in a request for {self._name}",
                    "fetch the file, then give its path",
                )
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) >= end - start:
                    break
        return bytes(body[: end - start])
