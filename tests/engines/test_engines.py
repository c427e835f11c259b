"""The engine contract, kept by every row of ENGINES, on fake programs that behave and misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ggufspec import engines
from ggufspec.domain import Drafting, Method, Program, Role, RunSpec, Status
from ggufspec.engines import plausibility
from ggufspec.engines.binary import generated_text
from ggufspec.engines.engine import Pool
from ggufspec.engines.library.spread import Spreads
from ggufspec.engines.library.tracing import prompt_batches
from ggufspec.engines.server import response
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
    assert sample.decode_tps == pytest.approx(31 / (0.062 if name == "server" else 0.2))
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
    speeds = {"binary": 32 / 0.1, "binary-simple": 33 / 0.1, "server": 31 / 0.022}  # on one definition
    assert sample.decode_tps == pytest.approx(speeds[name])


NOTHING = (
    fakes.DRAFTING.replace("n_drafted = 24", "n_drafted = 0")
    .replace("n_accept  = 18", "n_accept  = 0")
    .replace("75.000%", "-nan%")
)
LONG = "echo 'main: error: prompt is too long (900 tokens, max 508)' >&2; exit 1"
MEMORY = "echo 'ggml_cuda: cudaMalloc failed: out of memory' >&2; exit 1"
AT_LOAD = None  # the server does what the program does, when it loads


@every_engine
@pytest.mark.parametrize(
    ("body", "server", "prompt", "status", "reason"),
    [
        ("kill -SEGV $$", AT_LOAD, "p1", Status.CRASHED, "died of SIGSEGV"),
        ("kill -KILL $$", AT_LOAD, "p1", Status.OUT_OF_MEMORY, "killed by SIGKILL"),
        ("echo 'error: something odd' >&2; exit 7", AT_LOAD, "p1", Status.FAILED, "exit code 7"),
        (MEMORY, AT_LOAD, "p1", Status.OUT_OF_MEMORY, "cudaMalloc failed"),
        (f"echo '{REFUSAL}' >&2; exit 1", AT_LOAD, "p1", Status.DRAFTER_REFUSED, "must closely match"),
        (LONG, Behaviour(), "@long", Status.PROMPT_TOO_LONG, ""),
        ("exit 0", Behaviour(), "@cut", Status.SUMMARY_LOST, ""),
        ("echo 'load_tensors: offloaded 0/7' >&2", Behaviour(), "@null", Status.SUMMARY_LOST, ""),
        ("head -c 2000 /dev/urandom >&2", Behaviour(), "@garbage", Status.SUMMARY_LOST, ""),
        (NOTHING, Behaviour(drafts=False), "p1", Status.DRAFTING_INACTIVE, ""),
    ],
)
def test_failures_are_explained(
    name: str, tmp_path: Path, body: str, server: Behaviour | None, prompt: str, status: Status, reason: str
) -> None:
    spec = values.spec(Role.DRAFTING, draft=3, prompt=prompt)
    server = server or Behaviour(at_load=body)
    measured = _measure(name, tmp_path, spec, drafting=f"{body}\n", server=server)
    assert measured.sample.status is status
    assert measured.error
    assert reason in measured.error
    assert measured.sample.text is None
    assert measured.sample.decode_tps is None or status is Status.DRAFTING_INACTIVE
    assert measured.argv
    assert (tmp_path / "log.out").exists()
    said = (tmp_path / "log.err").read_text(errors="replace")
    assert not reason or "echo" not in body or said.strip() in body


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
def test_programs_get_no_user_settings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# When the spread of a model is measured


def test_a_spread_is_measured_once_per_model_at_the_first_text_that_is_long_enough() -> None:
    spreads, measured = Spreads(), iter((0.1, 0.2, 0.3, 0.4))

    def ask(model: str, n_tokens: int) -> float:
        return spreads.of(model, n_tokens, lambda: next(measured))

    assert [ask("target", n_tokens) for n_tokens in (5, 200, 200, 5)] == [0.1, 0.2, 0.2, 0.2]
    assert ask("drafter", 200) == 0.3
    assert next(measured) == 0.4


# In which batches a prompt is evaluated: near-ties of the first tokens fall by them


@pytest.mark.parametrize(
    ("n_prompt", "server", "ends"),
    [
        *((3, True, [3]), (4, True, [4]), (5, True, [1, 5]), (100, True, [96, 100])),
        *((516, True, [512, 516]), (600, True, [84, 596, 600]), (600, False, [600])),
    ],
)
def test_servers_with_copies_of_caches_read_the_last_tokens_apart(
    n_prompt: int, server: bool, ends: list[int]
) -> None:
    assert prompt_batches(n_prompt, 512, server=server) == ends


# Figures that cannot be true are refused: whoever reports them, and however they contradict the rest


RECORDED = Path(__file__).parents[1] / "responses" / "0.3.16" / "target.jsonl"


def _judged(role: Role = Role.DRAFTING, *, n_predict: int = 100, **changed: Any) -> Status:
    run = values.run(role, draft=3 if role is Role.DRAFTING else None)
    spec = replace(run.spec, n_predict=n_predict)
    verdict = plausibility.judge(spec, replace(run.sample, **changed), wall_s=2.4)
    return Status.OK if verdict is None else verdict[0]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, Status.OK),
        ({"n_rounds": 40}, Status.OK),
        ({"gen_tokens": 105}, Status.OK),  # the last round of three drafts went beyond 100
        ({"n_rounds": 30, "n_draft": 3}, Status.IMPLAUSIBLE),  # 100 tokens in 30 rounds of three
        ({"n_accepted": 101}, Status.IMPLAUSIBLE),
        ({"gen_s": 60.0}, Status.IMPLAUSIBLE),  # the program ran for 2.4 s
        ({"draft_s": 1.5, "verify_s": 1.5}, Status.IMPLAUSIBLE),  # of 2 s
        ({"gen_tokens": 106}, Status.IMPLAUSIBLE),
        ({"gen_tokens": 10**9}, Status.IMPLAUSIBLE),
        ({"gen_s": 1e-303}, Status.IMPLAUSIBLE),
        ({"gen_s": 0.0}, Status.IMPLAUSIBLE),
        ({"prompt_tps": 1e300}, Status.IMPLAUSIBLE),
        ({"text": ""}, Status.NO_TEXT),
        ({"gen_tokens": 1}, Status.NO_TEXT),
        ({"text": None}, Status.OK),  # left out of a published bench
    ],
)
def test_a_run_counts_only_if_its_figures_can_be_true(changed: dict[str, Any], status: Status) -> None:
    assert _judged(**changed) is status


def test_drafts_at_the_end_may_be_spare() -> None:
    assert _judged(Role.TARGET, gen_tokens=100) is Status.OK
    assert _judged(Role.TARGET, gen_tokens=101) is Status.IMPLAUSIBLE
    assert _judged(program=Program.SERVER, gen_tokens=101) is Status.IMPLAUSIBLE
    chain = Drafting(n_max=3, method=Method.DRAFT_MODEL, first=(Method.NGRAM_MOD,))
    run = values.run(Role.DRAFTING, draft=3)
    sample = replace(run.sample, gen_tokens=32 + 40, n_drafted=None)
    assert plausibility.judge(run.spec, sample, wall_s=2.4) is not None
    assert plausibility.judge(replace(run.spec, drafting=chain), sample, wall_s=2.4) is None


def _contradiction(arrivals: Sequence[float], gen_s: float) -> str | None:
    return plausibility.find_contradiction(
        tokens=len(arrivals), asked=len(arrivals), gen_s=gen_s, arrivals=arrivals, end_s=arrivals[-1]
    )


@pytest.mark.parametrize(
    ("gaps", "gen_s", "is_believed"),
    [
        ([0.01] * 99, 0.99, True),
        ([0.0] * 98 + [0.99], 0.99, True),  # all came at once, behind a pause
        ([0.01] * 50 + [5.0] + [0.01] * 48, 0.98, True),  # the client slept
        ([0.00005] * 4000, 0.02, True),  # the client reads no faster
        *(([0.01] * 99, 0.99 * factor, False) for factor in (0.1, 10.0)),
        *(([0.03] * 15, 0.45 * factor, False) for factor in (0.1, 10.0)),
    ],
)
def test_a_server_is_believed_unless_its_clock_is_tenfold_off(
    gaps: list[float], gen_s: float, is_believed: bool
) -> None:
    assert (_contradiction([*accumulate(gaps, initial=0.1)], gen_s) is None) is is_believed


@given(
    sent=st.lists(st.floats(0.001, 0.1), min_size=2, max_size=60),
    busy_from=st.floats(0, 3),
    busy_s=st.floats(0, 10),
)
def test_a_pause_of_the_client_is_no_lie(sent: list[float], busy_from: float, busy_s: float) -> None:
    times = [*accumulate(sent, initial=0.5)]
    arrivals = [busy_from + busy_s if busy_from < at < busy_from + busy_s else at for at in times]
    assert _contradiction(arrivals, times[-1] - times[0]) is None


def _record(change: Any) -> response.Parsed:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return response.parse_response("".join(json.dumps(line) + "\n" for line in change(lines)))


def _twice(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    is_piece = [bool(line.get("chunk", {}).get("content")) for line in lines]
    return [line for line, piece in zip(lines, is_piece, strict=True) for _ in range(1 + piece)]


def _with_timings(**changed: Any) -> Any:
    def change(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = next(line for line in reversed(lines) if "chunk" in line)
        last["chunk"]["timings"] |= changed
        return lines

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_twice, "64 pieces of text came"),
        (_with_timings(predicted_n=10**9), "1,000,000,000 tokens, but 32 were asked for"),
        (_with_timings(predicted_ms=1e-300), "decoded for 0.00 s"),
        (_with_timings(predicted_ms=1e6), "decoded for 16 min 40 s"),
    ],
)
def test_a_servers_answer_that_contradicts_itself_is_implausible(change: Any, words: str) -> None:
    assert _record(list).sample.status is Status.OK
    parsed = _record(change)
    assert parsed.sample.status is Status.IMPLAUSIBLE
    assert words in parsed.remark


# The loads that an engine keeps: the one that was used longest ago is ended first


@dataclass
class Load:
    is_usable: bool = True

    def close(self) -> None:
        self.is_usable = False


def test_a_use_keeps_a_load_and_a_look_does_not() -> None:
    pool, loads = Pool[int, Load](capacity=2), [Load(), Load()]
    for key, load in enumerate(loads):
        pool.put(key, load)
    assert pool.get(0) is loads[0]
    assert pool.holds(1)
    pool.make_room()
    assert [load.is_usable for load in loads] == [True, False]
    assert [pool.holds(1), pool.get(1)] == [False, None]
    pool.put(2, loads[0])
    pool.forget(loads[0])
    assert (pool.get(0), pool.get(2), loads[0].is_usable) == (None, None, False)


def test_all_loads_end_at_once() -> None:
    together = threading.Barrier(3, timeout=60)

    class Slow(Load):
        def close(self) -> None:
            together.wait()
            self.is_usable = False

    pool, loads = Pool[int, Load](capacity=None), [Slow() for _ in range(3)]
    for key, load in enumerate(loads):
        pool.put(key, load)
        pool.put(10 + key, load)  # the same under another key is closed once
    pool.clear()
    assert not any(load.is_usable for load in loads)
    assert not any(pool.holds(key) for key in range(3))


def test_an_error_of_one_load_is_raised_after_all_have_ended() -> None:
    class Broken(Load):
        def close(self) -> None:
            raise OSError("no")

    pool, good = Pool[int, Load](capacity=None), Load()
    pool.put(0, Broken())
    pool.put(1, good)
    with pytest.raises(OSError, match="no"):
        pool.clear()
    assert not good.is_usable
