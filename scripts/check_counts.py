"""Compare what every engine drafts and accepts, prompt by prompt, with what one trace says each must.

python scripts/check_counts.py [-n TOKENS] [--draft 2,3,5,8]

The library is asked for one look at each prompt; from it follow the counts of every draft size under each
program's own rules: where its first token comes from, when it stops, how long a last draft may be. A line
for each prompt and γ: drafted/accepted of every engine, and whether it is what the rules say. On one thread,
so that sums do not depend on how work is split.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import cast

from ggufspec import engines
from ggufspec.domain import RunSpec, Status
from ggufspec.engines.inprocess import InprocessEngine
from ggufspec.forecast import profiles, trace
from ggufspec.measure.request import Request, prepare_session

ENGINES = ("inprocess", "binary-simple", "binary", "server")
ATTEMPTS = 4  # programs lose the end of a log now and then


def main() -> int:
    asked = _arguments()
    sizes = tuple(map(int, asked.draft.split(",")))
    session = prepare_session(
        Request(pair="demo", draft=sizes, threads=1, n_predict=asked.tokens, engine="binary-simple")
    )
    alone, *others = session.suite.blocks[0].arms
    drafting = {arm.drafting.n_max: arm for arm in others if arm.drafting}
    drafter = drafting[sizes[0]].drafter
    assert drafter is not None
    print(f"| prompt | γ | {' | '.join(ENGINES)} | |")
    print("|---" * (len(ENGINES) + 3) + "|")
    unexplained = 0
    made = {name: engines.make(name, session.install) for name in ENGINES}
    with tempfile.TemporaryDirectory() as folder:
        for prompt in session.suite.prompts:
            library = cast("InprocessEngine", made["inprocess"])
            long = replace(alone, n_predict=asked.tokens + max(sizes) + 1)
            (texts,) = profiles.traces(library, long, [prompt], [drafter])
            for size in sizes:
                spec = replace(drafting[size], prompt=prompt)
                found = {name: _counts(made[name], spec, Path(folder)) for name in ENGINES}
                wanted = {
                    name: _expected(
                        texts.by_drafter[0], name, size, asked.tokens, session.install.build_number
                    )
                    for name in ENGINES
                }
                wrong = [name for name in ENGINES if found[name] != wanted[name]]
                unexplained += len(wrong)
                said = "equal" if len(set(found.values())) == 1 else "as each program's rules say"
                cells = " | ".join(f"{a}/{b}" for a, b in found.values())
                remark = (
                    f"unexplained: {', '.join(f'{n} wanted {wanted[n]}' for n in wrong)}" if wrong else said
                )
                print(f"| {prompt.id} | {size} | {cells} | {remark} |", flush=True)
    for engine in made.values():
        engine.close()
    print(
        f"\n{unexplained} of {len(session.suite.prompts) * len(sizes) * len(ENGINES)} counts are unexplained"
    )
    return unexplained > 0


def _counts(engine: engines.Engine, spec: RunSpec, folder: Path) -> tuple[int | None, int | None]:
    for _ in range(ATTEMPTS):
        sample = engine.measure(spec, folder / "run").sample
        if sample.status is Status.OK:
            return sample.n_drafted, sample.n_accepted
    return None, None


def _expected(
    seen: trace.DraftTrace, engine: str, size: int, tokens: int, build: int | None
) -> tuple[int | None, int | None]:
    counts = trace.count(
        trace.steps(seen, n_max=size, program=engines.ENGINES[engine], n_predict=tokens, build=build)
    )
    return int(counts.n_drafted), int(counts.n_accepted)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--tokens", type=int, default=120, help="of each run")
    parser.add_argument("--draft", default="2,3,5,8", help="draft sizes γ")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
