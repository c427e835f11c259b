from __future__ import annotations

from ggufspec.domain import ModelFile, Pair, Prompt, Role
from ggufspec.sweep import Suite

PAIR = Pair(name="p", target=ModelFile(filename="t"), draft=ModelFile(filename="d"))
PROMPTS = (Prompt(id="a", text="A"), Prompt(id="b", text="B"))


def _suite(pair: Pair = PAIR) -> Suite:
    return Suite(
        pair=pair,
        prompts=PROMPTS,
        draft_sizes=(3, 8),
        n_predict=9,
        context=64,
        threads=1,
        repeats=2,
        warmups=1,
    )


def test_warmups_come_first_and_arms_are_neighbours() -> None:
    cells = [
        (
            cell.warmup,
            cell.repeat,
            cell.spec.prompt.id,
            cell.spec.role.value,
            cell.spec.drafting and cell.spec.drafting.n_max,
        )
        for cell in _suite().cells()
    ]
    arms = [("target", None), ("drafter", None), ("drafting", 3), ("drafting", 8)]
    assert cells[:4] == [(True, 0, "a", *arm) for arm in arms]
    assert cells[4:] == [(False, r, p, *arm) for r in range(2) for p in "ab" for arm in arms]


def test_without_a_drafter_only_the_target_runs() -> None:
    alone = _suite(Pair(name="p", target=ModelFile(filename="t")))
    assert {cell.spec.role for cell in alone.cells()} == {Role.TARGET}
