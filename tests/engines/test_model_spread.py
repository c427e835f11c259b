"""When the spread of a model is measured."""

from __future__ import annotations

from ggufspec.engines.library.spread import Spreads

LONG, SHORT = 200, 5  # tokens of a text


def test_a_spread_is_measured_once_per_model_at_the_first_text_that_is_long_enough() -> None:
    spreads, measured = Spreads(), iter((0.1, 0.2, 0.3, 0.4))

    def ask(model: str, n_tokens: int) -> float:
        return spreads.of(model, n_tokens, lambda: next(measured))

    assert ask("target", SHORT) == 0.1
    assert ask("target", LONG) == 0.2
    assert ask("target", LONG) == ask("target", SHORT) == 0.2
    assert ask("drafter", LONG) == 0.3
    assert next(measured) == 0.4
