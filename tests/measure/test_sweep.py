"""Sweeps: which arms they have, in which order these run, and plans of any size, which are counted unmade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from ggufspec import paths, results, tuning
from ggufspec.domain import CacheTypes, Drafting, Layers, Method, ModelFile, Prompt, Role, RunSpec, SplitMode
from ggufspec.errors import GgufspecError
from ggufspec.measure import api, prepare_session, runplan
from ggufspec.measure.runplan import Cell, LoadKey, RunPlan, refuse_endless
from ggufspec.measure.sweep import Blocks, Sweep, distinct_layers, sizes
from ggufspec.options import BenchOptions, TuneOptions
from tests.support import fakes, scripted, shell

PROMPTS = tuple(Prompt(id=name, text=name.upper()) for name in "abcdefgh")


def _sweep(**axes: Any) -> Sweep:
    return scripted.sweep(**{"draft_sizes": (3, 8), **axes})


def _suite(sweep: Sweep | None = None, **settings: Any) -> RunPlan:
    return RunPlan(**{"blocks": (sweep or _sweep()).blocks(), "prompts": PROMPTS, **settings})


def _name(spec: RunSpec) -> str:
    return spec.role.value if spec.drafting is None else f"γ{spec.drafting.n_max}"


def _loaded_for_every_run(spec: RunSpec) -> None:
    return None


def _cells(
    suite: RunPlan, load: int = 0, *, capacity: int | None = None, load_key: LoadKey = _name
) -> list[Cell]:
    repeats = next(islice(suite.repeats_by_load(), load, None))
    return list(suite.cells(suite.blocks[0], repeats, load_key=load_key, capacity=capacity))


def _once(suite: RunPlan, load: int = 0, *, capacity: int | None = None) -> list[Cell]:
    return [cell for cell in _cells(suite, load, capacity=capacity) if not cell.warmup]


def test_arms_are_the_target_each_drafter_and_every_combination() -> None:
    sweep = _sweep(
        drafters=(ModelFile(filename="d"), ModelFile(filename="e")),
        p_mins=(0.0, 0.5),
        draft_layers=(0, "all"),
    )
    (block,) = sweep.blocks()
    roles = Counter(arm.role for arm in block.arms)
    assert roles == {Role.TARGET: 1, Role.DRAFTER: 4, Role.DRAFTING: 16}
    assert block.arms[0].role is Role.TARGET
    assert len({arm.key for arm in block.arms}) == 21


def test_keys_and_blocks_follow_from_what_matters() -> None:
    sweep = _sweep(target_layers=(0, 20), threads=(1, 2), caches=(None, CacheTypes("q8_0", "q8_0")))
    blocks = sweep.blocks()
    assert len(blocks) == 8
    assert [block.arms[0].offload.target.layers for block in blocks] == [0] * 4 + [20] * 4
    assert all(arm.baseline.key == block.arms[0].key for block in blocks for arm in block.arms[2:])
    a, b = _sweep(draft_layers=(0, "all")).blocks()[0], _sweep(draft_layers=("all",)).blocks()[0]
    assert a.arms[0].key == b.arms[0].key
    here, there = _sweep(target_layers=(0, 20)).blocks()
    assert here.arms[1].key == there.arms[1].key  # the drafter alone
    assert here.arms[2].key != there.arms[2].key


def test_each_repeat_has_every_run_once_in_an_order_of_its_own() -> None:
    suite = _suite()
    orders = [
        [(cell.spec.prompt.id, _name(cell.spec)) for cell in _once(suite, repeat) if not cell.anchor]
        for repeat in range(2)
    ]
    every = {(prompt.id, arm) for prompt in PROMPTS for arm in ("target", "drafter", "γ3", "γ8")}
    assert [set(order) for order in orders] == [every, every]
    assert [len(order) for order in orders] == [32, 32]
    assert orders[0] != orders[1]
    assert _once(suite) == _once(suite)
    assert _once(suite) != _once(_suite(seed=2))


def test_arms_are_neighbours_and_anchors_come_back() -> None:
    prompts = [cell.spec.prompt.id for cell in _once(_suite()) if not cell.anchor]
    assert [len(set(prompts[start : start + 4])) for start in range(0, 32, 4)] == [1] * 8
    cells = _once(_suite())
    anchors = [number for number, cell in enumerate(cells) if cell.anchor]
    assert anchors == [0, 25]
    assert {cells[number].spec.key for number in anchors} == {_suite().blocks[0].on(PROMPTS[0])[0].key}
    numbers = [cell.repeat for repeat in range(3) for cell in _once(_suite(), repeat) if cell.anchor]
    assert numbers == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("capacity", "loads"), [(None, 29), (4, 29), (3, 4), (1, 4)])
def test_models_are_loaded_once_a_repeat_where_not_all_fit(capacity: int | None, loads: int) -> None:
    names = [_name(cell.spec) for cell in _once(_suite(), capacity=capacity) if not cell.anchor]
    assert len(names) == 32
    changes = 1 + sum(a != b for a, b in pairwise(names))
    assert changes >= loads if loads > 4 else changes == loads


def test_warmups_touch_every_arm_first() -> None:
    suite = _suite(warmups=2)
    cells = _cells(suite, load_key=_loaded_for_every_run)
    assert [cell.warmup for cell in cells] == [True] * 8 + [False] * (len(cells) - 8)
    assert [_name(cell.spec) for cell in cells[:8]] == ["target", "drafter", "γ3", "γ8"] * 2
    assert {cell.spec.prompt.id for cell in cells[:8]} == {"a"}
    assert not any(cell.warmup for cell in _cells(suite, 1, load_key=_loaded_for_every_run))
    own = _suite(warmup_prompts=(Prompt(id="w", text="W"),))
    assert {cell.spec.prompt.id for cell in _cells(own) if cell.warmup} == {"w"}


@pytest.mark.parametrize("capacity", [None, 4, 3, 1])
def test_every_load_begins_with_warmups_of_its_own(capacity: int | None) -> None:
    suite, warmups = _suite(), set[int]()
    for load in range(3):
        warm = set[str]()
        for cell in _cells(suite, load, capacity=capacity):
            if cell.warmup and not cell.anchor:
                warm.add(_name(cell.spec))
                warmups.add(cell.repeat)
            elif not cell.anchor:
                assert _name(cell.spec) in warm
        assert warm == {"target", "drafter", "γ3", "γ8"}
    assert warmups == {0, 1, 2}


def test_loads_that_follow_one_another_change_places_so_that_drift_cancels() -> None:
    orders = []
    for load in range(4):
        names = [_name(cell.spec) for cell in _once(_suite(), load, capacity=1) if not cell.anchor]
        orders.append(list(dict.fromkeys(names)))
    assert orders[1] == orders[0][::-1]
    assert orders[3] == orders[2][::-1]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_anchors_stand_between_loads_that_follow_one_another() -> None:
    suite = _suite()
    cells = [cell for load in range(2) for cell in _cells(suite, load, capacity=1)]
    anchors = [cell for cell in cells if cell.anchor and not cell.warmup]
    assert [cell.repeat for cell in anchors] == [0, 1, 2, 3]
    assert {cell.spec.key for cell in anchors} == {suite.blocks[0].on(PROMPTS[0])[0].key}
    for anchor in anchors:
        before = cells[cells.index(anchor) - 1]
        assert before.warmup
        assert before.spec == anchor.spec
    for load in range(2):  # nothing between the runs of a load
        names = [_name(cell.spec) for cell in _cells(suite, load, capacity=1) if not cell.warmup]
        assert 1 + sum(a != b for a, b in pairwise(names)) <= 4 + 2


@pytest.mark.parametrize(
    ("loads", "repeats"),
    [
        (None, ["0", "1", "2", "3", "4", "5"]),
        (4, ["0", "1", "2", "3", "4", "5"]),
        (3, ["01", "2", "3", "45", "6", "7"]),
        (2, ["01", "23", "45", "67", "89"]),
        (1, ["0123", "4567"]),
    ],
)
def test_fewer_loads_make_several_repeats_each(loads: int | None, repeats: list[str]) -> None:
    suite = _suite(repeats=4, loads=loads)
    groups = [list(map(str, group)) for group in islice(suite.repeats_by_load(), len(repeats))]
    assert ["".join(group) for group in groups] == repeats
    for capacity in (None, 1):
        cells = [cell for cell in _once(suite, capacity=capacity) if not cell.anchor]
        assert {str(cell.repeat) for cell in cells} == set(repeats[0])
        assert len(cells) == 32 * len(repeats[0])
        names = [_name(cell.spec) for cell in cells]
        if capacity == 1:
            assert 1 + sum(a != b for a, b in pairwise(names)) == 4


def test_methods_without_a_drafter_are_arms_at_the_sizes_at_which_they_draft() -> None:
    methods = (Method.DRAFT_MODEL, Method.NGRAM_SIMPLE, Method.NGRAM_CACHE, Method.NGRAM_MOD)
    (block,) = _sweep(methods=methods, draft_sizes=(3, 8, 16), p_mins=(0.0, 0.5)).blocks()
    assert [arm.drafting for arm in block.arms[8:]] == [
        Drafting(n_max=16, method=Method.NGRAM_SIMPLE),
        Drafting(n_max=8, method=Method.NGRAM_CACHE),
        *(Drafting(n_max=size, method=Method.NGRAM_MOD) for size in (3, 8, 16)),
    ]
    assert [arm.drafter for arm in block.arms[8:]] == [None] * 5
    assert {arm.baseline.key for arm in block.arms[2:]} == {block.arms[0].key}
    assert len({arm.key for arm in block.arms}) == len(block.arms) == 2 + 6 + 5


def test_methods_have_sizes_and_drafters_of_their_own() -> None:
    (block,) = _sweep(methods=(Method.DRAFT_MODEL, Method.NGRAM_MOD), draft_sizes=()).blocks()
    assert [arm.drafting.n_max for arm in block.arms if arm.drafting] == [3, 64]
    (block,) = _sweep(methods=(Method.NGRAM_MAP_K,)).blocks()
    assert [(arm.role, arm.pair.draft) for arm in block.arms] == [
        (Role.TARGET, None),
        *[(Role.DRAFTING, None)] * 2,
    ]


# Plans of any size

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


def _several(**axes: Any) -> Sweep:
    return _sweep(**{"targets": TARGETS, "drafters": DRAFTERS, "layer_counts": COUNTS, **axes})


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
    blocks = _several(**axes).blocks()
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
    blocks = _several(
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
    assert notes == [
        "layers: target.gguf has 9 with its output, so --ngl is measured at 0, 20",
        "layers: drafter.gguf has 3 with its output, so --ngld is measured at all",
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
        "experts: mixture.gguf has experts in 4 layers, so --n-cpu-moe is measured at 0, 2, 4",
        "experts: drafter.gguf has no experts, so --n-cpu-moe-draft is measured at 0",
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
    sweep = _several(target_layers=(0, 1, 2, 50, 60), threads=(1, 2, 3, 4, 5))
    assert sizes(sweep) == {"--threads": 5, "--ngl": 4, "--target": 2, "--draft-model": 2, "--draft": 2}
    assert isinstance(sweep.blocks(), Blocks)
