"""Logs as people paste them, each beside the figures that a person read in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ggufspec.llama.logs.reading import LoggedRun, read

PASTES = Path(__file__).parents[1] / "logs" / "pastes"
CASES = sorted(PASTES.glob("*.json"))
LEAST, THREADS, ERAS = 30, 10, {"2023", "2024", "2025", "2026"}  # at least


def load(case: Path) -> tuple[bytes, dict[str, Any]]:
    [paste] = (path for path in PASTES.glob(f"{case.stem}.*") if path.suffix != ".json")
    return paste.read_bytes(), json.loads(case.read_text())


def figures(run: LoggedRun, keys: dict[str, Any]) -> dict[str, Any]:
    """What was read for the keys that a person wrote down."""
    lines = run.lines and f"{run.lines[0]}-{run.lines[1]}"
    values = {key: lines if key == "lines" else getattr(run.sample, key) for key in keys}
    return {key: getattr(value, "value", value) for key, value in values.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_a_paste_is_read_as_a_person_reads_it(case: Path) -> None:
    data, wanted = load(case)
    reading = read(data, case.stem)
    assert (reading.problem is None) == (wanted["exit"] == 0)
    runs = [run for run in reading.runs if run.lines is not None]
    assert len(runs) == len(wanted["runs"])
    for run, values in zip(runs, wanted["runs"], strict=True):
        assert figures(run, values) == {
            key: pytest.approx(value, rel=1e-4) if isinstance(value, float) else value
            for key, value in values.items()
        }


def test_the_pastes_are_many_and_of_many_threads_and_eras() -> None:
    sources = [json.loads(case.read_text())["source"] for case in CASES]
    threads = {source.split(",")[0] for source in sources if "#" in source.split(",")[0]}
    assert len(CASES) >= LEAST
    assert len(threads) >= THREADS
    assert all(any(era in source for source in sources) for era in ERAS)


HEAD = "Log start\nllama_model_loader: loaded meta data with 22 key-value pairs and 723 tensors from a.gguf\n"
TEXT = "\nOnce upon a time there was a lantern.\n"
REAL = (PASTES / "block.txt").read_text()
FAKE = REAL.replace("98.596", " 0.254").replace("  2.576", "1000.000")
FORMS = {
    "bare": FAKE,
    "quoted": "".join(f"> {line}" for line in FAKE.splitlines(keepends=True)),
    "fenced": f"```\n{FAKE}```\n",
    "listed": "".join(f"    {line}" for line in FAKE.splitlines(keepends=True)),
    "entities": "".join(f"&gt; {line}" for line in FAKE.splitlines(keepends=True)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", ["before the text", "inside", "behind"])
def test_a_look_alike_in_a_text_does_not_win(form: str, place: str) -> None:
    fake = FORMS[form]
    log = {
        "before the text": f"{HEAD}{fake}{TEXT}\n\n{REAL}\ndraft:\n\ntarget:\n\n",
        "inside": f"{HEAD}{TEXT}{fake}{TEXT}\n\n{REAL}\ndraft:\n\ntarget:\n\n",
        "behind": f"{HEAD}\n{REAL}\ndraft:\n\ntarget:\n\n{TEXT}{fake}and so on\n",
    }[place]
    reading = read(log.encode(), "log")
    assert [run.sample.gen_tps for run in reading.runs] == [2.576]
    assert any("taken for generated text" in note for note in reading.notes)


@pytest.mark.parametrize("form", FORMS)
def test_the_only_candidate_is_taken_with_a_note(form: str) -> None:
    reading = read(f"{HEAD}{TEXT}{FORMS[form]}and so on\n".encode(), "log")
    assert [run.sample.gen_tps for run in reading.runs] == [1000.0]
    [note] = reading.notes
    [run] = reading.runs
    assert "lines {}-{}".format(*run.lines) in note


def test_wrong_arithmetic_is_no_candidate() -> None:
    reading = read(REAL.replace("70.782", "99.000").replace("2.576", "9.999").encode() + b"hello\n", "log")
    assert reading.runs == ()
    assert reading.problem is not None
