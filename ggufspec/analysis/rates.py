"""The tokens/s of each run, and which runs collapsed: far slower or far faster than the others of their arm.

Those of drafting programs are without the part of the prompt's evaluation that is in their window. Such a
program prints two windows: encoding, which ends with the evaluation of the prompt, and decoding.
On a GPU an evaluation returns before the device is done, and the program does not wait for it before it reads
the clock; the rest of the prompt's evaluation then falls into decoding. ``speculative-simple`` up to b9108
evaluates the drafter's prompt while it drafts for the first time, on every device. The plain program waits,
so the runs of the target and of the drafter alone tell how long their prompts take: what the window for
encoding is too short for is taken off the window for decoding. A run of one token would not tell, as a
drafting program always plays a complete round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import NO_PROMPT, OWN_PROCESSES, Program, Role, RunSpec, Sample, Status
from ggufspec.results import Runs

_HOST = "CPU"


def decode_rates(runs: Runs) -> NDArray[np.float64]:
    """Return the tokens/s of each run, see ``Sample.decode_tps``, without the prompt; NaN where unknown.

    Where it is not known how much of the prompt is in the window, the printed window counts.
    """
    rates = runs.numbers("decode_tps")
    prompt_s = prompt_in_window(runs)
    changed = np.flatnonzero(prompt_s > 0)
    if changed.size:
        rates = rates.copy()
        rates[changed] = runs.numbers("decoded")[changed] / (
            runs.numbers("gen_s")[changed] - prompt_s[changed]
        )
    return rates


def prompt_in_window(runs: Runs) -> NDArray[np.float64]:
    """Return the seconds of each run's prompt that are in its window for decoding; NaN where unknown.

    The runs of the target and of the drafter alone must be among ``runs``.
    """
    seconds = np.zeros(len(runs))
    # engines that keep models loaded wait for the device before they read the clock
    outputs, output_of = runs.by_output()
    late = np.flatnonzero(np.array([*map(_may_be_late, outputs)], dtype=np.bool_)[output_of])
    engines = runs.column("engine") if late.size else ()
    late_positions = [position for position in late.tolist() if engines[position] in OWN_PROCESSES]
    if not late_positions:
        return seconds
    alone = _seconds_alone(runs.newest())
    needed = {}
    specs, prompt_tokens, prompt_tps = runs.specs, *map(runs.numbers, ("prompt_tokens", "prompt_tps"))
    gen_s = runs.numbers("gen_s")
    for position in late_positions:
        spec, program = specs[position], outputs[output_of[position]].program
        if (id(spec), program) not in needed:
            needed[id(spec), program] = _prompt_seconds(spec, program, alone)
        whole_s = needed[id(spec), program]
        encoded_s = prompt_tokens[position] / prompt_tps[position] if prompt_tps[position] > 0 else np.nan
        inside_s = np.maximum(0.0, whole_s - encoded_s)  # keeps a NaN
        seconds[position] = inside_s if inside_s < gen_s[position] else np.nan
    return seconds


def _may_be_late(output: Sample) -> bool:
    """Whether a drafting program may have read the clock before its prompts were evaluated."""
    if output.status is not Status.OK or output.program not in (Program.TREE, Program.SIMPLE):
        return False
    offloaded = any(model.offloaded_layers for model in (output.target, output.drafter) if model is not None)
    on_device = offloaded or any(device != _HOST for device in output.devices)
    return on_device or output.program is Program.SIMPLE


def _seconds_alone(runs: Runs) -> dict[str, tuple[float, float]]:
    """Return the median seconds that each model alone took for its prompt and for a token, by spec key."""
    columns = map(runs.numbers, ("prompt_tokens", "prompt_tps", "decode_tps"))
    seen: dict[str, list[tuple[float, float]]] = {}
    for spec, engine, status, tokens, prompt_tps, decode_tps in zip(
        runs.specs, runs.column("engine"), runs.column("status"), *columns, strict=True
    ):
        if spec.role is Role.DRAFTING or engine not in OWN_PROCESSES or status is not Status.OK:
            continue
        if prompt_tps > 0 and decode_tps > 0:
            seen.setdefault(spec.key, []).append((tokens / prompt_tps, 1 / decode_tps))
    return {
        key: (median(prompt for prompt, _ in pairs), median(token for _, token in pairs))
        for key, pairs in seen.items()
    }


def _prompt_seconds(spec: RunSpec, program: Program | None, alone: dict[str, tuple[float, float]]) -> float:
    """Return the seconds that the prompts of a drafting run take; NaN where a model alone does not tell.

    The tree program evaluates the prompt's last token on the target by itself.
    """
    unknown = (np.nan, np.nan)
    target_s, token_s = alone.get(spec.baseline.key, unknown)
    drafter_s, _ = (0.0, 0.0) if spec.drafter is None else alone.get(spec.drafter_alone.key, unknown)
    return target_s + drafter_s + (token_s if program is Program.TREE else 0.0)


def counted(runs: Runs) -> NDArray[np.float64]:
    """Return the tokens/s of each run; NaN of those that enter no mean."""
    outputs, output_of = runs.by_output()
    counts = np.array([output.status is Status.OK for output in outputs], dtype=np.bool_)
    return np.where(counts[output_of], decode_rates(runs), np.nan)


LEAST_REPEATS = 3
"""Repeats of a prompt that are judged by their own median."""
_FACTOR = 2.0  # between repeats of a prompt
_FACTOR_BETWEEN_PROMPTS = 4.0  # texts and their lengths differ
_COMMON = 0.1  # of the runs of an arm
_LEAST_COMMON = 2  # runs; one of a short bench is more than a tenth


def find_collapses(runs: Runs) -> tuple[int, ...]:
    """Return the places of the runs that collapsed; a run that is too fast counts like one that is too slow.

    The rule: the tokens/s of a run differ by more than a factor of 2 from the median of its arm's repeats on
    the same prompt, the run included. With fewer than three repeats its evaluations per second of the target
    are compared with the median of all runs of the arm, and the factor is 4. That needs three runs, and an
    arm whose drafts are equally long, as rounds then take about the same time.

    Args:
        runs: of one cell each; those that enter no mean are left out.
    """
    tps = counted(runs)
    specs, spec_of = runs.by_spec()
    arms, arm_of = _arms(specs)
    cells: dict[tuple[int, str], int] = {}  # with prompts, of whatever repeat
    cell_of = [
        cells.setdefault((arm, spec.prompt.id), len(cells)) for arm, spec in zip(arm_of, specs, strict=True)
    ]
    collapsed = set[int]()
    few = set[int]()
    good = np.flatnonzero(tps > 0)
    for indices in _groups(good, np.array(cell_of)[spec_of[good]]):
        if len(indices) >= LEAST_REPEATS:
            collapsed.update(_far(indices, tps, _FACTOR))
        else:
            few.update(indices.tolist())
    if few:
        pace = tps * _evaluations_per_token(runs, [arms[arm_of[number]] for number in spec_of])
        paced = np.flatnonzero(pace > 0)
        for indices in _groups(paced, np.array(arm_of)[spec_of[paced]]):
            if len(indices) >= LEAST_REPEATS:
                collapsed.update(few.intersection(_far(indices, pace, _FACTOR_BETWEEN_PROMPTS)))
    return tuple(sorted(collapsed))


def find_common(runs: Runs) -> dict[RunSpec, tuple[int, int]]:
    """Return each arm of which more than a tenth of the runs collapsed: how many did, and of how many.

    Args:
        runs: as they were first measured, see ``ResultSet.first_measured``.
    """
    specs, spec_of = runs.by_spec()
    arms, arm_of = _arms(specs)
    numbers = np.array(arm_of, dtype=np.intp)[spec_of]
    collapsed = np.array(find_collapses(runs), dtype=np.intp)
    total, counts = (
        np.bincount(some, minlength=len(arms)).tolist() for some in (numbers, numbers[collapsed])
    )
    return {
        arm: (count, of)
        for arm, count, of in zip(arms, counts, total, strict=True)
        if count >= _LEAST_COMMON and count > _COMMON * of
    }


def _arms(specs: Iterable[RunSpec]) -> tuple[list[RunSpec], list[int]]:
    """Return the arms of runs, and for each specification the number of its arm."""
    numbers: dict[RunSpec, int] = {}
    arm_of = [numbers.setdefault(replace(spec, prompt=NO_PROMPT), len(numbers)) for spec in specs]
    return list(numbers), arm_of


def _groups(indices: NDArray[np.intp], numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Return the places that have the same number together."""
    order = np.argsort(numbers, kind="stable")
    return np.split(indices[order], np.flatnonzero(np.diff(numbers[order])) + 1)


def _far(indices: NDArray[np.intp], rates: NDArray[np.float64], factor: float) -> list[int]:
    """Return the places whose rate differs from the median of all by more than a factor."""
    logs = np.log(rates[indices])
    far: list[int] = indices[np.abs(logs - np.median(logs)) > np.log(factor)].tolist()
    return far


def _evaluations_per_token(runs: Runs, arms: Iterable[RunSpec]) -> NDArray[np.float64]:
    """Return how often the target is evaluated for each token; NaN where rounds draft unequally much."""
    decoded = runs.numbers("decoded")
    by_round = runs.numbers("n_rounds") / np.where(decoded > 0, decoded, np.nan)
    listed = list(arms)
    drafting = [arm.drafting for arm in listed]
    plain = np.array([arm.role is not Role.DRAFTING for arm in listed], dtype=bool)
    equal = [
        drafts is not None and drafts.method.drafts_with_model and not drafts.first and not drafts.p_min
        for drafts in drafting
    ]
    return np.where(plain, 1.0, np.where(equal, by_round, np.nan))
