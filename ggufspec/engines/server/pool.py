"""The servers that stay loaded between runs; the one that was used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from ggufspec.domain import NO_PROMPT, Pair, Role, RunSpec, Sample, Sampling
from ggufspec.engines.server.capabilities import Capabilities
from ggufspec.engines.server.launch import Server


@dataclass(kw_only=True)
class Loaded:
    """A server, how it has to be asked, and what its log says of where the weights are."""

    server: Server
    argv: tuple[str, ...]
    head: Sample
    capabilities: Capabilities | None  # None where nothing drafts
    runs: int = 0


@dataclass(kw_only=True)
class Pool:
    """Loaded servers by what they have loaded; at most ``capacity`` at once, or any number."""

    capacity: int | None
    _held: OrderedDict[Hashable, Loaded] = field(default_factory=OrderedDict)

    def get(self, key: Hashable) -> Loaded | None:
        """Return a server that still runs."""
        loaded = self._held.get(key)
        if loaded is None:
            return None
        if not loaded.server.is_alive:
            self.drop(key)
            return None
        self._held.move_to_end(key)
        return loaded

    def holds(self, key: Hashable) -> bool:
        """Whether a server is held that still runs."""
        return key in self._held and self._held[key].server.is_alive

    def make_room(self) -> None:
        """End servers until one more may be loaded."""
        while self.capacity is not None and len(self._held) >= max(1, self.capacity):
            self.drop(next(iter(self._held)))

    def put(self, key: Hashable, loaded: Loaded) -> None:
        """Keep a server."""
        self._held[key] = loaded

    def drop(self, key: Hashable) -> None:
        """End a server, if it is held."""
        loaded = self._held.pop(key, None)
        if loaded is not None:
            loaded.server.close()

    def forget(self, loaded: Loaded) -> None:
        """End one server, under whatever key it is held."""
        for key in [key for key, one in self._held.items() if one is loaded]:
            self.drop(key)

    def clear(self) -> None:
        """End all of them."""
        for key in list(self._held):
            self.drop(key)


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
