"""Compare what ``ggufspec plan`` and ``whatif`` say before any download with speeds that people published.

    python scripts/validate_whatif.py

Each figure states its machine, model, quantization and places, or says what is assumed. Headers with the
sizes and types of these models are written into a temporary folder; their weights are holes. Nothing is run.
The table has every error: of tokens/s, and where something drafts of the speed-up.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from random_gguf.shapes import PRESETS, Shape, Tensor, tensors  # noqa: E402
from random_gguf.types import tensor_type  # noqa: E402

import ggufspec  # noqa: E402
from tests.support import models  # noqa: E402

_VRAM = 1 << 40  # whether the models fit was seen by those who ran them
_DEPTH = 512  # tokens in the context; most figures are of short ones


def _qwen(layers: int, ff: int, **known: Any) -> Shape:
    """Return a model of Qwen's family at 5120; what differs is named."""
    usual = {"embd": 5120, "heads": 40, "kv_heads": 8, "vocab": 152_064, "context": 32_768}
    return Shape(layers=layers, ff=ff, **{**usual, **known})


SHAPES = {
    **PRESETS,
    "Qwen3-30B-A3B": replace(PRESETS["fine-mixture"], head_width=128, vocab=151_936),
    "gpt-oss-20b": _qwen(
        24, 2880, embd=2880, heads=64, head_width=64, vocab=201_088, experts=32, experts_used=4
    ),
    "gpt-oss-120b": _qwen(
        36, 2880, embd=2880, heads=64, head_width=64, vocab=201_088, experts=128, experts_used=4
    ),
    "Mistral-7B": replace(PRESETS["llama-3-8b"], vocab=32_768),
    "Mistral-Small-24B": _qwen(40, 32_768, heads=32, head_width=128, vocab=131_072),
    "Qwen3-14B": _qwen(40, 17_408),
    "Qwen2.5-14B": _qwen(48, 13_824),
    "Qwen2.5-Coder-32B": _qwen(64, 27_648),
    "Qwen2.5-Coder-3B": _qwen(36, 11_008, embd=2048, heads=16, kv_heads=2, tied=True),
}


@dataclass(frozen=True)
class Published:
    """A speed that somebody published.

    Attributes:
        source: where.
        model: a row of SHAPES, and a quantization.
        tps: tokens/s, of the target alone or while drafting.
        gpu: its name in ``whatif --machine list``, or its memory bandwidth.
        host: the bandwidth of the host's memory; None where nothing is computed there.
        places: options of the target's places.
        drafter: the same of the drafter, which is on the GPU.
        draft: γ.
        accept: the acceptance rate.
        alone: tokens/s of the target alone in the same place.
    """

    source: str
    model: str
    tps: float
    gpu: str
    host: str | None = None
    places: Mapping[str, int] = field(default_factory=dict)
    drafter: str | None = None
    draft: int = 0
    accept: float = 0.0
    alone: float = 0.0


_2080 = ("448G", "102G")  # RTX 2080 beside a Core i9-10900X, whose memory they read at 102 GB/s
_70B, _8B, _32B = (
    "llama-3-70b Q3_K_S",
    "llama-3-8b Q8_0",
    "Qwen2.5-Coder-32B Q4_K_M",
)  # of the last, Q4_K_L ran
_NOTEBOOK = ({"ngl": 45}, "llama-3-8b Q3_K_L", 3, 0.708, 2.01)
PUBLISHED = (
    Published(
        "notebook", _70B, 2.01, "rtx-4090", "51.2G", {"ngl": 45}
    ),  # two channels of DDR4-3200 are assumed
    Published("notebook", "llama-3-8b Q3_K_L", 87.02, "rtx-4090"),
    Published("notebook", _70B, 2.58, "rtx-4090", "51.2G", *_NOTEBOOK),
    Published("notebook", _70B, 2.58, "rtx-4090", "28G", *_NOTEBOOK),  # what 2.01 tokens/s imply
    Published("AlexsJones/llmfit#755", "Qwen3-30B-A3B Q4_K_M", 36.7, *_2080, {"cpu_moe": 36}),
    Published("AlexsJones/llmfit#775", "gpt-oss-20b MXFP4", 36.4, *_2080, {"cpu_moe": 12}),
    Published("AlexsJones/llmfit#775", "Mistral-Small-24B Q4_K_M", 5.2, *_2080, {"ngl": 16}),
    Published("AlexsJones/llmfit#774", "Qwen3-14B Q4_K_M", 16.9, *_2080, {"ngl": 32}),
    Published("AlexsJones/llmfit#778", "Qwen2.5-14B Q4_K_M", 20.8, *_2080, {"ngl": 42}),
    Published("AlexsJones/llmfit#773", "llama-3-8b Q4_K_M", 71.9, _2080[0]),
    Published("AlexsJones/llmfit#778", "Mistral-7B Q4_K_M", 77.8, _2080[0]),
    # RX 6900 XT beside two channels of DDR5-5600
    Published("r/LocalLLaMA 1ofxt6s", "gpt-oss-120b MXFP4", 19.0, "512G", "89.6G", {"cpu_moe": 28}),
    Published("llama.cpp#28196", "Qwen3-30B-A3B Q4_K_M", 134.18, "rtx-5090"),
    Published("llama.cpp#5877", _8B, 32.49, "360G"),  # RTX 3060
    Published("llama.cpp#5877", _8B, 55.473, "360G", None, {}, "llama-1b Q8_0", 5, 0.72055, 32.49),
    Published("llama.cpp#10455", _32B, 11.0, "273G"),  # M4 Pro
    Published("llama.cpp#10455", _32B, 10.781, "273G", None, {}, "Qwen2.5-Coder-3B Q4_0", 16, 0.3432, 11.0),
)


def main() -> None:
    print("| what | GPU, host | tokens/s | forecast | off by | speed-up | forecast | source |")
    print("|---" * 8 + "|")
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for figure in PUBLISHED:
            tps, alone = forecast(figure, Path(folder))
            kind = "drafting" if figure.drafter else "on both" if figure.host else "on the GPU"
            ratios.setdefault(kind, []).append(tps / figure.tps)
            drafting = f" + {figure.drafter}, γ {figure.draft}" if figure.drafter else ""
            places = "".join(f" {name} {number}" for name, number in figure.places.items())
            gains = (figure.tps / figure.alone, tps / alone) if figure.alone else ()
            cells = [
                f"{figure.model}{places}{drafting}",
                ", ".join(filter(None, (figure.gpu, figure.host))),
                f"{figure.tps:.4g}",
                f"{tps:.4g}",
            ]
            cells += [f"{tps / figure.tps - 1:+.0%}", *([f"{gain:.2f}×" for gain in gains] or ["", ""])]
            print(f"| {' | '.join((*cells, figure.source))} |")
    for kind, of_kind in ratios.items():
        print(f"{kind}: the forecast of {len(of_kind)} figures is {median(of_kind):.2f} times too high")


def forecast(figure: Published, folder: Path) -> tuple[float, float]:
    """Return tokens/s as they are forecast, and those of the target alone."""
    places: dict[str, Any] = {"machine": figure.gpu, "host": figure.host, "ngl": "all", **figure.places}
    target = write_header(folder, *figure.model.split())
    planned = ggufspec.plan(target=target, vram=_VRAM, ctx=_DEPTH, **places)
    alone = planned.rate(planned.shown)
    assert alone is not None
    if figure.drafter is None:
        return alone, alone
    drafted = ggufspec.whatif(
        target=target,
        draft_model=write_header(folder, *figure.drafter.split()),
        draft=figure.draft,
        accept=figure.accept,
        program="speculative",
        ctx=_DEPTH,
        **places,
    )
    return drafted.best.tokens_per_s, alone


def write_header(folder: Path, name: str, quant: str) -> Path:
    """Return a model of some size whose weights are a hole."""
    path, shape = folder / f"{name}-{quant}.gguf", SHAPES[name]
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": name,
        "llama.block_count": shape.layers,
        "llama.context_length": shape.context,
        "llama.embedding_length": shape.embd,
        "llama.feed_forward_length": shape.ff,
        "llama.attention.head_count": shape.heads,
        "llama.attention.head_count_kv": shape.kv_heads,
        "llama.attention.key_length": shape.head_dim,
        "llama.attention.value_length": shape.head_dim,
        **models.tokens(shape.vocab),
    }
    if shape.experts and shape.experts_used:
        metadata |= {"llama.expert_count": shape.experts, "llama.expert_used_count": shape.experts_used}

    def kind(tensor: Tensor) -> str:
        if quant != "MXFP4":
            return tensor_type(tensor, shape, quant)
        return "MXFP4" if tensor.role.endswith("_exps") else tensor_type(tensor, shape, "Q8_0")

    specs = [
        (tensor.name, tuple(n for n in (tensor.columns, tensor.rows, tensor.experts) if n > 1), kind(tensor))
        for tensor in tensors(shape)
    ]
    return models.write_model(path, metadata, specs)


if __name__ == "__main__":
    main()
