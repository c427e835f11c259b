"""A tuning for people: the configurations that were measured, the verdict, and commands to paste."""

from __future__ import annotations

import itertools
import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from ggufspec import units
from ggufspec.analysis import Arm, arms, review
from ggufspec.domain import ModelFile, Role, RunSpec
from ggufspec.forecast import Advice, Forecast
from ggufspec.harmless import to_json
from ggufspec.llama.command import commands as command_lines
from ggufspec.llama.install import Install
from ggufspec.report.columns import TableLayout
from ggufspec.report.rows.benches import MANNER
from ggufspec.report.rows.plans import FinalistRow, ProspectRow, list_finalists, tokens_per_round
from ggufspec.report.schemas import outputs
from ggufspec.report.text import configuration, figures, judgements, tables
from ggufspec.report.text.figures import engine
from ggufspec.tuning import Prospect, Tuned, TuningForecast

_MEASURED = TableLayout(
    row=FinalistRow,
    names=(
        *("models", "layers", "draft", *MANNER, "forecast_tps", "gen_tps", "accept_rate"),
        *("speedup", "verdict", "texts", "status"),
    ),
    always=("models",),
    if_varied=MANNER[1:],  # p-min is shown even so
    first_left_out=("layers",),
    labels=("models", "draft", *MANNER),
)
"""What a tuning measured to confirm, with its forecast."""
_FORECAST = TableLayout(
    row=ProspectRow,
    names=(*("drafts", "layers", "draft", *MANNER, "tokens_per_s", "accept_rate", "length", "speedup"),),
    if_varied=MANNER,
    labels=("drafts", "draft", *MANNER),
)
_MOST_ROWS = 30  # for people


def text(tuned: Tuned, install: Install, bench: str, output: str = "md") -> str:
    """Return the result of a tuning.

    Args:
        tuned: what was measured and chosen.
        install: the llama.cpp that measured.
        bench: the command that measures the choice again.
        output: ``md``, or ``table`` for the terminal, where the verdict comes first.
    """
    return page(tuned, _programs(tuned, install), _measuring(tuned, bench)).text(output)


def page(tuned: Tuned, programs: Mapping[str, str], measuring: Mapping[str, str]) -> tables.Page:
    """Return the result of a tuning, with the commands that run the choice, and those that measure it."""
    finalists = [row for row in list_finalists(tuned) if row["stage"] == "confirmation"]
    confirmed = [row for row in finalists if row["measured"].arm.role is not Role.DRAFTER]
    meanwhile = "" if tuned.overall.is_decided else " (the target alone, which is what is safe meanwhile)"
    return tables.Page(
        found=(*verdict(tuned), *judgements.deciding(tuned.results, tuned.overall.judgement)),
        engine=engine(tuned.results.meta.engine),
        table=_MEASURED.fill(confirmed),
        chosen=[row["recommended"] for row in confirmed],
        notes=(
            *configuration.served(tuned.launch, tuned.serving),
            *(f"{name}{meanwhile}:\n    {line}" for name, line in programs.items()),
            *(f"{name}:\n    {line}" for name, line in measuring.items()),
            f"as an entry of your own catalogue:\n{textwrap.indent(pair_entry(tuned), '    ')}",
            *_basis(tuned),
        ),
        warnings=review.warnings(tuned.results),
    )


def as_json(tuned: Tuned, install: Install, bench: str) -> str:
    """Return a tuning as one JSON object, with the forecast of every configuration."""
    facts = {
        "tuned": tuned,
        "verdict": " ".join(verdict(tuned)),
        "commands": _programs(tuned, install) | _measuring(tuned, bench),
        "pair": pair_entry(tuned),
    }
    return to_json(outputs.TuneReport.to_json(facts), indent=2) + "\n"


def pair_entry(tuned: Tuned) -> str:
    """Return the chosen models as an entry for the user's catalogue of pairs."""
    spec, choice = tuned.overall.spec, tuned.overall
    lines = [f"[pairs.{json.dumps(_name(spec))}]", f"target = {_model(spec.pair.target)}"]
    if spec.drafter is not None:
        lines.append(f"drafter = {_model(spec.drafter)}")
    drafting = spec.drafting
    ratio = None if choice.judgement is None else choice.judgement.ratio
    if drafting is not None and ratio is not None:
        lines.append(f"method = {json.dumps(str(drafting.chain))}")
        lines.append(f"gamma = {drafting.n_max}")
        lines += [f"p_min = {drafting.p_min!r}"] if drafting.method.drafts_with_model else []
        how = ", ".join((f"γ {drafting.n_max}", *drafting.manner))
        measured = f"{how}: {ratio.value:.2f} times the target alone"
        on = f" on {tuned.results.meta.machine.cpu}, {figures.llama_cpp(tuned.results.meta.build)}"
        lines.append(f"note = {json.dumps(measured + on, ensure_ascii=False)}")
    else:
        finding = "drafting is not faster" if choice.is_decided else "undecided whether drafting is faster"
        lines.append(f'note = "{finding}"')
    return "\n".join(lines) + "\n"


def _name_program(argv: Sequence[str]) -> str:
    """Return the program of a command line: ``llama-server``, or ``llama serve``."""
    command = itertools.takewhile(lambda word: not word.startswith("-"), argv[1:])
    return " ".join((PurePath(argv[0]).name, *command))


def serving_command(tuned: Tuned) -> dict[str, str]:
    """Return llama-server's command for the choice, only if it was started by exactly that, and answered."""
    launch = tuned.launch
    is_served = launch is not None and launch.failure is None
    return {_name_program(launch.argv): shlex.join(launch.argv)} if launch and is_served else {}


def _programs(tuned: Tuned, install: Install) -> dict[str, str]:
    """Return the commands that run the choice, by program."""
    argv = command_lines.run_command(tuned.overall.spec, install)
    return serving_command(tuned) | ({} if argv is None else {_name_program(argv): shlex.join(argv)})


def _measuring(tuned: Tuned, bench: str) -> dict[str, str]:
    """Return the commands that measure the choice again."""
    again = f"ggufspec bench --tuned {shlex.quote(tuned.results.meta.id)}"
    return {"ggufspec bench": bench, "ggufspec bench --tuned": again}


def verdict(tuned: Tuned) -> Iterator[str]:
    """Yield in sentences what to run, or why not to draft, and the choice by category."""
    overall = tuned.overall
    yield configuration.verdict(overall)
    if tuned.refusal is not None and not overall.drafts:
        yield from _why(tuned.refusal)
    policy = tuple(configuration.policy(overall, tuned.by_category, tuned.launch))
    yield from policy
    if overall.candidate is not None and not policy:
        confirmed = (arm for arm in arms.group(tuned.results) if arm.role is Role.TARGET)
        alone = max(confirmed, key=lambda arm: arm.speed)
        yield from judgements.depends_on_text(tuned.confirmed(overall.candidate), alone)
    for spec, reason in tuned.passed_over:
        yield configuration.passed_over(spec, reason)
    yield from _drafters(tuned)
    yield from _selected(tuned)


def _drafters(tuned: Tuned) -> Iterator[str]:
    """Yield what was found of each drafter that was tried and is not what the verdict is about."""
    about = None if tuned.overall.candidate is None else tuned.overall.candidate.drafter
    specs = (*(prospect.arm for prospect in tuned.outlook.prospects), *tuned.outlook.unknown)
    stages = ((tuned.results, "confirmation"), (tuned.selection.results, "selection"))
    measured = [(arm, stage) for results, stage in stages for arm in arms.group(results)]
    for drafter in dict.fromkeys(spec.drafter for spec in specs):
        if drafter is None or drafter == about:
            continue
        judged = [(arm, stage) for arm, stage in measured if arm.spec.drafter == drafter and arm.judgement]
        forecast = [prospect for prospect in tuned.outlook.prospects if prospect.arm.drafter == drafter]
        yield f"Drafter {drafter.filename}: {_found_of_drafter(judged, forecast)}."


def _found_of_drafter(measured: Sequence[tuple[Arm, str]], forecast: Sequence[Prospect]) -> str:
    """Return what was found of a drafter, by its best measured arm, otherwise by its best forecast."""
    stage = next((stage for _, stage in measured), None)
    judged = [
        (arm, arm.judgement)
        for arm, arm_stage in measured
        if arm_stage == stage and arm.judgement is not None
    ]
    if judged:
        arm, judgement = max(judged, key=lambda pair: pair[1].factor)
        ratio = f"{judgements.ratio(judgement)} at γ = {arm.draft_size}"
        unlike = ", and its text differs from the target's own" if judgement.text_differs else ""
        return f"{ratio}, {judgement.verdict.value} in the {stage}{unlike}"
    if not forecast:
        return "it could not be forecast, and there was no time to measure it"
    best = max(forecast, key=lambda prospect: prospect.overall.speedup.value).overall
    worth = "not worth it" if best.speedup.value <= 1 else "not among the most promising, so not measured"
    return f"{units.format_factor(best.speedup.value)} by forecast at γ = {best.drafting.n_max}, {worth}"


def _selected(tuned: Tuned) -> Iterator[str]:
    """Yield what is not told apart from the choice, what stands at the edge, and what cannot be chosen."""
    selection, chosen = tuned.selection, tuned.overall.spec
    is_alike = any(
        (chosen.drafting, chosen.drafter) == (spec.drafting, spec.drafter) for spec in selection.alike
    )
    if tuned.overall.drafts and len(selection.alike) > 1 and is_alike:
        yield f"{_names(selection.alike)} are alike here; the smallest draft is recommended."
    if selection.edge is not None and selection.fastest is not None:
        yield (
            f"γ = {selection.edge} is the largest draft size that was measured, and had the most tokens/s: "
            f"larger ones may have more (--draft {selection.edge}-{2 * selection.edge})."
        )
    if selection.unlike_target:
        named = ", ".join(map(configuration.name, selection.unlike_target))
        yield f"Not considered, because the text differs from the target's own: {named}."


def _names(specs: Sequence[RunSpec]) -> str:
    """Return the names of configurations; those that differ only in draft size by their sizes."""
    sizes = [spec.drafting.n_max for spec in specs if spec.drafting]
    kinds = {(spec.drafter, spec.drafting and spec.drafting.manner) for spec in specs}
    if len(kinds) > 1:
        return ", ".join(map(configuration.name, specs))
    between = "…" if len(sizes) > 2 else " and "
    return f"γ = {min(sizes)}{between}{max(sizes)}"


def _why(refusal: Advice) -> Iterator[str]:
    if refusal.reason is None:
        speedup, size = refusal.forecast.speedup.value, refusal.forecast.drafting.n_max
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


def _basis(tuned: Tuned) -> Iterator[str]:
    outlook, spent = tuned.outlook, tuned.spent
    forecast = units.counted(len(outlook.prospects), "configuration")
    prompts = units.counted(sum(prompt.n_turns for prompt in outlook.prompts), "prompt")
    measured = tuned.selection.results.current.specs
    finalists = {(spec.pair, spec.drafting, spec.offload) for spec in measured if spec.drafting is not None}
    made = "Nothing was forecast; measured on"
    if outlook.prospects:
        is_traced = outlook.prospects[0].overall.draft_share is not None
        made = f"{forecast} forecast from one {'trace' if is_traced else 'run'} of"
    yield (
        f"{made} {prompts}, {outlook.n_predict} tokens each. "
        f"{units.counted(len(finalists), 'finalist')} measured; these figures are new runs of the best."
    )
    yield (
        f"Time: {spent.total_s:.0f} s, of which traces {spent.traces_s:.1f} s, "
        f"cost curves {spent.costs_s:.1f} s, calibration {spent.calibration_s:.1f} s, "
        f"measuring {spent.measuring_s:.0f} s."
    )
    stored, selected = tuned.results.meta.id, tuned.selection.results.meta.id
    yield f"Stored as {stored}: `ggufspec show {stored}` prints the measured arms; finalists: {selected}."


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


def table(outlook: TuningForecast, engine: str, output: str = "md") -> str:
    """Return a table of the fastest configurations over all prompts, in Markdown or for the terminal."""
    ranked = sorted(outlook.prospects, key=lambda prospect: -prospect.overall.tokens_per_s.value)
    if not ranked:
        return "No configuration could be forecast.\n"
    fastest, hidden = ranked[:_MOST_ROWS], len(ranked) - _MOST_ROWS
    notes = list(_near_ties([prospect.overall for prospect in fastest]))
    if hidden > 0:
        slower = units.counted(hidden, "slower configuration")
        notes.append(f"{slower} not shown: -o csv has all, by category too.")
    filled = _FORECAST.fill({"prospect": prospect, "forecast": prospect.overall} for prospect in fastest)
    return tables.Page(engine=figures.engine(engine), table=filled, notes=notes).text(output)


def _near_ties(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """Yield what near-ties may change in counts that are printed."""
    if any("(" in tokens_per_round(forecast) for forecast in forecasts):
        yield (
            "In parentheses: tokens/round where near-ties of the drafter fall otherwise, as they may on "
            "another processor or in another build."
        )
    ranges = [(forecast.prompts, forecast.round_range) for forecast in forecasts]
    unsure = max((count - rounds.sure_texts for count, rounds in ranges if rounds is not None), default=0)
    if unsure:
        prompts = units.counted(ranges[0][0], "prompt")
        yield (
            f"Near-ties of the target may change the text of {unsure} of {prompts} there, and counts with it."
        )
