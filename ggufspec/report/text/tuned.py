"""A tuning as people read it: the finalists, the verdict in sentences, and lines to paste."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ggufspec import units
from ggufspec.analysis import arms, review
from ggufspec.domain import ModelFile, Role, RunSpec
from ggufspec.forecast import Advice, Forecast
from ggufspec.harmless import to_json
from ggufspec.llama.command import commands
from ggufspec.llama.install import Install
from ggufspec.report.text import figures, formats, overview
from ggufspec.report.text.figures import engine, spread
from ggufspec.tuning import Choice, Outlook, Prospect, Tuned

_COLUMNS = (
    "model",
    "GPU layers",
    "γ",
    "p-min",
    "forecast",
    "tokens/s",
    "accepted",
    "speed-up",
    "text unchanged",
)


def text(tuned: Tuned, install: Install, bench: str) -> str:
    """Return the closing words of a tuning, in Markdown; ``bench`` is the command that repeats its choice."""
    lines = [
        engine(tuned.results.meta.engine),
        "",
        _table(tuned),
        "",
        *verdict(tuned),
        "",
        *(f"{name}:\n    {line}" for name, line in _commands(tuned, install, bench).items()),
        f"as a pair of your own:\n{_indented(pair_entry(tuned))}",
        "",
        *_basis(tuned),
        *(f"warning {name}: {advice}" for name, advice in review.warnings(tuned.results).items()),
    ]
    return "\n".join(lines) + "\n"


def as_json(tuned: Tuned, install: Install, bench: str) -> str:
    """Return the same as one JSON object, with the forecast of every configuration."""
    return to_json(facts(tuned, install, bench), indent=2) + "\n"


def facts(tuned: Tuned, install: Install, bench: str) -> dict[str, Any]:
    """Return all of a tuning as plain values."""
    outlook = tuned.outlook
    return {
        "verdict": " ".join(verdict(tuned)),
        "drafts": tuned.overall.drafts,
        "overall": _choice(tuned.overall),
        "by_category": [_choice(each) for each in tuned.by_category],
        "reason": tuned.refusal.reason.value if tuned.refusal and tuned.refusal.reason else None,
        "needs": vars(tuned.refusal.needs) if tuned.refusal and tuned.refusal.needs else None,
        "engine": tuned.results.meta.engine,
        "commands": _commands(tuned, install, bench),
        "pair": pair_entry(tuned),
        "spent_s": {**vars(tuned.spent), "total_s": tuned.spent.total_s},
        "prompts": [prompt.id for prompt in outlook.prompts],
        "n_predict": outlook.n_predict,
        "results": tuned.results.meta.id,
        "forecasts": [{**_configuration(each.arm), **_forecast(each.overall)} for each in outlook.prospects],
    }


def pair_entry(tuned: Tuned) -> str:
    """Return the chosen models as an entry for the user's own catalogue of pairs."""
    spec, choice = tuned.overall.arm.spec, tuned.overall
    lines = [f"[pairs.{json.dumps(_name(spec))}]", f"target = {_model(spec.pair.target)}"]
    if spec.drafter is not None:
        lines.append(f"drafter = {_model(spec.drafter)}")
    drafting = spec.drafting
    if drafting is not None and choice.gain is not None:
        lines.append(f"method = {json.dumps(drafting.method.value)}")
        p_min = f", p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
        measured = f"γ {drafting.n_max}{p_min}: {choice.gain.ratio.value:.2f} times the target alone"
        on = f" on {tuned.results.meta.machine.cpu}, llama.cpp {tuned.results.meta.build.version}"
        lines.append(f"note = {json.dumps(measured + on, ensure_ascii=False)}")
    else:
        lines.append('note = "drafting did not pay"')
    return "\n".join(lines) + "\n"


def _commands(tuned: Tuned, install: Install, bench: str) -> dict[str, str]:
    """Return the commands that run the choice, by their programs, and the one that measures it again."""
    return {**commands.lines(tuned.overall.arm.spec, install), "ggufspec bench": bench}


def _table(tuned: Tuned) -> str:
    rows = []
    for arm in arms.group(tuned.results):
        if arm.role is Role.DRAFTER:
            continue
        forecast = expected(tuned, arm.spec)
        row = overview.row(arm)
        row["forecast"] = units.format_rate(forecast.tokens_per_s.value) if forecast else ""
        mark = "**" if arm.spec == tuned.overall.arm.spec else ""
        rows.append(
            {
                name: f"{mark}{row[name]}{mark}" if row[name] and name == "model" else row[name]
                for name in _COLUMNS
            }
        )
    return formats.table([name for name in _COLUMNS if any(row[name] for row in rows)], rows)


def expected(tuned: Tuned, spec: RunSpec) -> Forecast | None:
    """Return what was forecast of an arm over all prompts."""
    prospect = tuned.outlook.prospect(spec)
    return None if prospect is None else prospect.overall


def verdict(tuned: Tuned) -> Iterator[str]:
    """Yield what to run, in sentences: overall, or why not to draft, and by category."""
    overall = tuned.overall
    if overall.drafts:
        assert overall.gain is not None
        ratio = overall.gain.ratio
        span = f" [{ratio.lo:.2f}, {ratio.hi:.2f}]" if ratio.lo is not None and ratio.hi is not None else ""
        doubt = "" if overall.sure else ", which may be chance: a longer --max-time would tell"
        yield f"Draft with {_named(overall.arm.spec)}: {ratio.value:.2f}×{span} of the target alone{doubt}."
    else:
        best = units.format_rate(overall.rate.value)
        yield f"Do not draft: {best} tokens/s of the target alone are the best."
        if tuned.refusal is not None:
            yield from _why(tuned.refusal)
    if tuned.by_category:
        yield (
            "By category: "
            + "; ".join(f"{each.category}: {_short(each)}" for each in tuned.by_category)
            + "."
        )


def _why(refusal: Advice) -> Iterator[str]:
    if refusal.reason is None:
        hoped, size = refusal.forecast.speedup.value, refusal.forecast.n_max
        yield f"The forecast hoped for {hoped:.2f}× at γ = {size}; measured, nothing is gained."
        return
    yield f"The reason: {refusal.reason.value}."
    needs = refusal.needs
    if needs is None:
        return
    ways = []
    if needs.accept_rate is not None:
        ways.append(f"more than {needs.accept_rate:.0%} of the drafted tokens were accepted")
    if needs.drafter_factor is not None and needs.drafter_factor > 1:
        ways.append(f"the drafter were {needs.drafter_factor:.1f} times as fast")
    if needs.verify_ratio is not None:
        ways.append(f"verifying took less than {needs.verify_ratio:.2f} times as long as decoding one token")
    if ways:
        yield f"It would pay at γ = {needs.n_max} if " + ", or if ".join(ways) + "."


def _named(spec: RunSpec) -> str:
    drafting = spec.drafting
    assert drafting is not None
    p_min = f", p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
    return f"{arms.models(spec)[-1]}, γ = {drafting.n_max}{p_min}"


def _short(choice: Choice) -> str:
    if not choice.drafts or choice.gain is None:
        return "do not draft"
    unsure = "" if choice.sure else f", {units.counted(choice.prompts, 'prompt')}: unsure"
    return f"{_named(choice.arm.spec)} ({choice.gain.ratio.value:.2f}×{unsure})"


def _basis(tuned: Tuned) -> Iterator[str]:
    outlook, spent = tuned.outlook, tuned.spent
    forecast = units.counted(len(outlook.prospects), "configuration")
    prompts = units.counted(len(outlook.prompts), "prompt")
    yield (
        f"{forecast} forecast from one look at {prompts} of {outlook.n_predict} tokens, the best measured "
        "beside the target alone."
    )
    yield (
        f"Time: {spent.total_s:.0f} s, of which reading ahead {spent.traces_s:.1f} s, "
        f"costs {spent.costs_s:.1f} s, measuring {spent.measuring_s:.0f} s."
    )
    stored = tuned.results.meta.id
    yield f"Stored as {stored}: `ggufspec show {stored}` prints what was measured."


def _choice(choice: Choice) -> dict[str, Any]:
    gain = choice.gain
    return {
        "category": choice.category,
        "prompts": choice.prompts,
        **_configuration(choice.arm.spec),
        "tokens_per_s": vars(choice.rate),
        "speedup": None if gain is None else vars(gain.ratio),
        "p_value": None if gain is None else gain.p_value,
    }


def _configuration(spec: RunSpec) -> dict[str, Any]:
    drafting = spec.drafting
    return {
        "target": str(spec.pair.target.path or spec.pair.target.filename),
        "drafter": str(spec.drafter.path or spec.drafter.filename) if spec.drafter else None,
        "method": drafting.method.value if drafting else None,
        "n_max": drafting.n_max if drafting else None,
        "p_min": drafting.p_min if drafting else None,
        "target_layers": spec.offload.target_layers,
        "draft_layers": spec.offload.draft_layers,
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    return {
        "tokens_per_s": vars(forecast.tokens_per_s),
        "speedup": vars(forecast.speedup),
        "accept_rate": forecast.accept_rate,
        "break_even_accept_rate": forecast.break_even_accept_rate,
    }


def _name(spec: RunSpec) -> str:
    return f"{spec.pair.name.replace('/', '-').replace(':', '-')}-tuned"


def _model(model: ModelFile) -> str:
    if model.repo is not None:
        return f"{{ repo = {json.dumps(model.repo)}, file = {json.dumps(model.filename)} }}"
    return f"{{ path = {json.dumps(str(model.path))} }}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


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
    return f"{figures.engine(engine)}\n\n{formats.table(said, rows)}\n" + (
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
