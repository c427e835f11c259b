"""What audits of complete texts say together, and the line that people read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ggufspec.analysis import MeasurementWarning, review, texts
from ggufspec.domain import Role, RunResult, Sampling, TextAudit
from ggufspec.report import frames
from ggufspec.report.text import overview
from ggufspec.report.text.verdict import audit_line, format_bound
from tests.support import values

EVEN, UNEVEN = (100,) * 10, (180, *(90,) * 8, 100)


def _run(role: Role, audit: TextAudit | None, *, prompt: str = "p1", repeat: int = 0) -> RunResult:
    run = values.run(role, prompt=prompt, repeat=repeat, draft=3 if role is Role.DRAFTING else None)
    return replace(run, audit=audit, sample=replace(run.sample, text=f"words of {prompt}"))


def _greedy(tokens: int, *, near_ties: int = 0, divergent: int = 0) -> TextAudit:
    return TextAudit(tokens=tokens, near_ties=near_ties, divergent=divergent)


def test_equal_texts_count_once_and_the_control_is_shown() -> None:
    own = [_run(Role.TARGET, _greedy(900)), _run(Role.TARGET, _greedy(900), repeat=1)]
    own[1] = replace(own[1], text_identical=True)
    drafting = [
        _run(Role.DRAFTING, _greedy(1000, near_ties=1)),
        _run(Role.DRAFTING, _greedy(1000, near_ties=1), repeat=1),
        _run(Role.DRAFTING, _greedy(2000, near_ties=2), prompt="p2"),
    ]
    bench = values.bench(*own, *drafting)
    summary = texts.summarize_by_role(bench.runs)[Role.DRAFTING]
    assert (summary.texts, summary.tokens, summary.near_ties, summary.divergent) == (2, 3000, 3, 0)
    assert audit_line(bench) == (
        "Text audit: drafting 3000 tokens of 2 texts, no divergence (at 95 %: below 78 % of texts; below "
        "0.100 % of tokens if they differ independently), 3 near-ties; "
        "the target alone (control) 900 tokens of 1 text, no divergence (at 95 %: below 95 % of texts; below "
        "0.34 % of tokens if they differ independently); "
        "1 of 1 repeat of the target alone wrote its first text again."
    )
    assert (audit_line(bench) or "none") in overview.overview(bench)
    rows = frames.summary(bench).set_index("role")
    assert rows.loc["drafting", "audited_tokens"] == 3000
    assert rows.loc["drafting", "divergent_texts_bound"] == pytest.approx(1 - 0.05 ** (1 / 2))
    assert rows.loc["drafting", "divergent_tokens_bound"] == pytest.approx(1 - 0.05 ** (1 / 3000))
    assert rows.loc["target", "text_identical"]
    assert frames.runs(bench)["near_tie_tokens"].tolist() == [0, 0, 1, 1, 2]


def test_divergent_tokens_and_reasons_are_shown() -> None:
    bench = values.bench(
        _run(Role.DRAFTING, _greedy(100, divergent=2)),
        _run(Role.DRAFTING, TextAudit(tokens=0, unjudged="no library"), prompt="p2"),
    )
    assert audit_line(bench) == (
        "Text audit: drafting 100 tokens of 1 text, 2 divergent (at 95 %: below 100 % of texts; below 6.2 % "
        "of tokens if they differ independently); "
        "complete texts were not judged: no library."
    )
    assert audit_line(values.bench(values.run())) is None  # an older bench


def _sampled(role: Role, places: tuple[int, ...]) -> RunResult:
    run = _run(role, TextAudit(tokens=sum(places) + 1, places=places, impossible=1))
    return replace(run, spec=replace(run.spec, sampling=Sampling(temperature=1.0, top_k=0)))


def test_sampled_texts_are_tested_together() -> None:
    bench = values.bench(_sampled(Role.DRAFTING, EVEN), _sampled(Role.TARGET, (1,) * 10))
    assert audit_line(bench) == (
        "Text audit: drafting 1001 tokens of 1 text, which follow the target's distribution (p = 1.000, "
        "1 impossible); the target alone (control) 11 tokens of 1 text, too few to test their distribution."
    )
    name = MeasurementWarning.SAMPLED_OTHERWISE.value
    assert name not in review.warnings(bench)
    other = values.bench(_sampled(Role.DRAFTING, UNEVEN))
    assert "do not follow the target's distribution (p < 0.001, 1 impossible)" in (audit_line(other) or "")
    assert "(1001 tokens)" in review.warnings(other)[name]


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0.000249, "0.025 %"), (0.00025, "0.025 %"), (0.0101, "1.1 %"), (0.123, "13 %"), (1.0, "100 %")],
)
def test_a_bound_is_rounded_up(share: float, shown: str) -> None:
    assert format_bound(share) == shown
