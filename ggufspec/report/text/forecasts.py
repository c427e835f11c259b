"""What was forecast of every configuration, for people: the fastest first."""

from __future__ import annotations

from ggufspec import units
from ggufspec.analysis import arms
from ggufspec.report.text import figures, markdown
from ggufspec.report.text.figures import spread
from ggufspec.tuning import Outlook, Prospect

_MOST = 30  # rows


def table(outlook: Outlook, engine: str) -> str:
    """Return a table of the fastest configurations over all prompts in an engine, in Markdown."""
    ranked = sorted(outlook.prospects, key=lambda each: -each.overall.speedup.value)
    rows = [_row(each) for each in ranked[:_MOST]]
    said = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    left = len(ranked) - len(rows)
    if not rows:
        return "nothing could be forecast\n"
    slower = units.counted(left, "slower one")
    return f"{figures.engine(engine)}\n\n{markdown.table(said, rows)}\n" + (
        f"\n… and {slower}; -o csv has them all, by category too\n" if left else ""
    )


def _row(prospect: Prospect) -> dict[str, str]:
    spec, found = prospect.arm, prospect.overall
    drafting = spec.drafting
    assert drafting is not None
    method = drafting.method
    return {
        "drafts": arms.models(spec)[-1] if method.needs_drafter else method.value,
        "GPU layers": str(spec.offload.target_layers) if spec.offload.target_layers != "auto" else "",
        "γ": str(drafting.n_max),
        "p-min": units.format_number(drafting.p_min) if method.needs_drafter and drafting.p_min else "",
        "tokens/s": spread(found.tokens_per_s, units.format_rate),
        "accepted": "" if found.accept_rate is None else f"{found.accept_rate:.1%}",
        "tokens/round": f"{found.mean_accepted_length:.2f}",
        "speed-up": spread(found.speedup, lambda value: f"{value:.2f}×"),
    }
