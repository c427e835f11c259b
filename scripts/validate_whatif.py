"""Compare what ``ggufspec plan`` and ``whatif`` say before any download with speeds that people published.

    python scripts/validate_whatif.py        # every figure, and the errors of both halves
    python scripts/validate_whatif.py --fit  # the numbers of forecast/costs/roofline.py, from one half

``published_speeds.csv`` has the figures. Each states its machine, model, quantization and places, or says
what is assumed. Within a kind they are sorted by source, model and machine; the first, third, fifth, … are
fitted, the others are not, and give the intervals. Headers with the sizes and types of these models are
written into a temporary folder; their weights are holes. Nothing is run.
"""

from __future__ import annotations

import csv
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import terminal
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from random_gguf.shapes import PRESETS, Shape, Tensor, tensors  # noqa: E402
from random_gguf.types import tensor_type  # noqa: E402

from ggufspec.choices import Program  # noqa: E402
from ggufspec.domain import AcceptanceRate, ModelRun, Offload  # noqa: E402
from ggufspec.forecast import costs, whatif  # noqa: E402
from ggufspec.forecast.costs import Efficiency, ModelPart, PublishedFigure  # noqa: E402
from ggufspec.modelfiles import gguf  # noqa: E402
from tests.support import models  # noqa: E402

_DEPTH = 256  # tokens in the context; the figures are of short ones
_COVERED = 0.9  # of the figures that were not fitted, by the intervals


def _qwen(layers: int, ff: int, **known: Any) -> Shape:
    """Return a model of Qwen's family at 5120; what differs is named."""
    usual = {"embd": 5120, "heads": 40, "kv_heads": 8, "vocab": 152_064, "context": 32_768}
    return Shape(layers=layers, ff=ff, **{**usual, **known})


_TIED: Mapping[str, Any] = {"kv_heads": 2, "vocab": 151_936, "tied": True}
_OSS: Mapping[str, Any] = {"embd": 2880, "heads": 64, "head_width": 64, "vocab": 201_088, "experts_used": 4}
SHAPES = {
    **PRESETS,
    "fine-mixture-16": replace(PRESETS["fine-mixture"], layers=16),
    "Qwen3-30B-A3B": replace(PRESETS["fine-mixture"], head_width=128, vocab=151_936),
    "Qwen3-235B-A22B": replace(
        PRESETS["fine-mixture"], layers=94, embd=4096, ff=1536, heads=64, head_width=128, vocab=151_936
    ),
    "gpt-oss-20b": _qwen(24, 2880, experts=32, **_OSS),
    "gpt-oss-120b": _qwen(36, 2880, experts=128, **_OSS),
    "Llama-3.2-3B": replace(PRESETS["llama-1b"], layers=28, embd=3072, heads=24, head_width=128),
    "Mistral-7B": replace(PRESETS["llama-3-8b"], vocab=32_768),
    "Mistral-Small-24B": _qwen(40, 32_768, heads=32, head_width=128, vocab=131_072),
    "phi-4": _qwen(40, 17_920, kv_heads=10, vocab=100_352),
    "gemma-3-4b": _qwen(34, 10_240, embd=2560, heads=8, kv_heads=4, head_width=256, vocab=262_208, tied=True),
    "Qwen3-4B": _qwen(36, 9728, embd=2560, heads=32, head_width=128, vocab=151_936, tied=True),
    "Qwen3-8B": _qwen(36, 12_288, embd=4096, heads=32, vocab=151_936),
    "Qwen3-14B": _qwen(40, 17_408),
    "Qwen2.5-0.5B": _qwen(24, 4864, embd=896, heads=14, **_TIED),
    "Qwen2.5-1.5B": _qwen(28, 8960, embd=1536, heads=12, **_TIED),
    "Qwen2.5-3B": _qwen(36, 11_008, embd=2048, heads=16, **_TIED),
    "Qwen2.5-7B": _qwen(28, 18_944, embd=3584, heads=28, kv_heads=4),
    "Qwen2.5-14B": _qwen(48, 13_824),
    "Qwen2.5-32B": _qwen(64, 27_648),
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """A speed that somebody published; see the columns of ``published_speeds.csv``.

    Attributes:
        row: the columns: where it is from, models, machine, places, and what else is to be said.
        target: the target's part on each device.
        drafter: the drafter's; () where nothing drafts.
    """

    row: Mapping[str, str]
    target: tuple[ModelPart, ...]
    drafter: tuple[ModelPart, ...]

    @property
    def tps(self) -> float:
        """Tokens/s: of the target alone, of all sequences of a batch, or while drafting."""
        return float(self.row["tps"])

    @property
    def kind(self) -> str:
        """What this is a figure of."""
        if self.drafter:
            return PublishedFigure.DRAFTING
        if self.row["batch"]:
            return "batches"
        return PublishedFigure.ON_HOST if self.row["host"] else PublishedFigure.ON_GPU

    @property
    def gain(self) -> float | None:
        """The speed-up; None where nothing drafts, or the target alone was not measured."""
        return self.tps / float(self.row["alone"]) if self.row["alone"] else None

    def forecast(self, paces: Mapping[Efficiency, Efficiency]) -> tuple[float, float]:
        """Return tokens/s as they are forecast with other efficiencies, and those of the target alone."""

        def at(parts: Sequence[ModelPart]) -> tuple[ModelPart, ...]:
            devices = [
                replace(part.device, efficiency=paces.get(part.device.efficiency, part.device.efficiency))
                for part in parts
            ]
            return tuple(replace(part, device=device) for part, device in zip(parts, devices, strict=True))

        target = at(self.target)
        alone = whatif.forecast_rate(target, _DEPTH).value
        if self.row["batch"]:
            batch = int(self.row["batch"])
            return batch / costs.seconds_of_parts(target, batch, _DEPTH), alone
        if not self.drafter:
            return alone, alone
        size = int(self.row["draft"])
        curve = costs.roofline_of_parts(target, at(self.drafter), most_tokens=size + 1, depths=(_DEPTH,))
        accepted, program = AcceptanceRate(float(self.row["accept"])), Program(self.row["program"])
        found = whatif.outlook(curve, accepted, n_max=size, depth=_DEPTH, program=program)
        return found.tokens_per_s, alone


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        figures = read(Path(folder))
    halves = split(figures)
    if "--fit" in sys.argv:
        for name, pace in fit(halves[0]).items():
            print(name, pace)
        return
    figures_head = "tokens/s", "forecast", "off by", "speed-up", "forecast", "source"
    terminal.print_head("what", "GPU, host", *figures_head, texts=2)
    errors: dict[tuple[str, int], list[float]] = {}
    for figure in figures:
        number = next(number for number, half in enumerate(halves) if figure in half)
        tps, alone = figure.forecast({})
        errors.setdefault((figure.kind, number), []).append(tps / figure.tps)
        gains = [] if figure.gain is None else [figure.gain, tps / alone]
        if gains:
            errors.setdefault((PublishedFigure.SPEEDUP, number), []).append(gains[1] / gains[0])
        cells = [
            describe(figure.row),
            ", ".join(filter(None, (figure.row["gpu"], figure.row["host"], figure.row["said"]))),
            *(f"{figure.tps:.4g}", f"{tps:.4g}", f"{tps / figure.tps - 1:+.0%}"),
            *([f"{gain:.2f}×" for gain in gains] or ["", ""]),
            f"{figure.row['source']}{'' if number else ' *'}",
        ]
        terminal.print_row(*cells)
    print()
    terminal.print_head("figures", "half", "count", "median", "nine of ten within", "farthest", texts=2)
    for (kind, number), ratios in sorted(errors.items()):
        factors = sorted(max(ratio, 1 / ratio) for ratio in ratios)
        within = factors[math.ceil(_COVERED * len(factors)) - 1]
        half = ("fitted *", "not fitted")[number]
        numbers = (median(ratios), within, factors[-1])
        terminal.print_row(kind, half, len(factors), *(f"{number:.2f}×" for number in numbers))


def describe(row: Mapping[str, str]) -> str:
    """Return the models and the options of a figure."""
    options = {"-ngl": row["ngl"], "--n-cpu-moe": row["cpu_moe"], "-ts": row["split"]}
    words = [row["model"], *(f"`{name} {value}`" for name, value in options.items() if value)]
    if row["batch"]:
        words.append(f"batches of {row['batch']}")
    if row["drafter"]:
        words.append(f"with {row['drafter']}, γ {row['draft']}, {float(row['accept']):.1%} accepted")
    return " ".join(words)


def read(folder: Path) -> list[Published]:
    """Return all figures, sorted; headers of their models are written into a folder."""
    with (Path(__file__).parent / "published_speeds.csv").open(encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: [*row.values()])
    cards = {
        name: gguf.read_card(write_header(folder, *name.split()))
        for row in rows
        for name in (row["model"], row["drafter"])
        if name
    }

    def figure(row: Mapping[str, str]) -> Published:
        split = tuple(map(float, row["split"].split(","))) if row["split"] else ()
        machines = whatif.Machines.named(row["gpu"], row["host"] or None, n_gpus=len(split))
        kept = int(row["cpu_moe"]) if row["cpu_moe"] else None
        offload = Offload(
            target=ModelRun(layers=int(row["ngl"]) if row["ngl"] else "all", cpu_moe=kept),
            drafter=ModelRun(layers="all"),
            tensor_split=split,
        )
        target = whatif.parts_of(cards[row["model"]], offload, machines, depth=_DEPTH)
        if not row["drafter"]:
            return Published(row=row, target=target, drafter=())
        beside = offload.drafter_as_target
        drafter = whatif.parts_of(cards[row["drafter"]], beside, machines, depth=_DEPTH)
        return Published(row=row, target=target, drafter=drafter)

    return [figure(row) for row in rows]


def split(figures: Sequence[Published]) -> tuple[list[Published], list[Published]]:
    """Return every other figure of each kind, and the rest."""
    halves: tuple[list[Published], list[Published]] = ([], [])
    for kind in dict.fromkeys(figure.kind for figure in figures):
        of_kind = [figure for figure in figures if figure.kind == kind]
        halves[0].extend(of_kind[::2])
        halves[1].extend(of_kind[1::2])
    return halves


def fit(figures: Sequence[Published]) -> Mapping[str, Efficiency]:
    """Return the efficiencies with which the forecasts of some figures are least off, by their logarithms.

    A single figure that is far off, as of a build with a fault, counts little (soft_l1).
    """
    names = [field.name for field in fields(Efficiency)]
    start = np.log([*astuple(costs.ON_GPU), *astuple(costs.ON_HOST)])

    def paces(logs: Any) -> tuple[Efficiency, Efficiency]:
        first, second = np.split(np.exp(logs), 2)
        return (
            Efficiency(**dict(zip(names, map(float, first), strict=True))),
            Efficiency(**dict(zip(names, map(float, second), strict=True))),
        )

    def misses(logs: Any) -> list[float]:
        chosen = dict(zip((costs.ON_GPU, costs.ON_HOST), paces(logs), strict=True))
        own = [math.log(figure.forecast(chosen)[0] / figure.tps) for figure in figures]
        # what no figure tells stays as it is
        return [*own, *(0.02 * (logs - start))]

    shares = [0.0 if name == "bandwidth_share" else np.inf for name in names]
    found = least_squares(
        misses, np.minimum(start, -1e-6), loss="soft_l1", f_scale=0.1, bounds=(-np.inf, [*shares, *shares])
    )
    return dict(zip(("ON_GPU", "ON_HOST"), paces(found.x), strict=True))


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
