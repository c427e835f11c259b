"""What llama.cpp reaches of a device's peaks, and what it takes beside reading: a roofline alone is a bound.

All numbers here were fitted to half of the speeds that people published, and the intervals to the other half:
``scripts/validate_whatif.py --fit`` prints them; for sources and errors see ``docs/forecasting.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ggufspec.domain import Estimate


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
