"""In which batches a prompt is evaluated: near-ties of the first tokens fall by them."""

from __future__ import annotations

import pytest

from ggufspec.engines.library.tracing import prompt_batches


@pytest.mark.parametrize(
    ("n_prompt", "ends"),
    [(3, [3]), (4, [4]), (5, [1, 5]), (100, [96, 100]), (516, [512, 516]), (600, [84, 596, 600])],
)
def test_a_server_reads_the_last_tokens_apart_where_it_keeps_a_copy_of_the_caches(
    n_prompt: int, ends: list[int]
) -> None:
    assert prompt_batches(n_prompt, 512, server=True) == ends


def test_other_programs_read_a_prompt_at_once() -> None:
    assert prompt_batches(600, 512, server=False) == [600]
