"""The workers that stay between runs: one per target as it is loaded, the one used longest ago goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ggufspec.domain import Program, Sample, Status
from ggufspec.engines.ending import Failure
from ggufspec.engines.library.link import Link, start
from ggufspec.engines.library.messages import ModelLoad, Prepare, Prepared
from ggufspec.errors import LogError
from ggufspec.llama.logs import parsing

Key = tuple[ModelLoad, bool]
"""A model of a worker; the second is whether it is loaded once more, to draft for itself."""


@dataclass(kw_only=True)
class Hosted:
    """A worker, and what its log says of where each model is."""

    link: Link
    heads: dict[Key, Sample] = field(default_factory=dict)

    def prepare(
        self, target: ModelLoad, drafters: Sequence[ModelLoad], threads: int, timeout_s: float | None
    ) -> float | None:
        """Load what is not loaded yet; return the seconds that took, None where nothing had to be loaded.

        Raises:
            Failure: something cannot be loaded, the drafter is refused, or the worker died or was too slow.
        """
        asked: dict[Key, Prepare] = {(target, False): Prepare(target=target, threads=threads)}
        for drafter in drafters:  # one by one: each has a part of the log to itself
            asked[drafter, drafter == target] = Prepare(target=target, threads=threads, drafters=(drafter,))
        load_s: float | None = None
        for key, one in asked.items():
            seen = len(self.link.peek_log())
            try:
                reply = self.link.ask(one, timeout_s=timeout_s)
            except Failure as failure:
                raise self._explained(failure) from failure
            assert isinstance(reply, Prepared)
            if reply.load_s is not None:
                load_s = (load_s or 0.0) + reply.load_s
                self.heads.setdefault(key, _head(self.link.peek_log()[seen:]))
        return load_s

    def _explained(self, failure: Failure) -> Failure:
        """Add what the library has logged about a load that failed: memory, as a rule, or the file."""
        said = parsing.diagnose(self.link.peek_log()) if failure.status is Status.LOAD_FAILED else None
        return failure if said is None else Failure(said.status, f"{failure.reason}: {said.line}")


@dataclass(kw_only=True)
class Workers:
    """At most ``capacity`` workers at once, or any number."""

    capacity: int | None
    _held: OrderedDict[ModelLoad, Hosted] = field(default_factory=OrderedDict)

    def get(self, host: ModelLoad, command: Sequence[str]) -> Hosted:
        """Return the worker for a target, a new one where there is none that runs."""
        held = self._held.get(host)
        if held is not None and held.link.is_usable:
            self._held.move_to_end(host)
            return held
        self.drop(host)
        while self.capacity is not None and len(self._held) >= max(1, self.capacity):
            self.drop(next(iter(self._held)))
        hosted = self._held[host] = Hosted(link=start(command))
        return hosted

    def settle(self, host: ModelLoad) -> None:
        """End a worker that cannot be used any more."""
        held = self._held.get(host)
        if held is not None and not held.link.is_usable:
            self.drop(host)

    def drop(self, host: ModelLoad) -> None:
        """End a worker, if it is held."""
        held = self._held.pop(host, None)
        if held is not None:
            held.link.close()

    def clear(self) -> None:
        """End all of them."""
        for host in list(self._held):
            self.drop(host)


def _head(log: bytes) -> Sample:
    """Return what the library says of where a model is."""
    try:
        return parsing.parse(log, program=Program.PLAIN)
    except LogError:
        return Sample(status=Status.SUMMARY_LOST)
