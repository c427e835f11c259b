"""The engine `inprocess` without a library: workers that misbehave, records, drafts, and the command."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from ggufspec.domain import (
    Drafting,
    Failure,
    Method,
    ModelRun,
    Offload,
    Program,
    Role,
    Round,
    Sample,
    Sampling,
    Status,
)
from ggufspec.engines import rereading
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.engines.library import commandline
from ggufspec.engines.library.decoding import (
    Greedy,
    PlayedRound,
    ProposedDraft,
    confidence,
    kept_tokens,
    likeliest,
    propose,
)
from ggufspec.engines.library.messages import LibraryRecord, ModelLoad, RoundRecord, WorkerRun
from ggufspec.engines.library.model import Logits
from ggufspec.errors import GgufspecError
from ggufspec.llama.install.installs import Install
from tests.support import scripted, shell, values

PLAIN = LibraryRecord(
    n_draft=None,
    prompt_tokens=10,
    prompt_s=0.1,
    ttft_s=0.1,
    gen_tokens=3,
    gen_s=0.3,
    tokens=(5, 6, 7, 8),
    text="four",
    at_s=(0.1, 0.2, 0.3, 0.4),
    ended=False,
    load_s=1.5,
)
DRAFTED = replace(
    PLAIN,
    n_draft=3,
    gen_tokens=5,
    at_s=(0.2, 0.2, 0.2, 0.4, 0.5),
    tokens=(5, 6, 7, 8, 9),
    rounds=(
        RoundRecord((5, 6, 1), 2, (0.9, 0.8, 0.3), 0.03, 0.01, 0.05, 0.2),
        RoundRecord((), 0, (), 0.01, 0.01, 0.02, 0.4),
        RoundRecord((1,), 0, (0.5,), 0.01, 0.01, 0.02, 0.5),
    ),
    load_s=None,
)


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """A folder that only looks like an install with a library."""
    folder = tmp_path / "llama"
    folder.mkdir()
    (folder / "libllama.so").write_bytes(b"no library")
    return replace(scripted.INSTALL, root=folder, version=None)


def _engine(install: Install, script: str, *, timeout_s: float = 20.0) -> InprocessEngine:
    return InprocessEngine(install=install, timeout_s=timeout_s, command=("/bin/sh", "-c", script))


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("kill -SEGV $$", Status.CRASHED, "died of SIGSEGV"),
        ("kill -KILL $$", Status.OUT_OF_MEMORY, "killed by SIGKILL"),
        ("echo 'GGML_ASSERT(x) failed' >&2; kill -ABRT $$", Status.CRASHED, "GGML_ASSERT"),
        ("exit 3", Status.FAILED, "exit code 3"),
    ],
)
def test_a_dying_worker_is_a_typed_row(
    install: Install, tmp_path: Path, script: str, status: Status, reason: str
) -> None:
    with _engine(install, script) as engine:
        for _ in range(2):  # a new worker each time
            measured = engine.measure(values.spec(Role.DRAFTING, draft=3), tmp_path / "log")
            assert measured.sample.status is status
            assert reason in (measured.error or "")
            assert (measured.sample.n_draft, measured.sample.decode_tps) == (3, None)
    gc.collect()  # what the garbage collector cannot end cleanly is reported, and fails the test
    assert (tmp_path / "log.out").read_text() == ""
    assert ("GGML" in script) == bool((tmp_path / "log.err").read_text())


def test_a_worker_that_hangs_is_killed(install: Install, tmp_path: Path) -> None:
    started, pids = time.monotonic(), tmp_path / "pids"
    script = f"{shell.note(pids)}sleep 600 & echo $! >>{pids}; wait"
    with _engine(install, script, timeout_s=0.3) as engine:
        measured = engine.measure(values.spec(), tmp_path / "log")
        assert not shell.alive(pids)
    assert (measured.sample.status, measured.error) == (Status.TIMED_OUT, "killed after 0.3 s")
    assert time.monotonic() - started < 60


ECHO = """
import os, sys, time
from multiprocessing.connection import Connection
from pathlib import Path
from ggufspec.engines.library.messages import Prepare, Prepared, LibraryRecord

channel, busy = Connection(os.dup(1)), Path(sys.argv[1])
figures = dict(n_draft=None, prompt_tokens=1, prompt_s=0.1, ttft_s=0.1, gen_tokens=1, gen_s=0.1)
while True:
    request = channel.recv()
    if isinstance(request, Prepare):
        channel.send(Prepared(load_s=None))
        continue
    if "slow" in request.prompt:
        busy.touch()
        time.sleep(600 if "endless" in request.prompt else 0.5)
    channel.send(LibraryRecord(**figures, tokens=(5, 6), text=request.prompt, at_s=(0.1, 0.2), ended=False))
"""
"""A worker whose texts are its prompts; a file says that it is busy with a slow one."""


@pytest.mark.parametrize("slow", ["slow", "slow and endless"])
def test_answers_match_requests_after_an_interrupt(install: Install, tmp_path: Path, slow: str) -> None:
    busy, text = tmp_path / "busy", values.spec().prompt.text
    before = shell.children()
    command = (sys.executable, "-c", ECHO, str(busy))
    with InprocessEngine(install=install, timeout_s=60, command=command) as engine:
        assert engine.measure(values.spec(), tmp_path / "log").sample.text == text
        with pytest.raises(KeyboardInterrupt), _interrupted_once(busy):
            engine.measure(values.spec(prompt=slow), tmp_path / "log")
        assert shell.children() <= before  # nothing goes on computing
        for prompt in ("another", "a third"):
            measured = engine.measure(values.spec(prompt=prompt), tmp_path / "log")
            assert measured.sample.text == f"Text of {prompt}"


@contextmanager
def _interrupted_once(file: Path) -> Iterator[None]:
    """Send this process what Ctrl-C sends, once a file is there."""

    def interrupt() -> None:
        shell.wait_until(file.exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_a_worker_that_lets_its_channel_go_is_replaced(install: Install, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with _engine(install, f"{shell.note(pids)}exec 1>&-; exec sleep 600") as engine:
        for n_started in (1, 2):
            measured = engine.measure(values.spec(), tmp_path / "log")
            assert (measured.sample.status, measured.error) == (
                Status.CRASHED,
                "the worker closed its channel",
            )
            assert len(pids.read_text().split()) == n_started
            assert not shell.alive(pids)


def test_workers_get_no_settings_and_no_secrets(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("HF_TOKEN", "OPENAI_API_KEY", "PYTHON_REGISTRY_PASSWORD", "GGML_TOKEN", "MY_DATABASE")
    for name, value in {
        "LLAMA_ARG_N_PREDICT": "1",
        "OMP_NUM_THREADS": "3",
        **dict.fromkeys(secrets, "s3cret"),
    }.items():
        monkeypatch.setenv(name, value)
    look = 'echo "files: $(ls -A | wc -l) settings: $(env | grep -c "^LLAMA_") $LC_ALL" >&2; env >&2; exit 1'
    with _engine(install, look) as engine:
        engine.measure(values.spec(), tmp_path / "log")
    log = (tmp_path / "log.err").read_text()
    assert log.startswith("files: 0 settings: 0 C.UTF-8\n")
    assert "OMP_NUM_THREADS=3" in log
    assert "s3cret" not in log


def test_workers_end_with_engines(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # whoever is killed cannot clean up
    code = (
        "from pathlib import Path; from ggufspec.engines.library.worker_process import start; "
        "worker = start(('sleep', '600'), number=0); print(worker.pid, flush=True); input()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker = psutil.Process(int(parent.stdout.readline()))
    assert shell.is_alive(worker)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    shell.wait_until(lambda: not shell.is_alive(worker))


@pytest.mark.parametrize(("library", "reason"), [(False, "no shared library"), (True, "it does not load")])
def test_a_useless_library_is_named(install: Install, tmp_path: Path, library: bool, reason: str) -> None:
    if not library:
        (install.root / "libllama.so").unlink()
    with InprocessEngine(install=install, timeout_s=20) as engine:
        measured = engine.measure(values.spec(), tmp_path / "log")
    assert measured.sample.status is Status.LOAD_FAILED
    assert reason in (measured.error or "")
    assert "\n" not in (measured.error or "")


def test_a_target_shares_its_load_with_everything_that_is_measured_beside_it(install: Install) -> None:
    engine = InprocessEngine(install=install)
    spec = values.spec(Role.DRAFTING, draft=3)
    same = (
        replace(spec, drafting=Drafting(n_max=8, p_min=0.5)),
        replace(spec, sampling=Sampling(temperature=1.0, top_k=50)),
        replace(spec, role=Role.DRAFTER, drafting=None),
        replace(spec, n_predict=99, threads=7),
        spec.baseline,
    )
    assert {engine.load_key(one) for one in (spec, *same)} == {engine.load_key(spec)}
    for other in (
        replace(spec, context=1024),
        values.with_caches(spec, "q8_0"),
        replace(spec, ubatch=64),
        replace(spec, offload=Offload(target=ModelRun(layers=3))),
    ):
        assert engine.load_key(other) != engine.load_key(spec)


def test_each_arm_can_have_a_worker_of_its_own(install: Install, tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    command = (sys.executable, str(tmp_path / "echo.py"), str(tmp_path / "busy"))
    drafting, other = values.spec(Role.DRAFTING, draft=3), values.spec(prompt="another")
    order = (values.spec(), drafting, other, replace(drafting, sampling=Sampling(seed=7)))
    for per_arm, loads in ((False, [0, 0, 0, 0, 1]), (True, [0, 1, 0, 2, 3])):
        engine = InprocessEngine(install=install, timeout_s=60, command=command, per_arm=per_arm)
        with engine:
            numbers = [engine.measure(spec, tmp_path / "log").load for spec in order]
            engine.close()
            numbers.append(engine.measure(values.spec(), tmp_path / "log").load)
        assert numbers == loads


def _reread(record: LibraryRecord) -> Sample:
    """The sample of a record, which survives its file."""
    again = LibraryRecord.from_json(record.to_json())
    assert again == record
    return rereading.read_record(again)


def test_a_plain_record_is_a_plain_programs_sample() -> None:
    sample = _reread(PLAIN)
    assert (sample.status, sample.program) == (Status.OK, Program.PLAIN)
    assert (sample.n_draft, sample.n_drafted, sample.accept_rate, sample.rounds) == (None,) * 4
    assert sample.decoded == 3
    assert sample.decode_tps == pytest.approx(10.0)
    assert (sample.prompt_tps, sample.load_ms, sample.itl_s) == pytest.approx((100.0, 1500.0, 0.1))


def test_a_drafting_record_is_a_simple_programs_sample() -> None:
    sample = _reread(DRAFTED)
    assert (sample.status, sample.program, sample.n_draft) == (Status.OK, Program.SIMPLE, 3)
    assert (sample.n_drafted, sample.n_accepted, sample.n_rounds) == (4, 2, 3)
    assert sample.rounds == (Round(3, 2), Round(0, 0), Round(1, 0))
    assert sample.accepted_at == (1, 1, 0)
    assert (sample.draft_s, sample.verify_s) == pytest.approx((0.08, 0.09))
    assert (sample.decoded, sample.load_ms) == (5, None)
    assert sample.itl_s == pytest.approx(0.05)
    nothing = replace(DRAFTED, rounds=DRAFTED.rounds[1:2])
    assert _reread(nothing).status is Status.DRAFTING_INACTIVE
    assert _reread(replace(nothing, p_min=0.7)).status is Status.OK


@pytest.mark.parametrize("drafts", [True, False])
def test_a_command_describes_its_run(drafts: bool) -> None:
    load = ModelLoad(path="/m/t.gguf", context_tokens=777, gpu_layers=3, kv_type="q8_0", ubatch_tokens=64)
    drafter = replace(load, path="/m/d.gguf", gpu_layers=None, kv_type="q4_0", rpc=("a:50052",))
    run = WorkerRun(
        target=load,
        drafters=(drafter,) if drafts else (),
        prompt="--not a flag\n",
        n_predict=9,
        threads=2,
        sampling=Sampling(temperature=0.6, top_k=0, top_p=0.9, min_p=0.05, seed=3),
        drafting=Drafting(n_max=4, n_min=1, p_min=0.25) if drafts else None,
    )
    library = Path("/lib")
    assert commandline.parse_command(commandline.format_command(run, library)) == (library, run)


def test_the_command_is_known_without_a_library(tmp_path: Path, install: Install) -> None:
    words = InprocessEngine(install=install).argv(
        values.spec(Role.DRAFTING, draft=3, path=tmp_path / "t.gguf")
    )
    assert words[words.index("--model") + 1] == str(tmp_path / "t.gguf")
    assert words[words.index("--model-draft") + 1] == str(tmp_path / "drafter.gguf")
    assert words[words.index("--library") + 1] == str(install.root)


def _logits(*likeliest_tokens: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rows = np.zeros((len(likeliest_tokens), 8), dtype=np.float32)
    rows[range(len(likeliest_tokens)), list(likeliest_tokens)] = 3.0
    return rows


@pytest.mark.parametrize(
    ("drafted", "own", "accepted", "token"),
    [
        ([4, 5, 6], (4, 5, 6, 7), 3, 7),
        ([4, 5, 6], (4, 1, 6, 7), 1, 1),
        ([4, 5, 6], (2, 5, 6, 7), 0, 2),
        ([], (2,), 0, 2),
    ],
)
def test_greedy_rounds_keep_text(drafted: list[int], own: tuple[int, ...], accepted: int, token: int) -> None:
    draft = ProposedDraft(tokens=drafted, probabilities=[], distributions=[])
    assert Greedy().verify(_logits(*own), draft) == (accepted, token)


class _Counting:
    """A drafter that proposes the number after each token, with a confidence near 1."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def step(self, token: int, at: int) -> Logits:
        self.places.append(at)
        row: Logits = _logits(token + 1)[0]
        return row


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_draft_has_as_many_tokens_as_it_may_have(size: int) -> None:
    drafter = _Counting()
    draft = propose(drafter, Greedy(), 2, 70, size, Drafting(n_max=9))  # type: ignore[arg-type]  # for Model
    assert draft.tokens == [*range(3, 3 + size)]
    assert len(draft.probabilities) == size
    assert drafter.places == [*range(70, 70 + size)]


@pytest.mark.parametrize(
    ("drafted", "accepted", "expected"),
    [
        ([4, 5, 6], 3, [4, 5, 6, 9]),
        ([4, 5, 6], 1, [4, 9]),
        ([4, 0, 6], 3, [4, 0]),  # 0 ends the text: what was drafted after it is not written
        ([4, 0, 6], 1, [4, 9]),
        ([4, 5, 0], 3, [4, 5, 0, 9]),  # llama.cpp counts the token after an end that ends the draft
        ([], 0, [9]),
    ],
)
def test_rounds_end_as_in_the_simple_program(drafted: list[int], accepted: int, expected: list[int]) -> None:
    draft = ProposedDraft(tokens=drafted, probabilities=[], distributions=[])
    one = PlayedRound(draft, accepted, 9, 0.0, 0.0, 0.0, 0.0)
    assert kept_tokens(one, lambda token: token == 0) == expected


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("size", [3, 10, 500])
def test_confidence_is_the_share_among_the_ten_likeliest(scale: float, size: int) -> None:
    logits = (np.random.default_rng(1).normal(size=size) * scale).astype(np.float32)
    ten = np.sort(logits.astype(np.float64))[-10:]
    expected = 1 / np.exp(ten - ten[-1]).sum()
    assert confidence(logits) == pytest.approx(expected, rel=1e-5)


def test_nan_is_found_wherever_it_is() -> None:
    for place in range(8):
        logits = _logits(3)
        logits[0, place] = np.nan
        with pytest.raises(Failure, match="NaN"):
            likeliest(logits[0])
        with pytest.raises(Failure, match="NaN"):
            Greedy().verify(logits, ProposedDraft(tokens=[], probabilities=[], distributions=[]))


def test_what_drafts_without_a_model_is_refused(install: Install, tmp_path: Path) -> None:
    spec = values.spec(Role.DRAFTING, draft=16)
    spec = replace(spec, drafting=Drafting(n_max=16, method=Method.NGRAM_SIMPLE))
    engine = InprocessEngine(install=install)
    for ask in (engine.argv, lambda spec: engine.measure(spec, tmp_path / "run")):
        with pytest.raises(GgufspecError, match="not by ngram-simple") as caught:
            ask(spec)
        assert "--engine server" in str(caught.value.hint)
