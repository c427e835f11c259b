"""A worker that stays between runs, with the models that it has loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ggufspec.domain import Program, Sample, Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.messages import ModelLoad, Prepare, Prepared
from ggufspec.engines.library.worker_process import Link
from ggufspec.errors import LogError
from ggufspec.llama.logs import parsing

Key = tuple[ModelLoad, bool]
"""A model of a worker; the second is whether it is loaded once more, to draft for itself."""


@dataclass(kw_only=True)
class Hosted:
    """A worker, and what its log says about the placement of each model."""

    link: Link
    number: int  # counts the engine's workers, from 0
    heads: dict[Key, Sample] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        """Whether the worker runs and owes no answer."""
        return self.link.is_usable

    def close(self) -> None:
        """End the worker."""
        self.link.close()

    def prepare(
        self, target: ModelLoad, drafters: Sequence[ModelLoad], threads: int, timeout_s: float | None
    ) -> float | None:
        """Load the models that are not loaded yet; return the seconds that took, None if all were loaded.

        Raises:
            Failure: a model cannot be loaded, the drafter is refused, or the worker died or was too slow.
        """
        requests: dict[Key, Prepare] = {(target, False): Prepare(target=target, threads=threads)}
        for drafter in drafters:  # one by one, so that the log of each can be told apart
            requests[drafter, drafter == target] = Prepare(
                target=target, threads=threads, drafters=(drafter,)
            )
        load_s: float | None = None
        for key, request in requests.items():
            logged_bytes = len(self.link.peek_log())
            try:
                reply = self.link.ask(request, timeout_s=timeout_s)
            except Failure as failure:
                raise self._explained(failure) from failure
            assert isinstance(reply, Prepared)
            if reply.load_s is not None:
                load_s = (load_s or 0.0) + reply.load_s
                self.heads.setdefault(key, _head(self.link.peek_log()[logged_bytes:]))
        return load_s

    def _explained(self, failure: Failure) -> Failure:
        """Add what the library logged about a load that failed: often too little memory, or a bad file."""
        if failure.status is not Status.LOAD_FAILED:
            return failure
        diagnosis = parsing.diagnose(self.link.peek_log())
        return (
            failure if diagnosis is None else Failure(diagnosis.status, f"{failure.reason}: {diagnosis.line}")
        )


def _head(log: bytes) -> Sample:
    """Return what the library logged about the placement of a model."""
    try:
        return parsing.parse(log, program=Program.PLAIN)
    except LogError:
        return Sample(status=Status.SUMMARY_LOST)
