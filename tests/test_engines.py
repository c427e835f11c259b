"""The engine contract, kept by every row of ENGINES, on fake programs that behave and misbehave."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ggufspec import engines
from ggufspec.cli import bench as bench_command
from ggufspec.domain import Role, RunSpec, Status
from ggufspec.engines.binary import generated_text
from ggufspec.llama import install
from tests import fakes, values

pytestmark = pytest.mark.parametrize("name", engines.ENGINES)

REFUSAL = (
    "main: error: draft model vocab must closely match target model to use speculation but token 5 differs"
)


def _measure(
    name: str, tmp_path: Path, spec: RunSpec, *, timeout_s: float = 20.0, **bodies: str
) -> engines.Measurement:
    found = install.find(fakes.install(tmp_path / "llama", **bodies))
    return engines.make(name, found, timeout_s=timeout_s).measure(spec, tmp_path / "log")


def test_plain_run(name: str, tmp_path: Path) -> None:
    measured = _measure(name, tmp_path, values.spec())
    sample = measured.sample
    assert (sample.status, measured.error) == (Status.OK, None)
    assert (sample.gen_tokens, sample.gen_s, sample.sampling_s) == (31, 0.19, 0.01)
    assert sample.decode_tps == pytest.approx(31 / 0.2)
    assert sample.text == fakes.TEXT
    assert measured.argv[0].endswith("llama-completion")
    assert (tmp_path / "log.out").read_text() == fakes.TEXT
    assert (tmp_path / "log.err").read_text() == fakes.PLAIN_LOG


def test_drafting_run(name: str, tmp_path: Path) -> None:
    sample = _measure(name, tmp_path, values.spec(Role.DRAFTING, draft=3)).sample
    assert sample.status is Status.OK
    assert (sample.n_draft, sample.n_drafted, sample.n_accepted, sample.accept_rate) == (3, 24, 18, 0.75)
    assert sample.decode_tps == pytest.approx((32 if name == "binary" else 33) / 0.1)


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ("kill -SEGV $$", Status.CRASHED, "died of SIGSEGV"),
        ("kill -KILL $$", Status.OUT_OF_MEMORY, "killed from outside"),
        ("echo 'error: something odd' >&2; exit 7", Status.FAILED, "exit code 7"),
        (
            "echo 'ggml_cuda: cudaMalloc failed: out of memory' >&2; exit 1",
            Status.OUT_OF_MEMORY,
            "cudaMalloc failed",
        ),
        (f"echo '{REFUSAL}' >&2; exit 1", Status.DRAFTER_REFUSED, "must closely match"),
        (
            "echo 'main: error: prompt is too long (900 tokens, max 508)' >&2; exit 1",
            Status.PROMPT_TOO_LONG,
            "too long",
        ),
        ("exit 0", Status.SUMMARY_LOST, "summary lost"),
        ("echo 'load_tensors: offloaded 0/7 layers to GPU' >&2", Status.SUMMARY_LOST, "summary lost"),
    ],
)
def test_failures_are_typed_and_explained(
    name: str, tmp_path: Path, body: str, status: Status, reason: str
) -> None:
    measured = _measure(name, tmp_path, values.spec(Role.DRAFTING, draft=3), drafting=body + "\n")
    assert measured.sample.status is status
    assert reason in (measured.error or "")
    assert (measured.sample.text, measured.sample.decode_tps) == (None, None)


def test_drafting_nothing_is_no_measurement_of_drafting(name: str, tmp_path: Path) -> None:
    nothing = (
        fakes.DRAFTING.replace("n_drafted = 24", "n_drafted = 0")
        .replace("n_accept  = 18", "n_accept  = 0")
        .replace("75.000%", "-nan%")
    )
    measured = _measure(name, tmp_path, values.spec(Role.DRAFTING, draft=3), drafting=nothing)
    assert measured.sample.status is Status.DRAFTING_INACTIVE


def test_time_out(name: str, tmp_path: Path) -> None:
    started = time.monotonic()
    measured = _measure(name, tmp_path, values.spec(), timeout_s=0.3, plain="sleep 65\n")
    assert measured.sample.status is Status.TIMED_OUT
    assert time.monotonic() - started < 5


def test_long_prompts_travel_in_a_file(name: str, tmp_path: Path) -> None:
    text = "words and words " * 10_000
    spec = values.spec(prompt=text)
    echo = 'while [ $# -gt 0 ]; do [ "$1" = --file ] && wc -c <"$2" >&2; shift; done\n'
    _measure(name, tmp_path, spec, plain=echo)
    assert (tmp_path / "log.err").read_text().strip() == str(len(spec.prompt.text) + 1)


def test_programs_run_in_an_empty_folder_without_the_users_settings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PREDICT", "1")
    _measure(name, tmp_path, values.spec(), plain='ls -A; env | grep -c "^LLAMA_"; echo "$LC_ALL"\n')
    assert (tmp_path / "log.out").read_text() == "0\nC\n"


def test_the_command_line_offers_exactly_these_engines(name: str) -> None:
    assert name in bench_command._ENGINES
    assert len(bench_command._ENGINES) == len(engines.ENGINES)


@pytest.mark.parametrize(
    ("stdout", "text"),
    [
        ("\n\n<s> Tell me a story. Once upon\n\n\n", " Once upon"),
        ("Once upon a time [end of text]\n", "Once upon a time"),
        ("no echo here\n", "no echo here"),
        ("It repeats itself, as small models do: Tell me a story. Again!",) * 2,
    ],
)
def test_generated_text_has_neither_prompt_nor_decoration(name: str, stdout: str, text: str) -> None:
    assert generated_text(stdout, "Tell me a story.") == text
