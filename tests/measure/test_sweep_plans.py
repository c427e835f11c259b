"""Plans of sweeps of any size: counted without being made, and refused where they would never end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ggufspec import paths, results, tuning
from ggufspec.domain import CacheTypes, Layers, Method, ModelFile, Prompt, Role, RunSpec, SplitMode
from ggufspec.errors import GgufspecError
from ggufspec.measure import api, prepare_session, runplan
from ggufspec.measure.runplan import RunPlan, refuse_endless
from ggufspec.measure.sweep import Blocks, Sweep, distinct_layers, sizes
from ggufspec.options import BenchOptions, TuneOptions
from tests.support import fakes, shell

MIXTURE = Path(__file__).parents[1] / "models" / "mixture.gguf"
DEMO = paths.models_dir() / "demo"
QUICK = ("--pair", "demo", "-p", "Once upon a time", "-n", "32")
MILLIONS = ("-t", "1-999", "-ub", "1-1000", "--draft", "1-8")
TARGETS = (ModelFile(filename="t"), ModelFile(filename="u"))
DRAFTERS = (ModelFile(filename="d"), ModelFile(filename="e"))
COUNTS = {TARGETS[0]: 9, TARGETS[1]: 3, DRAFTERS[0]: 3, DRAFTERS[1]: 5}


@pytest.fixture
def llama(llama: Path) -> Path:
    """The same with two GPUs: without one, all places are measured as one."""
    return fakes.install(llama, **fakes.AT_ONCE, devices=fakes.TWO_GPUS)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """Every arm that is made from now on."""
    arms: list[RunSpec] = []
    original = Sweep.arms

    def counted(self: Sweep, *values: Any) -> Iterator[RunSpec]:
        for arm in original(self, *values):
            arms.append(arm)
            yield arm

    monkeypatch.setattr(Sweep, "arms", counted)
    return arms


def _sweep(**axes: Any) -> Sweep:
    models = {"targets": TARGETS, "drafters": DRAFTERS, "layer_counts": COUNTS}
    return Sweep(**{"name": "p", **models, "n_predict": 9, "context": 64, "draft_sizes": (3, 8), **axes})


@pytest.mark.parametrize(
    "axes",
    [
        {},
        {"target_layers": (0, 5, 20, "all"), "draft_layers": (0, 4, "auto"), "threads": (1, 2, 4)},
        {"caches": (None, CacheTypes("q8_0", "q8_0")), "ubatches": (64, 128), "p_mins": (0.0, 0.5, 0.9)},
        {"methods": (Method.DRAFT_MODEL, Method.NGRAM_MOD, Method.NGRAM_SIMPLE), "draft_sizes": (3, 16)},
        {"methods": (Method.NGRAM_MOD,), "draft_sizes": ()},
        {"drafters": (), "threads": (1, 2)},
        {
            "target_experts": (0, 4, "all"),
            "draft_experts": (0, 2),
            "split_modes": (None, SplitMode.ROW),
            "expert_layers": {TARGETS[0]: 8, TARGETS[1]: 0, DRAFTERS[0]: 2, DRAFTERS[1]: 0},
        },
        {
            "split_modes": (SplitMode.LAYER, SplitMode.ROW, SplitMode.NONE),
            "tensor_splits": ((3.0, 1.0), (1.0, 1.0)),
        },
    ],
    ids=str,
)
def test_arms_are_counted_without_being_made(axes: dict[str, Any], made: list[RunSpec]) -> None:
    blocks = _sweep(**axes).blocks()
    counts, n_blocks = blocks.n_arms, len(blocks)
    assert not made
    arms = {arm.key: arm.role for block in blocks for arm in block.arms}
    assert len(list(blocks)) == n_blocks
    assert counts.total() == len(arms)
    assert {role: counts[role] for role in Role} == {
        role: sum(each is role for each in arms.values()) for role in Role
    }
    suite = RunPlan(blocks=blocks, prompts=(Prompt(id="a", text="A"),))
    assert suite.n_arms == RunPlan(blocks=tuple(blocks), prompts=suite.prompts).n_arms
    assert suite.threads == max(arm.threads for block in blocks for arm in block.arms)


def test_blocks_are_those_of_the_axes_in_order() -> None:
    blocks = _sweep(
        target_layers=(0, 2, 5, 20), threads=(1, 2), caches=(None, CacheTypes("q8_0", "q8_0"))
    ).blocks()
    baselines = [block.arms[0] for block in blocks]
    assert [
        (arm.model.filename, arm.offload.target.layers, arm.kv_type, arm.threads) for arm in baselines
    ] == [
        (target, layers, kv_type, threads)
        for target, all_layers in (("t", (0, 2, 5, 20)), ("u", (0, 2, 5)))
        for layers in all_layers
        for kv_type in (None, "q8_0")
        for threads in (1, 2)
    ]
    assert blocks[-1] == blocks[len(blocks) - 1]
    assert blocks[1:3] == (blocks[1], blocks[2])
    with pytest.raises(IndexError):
        blocks[len(blocks)]


@pytest.mark.parametrize(
    ("asked", "count", "kept"),
    [
        ((0, 20, 40, 60, 80), 9, (0, 20)),
        ((0, 8, 9, 10), 9, (0, 8, 9)),
        ((80, "all", "auto", 9), 9, (80, "auto")),
        (("all", 3, 99), 9, ("all", 3)),
        ((0, 20, 40), None, (0, 20, 40)),
        ((5, 5), 9, (5,)),
    ],
)
def test_numbers_of_layers_that_mean_the_same_are_tried_once(
    asked: tuple[Layers, ...], count: int | None, kept: tuple[Layers, ...]
) -> None:
    assert distinct_layers(asked, count) == kept


def test_layers_beyond_those_of_the_model_collapse_with_a_note(llama: Path) -> None:
    session = prepare_session(BenchOptions(pair="demo", ngl=(0, 20, 40, 60, 80), ngld=("all", 50)))
    assert [block.arms[0].offload.target.layers for block in session.suite.blocks] == [0, 20]
    notes = [note for note in session.notes if note.startswith("layers: ")]
    same = "with its output; {0} {1} would be the same as {0} {2}, which is measured"
    assert notes == [
        f"layers: target.gguf has 9 {same.format('--ngl', '40, 60, 80', '20')}",
        f"layers: drafter.gguf has 3 {same.format('--ngld', '50', 'all')}",
    ]
    one = prepare_session(BenchOptions(pair="demo", ngl=45))
    assert not [note for note in one.notes if note.startswith("layers: ")]
    assert one.suite.blocks[0].arms[0].offload.target.layers == 45


def test_places_of_experts_are_an_axis_of_mixtures_alone(llama: Path) -> None:
    asked = {"cpu_moe": (0, 2, 4, 9), "draft_model": DEMO / "drafter.gguf", "draft_cpu_moe": (0, 1)}
    mixture = prepare_session(BenchOptions(target=MIXTURE, **asked))
    assert [block.arms[0].offload.target.cpu_moe for block in mixture.suite.blocks] == [0, 2, 4]
    assert {arm.offload.drafter.cpu_moe for arm in mixture.suite.blocks[0].arms if arm.drafter} == {0}
    assert [note for note in mixture.notes if note.startswith("experts: ")] == [
        "experts: mixture.gguf has experts in 4 layers; of --n-cpu-moe, 0, 2, 4 is measured",
        "experts: drafter.gguf has no experts; of --n-cpu-moe-draft, 0 is measured",
    ]
    dense = prepare_session(BenchOptions(pair="demo", cpu_moe=(0, 2)))
    assert len(dense.suite.blocks) == 1


def test_tensor_splits_are_an_axis_except_where_nothing_is_split(llama: Path) -> None:
    asked = BenchOptions(
        pair="demo", ngl="all", split_mode=("layer", "none"), tensor_split=((3.0, 1.0), (1.0, 1.0))
    )
    blocks = prepare_session(asked).suite.blocks
    assert [block.arms[0].offload.tensor_split for block in blocks] == [(3.0, 1.0), (1.0, 1.0), ()]


def test_without_a_gpu_all_places_are_measured_as_one_with_a_note(llama: Path) -> None:
    fakes.install(llama, **fakes.AT_ONCE)
    asked = BenchOptions(
        target=MIXTURE, ngl=("all", 2), cpu_moe=(0, 2), tensor_split=((3.0, 1.0), (1.0, 1.0))
    )
    session = prepare_session(asked)
    (block,) = session.suite.blocks
    assert block.arms[0].offload.tensor_split == (3.0, 1.0)
    (note,) = (note for note in session.notes if note.startswith("places: "))
    named = "--ngl, --n-cpu-moe, --tensor-split"
    assert note == f"places: this llama.cpp has no GPU; all values of {named} are measured as one"
    simulated = prepare_session(asked, simulates_gpu=True)
    assert len(simulated.suite.blocks) == 8
    assert not [note for note in simulated.notes if note.startswith("places: ")]


def test_a_plan_of_millions_makes_few_arms(llama: Path, made: list[RunSpec]) -> None:
    done = shell.done("sweep", *QUICK, *MILLIONS, "--ngl", "0-999", "--dry-run")
    assert len(made) < 2000
    blocks, arms = 999 * 1000 * 10, 999 * 1000 * (10 * 9 + 1)
    assert f"{arms:,} arms with {blocks:,} baselines, {5 * arms:,} runs: about " in done.stdout
    assert f"This cannot be measured: {arms:,} arms are more than 100,000" in done.stdout
    assert "--ubatch-size has 1,000, --threads has 999, --ngl has 10, --draft has 8" in done.stdout
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[4:8]] == [
        "--ubatch-size",
        "--threads",
        "--ngl",
        "--draft",
    ]
    assert not results.ids()


@pytest.mark.parametrize("words", [(), ("-o", "csv"), ("-o", "json")])
def test_an_endless_sweep_is_refused(llama: Path, made: list[RunSpec], words: tuple[str, ...]) -> None:
    done = shell.here("sweep", *QUICK, *MILLIONS, *words, *(("--dry-run",) if words else ()))
    assert (done.returncode, done.stdout) == (1, "")
    assert len(made) < 2000
    assert f"error: {999 * 1000 * 10:,} arms are more than " in done.stderr
    assert "hint: " in done.stderr
    assert not results.ids()


def test_a_plan_that_nobody_reads_is_shown_as_its_axes(llama: Path) -> None:
    words = ("sweep", *QUICK, "--draft", "1-8", "-ub", "1-150", "--dry-run")
    text = shell.here(*words).stdout
    assert "| --ubatch-size |      150 |" in text
    assert "1500 arms with 150 baselines, 7500 runs: about " in text
    assert "cannot be measured" not in text
    assert len(shell.here(*words, "-o", "jsonl").stdout.splitlines()) == 1500


def test_the_time_of_a_large_sweep_is_that_of_its_arms(llama: Path) -> None:
    asked = BenchOptions(pair="demo", prompt=("Hi", "Ho"), draft=(1, 2, 3, 4), ubatch=tuple(range(64, 90)))
    suite = prepare_session(asked).suite
    known = runplan.Experience(bytes_per_s=1e9)
    assert runplan.total(suite, known) == pytest.approx(sum(runplan.expect(suite, known).values()))


def test_too_many_runs_are_refused_unless_a_time_ends_them(llama: Path) -> None:
    session = prepare_session(BenchOptions(pair="demo", prompt=("Hi",), repeats=10**6))
    with pytest.raises(
        GgufspecError, match=r"3,000,003 runs are more than 1,000,000.*1,000,000 repeats"
    ) as error:
        refuse_endless(session.suite)
    assert "--max-time" in error.value.hint
    with pytest.raises(GgufspecError, match="are more than"):
        api.begin(session, command=("test",))
    assert not results.ids()
    refuse_endless(
        prepare_session(BenchOptions(pair="demo", prompt=("Hi",), repeats=10**6, max_time=60.0)).suite
    )
    warm = prepare_session(BenchOptions(pair="demo", prompt=("Hi",), warmup=10**6))
    with pytest.raises(GgufspecError, match="1,000,000 warm-ups"):
        refuse_endless(warm.suite)


def test_a_tuning_of_too_many_configurations_is_refused(llama: Path, made: list[RunSpec]) -> None:
    asked = TuneOptions(pair="demo", ubatch=tuple(range(1, 10_000)), engine="binary")
    with pytest.raises(GgufspecError, match="arms are more than 100,000"):
        tuning.prepare_tuning(asked)
    assert len(made) < 2000


def test_axes_are_named_by_their_options_the_longest_first() -> None:
    sweep = _sweep(target_layers=(0, 1, 2, 50, 60), threads=(1, 2, 3, 4, 5))
    assert sizes(sweep) == {"--threads": 5, "--ngl": 4, "--target": 2, "--draft-model": 2, "--draft": 2}
    assert isinstance(sweep.blocks(), Blocks)
