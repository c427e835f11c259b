"""An engine that answers from a function, so that what a bench does can be watched run by run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ggufspec.domain import Program, Role, RunSpec, Sample, Status
from ggufspec.engines import Measurement
from ggufspec.llama.install.installs import Install

INSTALL = Install(
    root=Path("/opt/llama.cpp"),
    origin="test",
    programs={},
    version="0.3.36",
    build_number=None,
    commit=None,
    backend="cpu",
)
TEXT = "the target's own words"


def sample(spec: RunSpec, *, tps: float = 50.0, text: str = TEXT) -> Sample:
    """A run that ended well: 100 tokens after the prompt at ``tps`` tokens/s."""
    drafting = spec.role is Role.DRAFTING
    return Sample(
        status=Status.OK,
        program=Program.TREE if drafting else Program.PLAIN,
        gen_tokens=101 if drafting else 100,
        gen_s=100 / tps,
        n_drafted=120 if drafting else None,
        n_accepted=60 if drafting else None,
        text=text,
    )


@dataclass(kw_only=True)
class Scripted:
    """Answers each run with what ``answer`` says; ``seen`` are the specifications in their order."""

    answer: Callable[[RunSpec], Sample] = sample
    capacity: int | None = None
    name: str = "scripted"
    seen: list[RunSpec] = field(default_factory=list)
    closed: bool = False

    def __enter__(self) -> Scripted:
        """Nothing is started."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.close()

    def load_key(self, spec: RunSpec) -> None:
        """Nothing is loaded."""

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """No command."""
        return ("scripted", spec.key)

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Answer at once."""
        self.seen.append(spec)
        log.with_suffix(".err").write_text("a log\n")
        return Measurement(sample=self.answer(spec), argv=self.argv(spec), wall_s=10.0)

    def close(self) -> None:
        """Remember that it was closed."""
        self.closed = True
