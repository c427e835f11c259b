"""An engine that answers from a function, so that what a bench does can be watched run by run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from ggufspec.domain import NO_PROMPT, ModelFile, Program, Role, RunSpec, Sample, Status
from ggufspec.engines import Measurement
from ggufspec.llama.install.installs import Install
from ggufspec.measure import Deadline, RunPlan, Session, measuring
from ggufspec.measure.sweep import Sweep
from ggufspec.prompts import Render
from ggufspec.results import ResultSet

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


def sweep(**axes: Any) -> Sweep:
    """A sweep of a small pair, with answers of 100 tokens."""
    pair = {kind: (ModelFile(filename=f"{kind[0]}.gguf"),) for kind in ("targets", "drafters")}
    return Sweep(**{"name": "tiny", **pair, "n_predict": 100, "context": 512, **axes})


def sample(spec: RunSpec, *, tps: float = 50.0, text: str = TEXT) -> Sample:
    """A run that ended well: 100 tokens after the prompt, or as many as asked for, at ``tps`` tokens/s."""
    drafting = spec.role is Role.DRAFTING
    tokens = min(100, spec.n_predict or 100)
    return Sample(
        status=Status.OK,
        program=Program.TREE if drafting else Program.PLAIN,
        gen_tokens=tokens + 1 if drafting else tokens,
        gen_s=tokens / tps,
        n_drafted=tokens * 6 // 5 if drafting else None,
        n_accepted=tokens * 3 // 5 if drafting else None,
        text=text,
    )


@dataclass
class Clock:
    """A clock that a test, or an engine, moves."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.now


@dataclass(kw_only=True)
class Scripted:
    """Answers each run with what ``answer`` says; ``seen`` are the specifications in their order."""

    answer: Callable[[RunSpec], Sample] = sample
    capacity: int | None = None
    name: str = "scripted"
    timeout_s: float | None = None
    keeps_loads: bool = False  # of each arm one, until it is closed
    seen: list[RunSpec] = field(default_factory=list)
    loaded: list[RunSpec] = field(default_factory=list)  # the arm of each load
    closed: bool = False
    held: OrderedDict[RunSpec, int] = field(default_factory=OrderedDict)

    def __enter__(self) -> Self:
        """Nothing is started."""
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self.close()

    def load_key(self, spec: RunSpec) -> RunSpec | None:
        """Return the arm, where loads are kept."""
        return replace(spec, prompt=NO_PROMPT) if self.keeps_loads else None

    def argv(self, spec: RunSpec) -> tuple[str, ...]:
        """No command."""
        return ("scripted", spec.key)

    def measure(self, spec: RunSpec, log: Path) -> Measurement:
        """Answer at once."""
        self.seen.append(spec)
        self.closed = False
        log.with_suffix(".err").write_text("a log\n")
        load = self._load(spec) if self.keeps_loads else None
        return Measurement(sample=self.answer(spec), argv=self.argv(spec), wall_s=10.0, load=load)

    def _load(self, spec: RunSpec) -> int:
        arm = replace(spec, prompt=NO_PROMPT)
        if arm not in self.held:
            while self.capacity is not None and len(self.held) >= self.capacity:
                self.held.popitem(last=False)
            self.held[arm] = len(self.loaded)
            self.loaded.append(arm)
        self.held.move_to_end(arm)
        return self.held[arm]

    def close(self) -> None:
        """End all loads, and remember that."""
        self.held.clear()
        self.closed = True


def record(
    suite: RunPlan,
    engine: Scripted,
    store: ResultSet,
    *,
    render: Render | None = None,
    deadline: Deadline | None = None,
) -> Iterator[ResultSet]:
    """Measure a suite with an engine that runs no program, and yield the growing bench."""
    session = Session(
        name="", suite=suite, engine=engine, llama=INSTALL, render=render, notes=(), deadline=deadline
    )
    return measuring.record(session, store)
