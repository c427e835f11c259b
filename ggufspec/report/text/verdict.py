"""The verdict of a bench: what was found of drafting, how sure that is, and what is known of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from ggufspec import units
from ggufspec.analysis import Arm, AuditSummary, MeasurementWarning, rank, review, texts
from ggufspec.domain import Role, SpeedVerdict
from ggufspec.report.text import figures, judgements
from ggufspec.results import ResultSet


def verdicts(groups: Sequence[Arm]) -> tuple[str, ...]:
    """Return one or two sentences for each target alone and the arms that are compared with it."""
    alone = [arm for arm in groups if arm.role is Role.TARGET]
    drafting = [arm for arm in groups if arm.role is Role.DRAFTING and arm.rate is not None]
    if not drafting and all(arm.spec.servers is not None and arm.role is Role.TARGET for arm in groups):
        return ("One server was measured, so there is no speed-up.",)
    if not drafting:
        return ("No drafting run succeeded, so there is no verdict.",)
    if not any(arm.gain for arm in drafting):
        highest = max(drafting, key=lambda arm: arm.speed)
        unknown = "The target alone was not measured, so the speed-up is not known."
        return (f"{name(highest)} has {_rate(highest)}. {unknown}",)
    compared = [[arm for arm in drafting if arm.baseline is base and arm.gain] for base in alone]
    return tuple(_compare(base, arms) for base, arms in zip(alone, compared, strict=True) if arms)


def _compare(base: Arm, drafting: Sequence[Arm]) -> str:
    """Return what was found of the arms that draft beside one target alone."""
    load, alone = where(base), f"{base.models[0]} alone"
    judged = [(arm, arm.judgement) for arm in drafting if arm.judgement is not None]
    ranking = rank(judged)
    if ranking.best is None or ranking.judgement is None:
        arm, judgement = max(judged, key=lambda pair: pair[0].gain.ratio.value if pair[0].gain else 0.0)
        ratio = f"{judgements.ratio(judgement)} the speed of {alone}"
        return f"{load}No verdict: {inside(name(arm))} has {ratio}. {text_sentence(arm)}"
    best, judgement = ranking.best, ranking.judgement
    ratio = f"{judgements.ratio(judgement)} the speed of {alone}"
    choice = judgements.choice(judgement)
    if ranking.verdict is SpeedVerdict.FASTER:
        return f"{load}{name(best)} is faster: {_rate(best)}, {ratio}.{choice} {text_sentence(best)}"
    if not ranking.verdict.is_finding:
        safe = f"Meanwhile, {alone} is what is safe: {_rate(base)}."
        if judgement.ratio is not None and judgement.ratio.assumed_spread is not None:
            basis = judgements.sentence(judgements.assumption(judgement.ratio.assumed_spread))
            return f"{load}Estimate, not a verdict: {inside(name(best))} has {ratio}. {basis} {safe}"
        outcome = f"{inside(name(best))} is {judgements.undecided(judgement)}"
        return (
            f"{load}Undecided: {outcome}.{choice} {judgements.sentence(judgements.needs(judgement))} {safe}"
        )
    if len(drafting) > 1:
        which = f"No arm is faster. {name(best)} comes closest"
    else:
        which = f"{name(best)} is {'slower' if ranking.verdict is SpeedVerdict.SLOWER else 'not faster'}"
    return f"{load}{which}: {_rate(best)}, {ratio} ({_rate(base)}).{choice}"


def where(base: Arm) -> str:
    """Return what tells blocks of a bench apart, before a verdict: ``4 users, depth 512: ``; or nothing."""
    traffic = base.spec.traffic
    depth = f", depth {traffic.depth:,}" if traffic and traffic.depth else ""
    depth += f", {units.format_number(traffic.rate)} requests/s" if traffic and traffic.rate else ""
    users = f"{units.counted(traffic.users, 'user')}{depth}: " if traffic else ""
    return users + (f"{base.spec.build}: " if base.spec.build else "")


def inside(text: str) -> str:
    """Return a name as it stands inside a sentence."""
    return text[:1].lower() + text[1:]


def name(arm: Arm) -> str:
    """Return what drafts, and how far, as a sentence begins: ``Drafting with drafter.gguf at γ = 3``."""
    if arm.spec.endpoint is not None:
        return f"Drafting at {arm.spec.endpoint.url}"
    drafting = arm.spec.drafts_by
    synthetic = ("synthetic acceptance",) if arm.synthetic else ()
    how = " and ".join((f"γ = {drafting.n_max}", *drafting.manner, *synthetic))
    return f"Drafting with {arm.drafts_with} at {how}"


def _rate(arm: Arm) -> str:
    return f"{figures.rate(arm.rate)} tokens/s" if arm.rate else "unknown speed"


def text_sentence(arm: Arm) -> str:
    """Return whether an arm's text is the target's own, and whether near-ties explain where it is not."""
    compared = arm.compared
    if arm.synthetic:
        return "Its acceptance is synthetic (simulated at random), and its text was not checked."
    if not compared:
        return "Its text was not compared with the target's."
    changed = len(compared) - sum(compared.values())
    named = review.of_arm(arm)
    is_fair = MeasurementWarning.TEXT_DIFFERS.value not in named
    if changed and is_fair and MeasurementWarning.NOT_JUDGED.value in named:
        what = "its text differs" if arm.traffic is None else "some answers differ"
        return f"But {what} from the target's, and whether near-ties explain that is not known."
    if arm.traffic is not None and changed:
        return (
            "But some answers differ from the target's, "
            f"{'at near-ties only, which is normal.' if is_fair else 'so the comparison is not fair.'}"
        )
    if arm.traffic is not None:
        return "Its answers equal the target's."
    prompts = units.counted(len(compared), "prompt")
    if not changed:
        compared_prompts = "the one prompt" if len(compared) == 1 else f"all {prompts}"
        return f"Its text equals the target's on {compared_prompts}."
    where = f"its text differs from the target's on {changed} of {prompts}"
    if not is_fair:
        return f"But {where}, so the comparison is not fair."
    return f"But {where}, at near-ties only, which is normal."


def audit_line(results: ResultSet) -> str | None:
    """Return the line about a bench's texts; None where none was judged."""
    summaries = texts.summarize_by_role(results.current)
    parts = [
        f"{name} {_finding(summaries[role])}"
        for role, name in ((Role.DRAFTING, "drafting"), (Role.TARGET, "the target alone (control)"))
        if role in summaries and summaries[role].texts
    ]
    reasons = sorted({reason for summary in summaries.values() for reason in summary.unjudged})
    if reasons:
        parts.append(f"complete texts were not judged: {'; '.join(reasons)}")
    control = summaries.get(Role.TARGET)
    if control is not None and control.compared:
        repeats = units.counted(control.compared, "repeat")
        parts.append(f"{control.identical} of {repeats} of the target alone wrote its first text again")
    return f"Text audit: {'; '.join(parts)}." if parts else None


def _finding(summary: AuditSummary) -> str:
    extent = f"{units.counted(summary.tokens, 'token')} of {units.counted(summary.texts, 'text')}"
    if summary.divergent is None:
        return f"{extent}, {_distribution(summary)}"
    ties = f", {units.counted(summary.near_ties, 'near-tie')}" if summary.near_ties else ""
    count = f"{summary.divergent} divergent" if summary.divergent else "no divergence"
    return f"{extent}, {count}{_bounds(summary)}{ties}"


def _bounds(summary: AuditSummary) -> str:
    """Return the highest shares that are compatible with what was found, in parentheses."""
    of_texts, of_tokens = summary.highest_share_of_texts, summary.highest_share_of_tokens
    if of_texts is None or of_tokens is None:
        return ""
    return (
        f" (at 95 %: below {format_bound(of_texts)} of texts; below {format_bound(of_tokens)} of tokens if "
        "they differ independently)"
    )


def _distribution(summary: AuditSummary) -> str:
    if summary.p_value is None:
        return "too few to test their distribution"
    verb = "do not follow" if summary.p_value < texts.UNLIKELY else "follow"
    impossible = f", {summary.impossible} impossible" if summary.impossible else ""
    chance = "< 0.001" if summary.p_value < texts.UNLIKELY else f"= {summary.p_value:.3f}"
    return f"which {verb} the target's distribution (p {chance}{impossible})"


def format_bound(share: float) -> str:
    """Return an upper bound in per cent with two significant digits, rounded up: ``0.025 %``."""
    percent = 100 * share
    digits = max(0, 1 - floor(log10(percent)))
    scale = 10**digits
    return f"{min(ceil(percent * scale - 1e-9) / scale, 100):.{digits}f} %"
