"""Fetch a pair's files: several at once, verified, into the Hub's usual cache."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from ggufspec import userfiles
from ggufspec.domain import ModelFile, Pair
from ggufspec.modelfiles.gguf import validate_file
from ggufspec.modelfiles.hub import cache
from ggufspec.modelfiles.hub.client import Access
from ggufspec.modelfiles.hub.survey import CheckpointSurvey, FetchItem, Survey
from ggufspec.modelfiles.hub.transfer import StoppedError, Transfer, TransferProgress, TransferState
from ggufspec.steps import Sink
from ggufspec.units import format_bytes

PARALLEL = 4
_STOP_WITHIN_S = 2.0

ASK_ABOVE_BYTES = 10_000_000_000
"""From how many bytes on a download needs consent."""


def download(
    survey: Survey,
    access: Access,
    sink: Sink,
    *,
    yes: bool,
    ask_above_bytes: int = ASK_ABOVE_BYTES,
    remember: bool = True,
) -> Pair:
    """Show a survey, ask where much is missing, download that, and return the pair with the paths.

    Args:
        survey: of the pair.
        access: access to the Hub.
        sink: gets the survey and the progress, and is asked.
        yes: do not ask.
        ask_above_bytes: ask if more than this is missing.
        remember: make the pair the default of a bench.

    Raises:
        ConsentNeededError: nobody can be asked.
        GgufspecError: the disk is full, or the download fails.
    """
    sink.show(survey)
    check_room(survey)
    ask_to_download(survey.missing_bytes, sink, yes=yes, above_bytes=ask_above_bytes)
    return sink.finish(fetch(survey, access, remember=remember))


def ask_to_download(missing_bytes: int, sink: Sink, *, yes: bool, above_bytes: int = ASK_ABOVE_BYTES) -> None:
    """Ask before more than some bytes are downloaded, unless ``yes`` is set.

    Raises:
        ConsentNeededError: nobody can be asked.
    """
    if not yes and missing_bytes > above_bytes:
        size = format_bytes(missing_bytes)
        sink.agree(f"Download {size}?", f"the download of {size}", can_undo=True)


def check_room(survey: Survey | CheckpointSurvey) -> None:
    """Refuse a download for which the disk has too little space.

    Raises:
        DiskFullError: the free space is less than what is missing.
    """
    userfiles.require_room(
        "the download needs",
        survey.missing_bytes,
        survey.folder,
        survey.free_bytes,
        "free some space, choose a smaller quant, or another disk with --local-dir or HF_HOME"
        if isinstance(survey, Survey)
        else "free some space, or choose another disk with HF_HOME",
    )


def fetch(
    survey: Survey, access: Access, *, remember: bool = True
) -> Generator[TransferProgress, None, Pair]:
    """Download and verify what is missing; yield progress, return the pair with local paths.

    Several files are downloaded at once. Closing the generator (as Ctrl-C does) stops them; the bytes that
    have arrived are kept, and the next fetch resumes there. A file gets its name after its hash is verified.

    Args:
        survey: what is missing.
        access: access to the Hub.
        remember: make the pair the default of a bench.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    check_room(survey)
    yield from fetch_files(survey.items, access)
    pair = add_paths(survey)
    for model in pair.models:
        if model.path is not None:
            validate_file(model.path)
    if remember:
        cache.remember_fetched(pair)
    return pair


def fetch_files(items: Sequence[FetchItem], access: Access) -> Generator[TransferProgress, None, None]:
    """Download and verify files; yield progress. Closing the generator stops it, as for ``fetch``.

    Raises:
        GgufspecError: the class says what went wrong, the hint what to do.
    """
    todo: SimpleQueue[FetchItem] = SimpleQueue()
    events: SimpleQueue[TransferProgress | BaseException] = SimpleQueue()
    stop = threading.Event()
    for item in items:
        todo.put(item)
    workers = [
        threading.Thread(target=_work, args=(todo, events, stop, access), daemon=True)
        for _ in range(min(PARALLEL, len(items)))
    ]
    try:
        for worker in workers:
            worker.start()
        unfinished = len(items)
        while unfinished:
            event = events.get()
            if isinstance(event, BaseException):
                raise event
            unfinished -= event.state is TransferState.DONE
            yield event
    finally:
        stop.set()
        for worker in workers:
            worker.join(_STOP_WITHIN_S)


def add_paths(survey: Survey) -> Pair:
    """Return the pair of a survey with the paths that its files have once they are fetched."""
    paths = {(item.repo, item.file.path): item.path for item in survey.items}

    def add_path(model: ModelFile) -> ModelFile:
        return model if model.repo is None else replace(model, path=paths[model.repo, model.filename])

    return survey.pair.with_models(add_path)


def _work(
    todo: SimpleQueue[FetchItem],
    events: SimpleQueue[TransferProgress | BaseException],
    stop: threading.Event,
    access: Access,
) -> None:
    while not stop.is_set():
        try:
            item = todo.get_nowait()
        except Empty:
            return
        try:
            Transfer(item, access, events.put, stop).run()
        except StoppedError:
            return
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's loop
            events.put(error)
            return
