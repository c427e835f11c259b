"""The roofline model, with what llama.cpp takes besides: the seconds of an evaluation from headers and peaks.

Williams, Waterman and Patterson 2009, "Roofline: an insightful visual performance model for multicore
architectures", doi:10.1145/1498765.1498785: an evaluation takes as long as its bytes or its arithmetic,
whichever is longer. A device's ``Efficiency`` says how much of that llama.cpp reaches, and what comes on top
for each layer, for each further token of a batch, and for going on with what another device computed. These
numbers were fitted to half of the speeds that people published, and the intervals to the other half:
``scripts/validate_whatif.py --fit`` prints them; for sources and errors see ``docs/forecasting.md``.

A model that lies on several devices takes the sum of their times, as every layer needs the output of the
layer before it, and llama.cpp evaluates the parts of a graph one after another
(ggml_backend_sched_compute_splits in ggml/src/ggml-backend.cpp). This holds for batches of fewer than 32
tokens; for longer ones llama.cpp copies weights from the host to the GPU. A batch that verifies a draft is
shorter.

How many experts a batch of neighbouring tokens needs is counted in a trace, or follows from a prior.
Tokens of one text do not choose their experts independently. The prior takes each expert's use along a text
to be a chain of two states: of the experts that one token uses, the next one keeps the share ρ, and chooses
the others as if independently. So n tokens need the share

    1 − (1 − s) · (1 − s(1 − ρ))ⁿ⁻¹

of a layer's experts, s being the share that one token uses. With ρ = 0 the choices are independent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ggufspec.forecast.costs.curve import CostCurve, Point
from ggufspec.stats import Estimate
from ggufspec.units import parse_quantity


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """How near llama.cpp comes to the peaks of one kind of device; the defaults are the peaks themselves.

    Attributes:
        bandwidth_share: of the data sheet's memory bandwidth, what decoding one token reaches.
        layer_s: seconds that a layer takes whatever its bytes: its kernels are started one by one.
        experts_s: the same of a layer's experts, which are chosen, gathered and summed besides.
        token_share: what each further token of a batch adds, as a share of reading what one token reads:
            quantized products of small batches are bound by arithmetic long before a roofline says so.
        handover_s: seconds until a device goes on with what another one computed, and hands it back.
        choice_s: seconds for each token of the vocabulary, from which each drafted token is chosen.
    """

    bandwidth_share: float = 1.0
    layer_s: float = 0.0
    experts_s: float = 0.0
    token_share: float = 0.0
    handover_s: float = 0.0
    choice_s: float = 0.0


ON_GPU = Efficiency(
    bandwidth_share=0.88,  # the rest goes to refreshes, to switching rows, and to tails of kernels
    layer_s=106e-6,  # some ten kernels at about 10 µs: 3 ms a token for 32 layers, at any size of GPU
    experts_s=35e-6,  # three or four kernels more
    token_share=0.10,  # llama.cpp's tables for a DGX Spark and an M2 Ultra, batches of 2 to 32
    handover_s=19e-6,  # GPUs to one another: two copies of one activation
    choice_s=9.6e-9,  # 1.2 ms for 128,256 tokens: llama.cpp copies and sorts a drafter's logits on the host
)
ON_HOST = Efficiency(
    bandwidth_share=0.59,  # of all channels; published with as many threads as cores, on one socket
    layer_s=53e-6,  # threads meet once an operation
    experts_s=148e-6,  # each expert's rows are a product of their own
    token_share=0.6,  # none was published: our 70B with 45 of 81 layers on the GPU takes 2.4 × as long for 4
    handover_s=192e-6,  # to the GPU and back, over PCIe, with one more graph to start
    choice_s=9.6e-9,  # the same work at the same place
)


class PublishedFigure(StrEnum):
    """What is forecast from headers; each kind is off by as much as published figures of it were."""

    ON_GPU = "on the GPU"  # tokens/s of a target alone
    ON_HOST = "partly on the host"  # the same, where the host computes some of it, or all
    DRAFTING = "drafting"  # tokens/s
    SPEEDUP = "speed-up"


_FACTORS = {
    PublishedFigure.ON_GPU: 1.45,
    PublishedFigure.ON_HOST: 1.3,
    PublishedFigure.DRAFTING: 2.1,
    PublishedFigure.SPEEDUP: 1.5,
}
"""Nine in ten of the figures that were not fitted are between the forecast over this and times it."""


def with_interval(value: float, figure: PublishedFigure) -> Estimate:
    """Return a forecast from headers with an interval for 90 % of such figures."""
    return Estimate(value=value, lo=value / _FACTORS[figure], hi=value * _FACTORS[figure])


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one model reads and computes.

    Attributes:
        weight_bytes: the weights that some token may need.
        active_bytes: those that one token needs; less than all only with experts.
        used_share: the share of the experts that one token is sent to; 1 without experts.
        needed_shares: the traced share that 1, 2, … neighbouring tokens are sent to; beyond the last, and
            where nothing was traced, the prior goes on, see ``needed_share``.
        kv_bytes: what every earlier token of the context adds to read.
        flops: floating-point operations per token, without attention over the context.
        kv_flops: those that every earlier token adds.
        layers: whose attention is computed here.
        expert_layers: whose experts are computed here.
        visits: how often an evaluation comes here from another device.
        outputs: tokens of the vocabulary, if their logits are computed here.
    """

    weight_bytes: float
    active_bytes: float
    kv_bytes: float
    flops: float
    kv_flops: float = 0.0
    used_share: float = 1.0
    needed_shares: tuple[float, ...] = ()
    layers: int = 0
    expert_layers: int = 0
    visits: int = 0
    outputs: int = 0

    def read_bytes(self, tokens: int, depth: float) -> float:
        """Return what a batch reads: weights once, and those of all experts that its tokens are sent to."""
        experts = 0.0
        if self.used_share < 1:
            experts = (self.weight_bytes - self.active_bytes) / (1 - self.used_share)
        idle = experts * (1 - self._needed_share(tokens))
        return self.weight_bytes - idle + depth * self.kv_bytes

    def _needed_share(self, tokens: int) -> float:
        traced = len(self.needed_shares)
        if tokens <= traced:
            return self.needed_shares[tokens - 1]
        if not traced:
            return needed_share(self.used_share, tokens)
        # further tokens find as many of the idle experts as the prior says
        left = (1 - needed_share(self.used_share, tokens)) / (1 - needed_share(self.used_share, traced))
        return 1 - (1 - self.needed_shares[-1]) * left

    def computed_flops(self, tokens: int, depth: float) -> float:
        """Return the operations of a batch."""
        return tokens * (self.flops + depth * self.kv_flops)


def seconds(shape: Shape, device: DevicePeaks, tokens: int, depth: float) -> float:
    """Return the time of a batch on a device."""
    pace = device.efficiency
    bandwidth = pace.bandwidth_share * device.bandwidth
    reading = shape.read_bytes(tokens, depth) / bandwidth
    further = (tokens - 1) * pace.token_share * shape.active_bytes / bandwidth
    fixed = shape.layers * pace.layer_s + shape.expert_layers * pace.experts_s
    fixed += shape.visits * pace.handover_s
    return max(reading + further, shape.computed_flops(tokens, depth) / device.flops) + fixed


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """The part of a model that one device holds and evaluates."""

    shape: Shape
    device: DevicePeaks


def seconds_of_parts(parts: Sequence[ModelPart], tokens: int, depth: float) -> float:
    """Return the time of a batch on all devices that a model lies on, one after another."""
    return sum(seconds(part.shape, part.device, tokens, depth) for part in parts)


def step_seconds(drafter: Sequence[ModelPart], depth: float) -> float:
    """Return the time in which a drafter proposes one token."""
    choosing = sum(part.shape.outputs * part.device.efficiency.choice_s for part in drafter)
    return seconds_of_parts(drafter, 1, depth) + choosing


def roofline_of_parts(
    target: Sequence[ModelPart],
    drafter: Sequence[ModelPart] | None,
    *,
    most_tokens: int,
    depths: Sequence[int],
    overhead_s: float = 0.0,
) -> CostCurve:
    """Return the curve that follows from headers and the devices' peaks.

    Args:
        target: the target's parts, one for each device.
        drafter: the drafter's, if there is one.
        most_tokens: the largest batch, γ + 1.
        depths: tokens in the context before a batch.
        overhead_s: seconds per round besides.
    """

    def point(tokens: int, depth: int, seconds: float) -> Point:
        return Point(tokens=tokens, depth=depth, seconds=Estimate.around(seconds))

    def batches(parts: Sequence[ModelPart]) -> tuple[Point, ...]:
        sizes = range(1, most_tokens + 1)
        return tuple(point(n, depth, seconds_of_parts(parts, n, depth)) for depth in depths for n in sizes)

    return CostCurve(
        verify=batches(target),
        draft=tuple(point(1, depth, step_seconds(drafter, depth)) for depth in depths) if drafter else (),
        absorb=batches(drafter) if drafter else (),
        overhead_s=Estimate.around(overhead_s),
    )


@dataclass(frozen=True, kw_only=True)
class DevicePeaks:
    """A machine's peaks: bytes/s and floating-point operations/s, and where they are published."""

    name: str
    bandwidth: float
    flops: float
    source: str
    efficiency: Efficiency


def _device(
    name: str, gigabytes: float, teraflops: float, source: str, efficiency: Efficiency = ON_GPU
) -> DevicePeaks:
    return DevicePeaks(
        name=name, bandwidth=gigabytes * 1e9, flops=teraflops * 1e12, source=source, efficiency=efficiency
    )


DEVICES = {
    key: _device(*row)
    for key, row in {
        "h200": ("NVIDIA H200 SXM", 4800, 989.5, "NVIDIA H200 datasheet: 1,979 TFLOPS with sparsity"),
        "h100": ("NVIDIA H100 SXM", 3350, 989.5, "NVIDIA H100 datasheet: 1,979 TFLOPS with sparsity"),
        "a100": ("NVIDIA A100 80GB SXM", 2039, 312, "NVIDIA A100 datasheet"),
        "l4": ("NVIDIA L4", 300, 121, "NVIDIA L4 datasheet: 242 TFLOPS with sparsity"),
        "t4": ("NVIDIA T4", 320, 65, "NVIDIA T4 datasheet"),
        "rtx-5090": ("NVIDIA GeForce RTX 5090", 1792, 209.5, "NVIDIA RTX Blackwell architecture paper"),
        "rtx-4090": ("NVIDIA GeForce RTX 4090", 1008, 165.2, "NVIDIA Ada architecture paper, table 2"),
        "rtx-3090": ("NVIDIA GeForce RTX 3090", 936, 71, "NVIDIA GA102 architecture paper, table 3"),
        "mi300x": ("AMD Instinct MI300X", 5300, 1307.4, "AMD Instinct MI300X data sheet"),
        "rx-7900-xtx": ("AMD Radeon RX 7900 XTX", 960, 122.8, "AMD product page: half precision"),
        "m1-max": ("Apple M1 Max, 32 GPU cores", 400, 10.4, "Apple newsroom, October 2021"),
        "m1-ultra": ("Apple M1 Ultra, 64 GPU cores", 800, 21, "Apple newsroom, March 2022"),
    }.items()
} | {
    key: _device(*row, efficiency=ON_HOST)
    for key, row in {
        "epyc-9654": ("AMD EPYC 9654, 12 × DDR5-4800", 460.8, 7.4, "AMD product page: 96 cores, 2.4 GHz"),
        "ryzen-7950x": ("AMD Ryzen 9 7950X, DDR5-5200", 83.2, 2.3, "AMD product page: 16 cores, 4.5 GHz"),
        "core-13900k": ("Intel Core i9-13900K, DDR5-5600", 89.6, 1.3, "Intel ARK: 8P 3 GHz, 16E 2.2 GHz"),
    }.items()
}
"""What ``ggufspec whatif --machine`` knows by name: memory bandwidth, and dense arithmetic.

GPUs with matrix units: FP16 products summed in FP32, without sparsity. Apple's GPUs: FP32, as Apple
states it. Processors: cores × base clock × 32 FP32 operations per cycle (two 256-bit or one 512-bit
multiply-add), 16 for Intel's efficient cores.
"""


def find_device(text: str, efficiency: Efficiency = ON_GPU) -> DevicePeaks:
    """Return a machine by its name in ``DEVICES``, or by its memory bandwidth alone: ``60G``.

    Of a machine given by its bandwidth, the arithmetic is not counted: its time is that of reading. Its
    ``efficiency`` is that of a GPU, unless it is known to be a processor.

    Raises:
        ValueError: no machine has this name.
    """
    if text in DEVICES:
        return DEVICES[text]
    try:
        bandwidth = parse_quantity(text)
    except ValueError:
        raise ValueError(f"unknown machine: {text!r}; known are {', '.join(DEVICES)}") from None
    return DevicePeaks(
        name="as given", bandwidth=bandwidth, flops=math.inf, source="as given", efficiency=efficiency
    )


def match_device(name: str) -> str | None:
    """Return the key in ``DEVICES`` of a GPU as its driver names it; None if it is not there.

    Laptop GPUs share names with faster ones of desktops, and are never matched.
    """
    plain = name.lower().replace("-", " ")
    if "laptop" in plain or "mobile" in plain:
        return None
    words = {key: key.replace("-", " ") for key in DEVICES}
    matches = [key for key, word in words.items() if re.search(rf"\b{word}\b(?! (?:ti|super))", plain)]
    return matches[0] if matches else None


PERSISTENCE = 0.2
"""ρ where nothing was traced. Published measurements of routers give ρ = (overlap − s) / (1 − s):

- GLM-4.7-Flash, 4 of 64 experts: neighbours share 25.7 %, ρ = 0.21 (ml-explore/mlx-lm#1485, July 2026);
- Cohere's models: 38 %, and four tokens need 2.5 times the experts of one, ρ = 0.3 to 0.4 ("Why MoE models
  get more from speculative decoding", April 2026, as others report it; the sparsity is not given);
- GLM-5.2, 8 of 256: next to none, by the time of two tokens alone (jundot/omlx#2077, July 2026).
"""

LONGEST = 17
"""Tokens of the longest batch that is counted: what verifies drafts of 16."""


def needed_share(used_share: float, tokens: int, persistence: float = PERSISTENCE) -> float:
    """Return the share of a layer's experts that neighbouring tokens need, by the prior.

    Args:
        used_share: that of one token.
        tokens: in the batch, 1 or more.
        persistence: ρ.
    """
    return 1 - (1 - used_share) * (1 - used_share * (1 - persistence)) ** (tokens - 1)


@dataclass(frozen=True, kw_only=True)
class ExpertUse:
    """The share of a layer's experts that 1, 2, … neighbouring tokens need, on average over texts.

    Attributes:
        layers: the shares, by the number of each layer that has experts.
        tokens: how many were traced.
    """

    layers: Mapping[int, tuple[float, ...]]
    tokens: int

    def shares(self, layers: Mapping[int, float]) -> tuple[float, ...]:
        """Return the mean over some layers, weighted; () where one of them was not traced."""
        if not layers or not self.layers.keys() >= layers.keys():
            return ()
        total = sum(layers.values())
        rows = [[share * weight for share in self.layers[layer]] for layer, weight in layers.items()]
        return tuple(sum(column) / total for column in zip(*rows, strict=True))


def describe_experts(use: ExpertUse | None) -> str:
    """Return where the number of experts that a batch needs comes from, as a sentence."""
    if use is not None:
        return (
            f"experts: batches need as many as were counted in {use.tokens:,} tokens of the model's own text"
        )
    return (
        "experts: how many a batch needs is taken from published measurements of routers "
        f"(ρ = {PERSISTENCE}); `ggufspec tune` counts those of your texts, once for a model"
    )


def count_experts(texts: Sequence[Mapping[int, Sequence[Sequence[int]]]], n_experts: int) -> ExpertUse | None:
    """Count the experts of all batches that could begin at some token of the texts.

    Args:
        texts: for each text the experts of each token, by layer; texts of fewer than ``LONGEST`` tokens are
            left out.
        n_experts: of a layer.

    Returns:
        None where no text is long enough.
    """
    long_enough = [text for text in texts if text and len(next(iter(text.values()))) >= LONGEST]
    if not long_enough:
        return None
    counts: dict[int, list[int]] = {}
    batches = [0] * LONGEST
    for text in long_enough:
        for layer, tokens in text.items():
            of_layer = counts.setdefault(layer, [0] * LONGEST)
            for start in range(len(tokens)):
                needed: set[int] = set()
                for size, chosen in enumerate(tokens[start : start + LONGEST]):
                    needed.update(chosen)
                    of_layer[size] += len(needed)
        n_tokens = len(next(iter(text.values())))
        batches = [count + n_tokens - size for size, count in enumerate(batches)]
    return ExpertUse(
        layers={
            layer: tuple(count / (n * n_experts) for count, n in zip(of_layer, batches, strict=True))
            for layer, of_layer in counts.items()
        },
        tokens=batches[0],
    )
