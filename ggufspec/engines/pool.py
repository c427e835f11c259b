"""Processes with loaded models that an engine keeps between runs; the least recently used one ends first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class HeldProcess(Protocol):
    """A process that keeps models loaded."""

    @property
    def is_usable(self) -> bool:
        """Whether it still runs and answers."""

    def close(self) -> None:
        """End it."""


K = TypeVar("K", bound=Hashable)
P = TypeVar("P", bound=HeldProcess)


@dataclass(kw_only=True)
class Pool(Generic[K, P]):
    """Processes by key: at most ``capacity`` at once, or any number if that is None."""

    capacity: int | None
    _held: OrderedDict[K, P] = field(default_factory=OrderedDict)

    def get(self, key: K) -> P | None:
        """Return the usable process of a key and mark it as used; None without one."""
        self.drop_unusable(key)
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def holds(self, key: K) -> bool:
        """Whether a key has a usable process; this does not count as a use."""
        return key in self._held and self._held[key].is_usable

    def make_room(self) -> None:
        """End processes until one more may be held."""
        while self.capacity is not None and len(self._held) >= max(1, self.capacity):
            self.drop(next(iter(self._held)))

    def put(self, key: K, process: P) -> None:
        """Hold a process; call ``make_room`` first."""
        self._held[key] = process

    def drop(self, key: K) -> None:
        """End the process of a key, if there is one."""
        process = self._held.pop(key, None)
        if process is not None:
            process.close()

    def drop_unusable(self, key: K) -> None:
        """End the process of a key if it is not usable."""
        if key in self._held and not self._held[key].is_usable:
            self.drop(key)

    def forget(self, process: P) -> None:
        """End a process that may be held under several keys."""
        for key in [key for key, held in self._held.items() if held is process]:
            self.drop(key)

    def clear(self) -> None:
        """End all processes at once: a busy one may take a second."""
        ending = list({id(process): process for process in self._held.values()}.values())
        self._held.clear()
        if len(ending) == 1:
            ending[0].close()
        elif ending:
            with ThreadPoolExecutor(max_workers=len(ending)) as executor:
                closing = [executor.submit(process.close) for process in ending]
            for closed in closing:
                closed.result()
