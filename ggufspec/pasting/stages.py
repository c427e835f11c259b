"""ik_llama.cpp's stages of drafting, ``--spec-type TYPE:key=value,…`` once or twice -> options of a bench."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ggufspec.choices import Method

_METHODS = {method.stage: method for method in Method}
_OWN_NAMES = {Method.SUFFIX.stage, *(method.stage for method in Method if method.is_head)}
_OF_MODELS = {"n_max": "--draft", "n_min": "--draft-min", "p_min": "--p-min"}
_OF_NGRAMS = {
    "n_max": "size-m",
    "n_min": "n-min",
    "ngram_size_n": "size-n",
    "ngram_size_m": "size-m",
    "ngram_min_hits": "min-hits",
    "suffix_min_match_len": "size-n",
}


@dataclass(frozen=True, kw_only=True)
class DraftingStage:
    """One method with its settings, as a command gives them."""

    method: Method
    settings: tuple[tuple[str, str], ...]

    @property
    def read_keys(self) -> dict[str, str]:
        """Which keys are read, and the option or the setting of n-grams that each is here."""
        return _OF_MODELS if self.method.drafts_with_model else _OF_NGRAMS


def read_stage(value: str) -> DraftingStage | None:
    """Return the stage that a value of ``--spec-type`` is; None for llama.cpp's own values."""
    name, colon, settings = value.partition(":")
    name = name.replace("_", "-")
    if name not in _METHODS or not (colon or name in _OWN_NAMES):
        return None
    pairs = (pair.partition("=") for pair in settings.split(",") if "=" in pair)
    return DraftingStage(
        method=_METHODS[name], settings=tuple((key.replace("-", "_"), text) for key, _, text in pairs)
    )


def options_of(stages: Sequence[DraftingStage]) -> Iterator[tuple[str, str]]:
    """Yield the options that stages stand for, each with its value."""
    yield "--method", "+".join(stage.method for stage in stages)
    ngrams: list[str] = []
    for stage in stages:
        for key, text in stage.settings:
            here = stage.read_keys.get(key, "")
            if here.startswith("--"):
                yield here, text
            elif here:
                ngrams.append(f"{here}={text}")
    if ngrams:
        yield "--ngram", ",".join(ngrams)


def unread_keys(stages: Sequence[DraftingStage]) -> tuple[str, ...]:
    """Return the settings of stages that no option stands for."""
    return tuple(
        f"--spec-type {stage.method.stage}:{key}"
        for stage in stages
        for key, _ in stage.settings
        if key not in stage.read_keys
    )
