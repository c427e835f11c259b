"""What a tuned configuration is to serve, and a start of llama-server by the command that is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from ggufspec import machine
from ggufspec.domain import Launch, ModelFile, Program, RunSpec, Serving
from ggufspec.errors import GgufspecError
from ggufspec.modelfiles import memory
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.tuning import verdicts
from ggufspec.tuning.budgeting import LAUNCH_SHARE, LONGEST_LAUNCH_S
from ggufspec.tuning.values import Choice, Plan, Tuned

_FIRST = 4096  # tokens: the first context that is tried, where the models were trained for as many
_HOST_SHARE = 0.5  # of the free memory, as for the loads of a bench
_UNKNOWN_SPEED = 1024  # tokens of that prompt where the speed of evaluation is not known
_TIMEOUT_S = 3600.0  # for the load, and for a request, without a time limit

Cards = Mapping[ModelFile, ModelCard]


def choose_serving(
    wanted: int | None,
    slots: int,
    arms: Sequence[RunSpec],
    cards: Cards,
    *,
    layout: memory.Layout,
    vram_bytes: int | None,
) -> tuple[Serving, str]:
    """Return what the configurations must serve, and why that context.

    By default, the context is the largest of 4,096, 8,192, 16,384, … tokens for which all models were trained
    and which fits: on a GPU, without a layer fewer than at 4,096; on the host, into half of the free memory,
    with caches no larger than the weights, because each of the many loads clears them.

    Args:
        wanted: the requested context of a slot; None for the default.
        slots: requests at once.
        arms: the configurations, with the context that their prompts and answers need.
        cards: the headers of all models.
        layout: how the llama.cpp in use lays models out.
        vram_bytes: the GPU's memory; None where there is no GPU.

    Raises:
        GgufspecError: the target was trained for less than the requested context.
    """
    trained = min(cards[arm.model].context_length for arm in arms)
    if wanted is not None:
        if wanted > trained and not any(arm.runtime.args for arm in arms):
            raise GgufspecError(
                f"the target was trained for a context of {trained:,} tokens, not {wanted:,}",
                f"use --serve-ctx {trained} or less",
            )
        return Serving(context=wanted, slots=slots), "as requested"
    drafters = [cards[arm.drafter].context_length for arm in arms if arm.drafter is not None]
    limit, needed = min([trained, *drafters]), max(arm.context for arm in arms)
    if limit <= _FIRST:
        return Serving(context=limit, slots=slots), "for which the models were trained"
    sizes = [_FIRST]
    while 2 * sizes[-1] <= limit:
        sizes.append(2 * sizes[-1])
    largest = {(arm.model, arm.drafter): arm for arm in sorted(arms, key=_draft_size)}
    plans = _ContextFit(arms=tuple(largest.values()), cards=cards, layout=layout, vram_bytes=vram_bytes)
    fitting = max((size for size in sizes[1:] if plans.fits(size * slots, _FIRST * slots)), default=_FIRST)
    if needed > fitting:
        return Serving(context=needed, slots=slots), "which the prompts need"
    why = "the largest of 4,096, 8,192, 16,384, … that fits and for which the models were trained"
    return Serving(context=fitting, slots=slots), why


def _draft_size(arm: RunSpec) -> int:
    return arm.drafting.n_max if arm.drafting is not None else 0


class _ContextFit:
    """Whether configurations fit into memory at a context."""

    def __init__(
        self, *, arms: Sequence[RunSpec], cards: Cards, layout: memory.Layout, vram_bytes: int | None
    ) -> None:
        self._arms, self._cards, self._layout, self._vram_bytes = arms, cards, layout, vram_bytes
        self._free_bytes = machine.memory().free_bytes

    def fits(self, context: int, first: int) -> bool:
        """Whether every configuration fits at a context as well as at the first; both are of all slots."""
        if self._vram_bytes is None:
            return all(self._fits_on_host(arm, context) for arm in self._arms)
        layers = [self._gpu_layers(arm, context) for arm in self._arms]
        return None not in layers and layers == [self._gpu_layers(arm, first) for arm in self._arms]

    def _fits_on_host(self, arm: RunSpec, context: int) -> bool:
        plan = memory.plan(*self._models(arm), arm.offload.on_processor, self._settings(arm, context))
        parts = [model.host for model in (plan.target, plan.draft) if model is not None]
        lean = sum(part.cache for part in parts) <= sum(part.weights for part in parts)
        return lean and plan.host_bytes <= self._free_bytes * _HOST_SHARE

    def _gpu_layers(self, arm: RunSpec, context: int) -> int | None:
        """Return how many of the target's layers fit on the GPU; None where the requested ones do not fit."""
        assert self._vram_bytes is not None
        settings, offload = self._settings(arm, context), arm.offload
        if offload.target.layers == "auto":
            draft_layers = "all" if offload.drafter.layers == "auto" else offload.drafter.layers
            plans = memory.plan_each_offload(
                *self._models(arm),
                settings,
                offload.with_layers(drafter=draft_layers),
            )
        else:
            plans = (memory.plan(*self._models(arm), offload, settings),)
        best = memory.best_fit(plans, self._vram_bytes)
        return None if best is None else best.target.gpu_layers

    def _models(self, arm: RunSpec) -> tuple[ModelCard, ModelCard | None]:
        return self._cards[arm.model], self._cards[arm.drafter] if arm.drafter is not None else None

    def _settings(self, arm: RunSpec, context: int) -> memory.MemorySettings:
        return memory.settings_for(replace(arm, context=context), self._layout)


def serve(plan: Plan, tuned: Tuned) -> Tuned:
    """Start llama-server with the choice, exactly as printed; if that cannot serve, take the next best.

    The choice stays where nothing can be served, and where it is for another engine, whose programs run it.
    Without a llama-server, and after the time limit, nothing is started.
    """
    tuned = replace(tuned, serving=plan.serving)
    if Program.SERVER not in plan.session.install.programs:
        return tuned
    first = _launch(plan, tuned, tuned.overall)
    if first.failure is not None and plan.deadline.is_over():  # which may have ended it
        return replace(tuned, launch=_not_started(plan))
    if first.failure is None or plan.session.engine.name != "server":
        return replace(tuned, launch=first)
    passed_over = [(tuned.overall.arm.spec, first.failure)]
    for choice in verdicts.next_best(tuned):
        if plan.deadline.is_over():
            break
        launch = _launch(plan, tuned, choice)
        if launch.failure is None:
            return replace(tuned, overall=choice, launch=launch, passed_over=tuple(passed_over))
        passed_over.append((choice.arm.spec, launch.failure))
    return replace(tuned, launch=first)


def _not_started(plan: Plan) -> Launch:
    return Launch(argv=(), failure=f"it was not tried, because {plan.deadline.describe()} was over")


def _launch(plan: Plan, tuned: Tuned, choice: Choice) -> Launch:
    from ggufspec.engines.server import serve_once  # its HTTP client is slow to import

    if plan.deadline.is_over():
        return _not_started(plan)
    texts = [prompt.text for prompt in tuned.outlook.prompts]
    limit_s = LONGEST_LAUNCH_S
    if plan.deadline.limit_s is not None:
        limit_s = min(limit_s, plan.deadline.limit_s * LAUNCH_SHARE)
    speeds = [speed for speed in choice.arm.good.column("prompt_tps") if speed]
    spec = replace(choice.arm.spec, traffic=None, context=plan.serving.total_context)
    try:
        return serve_once(
            spec,
            plan.session.install,
            plan.serving,
            text=max(texts, key=len),
            most_tokens=round(median(speeds) * limit_s) if speeds else _UNKNOWN_SPEED,
            timeout_s=plan.deadline.timeout_s(_TIMEOUT_S),
        )
    except GgufspecError as error:
        return Launch(argv=(), failure=error.message)
