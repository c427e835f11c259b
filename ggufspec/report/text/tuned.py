"""A tuning for people: the configurations that were measured, the verdict, and commands to paste."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from ggufspec import units
from ggufspec.analysis import Arm, arms, models_of, review
from ggufspec.domain import Launch, ModelFile, Role, RunSpec
from ggufspec.forecast import Advice, Forecast, Needs
from ggufspec.harmless import to_json
from ggufspec.llama.command import commands as command_lines
from ggufspec.llama.install import Install
from ggufspec.report import schemas
from ggufspec.report.text import configuration, figures, judgements, overview, tables
from ggufspec.report.text.figures import engine
from ggufspec.tuning import Choice, Prospect, Tuned, TuningForecast

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


def text(tuned: Tuned, install: Install, bench: str, output: str = "md") -> str:
    """Return the result of a tuning.

    Args:
        tuned: what was measured and chosen.
        install: the llama.cpp that measured.
        bench: the command that measures the choice again.
        output: ``md``, or ``table`` for the terminal, where the verdict comes first.
    """
    table = (engine(tuned.results.meta.engine), "", _table(tuned, output), "")
    commands = _commands(tuned, install, bench)
    measuring = {name: line for name, line in commands.items() if name.startswith("ggufspec ")}
    programs = {name: line for name, line in commands.items() if name not in measuring}
    meanwhile = "" if tuned.overall.is_decided else " (the target alone, which is what is safe meanwhile)"
    answer = (*verdict(tuned), *judgements.deciding(tuned.results, tuned.overall.judgement), "")
    lines = [
        *((*answer, *table) if output == tables.TERMINAL else (*table, *answer)),
        *configuration.served(tuned.launch, tuned.serving),
        *(f"{name}{meanwhile}:\n    {line}" for name, line in programs.items()),
        *(f"{name}:\n    {line}" for name, line in measuring.items()),
        f"as an entry of your own catalogue:\n{_indented(pair_entry(tuned))}",
        "",
        *_basis(tuned),
        *(f"warning {name}: {advice}" for name, advice in review.warnings(tuned.results).items()),
    ]
    shown = "\n".join(lines) + "\n"
    return tables.fit_terminal(shown, sys.stdout) if output == tables.TERMINAL else shown


def as_json(tuned: Tuned, install: Install, bench: str) -> str:
    """Return a tuning as one JSON object, with the forecast of every configuration."""
    return to_json(facts(tuned, install, bench), indent=2) + "\n"


def facts(tuned: Tuned, install: Install, bench: str) -> dict[str, Any]:
    """Return a tuning as values for JSON."""
    outlook = tuned.outlook
    return {
        "schema": schemas.schema_name("tune"),
        "verdict": " ".join(verdict(tuned)),
        "drafts": tuned.overall.drafts,
        "overall": _choice(tuned.overall),
        "by_category": [_choice(choice) for choice in tuned.by_category],
        "alike": [_configuration(spec) for spec in tuned.selection.alike],
        "edge": tuned.selection.edge,
        "reason": tuned.refusal.reason.value if tuned.refusal and tuned.refusal.reason else None,
        "needs": _needs(tuned.refusal.needs) if tuned.refusal and tuned.refusal.needs else None,
        "engine": tuned.results.meta.engine,
        "serving": None if tuned.serving is None else vars(tuned.serving),
        "launch": None if tuned.launch is None else _launch(tuned.launch),
        "passed_over": [{**_configuration(spec), "reason": reason} for spec, reason in tuned.passed_over],
        "warnings": [
            {"name": name, "advice": advice} for name, advice in review.warnings(tuned.results).items()
        ],
        "commands": _commands(tuned, install, bench),
        "pair": pair_entry(tuned),
        "spent_s": {**vars(tuned.spent), "total_s": tuned.spent.total_s},
        "prompts": [prompt.id for prompt in outlook.prompts],
        "n_predict": outlook.n_predict,
        "results": tuned.results.meta.id,
        "selection": tuned.selection.results.meta.id,
        "finalists": _finalists_measured(tuned),
        "calibration": _calibration(outlook),
        "forecasts": [
            {**_configuration(prospect.arm), **_forecast(prospect.overall)} for prospect in outlook.prospects
        ],
    }


def pair_entry(tuned: Tuned) -> str:
    """Return the chosen models as an entry for the user's catalogue of pairs."""
    spec, choice = tuned.overall.arm.spec, tuned.overall
    lines = [f"[pairs.{json.dumps(_name(spec))}]", f"target = {_model(spec.pair.target)}"]
    if spec.drafter is not None:
        lines.append(f"drafter = {_model(spec.drafter)}")
    drafting = spec.drafting
    ratio = None if choice.judgement is None else choice.judgement.ratio
    if drafting is not None and ratio is not None:
        lines.append(f"method = {json.dumps(str(drafting.chain))}")
        lines.append(f"gamma = {drafting.n_max}")
        lines += [f"p_min = {drafting.p_min!r}"] if drafting.method.drafts_with_model else []
        p_min = f", p-min {units.format_number(drafting.p_min)}" if drafting.p_min else ""
        measured = f"γ {drafting.n_max}{p_min}: {ratio.value:.2f} times the target alone"
        on = f" on {tuned.results.meta.machine.cpu}, {figures.llama_cpp(tuned.results.meta.build)}"
        lines.append(f"note = {json.dumps(measured + on, ensure_ascii=False)}")
    else:
        found = "drafting is not faster" if choice.is_decided else "undecided whether drafting is faster"
        lines.append(f'note = "{found}"')
    return "\n".join(lines) + "\n"


def _commands(tuned: Tuned, install: Install, bench: str) -> dict[str, str]:
    """Return the commands that run the choice, by program, and those that measure it again.

    llama-server's command is there only if it was started by exactly that, and answered.
    """
    launch, program = tuned.launch, command_lines.run_command(tuned.overall.arm.spec, install)
    argvs = [launch.argv] if launch is not None and launch.failure is None else []
    argvs += [program] if program is not None else []
    return {
        **{PurePath(argv[0]).name: shlex.join(argv) for argv in argvs},
        "ggufspec bench": bench,
        "ggufspec bench --tuned": f"ggufspec bench --tuned {shlex.quote(tuned.results.meta.id)}",
    }


def _table(tuned: Tuned, output: str) -> str:
    rows = []
    for arm in arms.group(tuned.results):
        if arm.role is Role.DRAFTER:
            continue
        forecast = expected(tuned, arm.spec)
        row = overview.row(arm)
        row["forecast"] = units.format_rate(forecast.tokens_per_s.value) if forecast else ""
        mark = "**" if arm.spec == tuned.overall.arm.spec else ""
        rows.append({name: row[name] for name in _COLUMNS} | {"model": f"{mark}{row['model']}{mark}"})
    columns = [name for name in _COLUMNS if any(row[name] for row in rows)]
    return tables.table(columns, rows, output, labels=("model", "γ", "p-min"))


def expected(tuned: Tuned, spec: RunSpec) -> Forecast | None:
    """Return the forecast of an arm over all prompts; None if there is none."""
    prospect = tuned.outlook.prospect(spec)
    return None if prospect is None else prospect.overall


def verdict(tuned: Tuned) -> Iterator[str]:
    """Yield in sentences what to run, or why not to draft, and the choice by category."""
    overall = tuned.overall
    candidate = None if overall.candidate is None else overall.candidate.spec
    yield configuration.finding(overall.arm.spec, candidate, overall.judgement, overall.rate)
    if tuned.refusal is not None and not overall.drafts:
        yield from _why(tuned.refusal)
    if overall.candidate is not None:
        alone = max((arm for arm in _confirmed(tuned) if arm.role is Role.TARGET), key=_speed)
        yield from judgements.depends_on_text(overall.candidate, alone)
    for spec, reason in tuned.passed_over:
        yield configuration.passed_over(spec, reason)
    yield from _drafters(tuned)
    yield from _selected(tuned)
    if tuned.by_category:
        choices = "; ".join(f"{choice.category}: {_short(choice)}" for choice in tuned.by_category)
        yield f"By category: {choices}."


def _confirmed(tuned: Tuned) -> list[Arm]:
    return [arm for arm in arms.group(tuned.results) if arm.rate is not None]


def _speed(arm: Arm) -> float:
    return 0.0 if arm.rate is None else arm.rate.value


def _drafters(tuned: Tuned) -> Iterator[str]:
    """Yield what was found of each drafter that was tried and is not what the verdict is about."""
    about = None if tuned.overall.candidate is None else tuned.overall.candidate.spec.drafter
    specs = (*(prospect.arm for prospect in tuned.outlook.prospects), *tuned.outlook.unknown)
    stages = ((tuned.results, "confirmation"), (tuned.selection.results, "selection"))
    measured = [(arm, stage) for results, stage in stages for arm in arms.group(results)]
    for drafter in dict.fromkeys(spec.drafter for spec in specs):
        if drafter is None or drafter == about:
            continue
        own = [(arm, stage) for arm, stage in measured if arm.spec.drafter == drafter and arm.judgement]
        hoped = [prospect for prospect in tuned.outlook.prospects if prospect.arm.drafter == drafter]
        yield f"Drafter {drafter.filename}: {_found_of_drafter(own, hoped)}."


def _found_of_drafter(measured: Sequence[tuple[Arm, str]], hoped: Sequence[Prospect]) -> str:
    """Return what was found of a drafter, by its best measured arm, otherwise by its best forecast."""
    stage = next((stage for _, stage in measured), None)
    judged = [(arm, arm.judgement) for arm, of in measured if of == stage and arm.judgement is not None]
    if judged:
        arm, judgement = max(judged, key=lambda pair: 0.0 if pair[1].ratio is None else pair[1].ratio.value)
        ratio = f"{judgements.ratio(judgement)} at γ = {arm.draft_size}"
        unlike = ", and its text differs from the target's own" if judgement.text_differs else ""
        return f"{ratio}, {judgement.verdict.value} in the {stage}{unlike}"
    if not hoped:
        return "it could not be forecast, and there was no time to measure it"
    best = max(hoped, key=lambda prospect: prospect.overall.speedup.value).overall
    worth = "not worth it" if best.speedup.value <= 1 else "not among the most promising, so not measured"
    return f"{units.format_factor(best.speedup.value)} by forecast at γ = {best.n_max}, {worth}"


def _launch(launch: Launch) -> dict[str, Any]:
    return {**vars(launch), "requests": [vars(request) for request in launch.requests]}


def _selected(tuned: Tuned) -> Iterator[str]:
    """Yield what is not told apart from the choice, what stands at the edge, and what cannot be chosen."""
    selection, chosen = tuned.selection, tuned.overall.arm.spec
    if tuned.overall.drafts and len(selection.alike) > 1 and _is_in(chosen, selection.alike):
        yield f"{_names(selection.alike)} are alike here; the smallest draft is recommended."
    if selection.edge is not None and selection.fastest is not None:
        yield (
            f"γ = {selection.edge} is the largest draft size that was measured, and had the most tokens/s: "
            f"larger ones may have more (--draft {selection.edge}-{2 * selection.edge})."
        )
    if selection.unlike_target:
        named = ", ".join(map(configuration.name, selection.unlike_target))
        yield f"Not considered, because the text differs from the target's own: {named}."


def _is_in(spec: RunSpec, specs: Sequence[RunSpec]) -> bool:
    """Whether a configuration is one of several."""
    return any(spec.drafting == other.drafting and spec.drafter == other.drafter for other in specs)


def _names(specs: Sequence[RunSpec]) -> str:
    """Return the names of configurations; those that differ only in draft size by their sizes."""
    sizes = [spec.drafting.n_max for spec in specs if spec.drafting]
    kinds = {(spec.drafter, spec.drafting and spec.drafting.p_min) for spec in specs}
    if len(kinds) > 1:
        return ", ".join(map(configuration.name, specs))
    between = "…" if len(sizes) > 2 else " and "
    return f"γ = {min(sizes)}{between}{max(sizes)}"


def _why(refusal: Advice) -> Iterator[str]:
    if refusal.reason is None:
        speedup, size = refusal.forecast.speedup.value, refusal.forecast.n_max
        yield f"The forecast was {units.format_factor(speedup)} at γ = {size}; the measurement shows no gain."
        return
    yield f"The reason: {refusal.reason.value}."
    needs = refusal.needs
    if needs is None:
        return
    ways = []
    if needs.accept_rate is not None:
        ways.append(f"the acceptance rate were above {units.format_percent(needs.accept_rate, 0)}")
    if needs.drafter_factor is not None and needs.drafter_factor > 1:
        ways.append(f"the drafter were {needs.drafter_factor:.1f} times as fast")
    if needs.verify_ratio is not None:
        ways.append(f"verifying took less than {needs.verify_ratio:.2f} times as long as decoding one token")
    if ways:
        yield f"It would pay at γ = {needs.n_max} if " + ", or if ".join(ways) + "."


def _short(choice: Choice) -> str:
    ratio = "" if choice.judgement is None else judgements.ratio(choice.judgement)
    if not choice.drafts:
        return f"do not draft ({ratio})"
    return f"{configuration.name(choice.arm.spec)} ({ratio})"


def _basis(tuned: Tuned) -> Iterator[str]:
    outlook, spent = tuned.outlook, tuned.spent
    forecast = units.counted(len(outlook.prospects), "configuration")
    prompts = units.counted(len(outlook.prompts), "prompt")
    yield (
        f"{forecast} forecast from one trace of {prompts}, {outlook.n_predict} tokens each. "
        f"{units.counted(_finalists(tuned), 'finalist')} measured; these figures are new runs of the best."
    )
    yield (
        f"Time: {spent.total_s:.0f} s, of which traces {spent.traces_s:.1f} s, "
        f"cost curves {spent.costs_s:.1f} s, calibration {spent.calibration_s:.1f} s, "
        f"measuring {spent.measuring_s:.0f} s."
    )
    stored, selected = tuned.results.meta.id, tuned.selection.results.meta.id
    yield f"Stored as {stored}: `ggufspec show {stored}` prints the measured arms; finalists: {selected}."


def _finalists(tuned: Tuned) -> int:
    specs = tuned.selection.results.current.specs
    return len({(spec.pair, spec.drafting, spec.offload) for spec in specs if spec.drafting is not None})


def _finalists_measured(tuned: Tuned) -> list[dict[str, Any]]:
    """Return what was measured of each configuration, in the confirmation and in the selection."""
    stages = {"confirmation": tuned.results, "selection": tuned.selection.results}
    return [
        {
            "stage": stage,
            **_configuration(arm.spec),
            "recommended": stage == "confirmation" and arm.spec == tuned.overall.arm.spec,
            "tokens_per_s": None if arm.rate is None else vars(arm.rate),
            "speedup": None if arm.gain is None else vars(arm.gain.ratio),
            "accept_rate": None if arm.acceptance is None else arm.acceptance.accept_rate,
            "status": arm.status,
        }
        for stage, results in stages.items()
        for arm in arms.group(results)
    ]


def _choice(choice: Choice) -> dict[str, Any]:
    judgement = choice.judgement
    return {
        "category": choice.category,
        "prompts": choice.prompts,
        **_configuration(choice.arm.spec),
        "tokens_per_s": vars(choice.rate),
        "verdict": None if judgement is None else judgement.verdict.value,
        "candidate": None if choice.candidate is None else _configuration(choice.candidate.spec),
        "speedup": None if judgement is None or judgement.ratio is None else vars(judgement.ratio),
        "p_value": None if judgement is None else judgement.p_value,
    }


def _calibration(outlook: TuningForecast) -> dict[str, Any] | None:
    calibration = outlook.calibration
    if calibration is None:
        return None
    corrections = {name: vars(estimate) for name, estimate in calibration.corrections.items()}
    return {"runs": calibration.runs, "corrections": corrections}


def _needs(needs: Needs) -> dict[str, Any]:
    named = dict(vars(needs))
    return {"draft": named.pop("n_max"), **named}


def _configuration(spec: RunSpec) -> dict[str, Any]:
    drafting = spec.drafting
    return {
        "target": str(spec.pair.target.path or spec.pair.target.filename),
        "drafter": str(spec.drafter.path or spec.drafter.filename) if spec.drafter else None,
        "method": str(drafting.chain) if drafting else None,
        "draft": drafting.n_max if drafting else None,
        "p_min": drafting.p_min if drafting else None,
        "requested_ngl": spec.offload.target_layers,
        "requested_ngld": spec.offload.draft_layers,
    }


def _forecast(forecast: Forecast) -> dict[str, Any]:
    rounds = forecast.round_range
    return {
        "tokens_per_s": vars(forecast.tokens_per_s),
        "speedup": vars(forecast.speedup),
        "accept_rate": forecast.accept_rate,
        "n_rounds": forecast.n_rounds,
        "n_rounds_lo": None if rounds is None else rounds.fewest,
        "n_rounds_hi": None if rounds is None else rounds.most,
        "sure_texts": None if rounds is None else rounds.sure_texts,
        "break_even_accept_rate": forecast.break_even_accept_rate,
    }


def _name(spec: RunSpec) -> str:
    """Return what an entry is called, by the files and the method that it uses."""
    if spec.drafter is not None:
        return f"{spec.pair.name.replace('/', '-').replace(':', '-')}-tuned"
    method = "alone" if spec.drafting is None else str(spec.drafting.chain)
    return f"{PurePath(spec.pair.target.filename).stem}-{method}-tuned"


def _model(model: ModelFile) -> str:
    if model.repo is not None:
        return f"{{ repo = {json.dumps(model.repo)}, file = {json.dumps(model.filename)} }}"
    return f"{{ path = {json.dumps(str(model.path))} }}"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


_MOST_ROWS = 30  # for people


def table(outlook: TuningForecast, engine: str, output: str = "md") -> str:
    """Return a table of the fastest configurations over all prompts, in Markdown or for the terminal."""
    ranked = sorted(outlook.prospects, key=lambda prospect: -prospect.overall.speedup.value)
    rows = [_row(prospect) for prospect in ranked[:_MOST_ROWS]]
    if not rows:
        return "No configuration could be forecast.\n"
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    shown = tables.table(columns, rows, output, labels=("drafts", "γ", "p-min"))
    hidden = len(ranked) - len(rows)
    notes = list(_near_ties([prospect.overall for prospect in ranked[: len(rows)]]))
    if hidden:
        slower = units.counted(hidden, "slower configuration")
        notes.append(f"{slower} not shown: -o csv has all, by category too.")
    return f"{figures.engine(engine)}\n\n{shown}\n" + "".join(f"\n{note}\n" for note in notes)


def _near_ties(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """Yield what near-ties may change in counts that are printed."""
    if any("(" in _tokens_per_round(forecast) for forecast in forecasts):
        yield (
            "In parentheses: tokens/round where near-ties of the drafter fall otherwise, as they may on "
            "another processor or in another build."
        )
    ranges = [(forecast.prompts, forecast.round_range) for forecast in forecasts]
    unsure = max((prompts - found.sure_texts for prompts, found in ranges if found is not None), default=0)
    if unsure:
        of = units.counted(ranges[0][0], "prompt")
        yield f"Near-ties of the target may change the text of {unsure} of {of} there, and counts with it."


def _tokens_per_round(forecast: Forecast) -> str:
    """Return the mean with the least and the most that near-ties allow, where these differ."""
    mean = f"{forecast.mean_accepted_length:.2f}"
    ends = [f"{end:.2f}" for end in forecast.mean_accepted_range or ()]
    return mean if {*ends} <= {mean} else f"{mean} ({'–'.join(ends)})"


def _row(prospect: Prospect) -> dict[str, str]:
    spec, forecast = prospect.arm, prospect.overall
    drafting = spec.drafting
    assert drafting is not None
    return {
        "drafts": models_of(spec)[-1],
        "GPU layers": str(spec.offload.target_layers) if spec.offload.target_layers != "auto" else "",
        "γ": str(drafting.n_max),
        "p-min": units.format_number(drafting.p_min) if drafting.p_min else "",
        "tokens/s": figures.rate(forecast.tokens_per_s),
        "accepted": "" if forecast.accept_rate is None else units.format_percent(forecast.accept_rate),
        "tokens/round": _tokens_per_round(forecast),
        "speed-up": figures.factor(forecast.speedup),
    }
