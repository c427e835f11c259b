"""Published peaks of common machines: memory bandwidth, and dense arithmetic as llama.cpp uses it.

GPUs with matrix units: FP16 products summed in FP32, without sparsity. Apple's GPUs: FP32, as Apple says it.
Processors: cores × base clock × 32 FP32 operations per cycle (two 256-bit or one
512-bit multiply-add), 16 for Intel's efficient cores.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Device:
    """A machine's peaks: bytes/s and floating-point operations/s, and where they are published."""

    name: str
    bandwidth: float
    flops: float
    source: str


def _device(name: str, gigabytes: float, teraflops: float, source: str) -> Device:
    return Device(name=name, bandwidth=gigabytes * 1e9, flops=teraflops * 1e12, source=source)


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
        "epyc-9654": ("AMD EPYC 9654, 12 × DDR5-4800", 460.8, 7.4, "AMD product page: 96 cores, 2.4 GHz"),
        "ryzen-7950x": ("AMD Ryzen 9 7950X, DDR5-5200", 83.2, 2.3, "AMD product page: 16 cores, 4.5 GHz"),
        "core-13900k": (
            "Intel Core i9-13900K, DDR5-5600",
            89.6,
            1.3,
            "Intel ARK: 8P 3 GHz, 16E 2.2 GHz",
        ),
    }.items()
}
"""What ``ggufspec whatif --machine`` knows by name."""
