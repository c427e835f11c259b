"""What is measured: on a GPU the shapes of real models, on a CPU small ones through the same steps."""

from __future__ import annotations

from dataclasses import dataclass

from ggufspec.domain import Layers
from ggufspec.forecast.whatif import Steady

NOTEBOOK_RATE, NOTEBOOK_SIZE = 0.708, 3
NOTEBOOK = {"target alone": 2.01, "drafter alone": 87.02, "drafting": 2.58}
"""Tokens/s of the Llama-3 notebook: 70B Q3_K_S with 8B Q3_K_L, 45 layers of the target on the GPU, γ = 3."""

ALPHA = Steady.from_rate(NOTEBOOK_RATE, NOTEBOOK_SIZE).alpha
"""Each token's chance that makes 70.8 % of all drafted tokens accepted at γ = 3; the same at every γ."""

_TINY = ("--embd", "512", "--ff", "1408", "--heads", "8", "--kv-heads", "8", "--vocab", "4000")


@dataclass(frozen=True, kw_only=True)
class Model:
    """A random model: its file's name, and what scripts/make_random_gguf.py is told."""

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """A random target and its drafter, and in which call they are measured."""

    name: str
    title: str
    target: Model
    drafter: Model
    layers: tuple[Layers, ...]  # in the order of their worth
    part: int
    n_predict: int
    load_s: float  # about what loading the pair takes
    slow: tuple[Layers, ...] = ()  # where most of the target stays beside the GPU: half the tokens

    def tokens(self, layers: Layers) -> int:
        """Return how many tokens a run writes with these layers on the GPU."""
        return self.n_predict // 2 if layers in self.slow else self.n_predict


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Everything that differs between a GPU, a CPU and a quick test."""

    pairings: tuple[Pairing, ...]
    sizes: tuple[int, ...]
    prompts: int
    demo_tokens: int
    demo_texts: tuple[str, ...] = ()  # prompts of the embedded pairs; by default one of each kind
    demo_repeats: int = 2
    demo_warmups: int = 1
    engines: tuple[str, ...] = ("binary", "server", "inprocess")
    users: tuple[int, ...] = (1, 2, 4, 8)
    threads: int | None = None
    records_logs: bool = True
    bundled: int | None = None  # how many benches, the first ones, are published; by default all


def _preset(name: str, quant: str) -> Model:
    return Model(name=f"random-{name}-{quant}", words=("--preset", name, "--quant", quant))


def _tiny(layers: int) -> Model:
    return Model(name=f"random-tiny-{layers}", words=(*_TINY, "--layers", str(layers), "--quant", "Q8_0"))


_LAYERS: tuple[Layers, ...] = (45, "all", 60, 20, 0)  # the notebook's first: time may run out

GPU = Preset(
    pairings=(
        Pairing(
            name="8b",
            title="8B Q4_K_M with 1B Q4_K_M",
            target=_preset("llama-3-8b", "Q4_K_M"),
            drafter=_preset("llama-1b", "Q4_K_M"),
            layers=("all", 20, 0),  # it has 33: 45 and 60 are all
            part=1,
            n_predict=64,
            load_s=4,
        ),
        Pairing(
            name="70b",
            title="70B Q3_K_S with 8B Q3_K_L",
            target=_preset("llama-3-70b", "Q3_K_S"),
            drafter=_preset("llama-3-8b", "Q3_K_L"),
            layers=_LAYERS,
            part=2,
            n_predict=32,
            load_s=15,
            slow=(20, 0),
        ),
    ),
    sizes=(1, 3, 5, 8),
    prompts=2,
    demo_tokens=96,
)

CPU = Preset(
    pairings=(
        Pairing(
            name="tiny",
            title="12 with 4 layers of width 512",
            target=_tiny(12),
            drafter=_tiny(4),
            layers=(8, "all", 0),
            part=1,
            n_predict=32,
            load_s=1,
        ),
    ),
    sizes=(1, 3, 8),
    prompts=2,
    demo_tokens=32,
    threads=1,
)

SMALLEST = Preset(
    pairings=(
        Pairing(
            name="tiny",
            title="6 with 2 layers of width 512",
            target=_tiny(6),
            drafter=_tiny(2),
            layers=("all", 0),
            part=1,
            n_predict=16,
            load_s=1,
        ),
    ),
    sizes=(1, 3),
    prompts=1,
    demo_tokens=24,
    demo_texts=("Story: Mira and the brass lantern",),
    demo_repeats=1,
    demo_warmups=0,
    users=(1, 2),
    threads=1,
    records_logs=False,
    bundled=2,
)

PROMPTS = (
    "The old lighthouse keeper climbed the stairs once more, as on every evening of the past thirty years.",
    "A list of things to check before a long journey: tickets, keys, water, a map that needs no battery.",
    "In the beginning the river was only a thread between stones, and nobody had given it a name.",
)
