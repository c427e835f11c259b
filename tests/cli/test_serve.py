"""llama-server in place of `ggufspec serve`, and files that start it, with any path in them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from ggufspec import digests, proc, results, tuning
from ggufspec.choices import ServerFormat
from ggufspec.domain import (
    CacheTypes,
    Drafting,
    FileIdentity,
    FileUse,
    Launch,
    ModelRun,
    Offload,
    Pair,
    Role,
    RunSpec,
    Runtime,
    Serving,
)
from ggufspec.engines.server import serve_once, serving
from ggufspec.errors import ChildCrashedError, GgufspecError, ModelFileError, NoInstallError, ResultsError
from ggufspec.llama.command import commands
from ggufspec.llama.install import installs
from ggufspec.modelfiles import choosing
from ggufspec.report.text import exports
from ggufspec.results import Configuration
from ggufspec.tuning import ServerCommand
from tests.support import fake_server, fakes, rpc_workers, served, shell, values
from tests.support.fake_server import Behaviour
from tests.support.fakes import recorded_install
from tests.support.hub_client import DEMO

HOSTILE = "a  b %h $HOME ${X} 'q' \"d\" `c` \\n ; # é * ~ &"
NO_QUOTES = re.sub(r"[\"'\\]", "", HOSTILE)
NO_COMMENTS = HOSTILE.replace(";", "").replace("#", "")
NO_MACROS = HOSTILE.replace("${", "{")
FOLDERS = {
    ServerFormat.SYSTEMD: HOSTILE,
    ServerFormat.COMPOSE: HOSTILE,
    ServerFormat.LLAMA_SWAP: NO_MACROS,
    ServerFormat.PRESET: NO_COMMENTS,
    ServerFormat.ENV: HOSTILE,
}


def _store(folder: Path, *, llama: Path | None = None, **changes: Any) -> Configuration:
    """Store a configuration whose models, and by default its llama.cpp, lie in a folder."""
    place = fakes.install(llama or folder / "llama", **fakes.AT_ONCE)
    program = fake_server.program(place / "llama-server")
    target, drafter = folder / "target.gguf", folder / "drafter.gguf"
    for file in (target, drafter):
        shutil.copy(DEMO / "drafter.gguf", file)
    spec = values.spec(Role.DRAFTING, draft=5, path=target)
    draft = spec.pair.draft
    size = target.stat().st_size
    spec = replace(
        spec,
        pair=Pair(
            name="mine",
            target=replace(spec.pair.target, size_bytes=size),
            draft=replace(draft, path=drafter, size_bytes=size),
        ),
        context=2048,
        drafting=Drafting(n_max=5, p_min=0.5),
    )
    argv = commands.serving_argv(spec, installs.find_install(program.parent), slots=2, port=8080)
    uses = {target: FileUse.MODEL, drafter: FileUse.MODEL, program: FileUse.PROGRAM}
    facts: dict[str, Any] = {
        "id": "mine",
        "overall": values.recommendation(spec=spec),
        "by_category": {},
        "passed_over": (),
        "serving": Serving(context=1024, slots=2),
        "serving_argv": argv,
        "launch": Launch(argv=argv),
        "files": tuple(
            FileIdentity(
                use=use, path=str(file), size_bytes=file.stat().st_size, sha256=digests.of_file(file).sha256
            )
            for file, use in uses.items()
        ),
        "environment": {"OMP_NUM_THREADS": "2", "GGML_PLACE": f"{folder}"},
    }
    configuration = values.configuration(**facts | changes)
    bench = values.bench(values.run(Role.TARGET), name="mine")
    results.write_configuration(configuration, bench.folder)
    return configuration


def test_the_server_takes_the_place_of_the_command(tmp_path: Path) -> None:
    configuration = _store(tmp_path)
    keys, port = tmp_path / "keys", rpc_workers.free_port()
    keys.write_text("secret\n")
    users = ("--port", str(port), "--api-key-file", str(keys), "--alias", "mine")
    process = shell.start("serve", "--", *users, env={"LLAMA_ARG_CTX_SIZE": "7", "LLAMA_ARG_SSL_X": "kept"})
    try:
        served.wait(process, port)
        request = Request(f"http://127.0.0.1:{port}/props", headers={"Authorization": "Bearer secret"})
        assert json.load(urlopen(request, timeout=5))
        environment = Path(f"/proc/{process.pid}/environ")
        if environment.exists():
            variables = environment.read_bytes().decode().split("\0")
            assert "OMP_NUM_THREADS=2" in variables
            assert "LLAMA_ARG_SSL_X=kept" in variables
            assert not any(variable.startswith("LLAMA_ARG_CTX_SIZE") for variable in variables)
    finally:
        process.terminate()
        _, err = process.communicate(timeout=20)
    (start,) = fake_server.starts(tmp_path / "llama")
    assert start["pid"] == process.pid
    tuned = list(configuration.serving_argv[1:])
    place = tuned.index("--port")
    assert start["argv"] == [*tuned[:place], *tuned[place + 2 :], *users]
    assert start["key"] == "secret"
    assert err.startswith("tuned: mine, made on 2026-01-02\n")


def test_other_workers_replace_those_that_were_tuned_before_any_device(tmp_path: Path) -> None:
    stored = _store(tmp_path)
    program, *words = stored.serving_argv
    tuned = replace(stored, serving_argv=(program, *words, "--rpc", "a:50052", "--device", "RPC0"))
    argv = tuning.prepare_server(tuned, ("--rpc", "b:50052", "--alias", "mine")).argv
    assert argv == (program, "--rpc", "b:50052", *words, "--device", "RPC0", "--alias", "mine")
    assert tuning.prepare_server(tuned).argv == tuned.serving_argv


def test_variables_that_were_not_set_then_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = _store(tmp_path)
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    server = tuning.prepare_server(configuration)
    assert [note for note in server.notes if "OMP_" in note] == [
        "tuned: without OMP_PROC_BIND, which is set now; another configuration may be faster with it"
    ]
    assert server.full_environment()["OMP_NUM_THREADS"] == "2"
    older = tuning.prepare_server(replace(configuration, environment=None))
    assert not [note for note in older.notes if "OMP_" in note]


def test_a_key_file_is_named_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = _store(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("secret\n")
    argv = tuning.prepare_server(configuration, ("--api-key-file", "keys", "--alias", "keys")).argv
    assert argv[-4:] == ("--api-key-file", str(tmp_path / "keys"), "--alias", "keys")


def test_a_moved_model_is_served_from_its_new_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configuration = _store(tmp_path)
    moved = tmp_path / "elsewhere" / "target.gguf"
    moved.parent.mkdir()
    target = configuration.spec.pair.target
    assert target.path is not None
    shutil.move(target.path, moved)

    def find(model: Any) -> Any:
        return replace(model, path=moved) if model == target else model

    monkeypatch.setattr(choosing, "_locate_tuned", find)
    argv = tuning.prepare_server(configuration).argv
    assert argv[argv.index("--model") + 1] == str(moved)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-c", "512"), "the tuned configuration mine decides -c"),
        (("--spec-draft-model", "other.gguf"), "the tuned configuration mine decides --spec-draft-model"),
        (("--port",), "--port needs a value"),
        (("--port", "http"), "'http' is not a port"),
        (("--alias", "a", "b"), "'b' is not an option of llama-server"),
    ],
    ids=["context", "drafter", "no value", "no number", "no option"],
)
def test_options_not_passed_on_are_refused(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    _store(tmp_path)
    done = shell.here("serve", "--", *words)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"error: {reason}"


def test_a_server_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGPIPE)
    for program in (tmp_path / "gone", tmp_path):
        with pytest.raises(ChildCrashedError, match="cannot start"):
            proc.replace_process([str(program)], {})
    assert signal.getsignal(signal.SIGPIPE) == before


@pytest.mark.parametrize("name", ["target.gguf", "drafter.gguf"])
def test_a_model_with_another_content_is_refused(tmp_path: Path, name: str) -> None:
    _store(tmp_path)
    content = bytearray((tmp_path / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    done = shell.here("serve")
    assert done.returncode == ModelFileError.exit_code
    assert f"{name} is not the file that was tuned: its size or checksum differs" in done.stderr
    assert not fake_server.starts(tmp_path / "llama")


def test_a_build_that_is_gone_is_refused_and_a_changed_one_noted(tmp_path: Path) -> None:
    configuration = _store(tmp_path)
    program = tmp_path / "llama" / "llama-server"
    program.write_text(program.read_text() + "# changed\n")
    (note,) = (note for note in tuning.prepare_server(configuration).notes if str(program) in note)
    assert note == f"tuned: {program} has changed since; another configuration may be faster now"
    shutil.rmtree(tmp_path / "llama")
    with pytest.raises(NoInstallError, match=r"the llama\.cpp that was tuned is gone"):
        tuning.prepare_server(configuration)


def test_what_could_not_be_served_is_refused(tmp_path: Path) -> None:
    configuration = _store(tmp_path)
    failed = replace(configuration, serving_argv=(), launch=Launch(argv=("x",), failure="out of memory"))
    with pytest.raises(ResultsError, match="cannot be served: out of memory"):
        tuning.prepare_server(failed)
    with pytest.raises(ResultsError, match="cannot be served: it had no llama-server"):
        tuning.prepare_server(replace(configuration, serving_argv=(), launch=None))


def test_only_an_export_is_written_to_a_file() -> None:
    done = shell.here("serve", "--out", "x")
    assert (done.returncode, "--out is for --export" in done.stderr) == (2, True)


# -- files


@pytest.fixture(params=FOLDERS, ids=str)
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[ServerFormat, ServerCommand, str]:
    """A format, a command with hostile paths, and its file."""
    form: ServerFormat = request.param
    folder = tmp_path / FOLDERS[form]
    folder.mkdir()
    configuration = _store(folder, llama=tmp_path / NO_QUOTES if form is ServerFormat.SYSTEMD else None)
    keys = folder / "keys"
    keys.write_text("secret\n")
    server = tuning.prepare_server(configuration, ("--api-key-file", str(keys), "--no-cont-batching"))
    file = tmp_path / "exported.service"
    shell.done(
        *("serve", "--export", form.value, "--out", str(file), "--"),
        *("--api-key-file", str(keys), "--no-cont-batching"),
    )
    return form, server, file.read_text()


def test_every_word_is_read_back_as_it_was(exported: tuple[ServerFormat, ServerCommand, str]) -> None:
    form, server, text = exported
    assert text == exports.export(server, form)
    read = {
        ServerFormat.SYSTEMD: _check_systemd,
        ServerFormat.COMPOSE: _check_compose,
        ServerFormat.LLAMA_SWAP: _check_llama_swap,
        ServerFormat.PRESET: _check_preset,
        ServerFormat.ENV: _check_env,
    }
    read[form](server, text)


def _check_systemd(server: ServerCommand, text: str) -> None:
    joined = re.sub(r"\\\n\s*", "", text)
    lines = dict(line.split("=", 1) for line in joined.splitlines() if line.startswith("ExecStart="))
    program, *arguments = _systemd_words(lines["ExecStart"])
    assert (program, *(word.replace("$$", "$") for word in arguments)) == server.argv
    variables = [
        _systemd_words(line.split("=", 1)[1])[0]
        for line in joined.splitlines()
        if line.startswith("Environment=")
    ]
    assert variables == [f"{name}={value}" for name, value in server.environment.items()]


def _systemd_words(text: str) -> list[str]:
    """Return the words of a line, as systemd.syntax(7) and systemd.service(5) describe its quotes."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', text)
    unescaped = (re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in words)
    return [word.replace("%%", "%") for word in unescaped]


def _check_compose(server: ServerCommand, text: str) -> None:
    service = yaml.safe_load(text)["services"]["llama-server"]
    words = [word.replace("$$", "$") for word in service["command"]]
    assert words[-4:] == ["--host", "0.0.0.0", "--port", "8080"]
    assert tuple(words[:-4]) == server.without("--port").argv[1:]
    assert service["ports"] == [{"host_ip": "127.0.0.1", "published": "8080", "target": 8080}]
    mounted = {volume["target"].replace("$$", "$"): volume for volume in service["volumes"]}
    assert {*mounted} == {word for word in words if word.startswith("/")}
    for target, volume in mounted.items():
        assert Path(volume["source"].replace("$$", "$")) == Path(target).resolve()
        assert volume["read_only"] is True
    environment = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
    assert environment == server.environment


def _check_llama_swap(server: ServerCommand, text: str) -> None:
    config = yaml.safe_load(text)
    model = config["models"]["mine"]
    assert (config.keys(), model.keys() - {"proxy"}) == ({"models"}, {"cmd", "env"})
    words = shlex.split(model["cmd"].replace("${PORT}", "8080"))
    assert words == [*server.without("--port").argv, "--host", "127.0.0.1", "--port", "8080"]
    assert model["env"] == [f"{name}={value}" for name, value in server.environment.items()]


def _check_preset(server: ServerCommand, text: str) -> None:
    sections = _preset_sections(text)
    assert sections[""] == {"version": "1"}
    options = server.without("--port", "--api-key-file").options
    assert sections["mine"] == {option.flag.lstrip("-"): option.value or "true" for option in options}


def _preset_sections(text: str) -> dict[str, dict[str, str]]:
    """Read an INI file by the grammar of llama.cpp's common/preset.cpp."""
    sections: dict[str, dict[str, str]] = {"": {}}
    name = ""
    for line in text.splitlines():
        if header := re.fullmatch(r"\[[ \t]*([^\]]+?)[ \t]*\][ \t]*(?:[;#].*)?", line):
            name = header[1]
            sections[name] = {}
        elif pair := re.fullmatch(r"([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*?)[ \t]*(?:[;#].*)?", line):
            sections[name][pair[1]] = pair[2]
        else:
            assert re.fullmatch(r"[ \t]*(?:[;#].*)?", line), line
    return sections


def _check_env(server: ServerCommand, text: str) -> None:
    dump = f"set -a\n{text}\nexec env -0"
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["/bin/sh", "-c", dump], capture_output=True, check=True, env=env)
    variables = dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if "=" in entry)
    for option in server.options:
        if "threads-" in option.flag:
            continue  # as --threads
        assert option.variable is not None
        assert variables[option.variable] == (option.value or "0")
    assert variables.items() >= server.environment.items()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    unit = tmp_path / "llama.service"
    server = tuning.prepare_server(_store(folder, llama=tmp_path / NO_QUOTES))
    unit.write_text(exports.export(server, ServerFormat.SYSTEMD))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (ServerFormat.PRESET, "a;b"),
        (ServerFormat.PRESET, "a#b"),
        (ServerFormat.LLAMA_SWAP, "a${b}"),
        (ServerFormat.SYSTEMD, 'a"b'),
        (ServerFormat.SYSTEMD, "a\\b"),
        *((form, "a\nb") for form in ServerFormat),
    ],
)
def test_a_path_that_a_format_cannot_hold_is_refused(tmp_path: Path, form: ServerFormat, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(GgufspecError, match=f"the format {form} cannot hold"):
        exports.export(tuning.prepare_server(_store(folder)), form)


def test_a_preset_cannot_repeat_an_option_and_variables_need_names(tmp_path: Path) -> None:
    configuration = _store(tmp_path)
    twice = tuning.prepare_server(configuration, ("--tags", "a", "--tags", "b"))
    with pytest.raises(GgufspecError, match="cannot hold --tags twice"):
        exports.export(twice, ServerFormat.PRESET)
    nameless = tuning.prepare_server(configuration, ("--keep", "5"))
    with pytest.raises(GgufspecError, match="llama-server has no variable for --keep"):
        exports.export(nameless, ServerFormat.ENV)
    for words in (("--keep", "0"), ("--xtc-probability", "0.0")):
        usual = tuning.prepare_server(configuration, words)
        assert words[0].strip("-") not in exports.export(usual, ServerFormat.ENV)


@pytest.mark.parametrize(
    ("backend", "version", "image"),
    [
        ("cpu", "0.3.36", "ghcr.io/ggml-org/llama.cpp:server"),
        ("cuda", "b10475", "ghcr.io/ggml-org/llama.cpp:server-cuda-b10475"),
        ("vulkan", None, "ghcr.io/ggml-org/llama.cpp:server-vulkan"),
        ("hip", None, "ghcr.io/ggml-org/llama.cpp:server-rocm"),
    ],
)
def test_containers_have_the_backend(tmp_path: Path, backend: str, version: str | None, image: str) -> None:
    server = tuning.prepare_server(_store(tmp_path))
    built = replace(server, build=replace(server.build, backend=backend, version=version))
    service = yaml.safe_load(exports.export(built, ServerFormat.COMPOSE))["services"]["llama-server"]
    assert service["image"] == f"${{LLAMA_IMAGE:-{image}}}"
    assert ("deploy" in service) == (backend == "cuda")
    assert ("devices" in service) == (backend in {"vulkan", "hip"})
    metal = replace(server, build=replace(server.build, backend="metal"))
    with pytest.raises(GgufspecError, match=r"no image of .* for the backend metal"):
        exports.export(metal, ServerFormat.COMPOSE)


def test_the_address_of_a_container_is_the_user_s(tmp_path: Path) -> None:
    server = tuning.prepare_server(_store(tmp_path), ("--host", "192.0.2.1", "--port", "9000"))
    service = yaml.safe_load(exports.export(server, ServerFormat.COMPOSE))["services"]["llama-server"]
    assert service["ports"] == [{"host_ip": "192.0.2.1", "published": "9000", "target": 9000}]
    assert service["command"][-4:] == ["--host", "0.0.0.0", "--port", "9000"]


@pytest.mark.parametrize(("flag", "value"), [("--no-cont-batching", "0"), ("-cb", "1")])
def test_a_variable_says_whether_a_flag_turns_something_off(tmp_path: Path, flag: str, value: str) -> None:
    server = tuning.prepare_server(_store(tmp_path), (flag,))
    assert f"LLAMA_ARG_CONT_BATCHING={value}\n" in exports.export(server, ServerFormat.ENV)


# llama-server, started once by the command that users are given, before they are given it


SERVING = Serving(context=2048, slots=2)
TEXT = "a b c d e f g h i j"


@pytest.fixture(autouse=True)
def first_port(worker_id: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """A range of ports for each process that runs tests: two would find the same one free."""
    port = 18_000 + 200 * int(worker_id.removeprefix("gw")) if worker_id != "master" else 17_800
    monkeypatch.setattr(serving, "_PORT", port)
    return port


def _spec(tmp_path: Path) -> RunSpec:
    spec = values.spec(Role.DRAFTING, draft=3, path=tmp_path / "target.gguf")
    return replace(spec, context=SERVING.total_context, drafting=Drafting(n_max=3, p_min=0.5))


def _serve(tmp_path: Path, behaviour: Behaviour | None = None, most_tokens: int | None = None) -> Launch:
    folder = fakes.install(tmp_path / "llama", **fakes.AT_ONCE)
    fake_server.program(folder / "llama-server", behaviour)
    install = installs.find_install(folder)
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
def test_requests_may_turn_drafting_off(tmp_path: Path, behaviour: Behaviour, switches: bool | None) -> None:
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
        runtime=Runtime(flash_attn="on", batch=1024, mlock=True, args=("--no-repack",)),
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
