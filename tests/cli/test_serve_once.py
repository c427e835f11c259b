"""llama-server, started once by the command that users are given, before they are given it."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec.domain import CacheTypes, Drafting, Launch, ModelRun, Offload, Role, RunSpec, Runtime, Serving
from ggufspec.engines.server import serve_once, serving
from ggufspec.errors import NoInstallError
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install, installs
from tests.support import fake_server, fakes, values
from tests.support.fake_server import Behaviour
from tests.support.fakes import recorded_install

SERVING = Serving(context=2048, slots=2)
TEXT = "a b c d e f g h i j"


@pytest.fixture(autouse=True)
def first_port(worker_id: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """A range of ports for each process that runs tests: two would find the same one free."""
    port = 18_000 + 200 * int(worker_id.removeprefix("gw")) if worker_id != "master" else 17_800
    monkeypatch.setattr(serving, "_PORT", port)
    return port


def _install(tmp_path: Path, behaviour: Behaviour | None = None) -> Install:
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    fake_server.program(folder / "llama-server", behaviour)
    return installs.find_install(folder)


def _spec(tmp_path: Path) -> RunSpec:
    spec = values.spec(Role.DRAFTING, draft=3, path=tmp_path / "target.gguf")
    return replace(spec, context=SERVING.total_context, drafting=Drafting(n_max=3, p_min=0.5))


def _serve(tmp_path: Path, behaviour: Behaviour | None = None, most_tokens: int | None = None) -> Launch:
    install = _install(tmp_path, behaviour)
    return serve_once(_spec(tmp_path), install, SERVING, text=TEXT, most_tokens=most_tokens, timeout_s=20.0)


def test_it_answers_a_short_request_and_one_that_fills_the_context(tmp_path: Path) -> None:
    launch = _serve(tmp_path)
    assert launch.failure is None
    assert launch.slot_context == SERVING.context
    assert launch.load_s is not None
    short, long = launch.requests
    assert short.prompt_tokens < long.prompt_tokens
    assert long.prompt_tokens + long.answer_tokens + 3 + 2 == SERVING.context
    assert long.tokens_per_s is not None
    (start,) = fake_server.starts(tmp_path / "llama")
    assert start["argv"] == [*launch.argv[1:]]
    assert launch.argv[0] == str(tmp_path / "llama" / "llama-server")
    assert "--api-key-file" not in launch.argv


@pytest.mark.parametrize(
    ("behaviour", "switches"),
    [
        (fake_server.SPRING_2026, True),
        (Behaviour(), False),
        (fake_server.SUMMER_2025, None),  # without its cache it does not draft, and says nothing of requests
    ],
)
def test_it_says_whether_a_request_turns_drafting_off(
    tmp_path: Path, behaviour: Behaviour, switches: bool | None
) -> None:
    assert _serve(tmp_path, behaviour).switches is switches


def test_a_shorter_prompt_is_sent_where_a_long_one_takes_too_long(tmp_path: Path) -> None:
    launch = _serve(tmp_path, most_tokens=100)
    assert launch.requests[1].prompt_tokens == 100


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Behaviour(at_load="exit 1"), "exit code 1"),
        (Behaviour(drafts=False), "the server does not draft"),
        (
            Behaviour(answers={"/props": '{"default_generation_settings": {"n_ctx": 512}}'}),
            "a slot has a context of 512 tokens, not 2048",
        ),
        (Behaviour(answers={"/tokenize": "words"}), "the server's answer cannot be read"),
        (Behaviour(answers={"/tokenize": '{"tokens": []}'}), "the server makes no tokens of the prompt"),
        (Behaviour(answers={"/completion": '{"timings": {"predicted_n": 0}}'}), "a short prompt was cut"),
    ],
    ids=["ends", "does not draft", "context", "not JSON", "no tokens", "no answer"],
)
def test_a_server_that_cannot_serve_says_why(tmp_path: Path, behaviour: Behaviour, reason: str) -> None:
    launch = _serve(tmp_path, behaviour)
    assert launch.failure.startswith(reason)


def test_a_port_that_is_in_use_is_left_to_its_program(tmp_path: Path, first_port: int) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another program may have it already
            other.bind(("127.0.0.1", first_port))
            other.listen()
        launch = _serve(tmp_path)
    assert launch.failure is None
    assert int(launch.argv[launch.argv.index("--port") + 1]) > first_port


def test_without_a_server_nothing_is_started(tmp_path: Path) -> None:
    install = installs.find_install(fakes.install(tmp_path / "llama", **fakes.AT_ONCE))
    with pytest.raises(NoInstallError):
        serve_once(_spec(tmp_path), install, SERVING, text=TEXT)


def test_the_printed_command_has_everything_that_was_measured() -> None:
    spec = replace(
        values.spec(Role.DRAFTING, draft=15, path=Path("T")),
        offload=Offload(
            target=ModelRun(layers=45, caches=CacheTypes("q8_0", "q8_0")),
            drafter=ModelRun(layers="all", caches=CacheTypes("f16", "f16")),
        ),
        context=8192,
        drafting=Drafting(n_max=15, p_min=0.7),
        ubatch=256,
        runtime=Runtime(
            flash_attn="on",
            batch=1024,
            mlock=True,
            args=("--no-repack",),
        ),
    )
    words = commands.serving_argv(spec, recorded_install("0.3.36", "cuda"), slots=4, port=8081)
    text = " ".join(words)
    assert text.startswith("llama-server --model T --port 8081 --parallel 4 --ctx-size 8192 ")
    for part in (
        "--batch-size 1024 --ubatch-size 256 --threads 2 --threads-batch 2",
        "-ngl 45 --cache-type-k q8_0 --cache-type-v q8_0",
        "--spec-type draft-simple --model-draft drafter.gguf -ngld 999",
        "--spec-draft-type-k f16 --spec-draft-type-v f16",
        "--spec-draft-n-max 15 --spec-draft-n-min 0 --draft-p-min 0.7 --flash-attn on --fit off",
    ):
        assert part in text
    assert text.endswith(" --no-repack")
    measured = commands.server_argv(
        spec, recorded_install("0.3.36", "cuda"), port=1, key_file=Path("K"), slots_dir=None
    )
    only_measured = {*measured} - {*words}
    assert only_measured == {
        *("--host", "127.0.0.1", "--api-key-file", "K", "1", "--verbosity", "4", "--cache-ram", "0"),
        *("--slots", "--metrics", "--no-log-prefix", "--no-log-timestamps", "--no-ui"),
    } - {*words}
