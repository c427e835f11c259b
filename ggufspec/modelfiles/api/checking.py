"""``ggufspec.check``: whether llama.cpp accepts a drafter, by the rule of the build that is meant."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ggufspec.domain import ENGINES, Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import installs
from ggufspec.modelfiles import catalog, choosing, hub
from ggufspec.modelfiles.compat import CompatVerdict, judging
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.notebooks import named_options


@dataclass(frozen=True, kw_only=True)
class CheckedPair:
    """The headers of a pair, and what llama.cpp does with it.

    Attributes:
        target: the target's header.
        drafter: the drafter's; the target's own where its layers for MTP draft.
        program: the program that drafts.
        verdict: whether it accepts the drafter.
    """

    target: ModelCard
    drafter: ModelCard
    program: Program
    verdict: CompatVerdict


@named_options
def check(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    llama: Path | None = None,
    build: int | None = None,
    program: str | None = None,
    offline: bool = False,
    token: str | None = None,
) -> CompatVerdict:
    """Check whether llama.cpp accepts a drafter, as ``ggufspec check`` does; only headers are read.

    Args:
        pair: pair of the catalogue; by default the one fetched last, otherwise the embedded one.
        target: a path or a model reference, instead of ``pair``.
        draft_model: likewise, for the drafter: a draft model or a head.
        llama: folder of a llama.cpp installation; by default the installed one, otherwise the newest rule.
        build: use the rule of this build number instead.
        program: the program that drafts: speculative, speculative-simple or server; by default speculative,
            or server for a head.
        offline: use only cached files.
        token: access token for the Hub.

    Raises:
        ValueError: the options contradict each other, or the pair has no drafter.
        GgufspecError: a model is not available. A refusal is a verdict, not an error.
    """
    access = hub.Access(token=token, offline=offline)
    return check_models(pair, target, draft_model, access, llama=llama, build=build, program=program).verdict


def check_models(
    pair: str | None,
    target: str | None,
    draft_model: str | None,
    access: hub.Access,
    *,
    llama: Path | None,
    build: int | None,
    program: str | None,
) -> CheckedPair:
    """Read the headers of a pair, and decide by them; the arguments are those of ``check``.

    Raises:
        ValueError: the options contradict each other, or the pair has no drafter.
        GgufspecError: a model is not available.
    """
    chosen = choosing.choose_pair(pair, target, draft_model, access)
    way = catalog.drafting_method(chosen)
    method = way.method if way is not None and way.method.is_head else None
    if chosen.draft is None and method is None:
        reason = f": it drafts with {way}, from the text so far" if way else ""
        raise ValueError(f"the pair {pair or target or chosen.name!r} has no drafter{reason}")
    target_card, draft_card = choosing.read_cards(chosen, access)
    draft_card = draft_card or target_card  # whose layers for MTP draft
    is_head = method is not None or judging.is_head(draft_card)
    drafting = Program(program) if program else Program.SERVER if is_head else Program.TREE
    rule, number = choose_rule(drafting, llama, build)
    return CheckedPair(
        target=target_card,
        drafter=draft_card,
        program=drafting,
        verdict=judging.check_pair(target_card, draft_card, rule, build=number, method=method),
    )


def choose_rule(program: Program, llama: Path | None, build: int | None) -> tuple[judging.Rule, int | None]:
    """Return the rule of a build, of an installation or of the newest llama.cpp, and its build number.

    The number is None where nothing is installed.

    Raises:
        ValueError: the program does not draft in this build.
        NoInstallError: the named folder has no llama.cpp with this program.
    """
    if build is not None:
        return judging.rule_for(program, build), build
    try:
        install = installs.find_install(llama)
        return judging.rule_of(install, program), install.build_number
    except NoInstallError:
        if llama is not None:
            raise
        return judging.rule_for(program), None


def find_rule(engine: str = "binary") -> judging.Rule:
    """Return the installed llama.cpp's rule for drafters; that of the newest if none is installed.

    Args:
        engine: the engine that will measure the pair.
    """
    try:
        return judging.rule_of(installs.find_install(), ENGINES[engine])
    except NoInstallError:
        return judging.rule_for(Program.SIMPLE)


def check_survey(survey: hub.Survey, access: hub.Access) -> None:
    """Check from the headers, which are small, that llama.cpp accepts the drafter, before the download.

    Raises:
        DrafterRefusedError: it does not.
    """
    target, draft = survey.pair.target, survey.pair.draft
    if draft is None:
        return
    draft_card = hub.read_card(draft, access)
    rule = find_rule("server" if judging.is_head(draft_card) else "binary")
    verdict = judging.check_pair(hub.read_card(target, access), draft_card, rule)
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)
