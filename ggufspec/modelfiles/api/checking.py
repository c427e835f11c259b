"""``ggufspec.check``: whether llama.cpp accepts a drafter, by the rule of the build that is meant."""

from __future__ import annotations

from pathlib import Path

from ggufspec.domain import ENGINES, Program
from ggufspec.errors import NoInstallError
from ggufspec.llama.install import installs
from ggufspec.modelfiles import catalog, choosing, hub
from ggufspec.modelfiles.compat import CompatVerdict, judging
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.notebooks import named_options


@named_options
def check(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    llama: Path | None = None,
    build: int | None = None,
    program: str = "speculative",
    offline: bool = False,
    token: str | None = None,
) -> CompatVerdict:
    """Check whether llama.cpp accepts a drafter, as ``ggufspec check`` does; only headers are read.

    Args:
        pair: pair of the catalogue; by default the one fetched last, otherwise the embedded one.
        target: a path or a model reference, instead of ``pair``.
        draft_model: likewise, for the drafter.
        llama: folder of a llama.cpp installation; by default the installed one, otherwise the newest rule.
        build: use the rule of this build number instead.
        program: the program that drafts: speculative, speculative-simple or server.
        offline: use only cached files.
        token: access token for the Hub.

    Raises:
        ValueError: the options contradict each other, or the pair has no drafter.
        GgufspecError: a model is not available. A refusal is a verdict, not an error.
    """
    target_card, draft_card = read_pair(pair, target, draft_model, hub.Access(token=token, offline=offline))
    return judging.check_pair(target_card, draft_card, choose_rule(Program(program), llama, build))


def read_pair(
    pair: str | None, target: str | None, draft_model: str | None, access: hub.Access
) -> tuple[ModelCard, ModelCard]:
    """Return the headers of a target and its drafter.

    Raises:
        ValueError: the names contradict each other, or the pair has no drafter.
        GgufspecError: a model is not available.
    """
    chosen = choosing.choose_pair(pair, target, draft_model, access)
    target_card, draft_card = choosing.read_cards(chosen, access)
    if draft_card is None:
        method = catalog.drafting_method(chosen)
        reason = f": it drafts with {method}, from the text so far" if method else ""
        raise ValueError(f"the pair {pair or target!r} has no drafter{reason}")
    return target_card, draft_card


def choose_rule(program: Program, llama: Path | None, build: int | None) -> judging.Rule:
    """Return the rule for drafters of a build, of an installation, or of the newest llama.cpp.

    Raises:
        ValueError: the program does not draft in this build.
        NoInstallError: the named folder has no llama.cpp with this program.
    """
    if build is not None:
        return judging.rule_for(program, build)
    try:
        return judging.rule_of(installs.find_install(llama), program)
    except NoInstallError:
        if llama is not None:
            raise
        return judging.rule_for(program)


def find_rule() -> judging.Rule:
    """Return the installed llama.cpp's rule for drafters; that of the newest if none is installed."""
    try:
        return judging.rule_of(installs.find_install(), ENGINES["binary"])
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
    verdict = judging.check_pair(hub.read_card(target, access), hub.read_card(draft, access), find_rule())
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)
