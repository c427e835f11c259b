"""From the embedded pair to a real llama-server that answers, alone and behind llama.cpp's own router."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from ggufspec import proc, results, tuning
from ggufspec.choices import ServerFormat
from ggufspec.cli import cli
from ggufspec.domain import Method, RunSpec
from ggufspec.engines import Measurement
from ggufspec.engines.server.engine import ServerEngine
from ggufspec.llama.install.installs import Install
from ggufspec.report.text import exports
from ggufspec.results import Configuration
from tests.support import shell
from tests.support.hub_client import DEMO, Run
from tests.support.hub_server import Hub
from tests.support.imagined_times import PATIENT

BODY = {"prompt": "Once upon a time", "n_predict": 8, "ignore_eos": True}
QUICK = (*PATIENT, "-t", "1", "--serve-ctx", "512")


def _free_port() -> int:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        return port


@pytest.fixture
def tuned(llama: Install, imagined: None, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """The embedded pair, tuned by its name."""
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    result = CliRunner().invoke(cli, ["auto", "demo", *QUICK])
    assert result.exit_code == 0, result.output
    configuration = results.read_configuration()
    found, served = result.stdout.splitlines()[0], f"Serve it: ggufspec serve --tuned {configuration.id}"
    assert found.startswith("Draft with drafter.gguf")
    assert served in result.stdout
    again = CliRunner().invoke(cli, ["auto", "demo", *QUICK])
    assert again.exit_code == 0, again.output
    assert found in again.stdout  # a finished tuning is printed from the store, without the table
    assert served in again.stdout
    return configuration


@pytest.mark.takes(25)
@pytest.mark.timeout(1800)
def test_auto_ends_with_a_server_that_answers(tuned: Configuration, tmp_path: Path) -> None:
    port, keys = _free_port(), tmp_path / "keys"
    keys.write_text("secret\n")
    process = shell.start("serve", "--", "--port", str(port), "--api-key-file", str(keys))
    with _ready(process, port):
        answer = _ask(port, BODY, key="secret")
        assert answer["tokens_predicted"] == 8
        assert process.poll() is None

    preset = tmp_path / "models.ini"
    preset.write_text(exports.export(tuning.prepare_server(tuned), ServerFormat.PRESET))
    port = _free_port()
    router = _start([tuned.serving_argv[0], "--models-preset", str(preset), "--port", str(port)], tmp_path)
    with _ready(router, port):
        with urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=30) as listed:
            assert tuned.id in {model["id"] for model in json.load(listed)["data"]}
        answer = _ask(port, BODY | {"model": tuned.id})
        assert answer["tokens_predicted"] == 8

    variables = exports.export(tuning.prepare_server(tuned), ServerFormat.ENV)
    port = _free_port()
    script = f"set -a\n{variables}\nLLAMA_ARG_PORT={port}\nexec '{tuned.serving_argv[0]}'"
    server = _start(["/bin/sh", "-c", script], tmp_path)
    with _ready(server, port), urlopen(f"http://127.0.0.1:{port}/props", timeout=30) as props:
        assert json.load(props)["default_generation_settings"]["n_ctx"] == 512


HEADS = {
    "beside": ("target.gguf", {"eagle3-m-Q8_0.gguf": "eagle3.gguf"}, Method.DRAFT_EAGLE3),
    "inside": ("mtp.gguf", {}, Method.DRAFT_MTP),
}


@pytest.mark.takes(25)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", HEADS)
def test_from_a_name_with_a_head_to_a_server_that_answers(
    loopback: Hub,
    llama: Install,
    home: Path,
    run: Run,
    imagined: None,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    """The Hub has a target with a head, a drafter of the target, and one with another vocabulary."""
    target, heads, method = HEADS[place]
    served = {"m-Q4_K_M.gguf": target, **heads}
    base = {"cardData": {"base_model": "acme/Model-3-8B-Instruct"}}
    loopback.add(
        "me/Model-3-8B-GGUF", {name: (DEMO / file).read_bytes() for name, file in served.items()}, info=base
    )
    drafter = (DEMO / "drafter.gguf").read_bytes()
    for repo, body in (("a/Model-3-1B-GGUF", drafter), ("c/Model-3-1B-b-GGUF", _other_vocabulary(drafter))):
        loopback.add(repo, {"d-Q8_0.gguf": body})
        loopback.repos[repo].info = {"downloads": 90_000, "gguf": {"architecture": "llama"}}
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    started: list[tuple[Sequence[str], Mapping[str, str]]] = []
    monkeypatch.setattr(proc, "replace_process", lambda *command: started.append(command))
    port = _free_port()
    words = ("auto", "me/Model-3-8B-GGUF:Q4_K_M", "--yes", *QUICK, "--serve", "--", "--port", str(port))

    with monkeypatch.context() as patch:
        patch.setattr(ServerEngine, "measure", _interrupted_after_a_run(ServerEngine.measure))
        code, _, said = run(*words)
    assert code == 130, said
    found = {Method(word) for word in re.findall(r"  (draft-\w+)", said)}
    assert found == ({method} if place == "inside" else {method, Method.DRAFT_MODEL})
    (begun,) = results.ids()
    kept = [run.log for run in results.load(begun).runs]
    assert kept

    code, _, said = run(*words)
    assert code == 0, said
    assert [run.log for run in results.load(begun).runs][: len(kept)] == kept
    runs = (run for name in results.ids() for run in results.load(name).runs)
    assert {run.spec.drafting.method for run in runs if run.spec.drafting and run.spec.draft_source} <= found

    ((argv, environment),) = started
    with _ready(_start(argv, home, environment), port):
        assert _ask(port, BODY)["tokens_predicted"] == 8


def _interrupted_after_a_run(measure: Callable[..., Measurement]) -> Callable[..., Measurement]:
    """Return a measurement that Ctrl-C ends once a bench has stored a run."""

    def interrupted(self: ServerEngine, spec: RunSpec, log: Path) -> Measurement:
        if any(results.load(name).runs for name in results.ids()):
            raise KeyboardInterrupt
        return measure(self, spec, log)

    return interrupted


def _other_vocabulary(model: bytes) -> bytes:
    return model.replace(b"<0xC5>", b"<0xc5>")


def _start(
    words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    with (folder / "server.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log, text=True, env=environment)


@contextmanager
def _ready(process: subprocess.Popen[str], port: int) -> Iterator[None]:
    """Wait until a server answers, and end it."""
    try:
        deadline = time.monotonic() + 150
        while time.monotonic() < deadline:
            assert process.poll() is None
            with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _ask(port: int, body: dict[str, Any], *, key: str = "") -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), headers=headers)
    with urlopen(request, timeout=120) as answer:
        decoded: dict[str, Any] = json.load(answer)
        return decoded
