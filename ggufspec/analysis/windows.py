"""Decoding rates of drafting programs, without the part of the prompt's evaluation that is in their window.

A drafting program prints two windows: encoding, which ends with the evaluation of the prompt, and decoding.
On a GPU an evaluation returns before the device is done, and the program does not wait for it before it reads
the clock; the rest of the prompt's evaluation then falls into decoding. ``speculative-simple`` up to b9108
evaluates the drafter's prompt while it drafts for the first time, on every device. The plain program waits,
so the runs of the target and of the drafter alone tell how long their prompts take: what the window for
encoding is too short for is taken off the window for decoding. A run of one token would not tell, as a
drafting program always plays a complete round.
"""

from __future__ import annotations

from statistics import median

import numpy as np
from numpy.typing import NDArray

from ggufspec.domain import OWN_PROCESSES, Program, Role, RunSpec, Sample, Status
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
