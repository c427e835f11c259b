"""One sweep whose programs do all wrong that they can: each fault has its typed row, the rest is unharmed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ggufspec import paths
from ggufspec.measure import recorder
from tests.support import fakes, shell

PIDS = '"${0%/*}/pids"'  # of what is started, beside the program
GOOD = ("Once upon a time", "A cat")
HALF = fakes.drafting_log().partition("n_drafted")[0]
NONE = (
    fakes.drafting_log(0.010)
    .replace("n_drafted = 24", "n_drafted = 0")
    .replace("n_accept  = 18", "n_accept  = 0")
    .replace("75.000%", "-nan%")
)


@dataclass(frozen=True)
class Fault:
    """What a drafting program does in place of its work, and what becomes of that."""

    does: str
    status: str = "ok"
    error: str = ""
    attempts: int = 1
    outcome: str | None = None  # None: the status


def _log(log: str, *, text: str = "") -> str:
    """Shell commands that write a text and a log, and end well."""
    return f"printf '{text}'\ncat >&2 <<'EOF'\n{log}EOF\nexit 0"


LOST = ("summary lost", "summary lost", recorder._ATTEMPTS)
FAULTS = {
    "@segfault": Fault("kill -SEGV $$", "crashed", "died of SIGSEGV"),
    "@realtime": Fault("kill -37 $$", "crashed", "died of signal 37"),
    "@abort": Fault(
        "echo 'terminate called after throwing an instance of what' >&2; kill -ABRT $$",
        "crashed",
        "terminate called",
    ),
    "@hang": Fault("exec sleep 600", "timed out", "killed after 1 s"),
    "@stubborn": Fault(
        f"trap '' TERM; while :; do sleep 600 & echo $! >>{PIDS}; wait; done", "timed out", "killed after 1 s"
    ),
    "@garbage": Fault('cat "${0%/*}/garbage"; cat "${0%/*}/garbage" >&2; exit 0', *LOST),
    "@silent": Fault("exit 0", *LOST),
    "@torn": Fault(f"{fakes.answer(HALF)}exit 0", *LOST),
    "@full": Fault(
        'echo "main: error: $(LC_ALL=C cat "$0" 2>&1 >/dev/full)" >&2; exit 1',
        "disk full",
        "No space left on device",
    ),
    "@endless": Fault(
        "exec yes 'this line comes again and again' >&2", "log too large", "it printed more than a run may"
    ),
    "@killed": Fault("kill -KILL $$", "out of memory", "killed by SIGKILL"),
    "@memory": Fault(
        "echo 'ggml_aligned_malloc: failed to allocate 99 bytes' >&2; exit 1",
        "out of memory",
        "failed to allocate",
    ),
    "@refuses": Fault("exit 7", "failed", "exit code 7"),
    "@idle": Fault(f"{fakes.answer(NONE)}exit 0", "drafting inactive", "drafting inactive"),
    "@lies": Fault(
        f"{fakes.answer(fakes.drafting_log(30.0))}exit 0", "implausible", "decoding took 30.0 s of "
    ),
    "@mute": Fault(_log(fakes.drafting_log(0.010)), "no text", "tokens were counted, but there is no text"),
    "@other": Fault(_log(fakes.drafting_log(0.010), text="quite another text"), outcome="text differs"),
    "@orphan": Fault(f"sleep 600 & echo $! >>{PIDS}"),
}
EXIT_CODES = {
    "crashed": 9,
    "failed": 9,
    "timed out": 10,
    "out of memory": 11,
    "disk full": 12,
    "log too large": 9,
    "summary lost": 15,
    "drafting inactive": 16,
    "implausible": 18,
    "no text": 18,
}


@pytest.fixture
def llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    drafting = fakes.by_prompt(
        {word: fault.does for word, fault in FAULTS.items()}, fakes.AT_ONCE["drafting"]
    )
    pids = tmp_path / "llama" / "pids"
    bodies = {"plain": fakes.AT_ONCE["plain"], "drafting": drafting}
    folder = fakes.install(
        tmp_path / "llama", **{name: shell.note(pids) + body for name, body in bodies.items()}
    )
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(folder))
    (folder / "garbage").write_bytes(random.Random(5).randbytes(100_000))
    yield folder
    shell.wait_until(lambda: not shell.alive(pids))


def test_every_fault_is_a_typed_row_and_the_sweep_ends(llama: Path) -> None:
    prompts = (GOOD[0], *(f"Tell me of {word} now" for word in FAULTS), GOOD[1])
    texts = [word for text in prompts for word in ("-p", text)]
    quick = ("-n", "32", "-r", "1", "-t", "1", "--warmup", "0", "--timeout", "1s", "--name", "chaos")
    done = shell.here("sweep", "--pair", "demo", *texts, *quick)
    rows = [row for row in shell.runs("chaos") if not (row["anchor"] or row["rerun"])]
    assert len(rows) == 3 * len(prompts)
    ids = {f"p{number}": text for number, text in enumerate(prompts, start=1)}
    for row in rows:
        word = next((word for word in FAULTS if word in ids[row["prompt"]]), None)
        fault = FAULTS[word] if word and row["role"] == "drafting" else Fault("")
        assert (row["status"], row["attempts"]) == (fault.status, fault.attempts), word
        assert row["outcome"] in {
            fault.outcome or fault.status,
            *({"disturbed"} if row["others_cores"] else ()),
        }
        assert fault.error in (row["error"] or ""), word
        if fault.status == "ok":
            assert row["decode_tps"] == pytest.approx(3200 if row["role"] == "drafting" else 1550)
        logs = {file.name for file in (paths.runs_dir() / "chaos" / "logs").glob(f"{row['log']}.*")}
        assert len(logs) == 2 * fault.attempts, word
    first = next(row for row in rows if row["status"] != "ok")
    assert done.returncode == EXIT_CODES[first["status"]]
    *notes, error, hint = done.stderr.splitlines()
    chosen = [note.partition(":")[0] for note in notes if not note.startswith("warning ")]
    assert chosen == ["pair", "llama.cpp"]
    failed = sum(row["status"] != "ok" for row in rows)
    assert error.startswith(
        f"error: {failed} of {len(rows)} runs failed, first drafting on {first['prompt']}: "
    )
    assert hint.startswith("hint: ")
    assert "| partial" in done.stdout
