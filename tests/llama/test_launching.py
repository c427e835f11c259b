"""A llama-server that is started by the printed command, which has no key to be known by."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from ggufspec.llama.server import PortTakenError, find_free_ports, start_printed
from tests.support import fake_server
from tests.support.fake_server import Behaviour, FakeServer


@pytest.fixture
def first_port(worker_id: str) -> int:
    """A range of ports for each process that runs tests."""
    return 16_000 + 200 * int(worker_id.removeprefix("gw") if worker_id != "master" else 9)


def _argv(folder: Path, port: int, at_load: str = "") -> Sequence[str]:
    program = fake_server.program(folder / "llama-server", Behaviour(at_load=at_load))
    return (str(program), "--port", str(port))


def test_another_program_that_answers_on_the_port_is_noticed(tmp_path: Path) -> None:
    with fake_server.serve(FakeServer(answers={"/health": {"status": "ok"}})) as other:
        port = int(other.url.rpartition(":")[2])
        with pytest.raises(PortTakenError, match=f"another program uses the port {port}"):
            start_printed(_argv(tmp_path, port, "sleep 0.5"), port=port, timeout_s=20.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells every user who listens")
def test_a_second_server_on_the_same_port_is_noticed(tmp_path: Path, first_port: int) -> None:
    port = next(find_free_ports(first_port))
    with closing(start_printed(_argv(tmp_path / "first", port), port=port, timeout_s=20.0)) as first:
        with pytest.raises(PortTakenError):
            start_printed(_argv(tmp_path / "second", port), port=port, timeout_s=20.0)
        assert first.is_alive


def test_the_port_of_a_server_is_not_offered_again(tmp_path: Path, first_port: int) -> None:
    port, other = list(find_free_ports(first_port))[:2]
    with closing(start_printed(_argv(tmp_path, port), port=port, timeout_s=20.0)):
        assert next(find_free_ports(port)) == other
