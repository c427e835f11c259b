"""Small values for tests and scripts: a spec, a run, a bench's results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ggufspec import results
from ggufspec.domain import (
    Build,
    Drafting,
    Machine,
    ModelFile,
    Pair,
    Program,
    Prompt,
    Role,
    RunResult,
    RunSpec,
    Sample,
    Status,
)
from ggufspec.results import ResultSet

BUILD = Build(version="0.3.36", commit="0c1e570", backend="cpu", path="/opt/llama.cpp")
MACHINE = Machine(hostname="box", system="Linux", cpu="A Processor", cores=2, memory_bytes=24 << 30)


def spec(
    role: Role = Role.TARGET, prompt: str = "p1", draft: int | None = None, path: Path | None = None
) -> RunSpec:
    """A run of a small pair; paths are absent unless given."""
    pair = Pair(
        name="tiny",
        target=ModelFile(filename="target.gguf", path=path),
        draft=ModelFile(filename="drafter.gguf", path=path and path.with_name("drafter.gguf")),
    )
    return RunSpec(
        pair=pair if role is not Role.TARGET else replace(pair, draft=None),
        role=role,
        prompt=Prompt(id=prompt, text=f"Text of {prompt}"),
        n_predict=32,
        context=512,
        threads=2,
        drafting=Drafting(n_max=draft) if draft else None,
    )


def run(
    role: Role = Role.TARGET,
    *,
    prompt: str = "p1",
    repeat: int = 0,
    tps: float = 50.0,
    draft: int | None = None,
    drafted: int = 100,
    accepted: int = 75,
    status: Status = Status.OK,
) -> RunResult:
    """A finished run that decoded 100 tokens after the prompt at ``tps`` tokens/s."""
    drafting = role is Role.DRAFTING
    sample = Sample(
        status=status,
        program=Program.TREE if drafting else Program.PLAIN,
        gen_tokens=101 if drafting else 100,
        gen_s=100 / tps,
        n_drafted=drafted if drafting else None,
        n_accepted=accepted if drafting else None,
        offloaded_layers=0,
        total_layers=7,
        text="words",
    )
    return RunResult(
        spec=spec(role, prompt, draft),
        repeat=repeat,
        engine="binary",
        sample=sample if status is Status.OK else Sample(status=status),
        argv=("llama", "-m", "target.gguf"),
        log=f"{role.value}-{prompt}-{repeat}",
        started_at="2026-01-02T03:04:05.678+00:00",
        wall_s=2.5,
        program_s=2.4,
        text_identical=True if drafting else None,
    )


def bench(
    *runs: RunResult,
    doubts: dict[str, str] | None = None,
    name: str | None = None,
    planned_runs: int | None = None,
) -> ResultSet:
    """A stored bench with these runs."""
    stored = results.create(
        engine="binary",
        command=("ggufspec", "bench"),
        build=BUILD,
        machine=MACHINE,
        doubts=doubts or {},
        name=name,
        planned_runs=planned_runs,
    )
    for one in runs:
        stored = results.append(stored, one)
    return stored


def whole_bench() -> ResultSet:
    """Two prompts, two repeats, three arms; drafting is exactly 1.5 times as fast as the target."""
    runs = []
    for repeat in range(2):
        for prompt, tps in (("p1", 40.0), ("p2", 60.0)):
            heat = 1.0 + 0.01 * repeat
            runs += [
                run(Role.TARGET, prompt=prompt, repeat=repeat, tps=tps * heat),
                run(Role.DRAFTER, prompt=prompt, repeat=repeat, tps=900.0),
                run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=1.5 * tps * heat, draft=3),
            ]
    return bench(replace(runs[0], warmup=True), *runs)
