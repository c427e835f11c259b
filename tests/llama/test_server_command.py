"""How llama-server is started in every era, from the help that its options print."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import Chain, Method, ModelRun, Offload, Program, Role, Runtime
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.command import commands
from ggufspec.llama.server import PortTakenError, find_free_ports, start_printed
from ggufspec.measure import programs
from tests.support import fake_server, values
from tests.support.fake_server import Behaviour, FakeServer
from tests.support.fakes import recorded_install

PLACE = "--host 127.0.0.1 --port 4711 --api-key-file K --parallel 1"
SIZES = "--ctx-size 512 --threads 2 --threads-batch 2"
DRAFTER = "--model-draft drafter.gguf -ngld 999 --threads-draft 2 --threads-batch-draft 2"
LIMITS = "--draft-max 3 --draft-min 0 --draft-p-min 0"
TODAYS_LIMITS = "--spec-draft-n-max 3 --spec-draft-n-min 0 --draft-p-min 0"
AUTO = "--flash-attn auto --fit off"
PAGE = "--slots --metrics --no-webui"
TODAY = "--cache-ram 0 --slots --metrics --no-ui --no-log-prefix --no-log-timestamps --verbosity 4"
SIMPLE = f"--spec-type draft-simple {DRAFTER} {TODAYS_LIMITS}"
EXPECTED = {
    ("0.3.16", True): (PAGE, f"{DRAFTER} --ctx-size-draft 512 {LIMITS}"),
    ("0.3.20", True): (f"--cache-ram 0 {PAGE}", f"{DRAFTER} --ctx-size-draft 512 {LIMITS} {AUTO}"),
    ("0.3.23", True): (f"--cache-ram 0 {PAGE}", f"{DRAFTER} --ctx-size-draft 512 {TODAYS_LIMITS} {AUTO}"),
    ("0.3.24", True): (TODAY, f"{SIMPLE} {AUTO}"),
    ("0.3.36", True): (TODAY, f"{SIMPLE} {AUTO}"),
    ("0.2.63", False): ("--metrics", ""),
    ("0.2.90", False): ("--metrics", ""),
    ("0.3.2", False): ("--slots --metrics", ""),
    ("0.3.36", False): (TODAY, AUTO),
}
SPEC = replace(
    values.spec(Role.DRAFTING, draft=3, path=Path("T")),
    offload=Offload(target=ModelRun(layers=45), drafter=ModelRun(layers="all")),
)
PLAIN = replace(SPEC, role=Role.TARGET, drafting=None)
serve = functools.partial(commands.server_argv, port=4711, key_file=Path("K"), slots_dir=None)


@pytest.mark.parametrize(("build", "drafts"), EXPECTED)
def test_the_server_of_every_era(build: str, drafts: bool) -> None:
    words = serve(SPEC if drafts else PLAIN, recorded_install(build, "cuda"))
    name = "server" if build == "0.2.63" else "llama-server"
    own, measured = EXPECTED[build, drafts]
    assert " ".join(words) == f"{name} --model T {PLACE} {own} {SIZES} -ngl 45 {measured}".strip()


def test_servers_alone_put_chats_into_a_template() -> None:
    spec = replace(PLAIN, runtime=Runtime(chat_template_file=Path("own.jinja")))
    install = recorded_install("0.3.36", "cpu")
    words = serve(spec, install)
    assert words[-3:] == ("--jinja", "--chat-template-file", "own.jinja")
    assert words[-3:] == commands.serving_argv(spec, install, slots=1, port=8080)[-3:]
    assert "own.jinja" not in commands.argv(spec, install, program=Program.PLAIN)
    with pytest.raises(GgufspecError, match="has no --chat-template-file"):
        commands.serving_argv(spec, recorded_install("0.2.90", "cpu"), slots=1, port=8080)


@pytest.mark.parametrize("build", ["0.2.63", "0.2.90", "0.3.2"])
def test_a_server_from_before_drafting_is_refused_with_a_way_out(build: str) -> None:
    with pytest.raises(GgufspecError, match="cannot draft") as caught:
        serve(SPEC, recorded_install(build))
    assert caught.value.hint == "use `--engine binary`"


def test_a_server_that_does_not_report_its_drafts_is_refused_before_anything_runs() -> None:
    silent, reporting = (replace(recorded_install("0.3.16"), build_number=build) for build in (4983, 4984))
    ways = (Chain(Method.DRAFT_MODEL),)
    with pytest.raises(GgufspecError, match="does not report how many tokens it drafts"):
        programs.check_engine("server", [silent], ways, drafting=True)
    programs.check_engine("server", [silent], ways, drafting=False)
    programs.check_engine("server", [reporting], ways, drafting=True)


@pytest.mark.parametrize("build", ["0.2.63", "0.2.90", "0.3.16", "0.3.36"])
def test_slots_are_saved_where_it_is_allowed(build: str) -> None:
    words = serve(PLAIN, recorded_install(build), slots_dir=Path("S"))
    assert words[words.index("--slot-save-path") + 1] == "S"


@pytest.mark.parametrize(
    ("build", "flags"),
    [
        ("0.3.16", ("--cache-type-k-draft", "--flash-attn")),
        ("0.3.36", ("--spec-draft-type-v", "--flash-attn on")),
    ],
)
def test_cache_types_and_batches_are_those_of_the_other_programs(build: str, flags: tuple[str, ...]) -> None:
    spec = values.with_caches(replace(SPEC, ubatch=4096), "q8_0")
    text = f"{' '.join(serve(spec, recorded_install(build)))} "
    assert all(f" {flag} " in text for flag in (*flags, "--batch-size 4096 --ubatch-size 4096"))


def test_an_install_without_a_server_says_so() -> None:
    with pytest.raises(NoInstallError, match="llama-server"):
        serve(PLAIN, replace(recorded_install("0.3.36"), programs={}))


# A llama-server that is started by the printed command, which has no key to be known by


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
