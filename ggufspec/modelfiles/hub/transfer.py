"""Download one file from the Hub: locked, resumed, hashed while it arrives, checked, then renamed.

huggingface_hub's own download compares sizes, not hashes, so a damaged start of a resumed file would stay.
Files that the Hub serves through its Xet protocol alone are left to it, and are hashed afterwards.

Content hosts limit each connection, so several are faster than one. A large file is read in pieces, which are
written in order: what is on the disk is always the beginning of the file, which can be hashed while it grows,
and resumed by any program.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO

import huggingface_hub
from filelock import Timeout
from huggingface_hub import constants, utils

from ggufspec import digests, paths
from ggufspec.errors import CorruptDownloadError, ModelFileError
from ggufspec.hosts import BrokenAnswerError, SlowAnswerError
from ggufspec.modelfiles.gguf import FileSource
from ggufspec.modelfiles.gguf.reader import MAGIC, read_header
from ggufspec.modelfiles.hub import cache, client
from ggufspec.modelfiles.hub.answers import ContentRange, at_least_rate, open_answer, read_content_range
from ggufspec.modelfiles.hub.choice import RepoFile
from ggufspec.modelfiles.hub.survey import FetchItem
from ggufspec.units import format_bytes, format_duration

if TYPE_CHECKING:
    from _hashlib import HASH

    import httpx2

_CHUNK_BYTES = 4 << 20
LARGEST_BY_HTTP_BYTES = constants.MAX_HTTP_DOWNLOAD_SIZE
"""Beyond this the Hub serves a file through its Xet protocol alone, which only huggingface_hub speaks."""

WAIT_TO_REMEMBER_BYTES = 4 << 30
"""Reading so much again takes longer than the wait after which a digest can be remembered."""

_REPORT_EVERY_S = 0.1
_WORTH_PIECES_BYTES = 32 << 20  # less comes on one connection
_FIRST_PIECE_BYTES = 1 << 20
_LEAST_PROGRESS_BYTES = 1 << 10  # an attempt that brings less has failed like one that brings nothing
_TRY_AGAIN = "try again; if it happens again, a proxy or the repository is broken"
_PROXY = "is a proxy or a login page between here and the Hub? open the file's page in a browser"


def new_hasher(file: RepoFile) -> HASH:
    """Return the hash that a file's listed digest is of: SHA-256, or git's of a blob of its size."""
    if file.sha256 is not None:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % file.size_bytes, usedforsecurity=False)


class TransferState(StrEnum):
    """What is being done with a file."""

    WAITING = "waiting"
    DOWNLOADING = "downloading"
    VERIFYING = "verifying"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class TransferProgress:
    """The progress of one file. ``note`` says why it waits."""

    item: FetchItem
    state: TransferState
    done_bytes: int
    note: str | None = None


class _Counter:
    """Bytes that several threads have received."""

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()

    def add(self, n_bytes: int) -> None:
        with self._lock:
            self.total += n_bytes


class StoppedError(Exception):
    """The caller has stopped; the bytes that have arrived are kept for the next time."""


class Transfer:
    """The download of one file, until it has its final name."""

    def __init__(
        self,
        item: FetchItem,
        access: client.Access,
        report: Callable[[TransferProgress], None],
        stop: threading.Event,
    ) -> None:
        self._item = item
        self._access = access
        self._report = report
        self._stop = stop
        self._subject = client.Subject(
            repo=item.repo, revision=item.revision, filename=item.file.path, kind=item.kind
        )
        self._folder = cache.repo_dir(item.repo, access, item.kind)
        self._hash: HASH  # of what is in the file
        self._done = 0
        self._reported_at = 0.0

    def run(self) -> None:
        """Do what is left to do, under the lock of this file.

        Raises:
            GgufspecError: it cannot be done.
            StoppedError: the caller has stopped.
        """
        item = self._item
        try:
            with ExitStack() as held:
                if not item.path.exists():  # else it is complete, and the cache may be read-only
                    self._lock(held)
                downloaded = next((path for path in (item.path, item.blob) if path.exists()), None)
                if downloaded is not None:
                    self._verify(downloaded)
                elif item.file.size_bytes <= LARGEST_BY_HTTP_BYTES:
                    self._download()
            if not item.path.exists():
                self._leave_to_client()  # which takes the same lock
                self._verify(item.path)
            if self._access.local_dir is None and item.revision != item.commit:
                ref = self._folder / "refs" / item.revision
                paths.write_atomically(ref, item.commit)  # a branch can be found offline, too
        except client.failures() as error:
            raise client.translate_error(error, self._subject, self._access) from error
        self._report_progress(TransferState.DONE, item.file.size_bytes, always=True)

    def _lock(self, held: ExitStack) -> None:
        """Take the lock under which huggingface_hub, too, writes this blob; wait for whoever has it."""
        folder = self._access.cache_dir / ".locks" / self._folder.name
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                held.enter_context(utils.WeakFileLock(folder / f"{self._item.file.digest}.lock", timeout=0.5))
            except Timeout:
                note = "another process downloads this file"
                self._report_progress(TransferState.WAITING, self._item.here_bytes, note=note, always=True)
            else:
                return

    def _download(self) -> None:
        item = self._item
        item.partial.parent.mkdir(parents=True, exist_ok=True)
        resumed = self._attempt()
        if resumed and self._hash.hexdigest() != item.file.digest:
            item.partial.unlink()  # what lay there was not the beginning of this file
            self._attempt()
        if self._hash.hexdigest() != item.file.digest or item.partial.stat().st_size != item.file.size_bytes:
            item.partial.unlink()
            raise CorruptDownloadError(
                f"{item.file.path} does not have the hash that {self._access.host} lists", _TRY_AGAIN
            )
        try:
            self._check_gguf(item.partial)
        except CorruptDownloadError:
            item.partial.unlink()  # it is what the Hub has: resuming would bring it again
            raise
        paths.publish(item.partial, item.blob)
        self._remember(item.blob)

    def _attempt(self) -> bool:
        """Append what is missing; return whether something was there before. All of it is hashed."""
        with self._item.partial.open("a+b") as file:
            if file.tell() > self._item.file.size_bytes:
                file.truncate(0)
            self._done = file.tell()
            self._read_hash(file, self._done)
            resumed = self._done > 0
            self._receive(file)
        return resumed

    def _read_hash(self, file: BinaryIO, size_bytes: int) -> None:
        """Hash the beginning of a file; what is received later is added."""
        self._hash = new_hasher(self._item.file)
        file.seek(0)
        while chunk := file.read(min(_CHUNK_BYTES, size_bytes - file.tell())):
            self._hash.update(chunk)
            self._report_progress(TransferState.VERIFYING, file.tell())

    def _receive(self, file: BinaryIO) -> None:
        attempt, furthest = 1, self._done
        while self._done < self._item.file.size_bytes:
            try:
                if self._item.file.size_bytes - self._done < _WORTH_PIECES_BYTES:
                    self._stream(file)
                else:
                    self._stream_pieces(file)
            except client.failures() as error:
                is_slow = isinstance(error, SlowAnswerError)  # which brings a little every time
                if self._done >= furthest + _LEAST_PROGRESS_BYTES and not is_slow:
                    attempt, furthest = 1, self._done
                pause = client.pause_before_retry(error, attempt)
                if pause is None:
                    raise
                note = f"again in {format_duration(pause)}: {client.reason(error)}"
                self._report_progress(TransferState.WAITING, self._done, note=note, always=True)
                self._stop.wait(pause)
                attempt += 1
            self._report_progress(TransferState.DOWNLOADING, self._done)

    def _stream_pieces(self, file: BinaryIO) -> None:
        """Append the missing bytes on several connections, after a first piece that shows whether it can be.

        Raises:
            BrokenAnswerError: as for ``_stream``.
        """
        address = self._stream(file, until=self._done + _FIRST_PIECE_BYTES)
        on_the_way = _Counter()
        start = self._done  # the end, if the server knows no ranges, and has sent all of it

        def wait() -> None:
            self._report_progress(TransferState.DOWNLOADING, start + on_the_way.total)

        read = partial(self._read_piece, address, on_the_way)
        for piece in read_in_order(read, start, self._item.file.size_bytes, wait):
            self._write(file, piece, received=start + on_the_way.total)

    def _open(self, address: str, part: str) -> AbstractContextManager[httpx2.Response]:
        """Ask for a part of the file; ``part`` is empty for all of it."""
        headers = self._access.headers() | ({"Range": f"bytes={part}"} if part else {})
        if not address.startswith(f"{self._access.endpoint}/"):  # a content host must not see the login
            headers = {key: text for key, text in headers.items() if key.lower() != "authorization"}
        return open_answer(address, headers, silent_s=constants.HF_HUB_DOWNLOAD_TIMEOUT)

    def _read_piece(
        self, address: str, on_the_way: _Counter, start: int, end: int, given_up: threading.Event
    ) -> bytes:
        """Return a part of the file, from the address that the Hub has led to.

        Raises:
            BrokenAnswerError: other bytes came, too few, or too slowly.
            StoppedError: the download was given up or stopped.
        """
        name, body = self._item.file.path, bytearray()
        with self._open(address, f"{start}-{end - 1}") as answer:
            part = read_content_range(answer)
            if part is None or part.first != start:
                raise BrokenAnswerError(f"{name} from another byte than {start}")
            for chunk in at_least_rate(answer.iter_raw()):
                if given_up.is_set() or self._stop.is_set():
                    raise StoppedError
                on_the_way.add(len(chunk))
                body += chunk
                if len(body) >= end - start:
                    return bytes(body[: end - start])
        raise BrokenAnswerError(f"{name} ended after {start + len(body)} bytes")

    def _stream(self, file: BinaryIO, until: int | None = None) -> str:
        """Request the missing bytes and append them, up to the size that the Hub lists, or a part of them.

        Returns the address that the Hub has led to.

        Raises:
            BrokenAnswerError: the body ended before that, or came too slowly.
        """
        item, size = self._item, self._item.file.size_bytes
        part = f"{self._done}-{'' if until is None else until - 1}"
        url = self._access.url(item.repo, item.file.path, item.commit, item.kind)
        with self._open(url, "" if part == "0-" else part) as answer:
            if "text/html" in answer.headers.get("Content-Type", ""):
                raise CorruptDownloadError(
                    f"{self._access.host} sends a web page instead of {item.file.path}", _PROXY
                )
            content_range = read_content_range(answer)
            is_whole = answer.status_code != 206 or (content_range is not None and content_range.first == 0)
            if self._done and is_whole:  # the server knows no ranges: all over again
                file.truncate(0)
                self._done, self._hash = 0, new_hasher(item.file)
            due = size if until is None or content_range is None else until
            self._check_announced(answer.headers, content_range, due)
            for chunk in at_least_rate(answer.iter_raw()):
                self._write(file, chunk[: due - self._done])
                if self._done == due:
                    return str(answer.url)  # whatever else comes does not belong to the file
        raise BrokenAnswerError(f"{item.file.path} ended after {self._done} of {size} bytes")

    def _check_announced(
        self, headers: Mapping[str, str], content_range: ContentRange | None, due: int
    ) -> None:
        """Refuse a body of another size than the listed one, and bytes from another offset than requested."""
        file, start, announced = self._item.file, self._done, headers.get("Content-Length")
        if content_range is not None and content_range.first != start:
            raise BrokenAnswerError(f"{file.path} from byte {content_range.first} instead of {start}")
        size = file.size_bytes if announced is None else file.size_bytes - due + start + int(announced)
        if content_range is not None and content_range.total_bytes not in (None, file.size_bytes):
            size = content_range.total_bytes
        if size != file.size_bytes:
            raise CorruptDownloadError(
                f"{self._access.host} sends {format_bytes(size)} for {file.path}, "
                f"but lists {format_bytes(file.size_bytes)}",
                _TRY_AGAIN,
            )

    def _write(self, file: BinaryIO, chunk: bytes, *, received: int = 0) -> None:
        """Append bytes; report how many were ``received``, where later ones arrived before them."""
        if self._stop.is_set():
            raise StoppedError
        magic = MAGIC[self._done : self._done + len(chunk)]
        if self._item.is_gguf and not chunk.startswith(magic):
            raise CorruptDownloadError(
                f"{self._access.host} does not send a GGUF for {self._item.file.path}: "
                f"it starts with {chunk[:16]!r}",
                _PROXY,
            )
        file.write(chunk)
        self._hash.update(chunk)
        self._done += len(chunk)
        self._report_progress(TransferState.DOWNLOADING, max(self._done, received))

    def _verify(self, path: Path) -> None:
        """Compare a file on this machine with the Hub's list; its hash is computed if it is not known.

        Raises:
            CorruptDownloadError: it is another file, or one that llama.cpp cannot load.
        """
        file, digest = self._item.file, digests.remembered(path)
        if digest is not None and digest.sha256 == file.digest and digest.size_bytes == file.size_bytes:
            return
        same = path.stat().st_size == file.size_bytes
        if same:
            with path.open("rb") as stream:
                self._read_hash(stream, file.size_bytes)
        if not same or self._hash.hexdigest() != file.digest:
            raise CorruptDownloadError(
                f"{path.resolve()} is not the file that {self._access.host} lists",
                "delete it, then run the same command again",
            )
        self._check_gguf(path)
        self._remember(path)

    def _remember(self, path: Path) -> None:
        """Spare later commands the reading of a file whose SHA-256 is known now."""
        file = self._item.file
        if file.sha256 is None:
            return
        if file.size_bytes >= WAIT_TO_REMEMBER_BYTES:
            self._stop.wait(digests.unsettled_s(path))
        digests.remember(path, file.digest)

    def _check_gguf(self, path: Path) -> None:
        """Refuse a file that is not GGUF, or that ends before its last tensor: the Hub has such files."""
        file = self._item.file
        if not self._item.is_gguf:
            return
        try:
            end = read_header(FileSource(path), file.path).end
        except ModelFileError as error:
            raise CorruptDownloadError(error.message, "choose another file") from error
        if end > file.size_bytes:
            raise CorruptDownloadError(
                f"{file.path} is truncated on the Hub: {format_bytes(end - file.size_bytes)} are missing",
                "choose another file, and report it to the owner of the repository",
            )

    def _leave_to_client(self) -> None:
        """Let huggingface_hub link the blob into its snapshot, or download files that only it can."""
        item, access = self._item, self._access
        if not item.blob.exists():
            self._report_progress(
                TransferState.DOWNLOADING, 0, note="through Xet, which does not resume", always=True
            )
        client.call(
            lambda: huggingface_hub.hf_hub_download(
                item.repo,
                item.file.path,
                repo_type=item.kind,
                revision=item.commit,
                cache_dir=access.cache_dir,
                local_dir=access.local_dir,
                endpoint=access.endpoint,
                token=access.token,
            ),
            self._subject,
            access,
        )

    def _report_progress(
        self, state: TransferState, done: int, *, note: str | None = None, always: bool = False
    ) -> None:
        if self._stop.is_set() and state is not TransferState.DONE:
            raise StoppedError
        now = time.monotonic()
        if always or now - self._reported_at >= _REPORT_EVERY_S:
            self._reported_at = now
            self._report(TransferProgress(item=self._item, state=state, done_bytes=done, note=note))


CONNECTIONS = 8  # for each file; other clients of content hosts take 6 to 16
PIECE_BYTES = 4 << 20  # at 1 MB/s a piece takes four seconds; an interruption loses some of these
_AHEAD = 2 * CONNECTIONS  # pieces that may wait in memory for an earlier one: 64 MiB
_WAIT_S = 0.1

Read = Callable[[int, int, threading.Event], bytes]


def read_in_order(read: Read, start: int, end: int, wait: Callable[[], None]) -> Iterator[bytes]:
    """Yield the bytes of a file, piece by piece.

    Args:
        read: returns the bytes from one place to another, on a connection of its own; ends by any error soon
            after the event is set.
        start: where to begin.
        end: where the file ends.
        wait: called several times a second while the next piece is on its way.
    """
    given_up = threading.Event()
    todo: SimpleQueue[tuple[int, Future[bytes]] | None] = SimpleQueue()
    # no executor: the interpreter waits for its threads at the end, and a connection may have stalled
    for _ in range(CONNECTIONS):
        threading.Thread(target=_read_pieces, args=(read, end, todo, given_up), daemon=True).start()
    ahead: deque[Future[bytes]] = deque()
    starts = iter(range(start, end, PIECE_BYTES))
    try:
        while True:
            for first in islice(starts, _AHEAD - len(ahead)):
                ahead.append(Future())
                todo.put((first, ahead[-1]))
            if not ahead:
                return
            yield _result(ahead.popleft(), wait)
    finally:
        given_up.set()
        for _ in range(CONNECTIONS):
            todo.put(None)


def _read_pieces(
    read: Read, end: int, todo: SimpleQueue[tuple[int, Future[bytes]] | None], given_up: threading.Event
) -> None:
    while (asked := todo.get()) is not None and not given_up.is_set():
        first, piece = asked
        try:
            piece.set_result(read(first, min(first + PIECE_BYTES, end), given_up))
        except BaseException as error:  # noqa: BLE001 - raised again where the piece is wanted
            piece.set_exception(error)


def _result(piece: Future[bytes], wait: Callable[[], None]) -> bytes:
    while True:
        try:
            return piece.result(_WAIT_S)
        except TimeoutError:
            if piece.done():  # the error is the piece's own
                raise
            wait()
