"""Servers with their models loaded, and what two runs must have in common to share one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ggufspec.domain import NO_PROMPT, Pair, Role, RunSpec, Sample, Sampling
from ggufspec.engines.server.capabilities import Capabilities
from ggufspec.engines.server.launch import Server


@dataclass(kw_only=True)
class LoadedServer:
    """A server, its capabilities, and what its log says about the placement of the weights."""

    server: Server
    argv: tuple[str, ...]
    head: Sample
    capabilities: Capabilities | None  # None where nothing drafts
    number: int  # counts the engine's loads, from 0
    runs: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether the server still runs."""
        return self.server.is_alive

    def close(self) -> None:
        """End the server."""
        self.server.close()


def load_of(spec: RunSpec) -> RunSpec:
    """Return a run's specification without prompt, length and sampling; equal loads can share a server.

    A drafter alone is loaded like any target, and a target alone knows no drafter.
    """
    if spec.role is Role.DRAFTING:
        pair, role, offload = replace(spec.pair, name=""), Role.DRAFTING, spec.offload
    else:
        pair, role = Pair(name="", target=spec.model), Role.TARGET
        offload = spec.own_offload.target_alone
    return replace(
        spec, pair=pair, role=role, offload=offload, prompt=NO_PROMPT, n_predict=0, sampling=Sampling()
    )
