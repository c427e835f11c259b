"""Axes to an ordered list of runs: warm-ups first, then repeats and prompts interleaved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ggufspec.domain import Drafting, Offload, Pair, Prompt, Role, RunSpec, Sampling

ROLES = (Role.TARGET, Role.DRAFTER, Role.DRAFTING)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run to make: what, which repetition of it, and whether it only warms up."""

    spec: RunSpec
    repeat: int
    warmup: bool


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Everything one bench measures."""

    pair: Pair
    prompts: tuple[Prompt, ...]
    draft_sizes: tuple[int, ...]
    n_predict: int
    context: int
    threads: int
    offload: Offload = field(default_factory=Offload)
    sampling: Sampling = field(default_factory=Sampling)
    repeats: int = 3
    warmups: int = 1

    def arms(self, prompt: Prompt) -> Iterator[RunSpec]:
        """Yield what is compared on one prompt: target alone, drafter alone, drafting at each size."""
        base = RunSpec(
            pair=self.pair,
            role=Role.TARGET,
            prompt=prompt,
            n_predict=self.n_predict,
            context=self.context,
            threads=self.threads,
            offload=self.offload,
            sampling=self.sampling,
        )
        yield base
        if self.pair.draft is None:
            return
        yield replace(base, role=Role.DRAFTER)
        for n_max in self.draft_sizes:
            yield replace(base, role=Role.DRAFTING, drafting=Drafting(n_max=n_max))

    def cells(self) -> Iterator[Cell]:
        """Yield the runs in order.

        Arms are neighbours in time, so that slow drift (heat, other work) touches all of them alike, and
        repeats are far apart, so that their spread shows that drift.
        """
        for repeat in range(self.warmups):
            for spec in self.arms(self.prompts[0]):
                yield Cell(spec=spec, repeat=repeat, warmup=True)
        for repeat in range(self.repeats):
            for prompt in self.prompts:
                for spec in self.arms(prompt):
                    yield Cell(spec=spec, repeat=repeat, warmup=False)
