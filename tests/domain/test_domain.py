from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

import pytest

from ggufspec.choices import Layers
from ggufspec.domain import (
    Endpoint,
    ModelFile,
    ModelRun,
    Offload,
    Pair,
    Program,
    Prompt,
    Request,
    Role,
    RunSpec,
    Sample,
    Sampling,
    Status,
)
from tests.support import values


def _changed(value: Any) -> Iterator[Any]:
    """Yield a value with one of its parts changed, each in turn, however deep it lies."""
    if isinstance(value, ModelFile):
        yield replace(value, content="another")  # names and folders do not count where the content is known
    elif is_dataclass(value) and not isinstance(value, type):
        left_out = {Pair: "name", Endpoint: "start"}.get(type(value))
        for each in fields(value):
            for other in _changed(getattr(value, each.name)) if each.name != left_out else ():
                yield replace(value, **{each.name: other})
    elif isinstance(value, tuple):
        yield value[:1]
        yield from ((other, *value[1:]) for other in _changed(value[0]))
    elif isinstance(value, Enum):
        yield from set(type(value)) - {value}
    elif isinstance(value, bool):
        yield not value
    elif value is not None:
        yield value + 1 if isinstance(value, (int, float)) else f"{value}, another"


def test_a_key_is_of_all_that_is_asked_and_of_nothing_else() -> None:
    spec = values.filled(RunSpec)
    keys = [spec.key, *(other.key for other in _changed(spec))]
    assert len({*keys}) == len(keys) > 100
    assert spec.key == replace(spec).key
    assert len(spec.key) == 12
    request = Request.of({"stop": "."})
    assert request is not None
    spec = replace(values.spec(), prompt=Prompt(id="a", text="Go", request=request))
    same = replace(spec, prompt=replace(spec.prompt, request=replace(request)))
    assert request.fields
    assert spec.key == same.key


def test_key_is_the_same_in_another_process() -> None:
    """Stored runs are resumed by their key."""
    code = "from tests.support import values; print(values.spec().key)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == values.spec().key


@pytest.mark.parametrize(
    ("program", "gen_tokens", "gen_s", "sampling_s", "expected"),
    [
        (Program.PLAIN, 249, 4.0, 0.98, 249 / 4.98),  # 249 evaluations after the first token, sampling apart
        (Program.TREE, 254, 98.596, None, 253 / 98.596),  # the notebook: its first token cost no evaluation
        (Program.SIMPLE, 254, 98.596, None, 254 / 98.596),  # every token was evaluated in the window
        (Program.TREE, 1, 0.5, None, None),
        (Program.PLAIN, 0, 0.0, None, None),
    ],
)
def test_decode_tps_is_one_definition(
    program: Program, gen_tokens: int, gen_s: float, sampling_s: float | None, expected: float | None
) -> None:
    sample = Sample(
        status=Status.OK, program=program, gen_tokens=gen_tokens, gen_s=gen_s, sampling_s=sampling_s
    )
    assert sample.decode_tps == (expected if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("drafted", "accepted", "rate"), [(243, 172, 172 / 243), (0, 0, None), (None, None, None)]
)
def test_accept_rate_is_a_fraction(drafted: int | None, accepted: int | None, rate: float | None) -> None:
    assert Sample(status=Status.OK, n_drafted=drafted, n_accepted=accepted).accept_rate == rate


def test_greedy() -> None:
    assert Sampling().greedy
    assert Sampling(temperature=0.8, top_k=1).greedy
    assert not Sampling(temperature=0.8, top_k=40).greedy


def test_a_drafter_alone_does_not_depend_on_where_the_target_would_be() -> None:
    drafting = values.spec(Role.DRAFTING, draft=3)
    layers: tuple[Layers, ...] = (7, 3, "all", 0)
    placed = [
        replace(
            drafting, offload=Offload(target=ModelRun(layers=of_target), drafter=ModelRun(layers=2))
        ).drafter_alone
        for of_target in layers
    ]
    assert len({spec.key for spec in placed}) == 1
    assert placed[0].own_offload.target.layers == 2
