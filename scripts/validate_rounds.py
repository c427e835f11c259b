"""Check forecasts by the rounds of a server's traffic against what other draft sizes would show: simulated.

    python scripts/validate_rounds.py

Prints a Markdown table. Each of 100 servers drafts 8 or 16 tokens and has answered 5 to 20 requests of 60
to 400 tokens, in which easy and hard passages alternate. Times of rounds lie on a straight line, and are
measured with an error.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import terminal

from ggufspec import forecast, units
from ggufspec.domain import Drafting, Program, Round
from ggufspec.forecast import trace
from ggufspec.forecast.costs import CostCurve, Point
from ggufspec.forecast.trace import DraftTrace, TracedRun
from ggufspec.forecast.whatif import traffic_runs, weigh_tokens
from ggufspec.stats import Z95, Estimate

SERVERS, SEED = 100, 7
SIZES = (1, 2, 3, 4, 6, 8, 12)
TIMED = (0, 1, 2, 4, 8, 16)


def rounds(text: Sequence[bool], n_max: int) -> list[Round]:
    """Return the rounds of an answer of which the drafter has these tokens right."""
    size = len(text)
    view = DraftTrace(prompt_id="p", tokens=(0,) * size, match=tuple(text), confidence=(1.0,) * size)
    run = TracedRun(drafting=Drafting(n_max=n_max), program=Program.SERVER, n_predict=size)
    taken = trace.steps(view, run)
    return [Round(step.drafted, int(step.accepted)) for step in taken]


def answer(draw: random.Random) -> list[bool]:
    """Return which tokens of an answer the drafter has right."""
    chances, stay = (draw.uniform(0.8, 0.99), draw.uniform(0.1, 0.8)), draw.choice((0.9, 0.97, 0.99))
    mood, text = 0, []
    for _ in range(draw.randint(60, 400)):
        mood = mood if draw.random() < stay else 1 - mood
        text.append(draw.random() < chances[mood])
    return text


def server(draw: random.Random, error: float, *, is_ordered: bool) -> Iterator[tuple[float, bool]]:
    """Yield by which factor each forecast speed-up of a server is off, and whether its interval covers."""
    answers, n_max = [answer(draw) for _ in range(draw.randint(5, 20))], draw.choice((8, 16))
    slope = draw.uniform(0.01, 0.2)

    def seconds(drafted: int) -> float:
        return 1 + slope * drafted

    times = {size: seconds(size) * draw.gauss(1, error) for size in TIMED if size <= n_max}
    curve = CostCurve(
        verify=tuple(
            Point(tokens=size + 1, depth=0, seconds=Estimate.around(time, Z95 * forecast.SIZE_ERROR * time))
            for size, time in times.items()
        )
    )
    traffic = [entry for text in answers for entry in rounds(text, n_max) if entry.drafted]
    if not is_ordered:
        accepted_at = [sum(accepted > place for _, accepted in traffic) for place in range(n_max)]
        traffic = [*forecast.from_counts(accepted_at, len(traffic))]
    draftings = [Drafting(n_max=size) for size in SIZES if size <= n_max]
    for found in map(weigh_tokens, forecast.replays(traffic_runs(traffic), curve, draftings)):
        shown = [entry for text in answers for entry in rounds(text, found.drafting.n_max)]
        written = sum(1 + accepted for _, accepted in shown)
        speedup = written * seconds(0) / sum(seconds(drafted) for drafted, _ in shown)
        assert found.speedup.lo is not None
        assert found.speedup.hi is not None
        yield found.speedup.value / speedup, found.speedup.lo <= speedup <= found.speedup.hi


def main() -> None:
    """Print the table."""
    figures = "error of times", "forecasts", "covered", "off, median", "off, 95 %", "off, most"
    terminal.print_head("rounds", *figures)
    for is_ordered in (True, False):
        for error in (0.0, 0.03):
            draw = random.Random(SEED)
            found = [each for _ in range(SERVERS) for each in server(draw, error, is_ordered=is_ordered)]
            off = sorted(abs(factor - 1) for factor, _ in found)
            terminal.print_row(
                "in their order" if is_ordered else "counted by position",
                units.format_percent(error),
                len(found),
                units.format_percent(sum(covers for _, covers in found) / len(found)),
                *(units.format_percent(off[int(share * (len(off) - 1))]) for share in (0.5, 0.95, 1.0)),
            )


if __name__ == "__main__":
    main()
