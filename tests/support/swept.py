"""A bench that has something for every chart of a report; names may be those of somebody who means harm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count

from ggufspec import results
from ggufspec.domain import (
    Conditions,
    Drafting,
    Endpoint,
    ModelFile,
    Offload,
    Pair,
    Prompt,
    Role,
    Round,
    RunningServers,
    RunResult,
    RunSpec,
)
from ggufspec.results import ResultSet
from tests.support import values
from tests.support.values import MACHINE, META

HARMFUL = "</script><script>alert(1)</script><img src=x onerror='alert(2)'>\u2028{{ 7*7 }}&amp;.gguf"
"""A file name that leaves an attribute, a script, a template and a line, where nobody escapes it."""
ROUNDS = (Round(4, 4), Round(4, 2), Round(4, 1), Round(4, 0))


def swept(
    *drafters: str,
    target: str = "target.gguf",
    sizes: Sequence[int] = (2, 4),
    engine: str = "inprocess",
    gain: float = 1.2,
    tag: str = "",
    name: str | None = None,
) -> ResultSet:
    """Two prompts of two categories, two repeats; each drafter is ``gain`` faster than the one before.

    Args:
        drafters: their files, one without it.
        target: its file.
        sizes: γ; larger ones are a tenth faster each.
        engine: what measured; only ``inprocess`` tells where a round's time goes.
        gain: of the first drafter at the first size over the target alone.
        tag: a part of every other name and text.
        name: the id of the bench.
    """
    stored = results.create(
        replace(
            META,
            engine=engine,
            command=("ggufspec", "sweep", tag),
            machine=replace(MACHINE, hostname=f"box{tag}"),
            doubts={f"odd{tag}": f"Look at {tag}"},
        ),
        name,
    )
    for run in _runs(drafters or ("drafter.gguf",), target, sizes, gain, tag, inside=engine == "inprocess"):
        stored = results.append(stored, run)
    return stored


def running() -> ResultSet:
    """Two servers that run already and do not say how many tokens they draft."""
    alone = Endpoint(url="http://127.0.0.1:8001", model="m", drafts=False)
    servers = RunningServers(alone=alone, drafting=replace(alone, url="http://127.0.0.1:8002", drafts=True))
    runs = []
    for number, tps in enumerate((40.0, 50.0, 40.4, 50.5)):
        prompt, repeat = f"p{number % 2}", number // 2
        for role, factor in ((Role.TARGET, 1.0), (Role.DRAFTING, 1.5 + 0.01 * number)):
            made = values.run(role, prompt=prompt, repeat=repeat, tps=tps * factor)
            own = servers if role is Role.DRAFTING else replace(servers, drafting=None)
            runs.append(replace(made, spec=replace(made.spec, servers=own), engine="running"))
    return values.bench(*runs)


def _model(name: str) -> ModelFile:
    return ModelFile(filename=name, content=sha256(name.encode()).hexdigest())


def _runs(
    drafters: Sequence[str], target: str, sizes: Sequence[int], gain: float, tag: str, *, inside: bool
) -> Iterator[RunResult]:
    seconds = count()
    for repeat in range(2):
        for prompt in (
            Prompt(id=f"p1{tag}", text=tag, category=f"code{tag}"),
            Prompt(id="p2", text=tag, category="prose"),
        ):
            slow = 1.0 if prompt.id != "p2" else 1.5
            pair = Pair(name="tiny", target=_model(target))
            alone = replace(values.spec(), pair=pair, prompt=prompt, offload=Offload().on_processor)
            tps = 40.0 * slow * (1 + 0.02 * repeat)
            yield _run(alone, repeat, tps, next(seconds), tag, memory=1 << 30)
            yield replace(
                _run(alone, repeat, tps * 1.01, next(seconds), tag, memory=1 << 30),
                anchor=True,
                repeat=repeat,
            )
            for place, drafter in enumerate(drafters):
                pair = replace(alone.pair, draft=_model(drafter))
                for step, size in enumerate(sizes):
                    spec = replace(alone, pair=pair, role=Role.DRAFTING, drafting=Drafting(n_max=size))
                    yield _run(
                        spec,
                        repeat,
                        tps * gain ** (place + 1) * (1 + 0.1 * step),
                        next(seconds),
                        tag,
                        memory=(1 << 30) + (place + 1 << 28) + (step << 20),
                        inside=inside,
                    )


def _run(
    spec: RunSpec, repeat: int, tps: float, second: int, tag: str, *, memory: int, inside: bool = False
) -> RunResult:
    made = values.run(spec.role, repeat=repeat, tps=tps, drafted=16, accepted=7)
    gen_s, disturbed = 100 / tps, second % 5 == 0
    sample = replace(
        made.sample,
        n_rounds=len(ROUNDS) if spec.drafting else None,
        rounds=ROUNDS if spec.drafting else None,
        draft_s=gen_s * 0.25 if inside else None,
        verify_s=gen_s * 0.65 if inside else None,
        target=None,
        text=f"words {tag}",
    )
    return replace(
        made,
        spec=spec,
        engine="inprocess",
        sample=sample,
        argv=("llama", "-m", spec.model.filename, "--prompt", tag),
        log=f"run-{second}",
        started_at=f"2026-01-02T03:{second // 60:02d}:{second % 60:02d}.000+00:00",
        wall_s=gen_s + 0.2,
        program_s=gen_s + 0.1,
        peak_rss_bytes=memory,
        conditions=Conditions(others_cores=0.8 if disturbed else 0.01),
        doubts=("busy-machine",) if disturbed else (),
    )
