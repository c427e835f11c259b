"""Bodies that are longer, shorter or otherwise described than the Hub lists, and what is kept of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from ggufspec import digests
from ggufspec.domain import ModelFile
from ggufspec.errors import CorruptDownloadError, ModelFileError
from ggufspec.modelfiles import hub as hub_package
from ggufspec.modelfiles.hub import client, transfer
from tests.support import hub_client, shell
from tests.support.hub_client import TARGET
from tests.support.hub_server import Fault, Hub
from tests.support.shell import run

BODY = hub_client.gguf(1 << 20)
ALWAYS = 10_000  # times


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.01)


def partial(home: Path, hub: Hub) -> Path:
    place = hub_client.blob(home, hub)
    place.parent.mkdir(parents=True)
    return Path(f"{place}.incomplete")


def fetched(*words: str) -> bytes:
    """Fetch, and return what the first file holds."""
    return Path(shell.done("fetch", "-q", *words).stdout.splitlines()[0]).read_bytes()


def cuts(count: int, after: int) -> list[Fault]:
    return [Fault(where="file=t", times=count, chunked=True, cut_after=after)]


# -- too long


@pytest.mark.parametrize("here", [0, 1 << 20, len(BODY), len(BODY) + 1, 2 * len(BODY)])
def test_an_endless_body_is_kept_up_to_the_listed_size(hub: Hub, home: Path, here: int) -> None:
    if here:
        partial(home, hub).write_bytes((2 * BODY)[:here])
    hub.faults = [Fault(where="file=t", times=9, chunked=True, extra=bytes(64 << 20))]
    assert fetched("--target", TARGET) == BODY
    assert not list(home.rglob("*.incomplete"))


@pytest.mark.parametrize("size", [0, len(BODY) - 4, len(BODY) + 4])
def test_a_file_that_somebody_else_changes_gets_no_name(
    hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    receive = transfer.Transfer._receive

    def changed(self: transfer.Transfer, file: BinaryIO) -> None:
        receive(self, file)
        file.flush()
        os.truncate(file.fileno(), size)

    monkeypatch.setattr(transfer.Transfer, "_receive", changed)
    code, _, err = run("fetch", "-q", "--target", TARGET)
    assert (code, "does not have the hash" in err) == (28, True)
    assert not hub_client.blob(home, hub).exists()


def test_a_longer_body_is_refused_where_it_is_announced(hub: Hub, home: Path) -> None:
    hub.repos["me/T-GGUF"].files["t-Q4_K_M.gguf"].size -= 1
    assert run("fetch", "-q", "--target", TARGET)[0] == 28
    assert not list(home.rglob("*.gguf"))


# -- too short


def test_a_body_that_ends_early_is_asked_for_again_a_few_times(hub: Hub) -> None:
    hub.faults = cuts(ALWAYS, 0)
    code, _, err = run("fetch", "--target", TARGET)
    host = hub.url.removeprefix("http://")
    assert code == 25
    pauses = [line.split("again in ")[1].split(":")[0] for line in err.splitlines() if "again in " in line]
    assert pauses == ["0.01 s", "0.02 s", "0.04 s", "0.08 s"]
    assert (
        f"error: {host} does not send the requested file: t-Q4_K_M.gguf ended after 0 of {len(BODY)} "
        "bytes, 5 times in a row\n"
    ) in err
    assert len(hub.content_requests()) == 5


def test_progress_starts_the_count_again_and_a_few_bytes_are_none(hub: Hub) -> None:
    hub.faults = cuts(12, len(BODY) // 20)
    assert fetched("--target", TARGET) == BODY
    hub.seen.clear()
    hub.faults = [Fault(where="file=t-Q8", times=ALWAYS, chunked=True, cut_after=10)]
    assert run("fetch", "-q", "--target", "me/T-GGUF:Q8_0")[0] == 25
    assert len(hub.content_requests()) == 5


def test_a_server_without_ranges_that_breaks_off_ends_the_fetch(hub: Hub) -> None:
    half = len(BODY) // 2
    hub.faults = [
        Fault(where="file=t", chunked=True, no_ranges=True, cut_after=after)
        for _ in range(100)
        for after in (half, half // 2)
    ]
    assert run("fetch", "-q", "--target", TARGET)[0] == 25
    assert len(hub.content_requests()) < 10


def test_a_file_may_begin_with_a_chunk_of_one_byte(hub: Hub) -> None:
    hub.faults = [Fault(where="file=d", chunked=True, stride=1, cut_after=2000)]
    assert fetched("--target", "me/D-GGUF") == hub_client.gguf()


def test_metadata_that_ends_early_is_asked_for_again_a_few_times(hub: Hub) -> None:
    where, headers = "/api/models/me", {"Content-Type": "application/json"}
    hub.faults = [Fault(where=where, times=ALWAYS, body=b'{"sha": ', headers=headers)]
    code, _, err = run("fetch", "-q", "--target", TARGET)
    assert (code, len(hub.requests(where))) == (25, 5)
    assert "an answer that is not complete JSON, 5 times in a row" in err
    hub.faults[0].times = 2
    shell.done("fetch", "-q", "--target", TARGET)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        *((body, 27) for body in (b"[]", b"null", b"3", b'["a"]', b'{"a": 1}', b'{"id": "me/T-GGUF"}')),
        (b'{"id": "me/T-GGUF", "sha": "../x", "siblings": []}', 27),
        (b'{"id": "me/T-GGUF", "sha": "1", "siblings": [{"rfilename": 3}]}', 27),
        (b'{"id": "me/T-GGUF", "sha": "1", "siblings": [{"rfilename": "a", "size": -1, "blobId": "b"}]}', 27),
        (b'{"id": "me/T-GGUF", "sha": "1", "siblings": []}', 22),  # one without a model
    ],
)
def test_answers_that_are_not_the_hubs_are_one_line(hub: Hub, body: bytes, expected: int) -> None:
    headers = {"Content-Type": "application/json"}
    hub.faults = [Fault(where="/api/models/me", times=ALWAYS, body=body, headers=headers)]
    code, out, err = run("fetch", "-q", "--target", TARGET)
    assert (code, out, err.count("\n")) == (expected, "", 2)


# -- header reads


HEADER = ModelFile(repo="me/T-GGUF", filename="t-Q4_K_M.gguf")


@pytest.mark.parametrize(
    "stated",
    ["", "bytes", "bytes 0-99", "bytes 9-1/20", "bytes */20", "bytes 5-99/200", "items 0-9/10", "x/y"],
)
def test_a_part_that_is_not_described_is_refused(hub: Hub, stated: str) -> None:
    hub.faults = [Fault(where="file=t-Q4", content_range=stated)]
    with pytest.raises(CorruptDownloadError, match="does not state which part of me/T-GGUF/t-Q4_K_M"):
        hub_package.open_headers(HEADER, hub_package.Access())


@pytest.mark.parametrize(
    "fault",
    [
        Fault(where="file=t-Q4", times=9, content_range="{}/*"),
        Fault(where="file=t-Q4", times=9, chunked=True, no_ranges=True),
    ],
    ids=["no total", "no length"],
)
def test_a_file_of_unstated_size_is_as_large_as_it_is_listed(hub: Hub, fault: Fault) -> None:
    hub.faults = [fault]
    [source] = hub_package.open_headers(HEADER, hub_package.Access()).values()
    assert source.size == len(BODY)
    assert source.read(0, 100) == BODY[:100]
    code, _, err = run("check", "me/T-GGUF:Q4_K_M", "me/D-GGUF")
    assert (code, err) == (0, "")


def test_a_size_that_nobody_states_is_one_line(hub: Hub) -> None:
    hub.faults = [
        Fault(where="file=t-Q4", times=9, content_range="{}/*"),
        Fault(
            where="resolve", times=9, method="HEAD", status=302, headers={"Location": "http://nowhere.test/"}
        ),
    ]
    code, out, err = run("check", "me/T-GGUF:Q4_K_M", "me/D-GGUF")
    assert (code, out, err.count("\n")) == (28, "", 2)
    assert "does not state the size of me/T-GGUF/t-Q4_K_M.gguf" in err


def test_a_file_that_changes_between_two_reads_is_refused(hub: Hub) -> None:
    [source] = hub_package.open_headers(HEADER, hub_package.Access()).values()
    hub.faults = [Fault(where="file=t-Q4", content_range="{}/99999999")]
    with pytest.raises(CorruptDownloadError, match="it was changed meanwhile"):
        source.read(1 << 20, 100)


def test_an_empty_file_is_called_empty(hub: Hub) -> None:
    hub.faults = [Fault(where="file=t-Q4", status=416)]
    with pytest.raises(ModelFileError, match="is empty"):
        hub_package.read_card(HEADER)


def test_a_header_that_ends_early_is_asked_for_again_a_few_times(hub: Hub) -> None:
    hub.faults = [Fault(where="file=t-Q4", times=ALWAYS, chunked=True, cut_after=1000)]
    code, _, err = run("check", "me/T-GGUF:Q4_K_M", "me/D-GGUF")
    assert (code, len(hub.requests("file=t-Q4"))) == (25, 5)
    assert "ended after 1000 of 1048576 bytes from 0, 5 times in a row" in err
    hub.faults[0].times = 4
    shell.done("check", "me/T-GGUF:Q4_K_M", "me/D-GGUF")


# -- what is kept


def test_no_verified_file_is_reread(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "WAIT_TO_REMEMBER_BYTES", 0)
    _, out, _ = run("fetch", "-q", "--target", TARGET)
    remembered = digests.remembered(Path(out.strip()))
    assert remembered.sha256 == hub_client.blob(home, hub).name
    monkeypatch.setattr(transfer, "new_hasher", None)
    shell.done("fetch", "-q", "--target", TARGET)


def test_the_name_follows_the_bytes(hub: Hub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, steps = hub_client.blob(home, hub), []
    sync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        steps.append(Path(f"/proc/self/fd/{descriptor}").resolve().name)
        sync(descriptor)

    def renamed(self: Path, target: Path) -> Path:
        steps.append(f"{self.name} -> {target.name}")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    shell.done("fetch", "-q", "--target", TARGET)
    partial_name = f"{place.name}.incomplete"
    begin = steps.index(partial_name)
    assert steps[begin : begin + 3] == [partial_name, f"{partial_name} -> {place.name}", "blobs"]
