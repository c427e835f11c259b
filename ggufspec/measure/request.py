"""What a tuned configuration or a recording decides of the options of a bench, and how they choose tokens."""

from __future__ import annotations

from ggufspec.domain import Sampling
from ggufspec.measure import configured
from ggufspec.options import BenchOptions, RunOptions
from ggufspec.prompts import Recording, read_recording
from ggufspec.results import Configuration, read_configuration

_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_WITHOUT_REPLAY = {"suite", "prompt", "prompt_file", "per_category", "chat", "system", "rate", "depth"}
"""Options that recorded requests decide."""


def with_tuned(request: BenchOptions, *, compares: bool = True) -> tuple[BenchOptions, Configuration | None]:
    """Return options with what their tuned configuration decides, and that configuration; None without one.

    Sampling, users and, for the embedded pair, prompts are as they were tuned, unless others are given.

    Args:
        request: names the configuration.
        compares: take the candidate of an undecided one, to be measured beside the target alone; otherwise
            the target alone, which is what is safe.

    Raises:
        ResultsError: there is no such configuration, or it cannot be trusted.
        ModelFileError: a model is not here, or another file is in its place.
    """
    if request.tuned is None:
        return request, None
    configuration = read_configuration(request.tuned)
    fields = configured.fields_of(configuration, compares=compares)
    given = request.given.keys()
    if not given & _SAMPLING.keys():
        sampling = configuration.spec.sampling
        fields |= {name: getattr(sampling, field) for name, field in _SAMPLING.items()}
    if not given & {"suite", "prompt", "prompt_file"}:
        fields["suite"] = configured.suite_of(configuration)
    if "parallel" not in given:
        fields["parallel"] = configured.users_of(configuration)
    if "llama" not in given:
        fields["llama"] = configured.llama_of(configuration)
    return request.replace(tuned=None, **fields), configuration


def read_replay(request: BenchOptions) -> Recording | None:
    """Return the recorded requests that are to be sent again; None where none are.

    Raises:
        GgufspecError: the file cannot be used, or what the recording decides is given.
    """
    if request.replay is None:
        return None
    request.refuse(_WITHOUT_REPLAY, "recorded requests decide")
    return read_recording(request.replay)


def choose_sampling(request: RunOptions) -> Sampling:
    """Return how tokens are chosen; see ``SamplingOptions``."""
    asked_for = request.top_k not in {None, 1} or request.top_p < 1 or request.min_p > 0
    temperature = request.temp if request.temp is not None else float(asked_for)
    return Sampling(
        temperature=temperature,
        top_k=request.top_k if request.top_k is not None else (40 if temperature > 0 else 1),
        top_p=request.top_p,
        min_p=request.min_p,
        seed=request.seed,
    )
