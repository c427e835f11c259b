from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise
from typing import Any

import pytest

from ggufspec.domain import CacheTypes, Drafting, Method, ModelFile, Prompt, Role, RunSpec
from ggufspec.measure.runplan import Cell, LoadKey, RunPlan
from ggufspec.measure.sweep import Sweep

PROMPTS = tuple(Prompt(id=name, text=name.upper()) for name in "abcdefgh")


def _sweep(**axes: Any) -> Sweep:
    models = {"targets": (ModelFile(filename="t"),), "drafters": (ModelFile(filename="d"),)}
    return Sweep(**{"name": "p", **models, "n_predict": 9, "context": 64, "draft_sizes": (3, 8), **axes})


def _suite(sweep: Sweep | None = None, **settings: Any) -> RunPlan:
    return RunPlan(**{"blocks": (sweep or _sweep()).blocks(), "prompts": PROMPTS, **settings})


def _name(spec: RunSpec) -> str:
    return spec.role.value if spec.drafting is None else f"γ{spec.drafting.n_max}"


def _own_load(spec: RunSpec) -> str:
    return _name(spec)


def _loaded_for_every_run(spec: RunSpec) -> None:
    return None


def _cells(
    suite: RunPlan, load: int = 0, *, capacity: int | None = None, load_key: LoadKey = _own_load
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


def test_without_a_drafter_only_the_target_runs() -> None:
    alone = _suite(_sweep(drafters=()))
    assert {cell.spec.role for cell in _once(alone)} == {Role.TARGET}


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
