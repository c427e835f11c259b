"""The engine contract, kept by every row of ENGINES, on fake programs that behave and misbehave."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.domain import Program, Role, RunSpec, Status
from ggufspec.engines.binary import generated_text
from ggufspec.llama.install import installs
from ggufspec.options import BenchOptions
from ggufspec.options.kinds import Word
from tests.support import fake_server, fakes, values
from tests.support.fake_server import Behaviour

PROCESSES = [name for name in engines.ENGINES if name != "inprocess"]  # no fake can stand in for a library
every_engine = pytest.mark.parametrize("name", PROCESSES)
binary_engine = pytest.mark.parametrize(
    "name", [name for name in PROCESSES if engines.ENGINES[name] is not Program.SERVER]
)

REFUSAL = (
    "main: error: draft model vocab must closely match target model to use speculation but token 5 differs"
)


def _measure(
    name: str,
    tmp_path: Path,
    spec: RunSpec,
    *,
    timeout_s: float = 20.0,
    server: Behaviour | None = None,
    **bodies: str,
) -> engines.Measurement:
    folder = fakes.install(tmp_path / "llama", **bodies)
    fake_server.program(folder / "llama-server", server)
    with engines.make(name, installs.find_install(folder), timeout_s=timeout_s) as engine:
        return engine.measure(spec, tmp_path / "log")


@every_engine
def test_plain_run(name: str, tmp_path: Path) -> None:
    measured = _measure(name, tmp_path, values.spec())
    sample = measured.sample
    assert (sample.status, measured.error) == (Status.OK, None)
    assert (sample.n_draft, sample.n_drafted, sample.n_accepted, sample.accept_rate) == (None,) * 4
    assert (sample.text or "").startswith(fakes.TEXT)
    assert measured.wall_s > 0
    assert Path(measured.argv[0]).parent == tmp_path / "llama"
    assert (tmp_path / "log.out").stat().st_size
    assert (tmp_path / "log.err").stat().st_size


@every_engine
def test_drafting_run(name: str, tmp_path: Path) -> None:
    sample = _measure(name, tmp_path, values.spec(Role.DRAFTING, draft=3)).sample
    assert sample.status is Status.OK
    counts = (sample.n_draft, sample.n_drafted, sample.n_accepted, sample.accept_rate)
    assert counts == ((3, 31, 20, 20 / 31) if name == "server" else (3, 24, 18, 0.75))


@every_engine
def test_speeds_are_on_one_definition(name: str, tmp_path: Path) -> None:
    plain = _measure(name, tmp_path, values.spec()).sample
    drafting = _measure(name, tmp_path, values.spec(Role.DRAFTING, draft=3)).sample
    expected = {
        "binary": (31 / 0.2, 32 / 0.1),
        "binary-simple": (31 / 0.2, 33 / 0.1),
        "server": (31 / 0.062, 31 / 0.022),
    }
    assert (plain.decode_tps, drafting.decode_tps) == pytest.approx(expected[name])


@every_engine
@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("kill -SEGV $$", Status.CRASHED, "died of SIGSEGV"),
        ("kill -KILL $$", Status.OUT_OF_MEMORY, "killed by SIGKILL"),
        ("echo 'error: something odd' >&2; exit 7", Status.FAILED, "exit code 7"),
        (
            "echo 'ggml_cuda: cudaMalloc failed: out of memory' >&2; exit 1",
            Status.OUT_OF_MEMORY,
            "cudaMalloc failed",
        ),
        (f"echo '{REFUSAL}' >&2; exit 1", Status.DRAFTER_REFUSED, "must closely match"),
    ],
)
def test_failures_are_typed_and_explained(
    name: str, tmp_path: Path, body: str, status: Status, reason: str
) -> None:
    measured = _measure(
        name,
        tmp_path,
        values.spec(Role.DRAFTING, draft=3),
        drafting=body + "\n",
        server=Behaviour(at_load=body),
    )
    assert measured.sample.status is status
    assert reason in (measured.error or "")
    assert (measured.sample.text, measured.sample.decode_tps) == (None, None)
    assert measured.argv
    assert (tmp_path / "log.out").exists()
    said = (tmp_path / "log.err").read_text()
    assert "echo" not in body or said.strip() in body


@every_engine
def test_a_prompt_that_does_not_fit(name: str, tmp_path: Path) -> None:
    spec = values.spec(Role.DRAFTING, draft=3, prompt="@long")
    body = "echo 'main: error: prompt is too long (900 tokens, max 508)' >&2; exit 1\n"
    assert _measure(name, tmp_path, spec, drafting=body).sample.status is Status.PROMPT_TOO_LONG


@every_engine
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("exit 0", "@cut"),
        ("echo 'load_tensors: offloaded 0/7 layers to GPU' >&2", "@null"),
        ("head -c 2000 /dev/urandom >&2", "@garbage"),
    ],
)
def test_lost_summaries(name: str, tmp_path: Path, body: str, fault: str) -> None:
    spec = values.spec(Role.DRAFTING, draft=3, prompt=fault)
    measured = _measure(name, tmp_path, spec, drafting=body + "\n")
    assert measured.sample.status is Status.SUMMARY_LOST
    assert measured.error
    assert measured.sample.decode_tps is None


@every_engine
def test_drafting_nothing_is_no_measurement_of_drafting(name: str, tmp_path: Path) -> None:
    nothing = (
        fakes.DRAFTING.replace("n_drafted = 24", "n_drafted = 0")
        .replace("n_accept  = 18", "n_accept  = 0")
        .replace("75.000%", "-nan%")
    )
    server = Behaviour(drafts=False)
    spec = values.spec(Role.DRAFTING, draft=3)
    measured = _measure(name, tmp_path, spec, drafting=nothing, server=server)
    assert measured.sample.status is Status.DRAFTING_INACTIVE
    assert measured.error


@every_engine
def test_time_out(name: str, tmp_path: Path) -> None:
    started = time.monotonic()
    hang = "sleep 65\n"
    measured = _measure(
        name, tmp_path, values.spec(), timeout_s=0.3, plain=hang, server=Behaviour(at_load=hang)
    )
    assert measured.sample.status is Status.TIMED_OUT
    assert time.monotonic() - started < 30


@every_engine
def test_programs_run_in_an_empty_folder_without_the_users_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PREDICT", "1")
    look = 'echo "files: $(ls -A | wc -l) settings: $(env | grep -c "^LLAMA_") $LC_ALL" >&2; '
    _measure(name, tmp_path, values.spec(), plain=look + fakes.PLAIN, server=Behaviour(at_load=look))
    assert "files: 0 settings: 0 C.UTF-8\n" in (tmp_path / "log.err").read_text()


@every_engine
def test_the_command_is_known_without_running_it(name: str, tmp_path: Path) -> None:
    folder = fakes.install(tmp_path / "llama", plain="exit 9", drafting="exit 9")
    fake_server.program(folder / "llama-server")
    spec = values.spec(Role.DRAFTING, draft=3, path=tmp_path / "target.gguf")
    with engines.make(name, installs.find_install(folder)) as engine:
        words = engine.argv(spec)
        assert engine.name == name
    assert words[words.index("--model") + 1] == str(tmp_path / "target.gguf")
    assert words[words.index("--model-draft") + 1] == str(tmp_path / "drafter.gguf")
    assert not fake_server.starts(folder)


@every_engine
def test_engines_say_what_they_keep_loaded(name: str, tmp_path: Path) -> None:
    folder = fakes.install(tmp_path / "llama")
    fake_server.program(folder / "llama-server")
    with engines.make(name, installs.find_install(folder), capacity=2) as engine:
        key = engine.load_key(values.spec())
        assert (engine.capacity, key is not None) == ((2, True) if name == "server" else (None, False))
        assert key == engine.load_key(values.spec(prompt="another"))
        assert engines.keeps_loads(name) is (key is not None)


@every_engine
def test_the_command_line_offers_exactly_these_engines(name: str) -> None:
    kind = BenchOptions.options["engine"].kind
    assert isinstance(kind, Word)
    words = kind.words
    assert name in words
    assert len(words) == len(engines.ENGINES)


@binary_engine
def test_the_raw_logs_are_what_the_program_wrote(name: str, tmp_path: Path) -> None:
    sample = _measure(name, tmp_path, values.spec()).sample
    assert (sample.gen_tokens, sample.gen_s, sample.sampling_s) == (31, 0.19, 0.01)
    assert (tmp_path / "log.out").read_text() == fakes.TEXT
    assert (tmp_path / "log.err").read_text() == fakes.PLAIN_LOG


@binary_engine
def test_long_prompts_travel_in_a_file(name: str, tmp_path: Path) -> None:
    text = "words and words " * 10_000
    spec = values.spec(prompt=text)
    echo = 'while [ $# -gt 0 ]; do [ "$1" = --file ] && wc -c <"$2" >&2; shift; done\n'
    _measure(name, tmp_path, spec, plain=echo)
    assert (tmp_path / "log.err").read_text().strip() == str(len(spec.prompt.text) + 1)


@pytest.mark.parametrize(
    ("stdout", "text"),
    [
        ("\n\n<s> Tell me a story. Once upon\n\n\n", " Once upon"),
        ("Once upon a time [end of text]\n", "Once upon a time"),
        ("no echo here\n", "no echo here"),
        ("It repeats itself, as small models do: Tell me a story. Again!",) * 2,
    ],
)
def test_generated_text_has_neither_prompt_nor_decoration(stdout: str, text: str) -> None:
    assert generated_text(stdout, "Tell me a story.") == text
