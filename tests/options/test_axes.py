from __future__ import annotations

import re

import pytest

from ggufspec.options.kinds import Axis

DRAFT = Axis("draft sizes", least=1, most=64)
LAYERS = Axis("layers", words=("all", "auto"))
CHANCE = Axis("probabilities", number=float, most=1)
TYPES = Axis("types", number=None, words=("f16", "q8_0"))


@pytest.mark.parametrize(
    ("axis", "text", "values"),
    [
        (DRAFT, "3", (3,)),
        (DRAFT, "3,5,8", (3, 5, 8)),
        (DRAFT, "1-8,12,16", (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)),
        (DRAFT, "8,3,8", (8, 3)),
        (DRAFT, "1-16*2", (1, 2, 4, 8, 16)),
        (LAYERS, "0-80+20", (0, 20, 40, 60, 80)),
        (LAYERS, "45, all", (45, "all")),
        (LAYERS, "auto", ("auto",)),
        (CHANCE, "0,0.4,0.8", (0.0, 0.4, 0.8)),
        (CHANCE, "0-0.8+0.2", (0.0, 0.2, 0.4, 0.6, 0.8)),
        (TYPES, "f16,q8_0", ("f16", "q8_0")),
    ],
)
def test_values(axis: Axis, text: str, values: tuple[object, ...]) -> None:
    assert axis.parse(text) == values


@pytest.mark.parametrize(
    ("axis", "text", "words"),
    [
        (DRAFT, "three", "'three' is not a number, a list or a range; examples: 3; 3,5,8"),
        (DRAFT, "0", "from 1 to 64"),
        (DRAFT, "8-3", "a range starts with its lower end"),
        (DRAFT, "1-9999", "from 1 to 64"),
        (DRAFT, "", "is not a number"),
        (DRAFT, "1-8+0", "the step in '1-8+0' must be greater than 0"),
        (DRAFT, "1-8*1", "the step in '1-8*1' must be greater than 1"),
        (LAYERS, "-1", "from 0 to 9999"),
        (LAYERS, "0-80*2", "the range '0-80*2' multiplies and cannot start at 0"),
        (LAYERS, "0-9000", "more than 1000 values"),
        (CHANCE, "1.5", "from 0 to 1"),
        (CHANCE, "0.1.2", "is not a number"),
        (TYPES, "q9", "'q9' is not one of f16, q8_0"),
    ],
)
def test_bad_values_are_told_what_to_give(axis: Axis, text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        axis.parse(text)
