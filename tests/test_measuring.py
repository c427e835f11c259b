from __future__ import annotations

from pathlib import Path

import pytest

from ggufspec import arms, engines, measuring, results
from ggufspec.domain import ModelFile, Offload, Pair, Prompt, Role, Status
from ggufspec.llama import install
from ggufspec.results import ResultSet
from ggufspec.sweep import Suite
from tests import fakes

PAIR = Pair(name="tiny", target=ModelFile(filename="t.gguf"), draft=ModelFile(filename="d.gguf"))


def _bench(tmp_path: Path, *, repeats: int = 2, offload: Offload | None = None, **bodies: str) -> ResultSet:
    found = install.find(fakes.install(tmp_path / "llama", **bodies))
    suite = Suite(
        pair=PAIR,
        prompts=(Prompt(id="a", text="A"), Prompt(id="b/c d", text="B")),
        draft_sizes=(3,),
        n_predict=32,
        context=512,
        threads=1,
        offload=offload or Offload(),
        repeats=repeats,
    )
    *_, last = measuring.record(suite, engines.make("binary", found, timeout_s=20), found, command=("test",))
    return last


def test_every_run_is_on_disk_before_the_next_one_starts(tmp_path: Path) -> None:
    found = install.find(fakes.install(tmp_path / "llama"))
    suite = Suite(
        pair=PAIR,
        prompts=(Prompt(id="a", text="A"),),
        draft_sizes=(3,),
        n_predict=9,
        context=64,
        threads=1,
        repeats=1,
    )
    engine = engines.make("binary", found)
    for number, so_far in enumerate(measuring.record(suite, engine, found, command=("test",))):
        assert len(so_far.runs) == number
        assert results.load(so_far.meta.id) == so_far
    assert number == 6


def test_numbers_and_raw_logs_are_kept_together(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    assert len(bench.measured) == 12
    for run in bench.runs:
        assert run.sample.status is Status.OK
        for ending in (".out", ".err"):
            assert (bench.folder / "logs" / f"{run.log}{ending}").stat().st_size > 0
    assert bench.meta.build.version == "0.5.0-dev b10475"


def test_a_failing_run_is_a_row_and_the_bench_goes_on(tmp_path: Path) -> None:
    bench = _bench(tmp_path, drafting="kill -SEGV $$\n")
    statuses = {run.spec.role: run.sample.status for run in bench.measured}
    assert statuses == {Role.TARGET: Status.OK, Role.DRAFTER: Status.OK, Role.DRAFTING: Status.CRASHED}
    assert len(bench.measured) == 12


def test_lost_summaries_are_retried_and_said(tmp_path: Path) -> None:
    flaky = '#\nif [ -e "$0.seen" ]; then\n' + fakes.DRAFTING + 'else : > "$0.seen"; fi\n'
    bench = _bench(tmp_path, drafting=flaky)
    first = next(run for run in bench.runs if run.spec.role is Role.DRAFTING)
    assert (first.sample.status, first.attempts, first.doubts) == (Status.OK, 2, ("summary-retried",))
    assert (bench.folder / "logs" / f"{first.log}.lost1.err").exists()


def test_summaries_that_never_come_are_a_status(tmp_path: Path) -> None:
    bench = _bench(tmp_path, repeats=1, drafting="exit 0\n")
    run = next(run for run in bench.measured if run.spec.role is Role.DRAFTING)
    assert (run.sample.status, run.attempts) == (Status.SUMMARY_LOST, 3)


def test_other_text_is_noticed_with_its_place(tmp_path: Path) -> None:
    other = fakes.DRAFTING.replace("the same words", "the sand castle")
    bench = _bench(tmp_path, drafting=other)
    run = next(run for run in bench.measured if run.spec.role is Role.DRAFTING)
    assert run.text_identical is False
    assert run.difference is not None
    assert fakes.TEXT[: run.difference.at_char].endswith("wrote the sa")
    drafting = next(arm for arm in arms.group(bench) if arm.role is Role.DRAFTING)
    assert drafting.compared == {"a": False, "b/c d": False}
    assert f"a from character {run.difference.at_char}" in arms.warnings(bench)["text-differs"]


@pytest.mark.parametrize(
    ("offload", "doubt"),
    [
        (Offload(target_layers=45), "gpu-less-build"),
        (Offload(draft_layers="all"), "gpu-less-build"),
        (Offload(), None),
    ],
)
def test_layers_for_a_gpu_that_is_not_there(tmp_path: Path, offload: Offload, doubt: str | None) -> None:
    bench = _bench(tmp_path, repeats=1, offload=offload)
    names = {name for run in bench.measured for name in run.doubts}
    assert ("gpu-less-build" in names) == (doubt is not None)


def test_one_repeat_is_few(tmp_path: Path) -> None:
    assert "few-repeats" in _bench(tmp_path, repeats=1).meta.doubts
    assert "few-repeats" not in _bench(tmp_path / "again", repeats=2).meta.doubts
