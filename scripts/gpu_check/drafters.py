"""What drafts beside a draft model: heads, and a chain."""

from __future__ import annotations

from ggufspec.report.text import reasons
from ggufspec.results import ResultSet
from gpu_check.benches import Bench, table
from gpu_check.steps import Section

HEADS = ("demo-eagle3", "demo-mtp", "demo-dflash")
CHAIN = "ngram-mod+draft-eagle3"
_CHAINED = "demo-eagle3"
_SIZE = 3


def measure_head(bench: Bench, pair: str, seconds: float) -> Section:
    """Measure an embedded pair whose drafter is a head, or a layer of the target."""
    found, wanted = bench.run(bench.demo("server", (_SIZE,), pair=pair, repeats=1, warmup=0), seconds)
    return table(found, wanted, prompts=_prompts(found))


def measure_chain(bench: Bench, seconds: float) -> Section:
    """Measure a head behind an n-gram method."""
    asked = bench.demo("server", (_SIZE,), pair=_CHAINED, method=CHAIN, repeats=1, warmup=0)
    found, wanted = bench.run(asked, seconds)
    return table(found, wanted, prompts=_prompts(found))


def explain(found: ResultSet) -> Section:
    """Say where the time of a round goes, as ``ggufspec why`` does."""
    return Section(notes=[f"```text\n{reasons.why(found, ascii_only=True).rstrip()}\n```"])


def _prompts(found: ResultSet) -> int:
    return len({spec.prompt.id for spec in found.runs.specs})
