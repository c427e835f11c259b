"""What is measured: on a GPU the shapes of real models, on a CPU small ones through the same steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ggufspec.domain import Layers, Steady

NOTEBOOK_RATE, NOTEBOOK_SIZE = 0.708, 3
NOTEBOOK = {"target alone": 2.01, "drafter alone": 87.02, "drafting": 2.58}
"""Tokens/s of the Llama-3 notebook: 70B Q3_K_S with 8B Q3_K_L, 45 layers of the target on the GPU, γ = 3."""

ALPHA = Steady.from_rate(NOTEBOOK_RATE, NOTEBOOK_SIZE).alpha
"""Each token's chance that makes 70.8 % of all drafted tokens accepted at γ = 3; the same at every γ."""

_TINY = ("--embd", "512", "--ff", "1408", "--heads", "8", "--kv-heads", "8", "--vocab", "4000")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A random model: its file's name, and the words for the script that writes it; a head has a target."""

    name: str
    words: tuple[str, ...]
    of: Model | None = None

    @property
    def script(self) -> str:
        return "make_random_gguf.py" if self.of is None else "make_random_head.py"


@dataclass(frozen=True, kw_only=True)
class RandomPair:
    """A random target and its drafter."""

    name: str
    target: Model
    drafter: Model

    @property
    def models(self) -> tuple[Model, Model]:
        return self.target, self.drafter


@dataclass(frozen=True, kw_only=True)
class Placement(RandomPair):
    """Where a pair runs and what its caches are: what the memory plan is compared for, and its options."""

    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pairing(RandomPair):
    """A pair of which every γ is measured, and in which call."""

    title: str
    layers: tuple[Layers, ...]  # in the order of their worth
    part: int
    n_predict: int
    load_s: float  # about what loading the pair takes


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything that differs between a GPU, a CPU and a quick test."""

    pairings: tuple[Pairing, ...]
    placements: tuple[Placement, ...]  # whose memory is compared with the plan
    mixtures: tuple[Placement, ...]  # whose speed is measured at every γ
    commands: Mapping[str, tuple[str, ...]]  # of ggufspec, by what they show; {name} is a model's file
    sizes: tuple[int, ...]
    prompts: int
    loads: int  # of a server, to see how they differ
    cut: tuple[Model, ...] = ()  # what the commands run, besides the pairs
    demo_tokens: int
    demo_texts: tuple[str, ...] = ()  # prompts of the embedded pairs; by default one of each kind
    demo_per_category: int | None = None
    demo_repeats: int = 1
    demo_warmups: int = 0
    engines: tuple[str, ...] = ("binary", "inprocess")
    threads: int | None = None
    records_logs: bool = True
    bundled: int | None = None  # how many benches, the first ones, are published; by default all


def _preset(name: str, quant: str) -> Model:
    return Model(name=f"random-{name}-{quant}", words=("--preset", name, "--quant", quant))


def _tiny(layers: int) -> Model:
    return Model(name=f"random-tiny-{layers}", words=(*_TINY, "--layers", str(layers), "--quant", "Q8_0"))


_8B, _1B = _preset("llama-3-8b", "Q4_K_M"), _preset("llama-1b", "Q4_K_M")
_HEAD = Model(name="random-8b-eagle3", words=("--kind", "eagle3"), of=_8B)
_MIXTURE = Model(
    name="random-mixture-q4_k_m",
    words=("--preset", "fine-mixture", "--layers", "16", "--quant", "Q4_K_M"),
)
_CUT = Model(  # the first layers of the 8B: it agrees with it more often than by chance
    name="random-8b-cut",
    words=("--preset", "llama-3-8b", "--layers", "4", "--quant", "Q4_K_M"),
)
_ALL: Mapping[str, Any] = {"ngl": "all", "ngld": "all"}
_LONG: Mapping[str, Any] = {**_ALL, "ctx": 32768}
GPU = Preset(
    pairings=(
        Pairing(
            name="70b",
            title="70B Q3_K_S with 8B Q3_K_L",
            target=_preset("llama-3-70b", "Q3_K_S"),
            drafter=_preset("llama-3-8b", "Q3_K_L"),
            layers=(45, "all"),  # the notebook's first: time may run out
            part=1,
            n_predict=32,
            load_s=12,
        ),
        Pairing(
            name="8b",
            title="8B Q4_K_M with 1B Q4_K_M",
            target=_8B,
            drafter=_1B,
            layers=("all", 20, 0),  # it has 33: 45 is all
            part=2,
            n_predict=64,
            load_s=3,
        ),
    ),
    placements=(
        Placement(name="all layers", target=_8B, drafter=_1B, options=_ALL),
        Placement(name="20 layers", target=_8B, drafter=_1B, options={**_ALL, "ngl": 20}),
        Placement(name="drafter on the host", target=_8B, drafter=_1B, options={**_ALL, "ngld": 0}),
        Placement(name="context of 32768", target=_8B, drafter=_1B, options=_LONG),
        Placement(
            name="the same, both caches in q8_0",
            target=_8B,
            drafter=_1B,
            options={**_LONG, "kv_type": ("q8_0",), "kv_type_draft": ("q8_0",)},
        ),
        Placement(name="EAGLE-3 head", target=_8B, drafter=_HEAD, options=_ALL),
        Placement(name="mixture, experts on the GPU", target=_MIXTURE, drafter=_1B, options=_ALL),
        Placement(
            name="mixture, experts of 8 layers on the host",
            target=_MIXTURE,
            drafter=_1B,
            options={**_ALL, "cpu_moe": 8},
        ),
        Placement(
            name="mixture, all experts on the host",
            target=_MIXTURE,
            drafter=_1B,
            options={**_ALL, "cpu_moe": "all"},
        ),
    ),
    mixtures=(
        Placement(name="on the GPU", target=_MIXTURE, drafter=_1B, options=_ALL),
        Placement(name="on the host", target=_MIXTURE, drafter=_1B, options={**_ALL, "cpu_moe": "all"}),
    ),
    commands={
        "tune with 6 GiB of GPU memory": (
            *("tune", "-m", f"{{{_8B.name}}}", "-md", f"{{{_CUT.name}}}", "--raw", "-n", "48"),
            *("--vram", "6G", "--serve-ctx", "4096", "--draft", "1,3,5,8", "--max-time", "90s"),
        ),
        "crossover of 1 to 64 users": (
            *("crossover", "--pair", "demo", "--ngl", "all", "--parallel", "1,2,4,8,16,32,64"),
            *("--draft", "1,3,5", "--max-time", "100s"),
        ),
    },
    sizes=(1, 3, 5, 8),
    prompts=1,
    demo_tokens=96,
    demo_per_category=1,
    loads=10,
    cut=(_8B, _CUT),
)

_SMALL_MIXTURE = Model(
    name="random-small-mixture",
    words=(
        *("--embd", "256", "--ff", "256", "--heads", "4", "--kv-heads", "4", "--vocab", "4000"),
        *("--layers", "2", "--experts", "8", "--experts-used", "2", "--quant", "Q8_0"),
    ),
)
_ON_CPU: Mapping[str, Any] = {"ngl": 0, "ngld": 0}
_OWN_PROCESS = {**_ON_CPU, "engine": "binary-simple"}  # whose peak is known

CPU = Preset(
    pairings=(
        Pairing(
            name="tiny",
            title="12 with 4 layers of width 512",
            target=_tiny(12),
            drafter=_tiny(4),
            layers=(0,),
            part=1,
            n_predict=32,
            load_s=1,
        ),
    ),
    placements=(
        Placement(name="no layers", target=_tiny(12), drafter=_tiny(4), options=_OWN_PROCESS),
        Placement(name="mixture", target=_SMALL_MIXTURE, drafter=_tiny(4), options=_OWN_PROCESS),
    ),
    mixtures=(Placement(name="on the host", target=_SMALL_MIXTURE, drafter=_tiny(4), options=_ON_CPU),),
    commands={
        "tune": ("tune", "--pair", "demo", "-n", "24", "--draft", "1,3", "-t", "1", "--forecast"),
        "crossover": (
            "crossover",
            "--pair",
            "demo",
            "--parallel",
            "1,2",
            "--draft",
            "3",
            "-t",
            "1",
            "--max-time",
            "40s",
        ),
    },
    sizes=(1, 3, 8),
    prompts=2,
    demo_tokens=32,
    demo_per_category=1,
    loads=3,
    threads=1,
)

SMALLEST = replace(
    CPU,
    pairings=(
        Pairing(
            name="tiny",
            title="6 with 2 layers of width 512",
            target=_tiny(6),
            drafter=_tiny(2),
            layers=(0,),
            part=1,
            n_predict=16,
            load_s=1,
        ),
    ),
    placements=(Placement(name="mixture", target=_SMALL_MIXTURE, drafter=_tiny(2), options=_OWN_PROCESS),),
    mixtures=(Placement(name="on the host", target=_SMALL_MIXTURE, drafter=_tiny(2), options=_ON_CPU),),
    commands={"plan": ("plan", "--pair", "demo", "--vram", "1G")},
    sizes=(1, 3),
    prompts=1,
    demo_tokens=24,
    demo_texts=("Story: Mira and the brass lantern",),
    loads=2,
    records_logs=False,
    bundled=2,
)

PROMPTS = (
    "The old lighthouse keeper climbed the stairs once more, as on every evening of the past thirty years.",
    "A list of things to check before a long journey: tickets, keys, water, a map that needs no battery.",
    "In the beginning the river was only a thread between stones, and nobody had given it a name.",
)
