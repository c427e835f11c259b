"""Small values for tests and scripts: a spec, a run, a bench's results, and values with every field set."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import count, product
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ggufspec import results
from ggufspec.analysis import judge_ratio
from ggufspec.domain import (
    NO_PROMPT,
    Build,
    CacheTypes,
    Drafting,
    Estimate,
    FileIdentity,
    FileUse,
    Launch,
    LoadedModel,
    Machine,
    ModelFile,
    Pair,
    Program,
    Prompt,
    Role,
    RunResult,
    RunSpec,
    Sample,
    ServedRequest,
    Serving,
    SpeedJudgement,
    Status,
)
from ggufspec.results import Configuration, PassedOver, Recommendation, ResultSet

Value = TypeVar("Value")
BUILD = Build(version="0.3.36", commit="0c1e570", backend="cpu", path="/opt/llama.cpp")
MACHINE = Machine(hostname="box", system="Linux", cpu="A Processor", cores=2, memory_bytes=24 << 30)
META = results.Meta(
    id="",
    started_at="",
    engine="binary",
    command=("ggufspec", "bench"),
    build=BUILD,
    machine=MACHINE,
    doubts={},
)
"""What the runs of a new bench share; ``results.create`` gives it an id and a start."""


def models_of(sample: Sample) -> tuple[LoadedModel, LoadedModel]:
    """Where the target and the drafter of a run are; one that no log shows is nowhere."""
    return sample.target or LoadedModel(), sample.drafter or LoadedModel()


def with_caches(spec: RunSpec, target: str | None = None, drafter: str | None = None) -> RunSpec:
    """The same with other types of caches, as ``CacheTypes.parse`` reads them."""
    own, others = (None if text is None else CacheTypes.parse(text) for text in (target, drafter))
    offload = replace(
        spec.offload,
        target=replace(spec.offload.target, caches=own),
        drafter=replace(spec.offload.drafter, caches=others),
    )
    return replace(spec, offload=offload)


def spec(
    role: Role = Role.TARGET,
    prompt: str = "p1",
    draft: int | None = None,
    path: Path | None = None,
    *,
    known: bool = True,
) -> RunSpec:
    """A run of a small pair; paths are absent unless given. ``known`` is whether it says what models hold."""
    pair = Pair(
        name="tiny",
        target=ModelFile(filename="target.gguf", path=path, content="a" * 64 if known else None),
        draft=ModelFile(
            filename="drafter.gguf",
            path=path and path.with_name("drafter.gguf"),
            content="b" * 64 if known else None,
        ),
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
        target=LoadedModel(offloaded_layers=0, total_layers=7),
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


def grid(
    speeds: Mapping[int | None, float | Callable[[int, int], float]],
    *,
    prompts: int = 8,
    repeats: int = 3,
    noise: float = 0.0,
) -> list[RunResult]:
    """Runs of the target alone (None), of the drafter alone (0) and of draft sizes at these tokens/s.

    Args:
        speeds: may depend on the number of the prompt, which is called "p0" and so on, and on the repeat.
        prompts: their number.
        repeats: of each prompt.
        noise: the largest share by which a run is off.
    """
    runs = []
    for repeat, number, (draft, speed) in product(range(repeats), range(prompts), speeds.items()):
        tps = speed(number, repeat) if callable(speed) else speed
        tps *= 1 + noise * math.sin(7 * repeat + 3 * number + (draft or 0))
        role = {None: Role.TARGET, 0: Role.DRAFTER}.get(draft, Role.DRAFTING)
        runs.append(run(role, prompt=f"p{number}", repeat=repeat, tps=tps, draft=draft or None))
    return runs


def bench(
    *runs: RunResult,
    doubts: dict[str, str] | None = None,
    name: str | None = None,
    planned_runs: int | None = None,
    builds: dict[str, Build] | None = None,
    files: tuple[FileIdentity, ...] | None = None,
) -> ResultSet:
    """A stored bench with these runs."""
    stored = results.create(
        replace(META, doubts=doubts or {}, planned_runs=planned_runs, builds=builds or {}, files=files), name
    )
    for one in runs:
        stored = results.append(stored, one)
    return stored


def drafting_bench(name: str = "mine", *, planned: int | None = 3) -> ResultSet:
    """A bench that drafts 1.5 times as fast with 3 tokens, and 1.2 times with 5; closed."""
    stored = bench(
        run(tps=40.0),
        run(Role.DRAFTING, tps=60.0, draft=3),
        run(Role.DRAFTING, tps=48.0, draft=5),
        name=name,
        planned_runs=planned,
    )
    results.close(stored)
    return stored


def whole_bench() -> ResultSet:
    """Two prompts, two repeats, three arms; drafting is 1.5 times as fast as the target, to seven digits.

    The eighth digit differs from cell to cell, because equal values have no interval.
    """
    runs = []
    for repeat in range(2):
        for prompt, tps in (("p1", 40.0), ("p2", 60.0)):
            heat = 1.0 + 0.01 * repeat
            gain = 1.5 * math.exp(1e-7 if (repeat == 0) == (prompt == "p1") else -1e-7)
            runs += [
                run(Role.TARGET, prompt=prompt, repeat=repeat, tps=tps * heat),
                run(Role.DRAFTER, prompt=prompt, repeat=repeat, tps=900.0),
                run(Role.DRAFTING, prompt=prompt, repeat=repeat, tps=gain * tps * heat, draft=3),
            ]
    return bench(replace(runs[0], warmup=True), *runs)


def judgement(ratio: float = 1.6, half: float = 0.05, **changes: Any) -> SpeedJudgement:
    """A judgement of 36 of 36 runs, by the rules of ``analysis.judging``."""
    estimate = Estimate(value=ratio, lo=ratio - half, hi=ratio + half)
    facts: dict[str, Any] = {
        "verdict": judge_ratio(estimate),
        "ratio": estimate,
        "p_value": 0.001 if abs(ratio - 1) > half else 0.4,
        "prompts": 12,
        "repeats": 3,
        "loads": 3,
        "degrees": 20.0,
        "runs_done": 36,
        "runs_planned": 36,
    }
    return SpeedJudgement(**facts | changes)


def recommendation(draft: int | None = 5, **changes: Any) -> Recommendation:
    """A recommendation to draft, or of the target alone, because drafting was slower."""
    role = Role.DRAFTING if draft else Role.TARGET
    recommended = replace(spec(role, draft=draft), prompt=NO_PROMPT, n_predict=0, context=4096)
    slower = replace(recommended, role=Role.DRAFTING, drafting=Drafting(n_max=5))
    facts: dict[str, Any] = {
        "spec": recommended,
        "tokens_per_s": Estimate(value=80.0, lo=78.0, hi=82.0),
        "candidate": recommended if draft else slower,
        "judgement": judgement(1.6 if draft else 0.7),
        "prompts": 12,
    }
    facts |= changes
    if facts["spec"].drafting is not None:
        facts["candidate"] = changes.get("candidate", facts["spec"])
    return Recommendation(**facts)


def configuration(**changes: Any) -> Configuration:
    """A tuned configuration with every field set."""
    line = ("/opt/llama.cpp/llama-server", "--model", "target.gguf", "--ctx-size", "4096")
    served = ServedRequest(prompt_tokens=12, answer_tokens=32, tokens_per_s=79.0)
    facts: dict[str, Any] = {
        "id": "tuned",
        "made_at": "2026-01-02T03:04:05+00:00",
        "ggufspec_version": "1.0",
        "overall": recommendation(),
        "engine": "server",
        "serving": Serving(context=2048, slots=2),
        "build": BUILD,
        "machine": MACHINE,
        "by_category": {"code": recommendation(9)},
        "measured_argv": (*line, "--parallel", "1"),
        "serving_argv": (*line, "--parallel", "2"),
        "launch": Launch(argv=line, load_s=1.2, slot_context=2048, requests=(served, served)),
        "passed_over": (PassedOver(spec=recommendation(15).spec, reason="out of memory"),),
        "warnings": {"drift": "let it cool"},
        "files": (FileIdentity(use=FileUse.MODEL, path="target.gguf", size_bytes=9, sha256="ab" * 32),),
        "environment": {"OMP_NUM_THREADS": "2"},
    }
    return Configuration(**facts | changes)


def filled(kind: type[Value]) -> Value:
    """Return a dataclass of this kind: no field has its default, and no two numbers or texts are alike."""
    value: Value = _make(kind, count(1))
    return value


def _make(kind: Any, numbers: Iterator[int]) -> Any:
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{field.name: _make(hints[field.name], numbers) for field in fields(kind)})  # type: ignore[operator]
    if hasattr(kind, "_fields"):
        return kind(*(_make(each, numbers) for each in get_type_hints(kind).values()))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {Union, types.UnionType}:
        return _make(arguments[0], numbers)
    if origin is tuple:
        return tuple(_make(arguments[0], numbers) for _ in range(2))
    if origin is Mapping:
        return {_make(arguments[0], numbers): _make(arguments[1], numbers)}
    if origin is Literal:
        return arguments[-1]
    return _plain(kind, next(numbers))


def _plain(kind: type, number: int) -> Any:
    if issubclass(kind, Enum):
        return list(kind)[-1]
    if kind is bool:
        return True
    if kind is Path:
        return Path(f"/models/{number}")
    return {int: number, float: number + 0.25, str: f"naïve ☃\n\u2028{number}"}[kind]
