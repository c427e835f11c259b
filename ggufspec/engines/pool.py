"""What an engine keeps loaded between runs; the load that was used longest ago is ended first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Load(Protocol):
    """A process that keeps models loaded."""

    @property
    def is_usable(self) -> bool:
        """Whether it still runs and answers."""

    def close(self) -> None:
        """End it."""


K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Load)


@dataclass(kw_only=True)
class Pool(Generic[K, L]):
    """Loads by key: at most ``capacity`` at once, None for any number."""

    capacity: int | None
    _held: OrderedDict[K, L] = field(default_factory=OrderedDict)

    def get(self, key: K) -> L | None:
        """Return a usable load as the one used last; None without one."""
        self.drop_unusable(key)
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def holds(self, key: K) -> bool:
        """Whether a usable load is held; this does not count as a use."""
        return key in self._held and self._held[key].is_usable

    def make_room(self) -> None:
        """End loads until one more may be held."""
        while self.capacity is not None and len(self._held) >= max(1, self.capacity):
            self.drop(next(iter(self._held)))

    def put(self, key: K, load: L) -> None:
        """Hold a load; ``make_room`` first."""
        self._held[key] = load

    def drop(self, key: K) -> None:
        """End a load, if it is held."""
        load = self._held.pop(key, None)
        if load is not None:
            load.close()

    def drop_unusable(self, key: K) -> None:
        """End a load that is held and not usable."""
        if key in self._held and not self._held[key].is_usable:
            self.drop(key)

    def forget(self, load: L) -> None:
        """End a load under every key that it is held by."""
        for key in [key for key, held in self._held.items() if held is load]:
            self.drop(key)

    def clear(self) -> None:
        """End all loads."""
        for key in list(self._held):
            self.drop(key)
