"""Compare what every engine drafts and accepts, prompt by prompt, with what one trace says each must.

python scripts/check_counts.py [-n TOKENS] [--draft 2,3,5,8] [--p-min 0,0.5,0.8]

The library is asked for one look at each prompt; from it follow the counts of every draft size under each
program's own rules: where its first token comes from, when it stops, how long a last draft may be. A line
for each prompt, γ and p_min: drafted/accepted of every engine, and whether it is what the rules say. On one
thread, so that sums do not depend on how work is split.

Above p_min 0 what is accepted must be exact too. What is drafted is not: no trace holds the drafter's
confidence after a token of its own that the target rejects. How far it is off is printed for each p_min.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import terminal

from ggufspec import engines
from ggufspec.domain import Program, RunSpec, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import profiles, trace
from ggufspec.llama.install import Install
from ggufspec.measure import prepare_session
from ggufspec.options import BenchOptions
from ggufspec.tuning import prospects

ENGINES = ("inprocess", "binary-simple", "binary", "server")
ATTEMPTS = 4  # programs lose the end of a log now and then


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one engine counted on one prompt, and what the trace says."""

    engine: str
    p_min: float
    found: tuple[int | None, int | None]  # drafted, accepted
    wanted: tuple[int, int]

    @property
    def is_explained(self) -> bool:
        """Whether the counts are those of the trace; above p_min 0 only what was accepted must be."""
        return self.found == self.wanted if self.p_min == 0 else self.found[1] == self.wanted[1]


def main() -> int:
    asked = _arguments()
    sizes = tuple(map(int, asked.draft.split(",")))
    p_mins = tuple(map(float, asked.p_min.split(",")))
    session = prepare_session(
        BenchOptions(
            pair="demo", draft=sizes, p_min=p_mins, threads=1, n_predict=asked.tokens, engine="binary-simple"
        )
    )
    alone, *others = session.suite.blocks[0].arms
    drafting = [arm for arm in others if arm.drafting]
    drafter = drafting[0].drafter
    assert drafter is not None
    terminal.print_head("prompt", "γ", "p-min", *ENGINES, "")
    cases: list[Case] = []
    made = {name: engines.make(name, session.install) for name in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        for prompt in session.suite.prompts:
            library = cast("InprocessEngine", made["inprocess"])
            long = replace(alone, n_predict=asked.tokens + max(sizes) + 1)
            (texts,) = profiles.traces(library, long, [prompt], [drafter])
            for arm in drafting:
                row = [
                    Case(
                        engine=name,
                        p_min=arm.drafting.p_min if arm.drafting else 0.0,
                        found=_counts(made[name], replace(arm, prompt=prompt), Path(folder)),
                        wanted=_expected(texts.by_drafter[0], name, arm, asked.tokens, session.install),
                    )
                    for name in ENGINES
                    if _can_run(name, arm)
                ]
                cases += row
                terminal.print_row(*_cells(prompt.id, arm, row))
    for engine in made.values():
        engine.close()
    unexplained = sum(not case.is_explained for case in cases)
    print(f"\n{unexplained} of {len(cases)} counts are unexplained")
    for p_min in (p_min for p_min in p_mins if p_min):
        print(f"p-min {p_min:g}: {_drafted_error([case for case in cases if case.p_min == p_min])}")
    return unexplained > 0


def _can_run(engine: str, arm: RunSpec) -> bool:
    """Whether an engine knows p_min: the tree program does not."""
    assert arm.drafting is not None
    return not arm.drafting.p_min or engines.ENGINES[engine] is not Program.TREE


def _cells(prompt: str, arm: RunSpec, row: list[Case]) -> Iterator[object]:
    assert arm.drafting is not None
    by_engine = {case.engine: case for case in row}
    cells = ["{}/{}".format(*by_engine[name].found) if name in by_engine else "" for name in ENGINES]
    wrong = [case for case in row if not case.is_explained]
    remark = "as the rules say"
    if wrong:
        remark = "unexplained: " + ", ".join(f"{case.engine} wanted {case.wanted}" for case in wrong)
    yield from (prompt, arm.drafting.n_max, f"{arm.drafting.p_min:g}", *cells, remark)


def _drafted_error(cases: list[Case]) -> str:
    """Say how far the forecast numbers of drafted tokens lie from the measured ones."""
    known = [case for case in cases if case.found[0]]
    errors = [case.wanted[0] / (case.found[0] or 1) - 1 for case in known]
    total = sum(case.wanted[0] for case in known) / max(1, sum(case.found[0] or 0 for case in known)) - 1
    equal = sum(case.found == case.wanted for case in known)
    return (
        f"drafted tokens exact in {equal} of {len(known)}, {total:+.1%} in all, "
        f"{max(errors, key=abs, default=0.0):+.1%} at worst"
    )


def _counts(engine: engines.Engine, spec: RunSpec, folder: Path) -> tuple[int | None, int | None]:
    for _ in range(ATTEMPTS):
        sample = engine.measure(spec, folder / "run").sample
        if sample.status is Status.OK:
            return sample.n_drafted, sample.n_accepted
    return None, None


def _expected(
    seen: trace.DraftTrace, engine: str, arm: RunSpec, tokens: int, install: Install
) -> tuple[int, int]:
    traces = prospects.Traces(
        texts=(), drafters=(), engine=engine, n_predict=tokens, build=install.build_number
    )
    counts = trace.count(trace.steps(seen, traces.run(arm)))
    return int(counts.n_drafted), int(counts.n_accepted)


def _arguments() -> argparse.Namespace:
    parser = terminal.parser(__doc__)
    parser.add_argument("-n", "--tokens", type=int, default=120, help="of each run")
    parser.add_argument("--draft", default="2,3,5,8", help="draft sizes γ")
    parser.add_argument("--p-min", default="0", help="least confidences at which a draft goes on")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
