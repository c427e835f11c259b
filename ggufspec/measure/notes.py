"""What a user should know before the first run: the notes of all steps in one list, and warnings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from ggufspec import machine
from ggufspec.analysis import MeasurementWarning
from ggufspec.domain import offloading
from ggufspec.llama.install import Install
from ggufspec.measure import configured
from ggufspec.measure.arms import PlannedArms
from ggufspec.measure.fitting import PlannedMemory
from ggufspec.measure.loading import PlannedRuns
from ggufspec.measure.models import ChosenModels
from ggufspec.measure.programs import ChosenEngine
from ggufspec.measure.sweep import Sweep
from ggufspec.modelfiles import gguf
from ggufspec.results import Configuration

_LEAST_REPEATS = 2  # one says nothing of how far they spread


def describe_tuned(configuration: Configuration | None, install: Install) -> Iterator[str]:
    """Yield which configuration is measured, and what is not as it was when that was tuned."""
    if configuration is None:
        return
    yield f"tuned: {configuration.id}, made on {configuration.made_at[:10]}"
    yield from configured.compare_machines(configuration, install)


def find_doubts(
    models: ChosenModels, engine: ChosenEngine, arms: PlannedArms, memory: PlannedMemory, runs: PlannedRuns
) -> tuple[MeasurementWarning, ...]:
    """Return the warnings before anything runs, each once."""
    warnings = [
        warning for install in engine.installs for warning in _warnings_of(arms.sweep, models, install)
    ]
    if runs.suite.repeats < _LEAST_REPEATS:
        warnings.append(MeasurementWarning.FEW_REPEATS)
    if memory.notes:
        warnings.append(MeasurementWarning.MEMORY_TIGHT)
    return tuple(dict.fromkeys(warnings))


def _warnings_of(sweep: Sweep, models: ChosenModels, install: Install) -> Iterator[MeasurementWarning]:
    layers = (*sweep.target_layers, *(sweep.draft_layers if sweep.drafters else ()))
    if install.gpu is False and () in sweep.rpcs and any(offloading.wants_gpu(number) for number in layers):
        yield MeasurementWarning.GPU_LESS_BUILD
    pairs = product(sweep.targets, sweep.drafters)
    if any(_weights(models.cards[drafter]) > _weights(models.cards[target]) for target, drafter in pairs):
        yield MeasurementWarning.MODELS_SWAPPED
    if max(sweep.threads) > machine.usable_cores():
        yield MeasurementWarning.THREADS_ABOVE_FREE_CORES


def _weights(card: gguf.ModelCard) -> int:
    """Return how many weights a model has; the one with fewer may be the larger file."""
    return sum(prod(tensor.shape) for tensor in card.tensors)
