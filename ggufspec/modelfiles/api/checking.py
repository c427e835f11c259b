"""``ggufspec.check``: whether llama.cpp accepts a drafter, by the rule of the build that is meant."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ggufspec.domain import Method, ModelFile, ModelName, Pair, Program
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import Install, installs
from ggufspec.modelfiles import catalog, choosing, hub
from ggufspec.modelfiles.compat import CompatVerdict, judging, mtp_layers
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.options import CheckOptions, only, takes


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

    @property
    def outcome(self) -> judging.CompatOutcome:
        """Whether llama.cpp accepts the drafter."""
        return self.verdict.outcome

    def raise_if_refused(self) -> None:
        """Raise if llama.cpp refuses the drafter.

        Raises:
            DrafterRefusedError: with the reasons.
        """
        if self.outcome is judging.CompatOutcome.REFUSED:
            raise judging.refusal(self.verdict)


@takes(CheckOptions)
def check(asked: CheckOptions) -> CheckedPair:
    """Check whether llama.cpp accepts a drafter, as ``ggufspec check`` does; only headers are read.

    The models are named as arguments or by options: a pair, a target and a drafter, or a target whose own
    layers for MTP draft.

    Returns:
        The headers and the verdict. A refusal is a verdict, not an error.

    Raises:
        ValueError: the options contradict each other, or the pair has no drafter.
        GgufspecError: a model is not available.
    """
    access = hub.Access.of(asked)
    names = name_models(asked)
    chosen = choosing.choose_pair(*names, access)
    way = catalog.drafting_method(chosen)
    method = way.method if way is not None and way.method.is_head else None
    if chosen.draft is None and way is not None and method is None:
        raise ValueError(
            f"the pair {chosen.name!r} has no drafter: it drafts with {way}, from the text so far"
        )
    target_card, draft_card = choosing.read_cards(chosen, access)
    if draft_card is None:
        method = method or (Method.DRAFT_MTP if mtp_layers(target_card) else None)
        if method is None:
            raise ValueError(_describe_absence(chosen, names[0], access))
        draft_card = target_card  # whose layers for MTP draft
    is_head = method is not None or judging.is_head(draft_card)
    drafting = Program(asked.program) if asked.program else Program.SERVER if is_head else Program.TREE
    rule, number = choose_rule(drafting, only(asked.llama), asked.build)
    return CheckedPair(
        target=target_card,
        drafter=draft_card,
        program=drafting,
        verdict=judging.check_pair(target_card, draft_card, rule, build=number, method=method),
    )


def name_models(asked: CheckOptions) -> tuple[str | None, ModelName | None, ModelName | None]:
    """Return a pair's name, a target and a drafter, from arguments or from options.

    Raises:
        ValueError: both were given.
    """
    if asked.model is None:
        return asked.pair, only(asked.target), only(asked.draft_model)
    if asked.pair or asked.target or asked.draft_model:
        raise ValueError("name the models as arguments or with options, not both")
    if asked.drafter is not None:
        return None, asked.model, asked.drafter
    is_pair = asked.model in catalog.load_catalogue() or not hub.names_model(asked.model)
    return (asked.model, None, None) if is_pair else (None, asked.model, None)


def _describe_absence(pair: Pair, name: str | None, access: hub.Access) -> str:
    """Return that there is no drafter, with the heads in the target's repository."""
    heads: tuple[ModelFile, ...] = ()
    with suppress(GgufspecError):
        heads = hub.find_heads(pair.target, access)
    named = " and ".join(head.reference for head in heads)
    if heads:
        return f"the pair {name or pair.name!r} has no drafter: name a head of its repository, {named}"
    if name is not None or pair.target.path is None:
        return f"the pair {name or pair.name!r} has no drafter: name one behind it"
    return f"{pair.target.filename} has no layers that draft: name a draft model or a head behind it"


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


@dataclass(frozen=True, kw_only=True)
class CheckRules:
    """How the llama.cpp in use decides on drafters.

    Attributes:
        model: its rule for draft models.
        head: its rule for heads, which only some of its programs take.
        build: its build number; None if that is not known.
    """

    model: judging.Rule
    head: judging.Rule
    build: int | None = None

    def judge(self, target: ModelCard, drafter: ModelCard, method: Method | None = None) -> CompatVerdict:
        """Decide on a draft model or a head; ``method`` is needed for layers of the target only."""
        is_head = judging.is_head(drafter) or (method is not None and method.is_head)
        rule = self.head if is_head else self.model
        return judging.check_pair(target, drafter, rule, build=self.build, method=method)


def find_rules() -> CheckRules:
    """Return the rules of the installed llama.cpp, or of the newest where none is installed."""
    newest = CheckRules(model=judging.rule_for(Program.SIMPLE), head=judging.rule_for(Program.SERVER))
    try:
        install = installs.find_install()
    except NoInstallError:
        return newest
    return CheckRules(
        model=_first_rule(install, (Program.TREE, Program.SIMPLE, Program.SERVER)) or newest.model,
        head=_first_rule(install, (Program.SERVER, Program.SIMPLE)) or newest.head,
        build=install.build_number,
    )


def _first_rule(install: Install, programs: Sequence[Program]) -> judging.Rule | None:
    """Return the rule of the first of some programs that is there and drafts."""
    for program in programs:
        with suppress(NoInstallError, ValueError):
            return judging.rule_of(install, program)
    return None


def check_survey(survey: hub.Survey, access: hub.Access) -> None:
    """Check from the headers, which are small, that llama.cpp accepts the drafter, before the download.

    Raises:
        DrafterRefusedError: it does not.
    """
    target, draft = survey.pair.target, survey.pair.draft
    if draft is None:
        return
    verdict = find_rules().judge(hub.read_card(target, access), hub.read_card(draft, access))
    if verdict.outcome is judging.CompatOutcome.REFUSED:
        raise judging.refusal(verdict)
