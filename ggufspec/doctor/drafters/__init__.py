"""``ggufspec check --run``: whether a drafter works here, and if not, what is to blame.

The reference is llama.cpp's library on the processor. It says of every token of the target's text whether the
drafter has it right. The llama.cpp that is examined then drafts for the same prompts, as it is used, and each
of its rounds is compared with what the reference foretells, up to near-ties.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ggufspec import engines, temporary, units
from ggufspec.domain import Build, Failure, HeadFile, Method, Program, RunSpec, Runtime, Status
from ggufspec.engines import failure_error
from ggufspec.engines.library import DraftLimits
from ggufspec.errors import BrokenDrafterError, GgufspecError, NoInstallError
from ggufspec.forecast import profiles, trace
from ggufspec.forecast.trace import Agreement, DraftTrace, TracedRun
from ggufspec.llama.install import Install, installs
from ggufspec.measure import TIE_MARGIN, Session, prepare_session
from ggufspec.modelfiles.api import CheckedPair, check, name_models
from ggufspec.options import BenchOptions, CheckOptions, takes
from ggufspec.stats import Z95
from ggufspec.steps import SILENT, Sink

if TYPE_CHECKING:
    from ggufspec.engines import InprocessEngine

__all__ = ["DrafterVerdict", "ExaminedDrafter", "Guesses", "count_rounds", "examine", "judge"]

_SURE = 2.0  # nats by which the target finds a token likelier than any other
_LEAST_SURE = 30  # tokens; of fewer, nothing is said
_CHANCE = 0.4
"""The share of the tokens the target is sure of that a broken drafter stays below, with its 95 % interval.

Sound drafters have 40 to 100 % of them right, also in texts that they were not made for; broken ones 0 to
32 %, which is what the last token alone tells a draft model. See docs/howto/broken-drafters.md.
"""
_HARD = 0.6  # of all tokens right: below, the text is hard for this drafter
_ALLOWED = 1  # rounds that differ
_ALLOWED_SHARE = 0.05


class DrafterVerdict(StrEnum):
    """What is wrong with a drafter, if anything."""

    WORKS = "works"
    BROKEN_FILE = "broken file"
    BROKEN_BUILD = "broken kernel or build"
    HARD_TEXT = "hard text"


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """How much of the target's text a drafter has right, by the reference.

    Attributes:
        tokens: of which the drafter was asked for the next one.
        right: those that it has right.
        sure: tokens that the target is sure of.
        sure_right: those of them that the drafter has right.
    """

    tokens: int
    right: int
    sure: int
    sure_right: int


def count_guesses(traces: Sequence[DraftTrace], n_max: int) -> Guesses:
    """Count what a drafter has right of each next token of some texts."""
    places = [
        (view.text_leads[at] >= _SURE, is_right)
        for view in traces
        if view.text_leads is not None
        for at, is_right in _first_guesses(view, n_max)
    ]
    sure = [is_right for is_sure, is_right in places if is_sure]
    return Guesses(
        tokens=len(places),
        right=sum(is_right for _, is_right in places),
        sure=len(sure),
        sure_right=sum(sure),
    )


def _first_guesses(view: DraftTrace, n_max: int) -> Iterator[tuple[int, bool]]:
    """Yield each place at which a draft begins, and whether its first token is right."""
    if view.blocks is None:
        yield from enumerate(view.seen_by(Program.SERVER).match)
        return
    for at, draft in view.blocks[n_max].items():
        if at < len(view.tokens):
            yield at, draft.accepted > 0


def is_different(agreements: Sequence[Agreement]) -> bool:
    """Whether runs differ from their reference by more than near-ties and chance explain."""
    compared, differing = count_rounds(agreements)
    parts = any(agreement.parted_at is not None for agreement in agreements)
    return parts or differing > max(_ALLOWED, _ALLOWED_SHARE * compared)


def count_rounds(agreements: Sequence[Agreement]) -> tuple[int, int]:
    """Return how many rounds were compared, and how many of them differ."""
    return (
        sum(agreement.compared for agreement in agreements),
        sum(len(agreement.differing) for agreement in agreements),
    )


def _is_at_chance(guesses: Guesses) -> bool:
    """Whether a drafter knows no more of a text than its last token tells, beyond chance."""
    right, wrong = guesses.sure_right + 0.5, guesses.sure - guesses.sure_right + 0.5
    most = math.log(right / wrong) + Z95 * math.sqrt(1 / right + 1 / wrong)  # empirical logit (Haldane 1956)
    return guesses.sure >= _LEAST_SURE and most < math.log(_CHANCE / (1 - _CHANCE))


def judge(
    guesses: Guesses, agreements: Sequence[Agreement], failure: Failure | None = None
) -> tuple[DrafterVerdict, str]:
    """Return the verdict, and why, as a sentence.

    Args:
        guesses: by the reference.
        agreements: of the runs with it, as far as they were made.
        failure: of a run.
    """
    if _is_at_chance(guesses):
        sure = f"of {guesses.sure:,} tokens that the target is sure of"
        reason = f"the drafter has {guesses.sure_right:,} right {sure}, in the reference, too"
        return DrafterVerdict.BROKEN_FILE, reason
    if failure is not None:
        return DrafterVerdict.BROKEN_BUILD, f"{failure.status.value}: {failure.reason}"
    parted = [agreement.parted_at for agreement in agreements if agreement.parted_at is not None]
    if parted:
        reason = (
            f"the target writes another text from token {min(parted) + 1} on, and no near-tie explains it"
        )
        return DrafterVerdict.BROKEN_BUILD, reason
    compared, differing = count_rounds(agreements)
    if is_different(agreements):
        reason = f"{differing:,} of {compared:,} rounds do not accept what the reference foretells"
        return DrafterVerdict.BROKEN_BUILD, reason
    share = units.format_percent(guesses.right / max(1, guesses.tokens))
    is_hard = guesses.right < _HARD * guesses.tokens
    return (
        DrafterVerdict.HARD_TEXT if is_hard else DrafterVerdict.WORKS,
        f"the drafter has {share} of the text right, and drafts as foretold",
    )


_PROMPTS = 6
_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)  # tokens; the last is llama.cpp's -ub


@dataclass(frozen=True, kw_only=True)
class ExaminedDrafter:
    """What a drafter does in the reference and in the llama.cpp that is examined.

    Attributes:
        verdict: what is wrong.
        reasons: why, and where it begins, as sentences.
        n_max: the draft size.
        guesses: by the reference.
        agreements: of each prompt's run with the reference; empty where a run failed.
        reference: whose library is the reference.
        examined: what was examined.
    """

    verdict: DrafterVerdict
    reasons: tuple[str, ...]
    n_max: int
    guesses: Guesses
    agreements: tuple[Agreement, ...]
    reference: Build
    examined: Build

    def raise_if_broken(self) -> None:
        """Raise if the file or the llama.cpp that was examined is broken.

        Raises:
            BrokenDrafterError: naming which.
        """
        if self.verdict is DrafterVerdict.BROKEN_FILE:
            raise BrokenDrafterError(
                "the drafter's file is broken, or made for another target",
                "download it again, or use another quant of it",
            )
        if self.verdict is DrafterVerdict.BROKEN_BUILD:
            raise BrokenDrafterError(
                f"the llama.cpp in {self.examined.path} does not compute what the reference does",
                "`ggufspec bisect` finds the version at which that began",
            )


@takes(CheckOptions)
def examine(asked: CheckOptions, sink: Sink = SILENT) -> ExaminedDrafter:
    """Run a drafter, and say whether it works, as ``ggufspec check --run`` does.

    Raises:
        GgufspecError: a model is not here, nothing can trace it, or llama.cpp refuses the drafter.
    """
    checked = check(asked.replace(program=Program.SERVER.value))  # which is what is examined
    checked.raise_if_refused()
    session = prepare_session(_bench_options(asked, checked))
    spec = next(arm for block in session.suite.blocks for arm in block.arms if arm.drafting is not None)
    chosen = [prompt for prompt in session.suite.prompts if not prompt.needs]
    if not chosen:
        raise GgufspecError("the reference reads texts alone", "give a text with --prompt")
    runs = [replace(spec, prompt=prompt) for prompt in chosen[:: -(-len(chosen) // _PROMPTS)]]
    with ExitStack() as opened:
        opened.enter_context(session.engine)
        reference = _open_reference(opened, spec, session.install)
        sink.say(f"reference: llama.cpp {reference.install.describe().version} on the processor")
        traces = [_trace(reference, run) for run in runs]
        examined = _DrafterUnderTest(session=session, folder=opened.enter_context(temporary.folder()))
        sink.say(f"examined: llama.cpp {session.build.version}, {session.engine.name}")
        agreements: list[Agreement] = []
        failure: Failure | None = None
        try:
            agreements += (examined.compare(run, view) for run, view in zip(runs, traces, strict=True))
        except Failure as error:
            failure = error
        guesses = count_guesses(traces, spec.drafts_by.n_max)
        verdict, *reasons = judge(guesses, agreements, failure)
        if verdict is DrafterVerdict.BROKEN_BUILD and failure is None:
            worst = max(range(len(runs)), key=lambda number: len(agreements[number].differing))
            reasons += _find_limits(examined, reference, runs[worst], checked)
    return ExaminedDrafter(
        verdict=verdict,
        reasons=tuple(reasons),
        n_max=spec.drafts_by.n_max,
        guesses=guesses,
        agreements=tuple(agreements),
        reference=reference.install.describe(),
        examined=session.build,
    )


def _bench_options(asked: CheckOptions, checked: CheckedPair) -> BenchOptions:
    """Return the bench whose arm is examined."""
    pair, target, drafter = name_models(asked)
    inside = pair is None and checked.drafter is checked.target
    return asked.to(
        BenchOptions,
        pair=pair,
        target=None if target is None else (target,),
        draft_model=None if drafter is None else (drafter,),
        method=(Method.DRAFT_MTP.value,) if inside else None,
        engine="server",
        p_min=(0.0,),
        output="",
    )


def _open_reference(opened: ExitStack, spec: RunSpec, examined: Install) -> InprocessEngine:
    """Return the engine of the first library that can trace a pair: that in use, or the examined one's.

    Raises:
        NoInstallError: there is none.
    """
    source = spec.draft_source
    problem: NoInstallError | None = None
    for is_in_use in (True, False):
        try:
            install = installs.find_install() if is_in_use else examined
            heads = engines.check_library(install).heads
        except NoInstallError as error:
            problem = problem or error
            continue
        if isinstance(source, HeadFile) and source.method not in heads:
            continue
        engine = engines.make("inprocess", install, with_mtp=source is not None and spec.drafter is None)
        return cast("InprocessEngine", opened.enter_context(engine))
    raise problem or NoInstallError(
        "no library here feeds heads with their target's states, so there is no reference",
        "`ggufspec build` makes one",
    )


def _trace(reference: InprocessEngine, run: RunSpec, *, all_sizes: bool = False) -> DraftTrace:
    """Return what the reference says of a prompt.

    Raises:
        GgufspecError: it fails, or the models' caches cannot be rolled back, so that nothing shows near-ties.
    """
    source, size = run.draft_source, run.drafts_by.n_max
    assert source is not None
    alone = replace(run.baseline, offload=run.offload.on_processor, runtime=Runtime(), ubatch=None)
    sizes = tuple(range(1, size + 1)) if all_sizes else (size,)
    limits = DraftLimits(sizes=sizes)
    try:
        (texts,) = profiles.traces(
            reference, alone, [run.prompt], [source], limits=limits, program=Program.SERVER
        )
    except Failure as failure:
        raise failure_error(failure.status, f"the reference failed: {failure.reason}") from failure
    (view,) = texts.by_drafter
    if view.spread is None or view.text_spread is None:
        raise GgufspecError(
            "the cache of these models cannot be rolled back, so the reference cannot tell near-ties",
            "compare the builds with `ggufspec bench --llama OLD --llama NEW`",
        )
    return view


@dataclass(frozen=True, kw_only=True)
class _DrafterUnderTest:
    """The llama.cpp that is examined."""

    session: Session
    folder: Path

    def compare(self, run: RunSpec, view: DraftTrace) -> Agreement:
        """Measure a run, and compare it with its trace.

        Raises:
            Failure: it fails, or does not tell its rounds.
        """
        measured = self.session.engine.measure(run, self.folder / "run")
        sample = measured.sample
        if sample.status is not Status.OK:
            raise Failure(sample.status, measured.error or "see the log")
        if sample.rounds is None or sample.tokens is None:
            raise Failure(Status.SUMMARY_LOST, "the server does not tell its rounds")
        walked = TracedRun(
            drafting=run.drafts_by, n_predict=run.n_predict, build=self.session.install.build_number
        )
        return trace.compare_rounds(view, walked, sample.rounds, sample.tokens, margin=TIE_MARGIN)


def _find_limits(
    examined: _DrafterUnderTest, reference: InprocessEngine, run: RunSpec, checked: CheckedPair
) -> Iterator[str]:
    """Yield from which draft size, batch and layers on a device on runs differ: found by halving."""
    view = _trace(reference, run, all_sizes=True)

    def differs(changed: RunSpec) -> bool:
        try:
            return is_different([examined.compare(changed, view)])
        except Failure:
            return True

    def find_first(values: Sequence[int], change: Callable[[int], RunSpec]) -> int | None:
        place = bisect_left(values, True, key=lambda value: differs(change(value)))
        return values[place] if place < len(values) else None

    drafting = run.drafts_by
    size = find_first(
        range(1, drafting.n_max + 1), lambda size: replace(run, drafting=replace(drafting, n_max=size))
    )
    if size == 1:
        yield "it differs at every draft size"
        # prompts are evaluated in batches of -ub tokens, drafts of one token in batches of two
        batch = find_first(_BATCHES, lambda tokens: replace(run, ubatch=tokens))
        if batch is not None and batch > _BATCHES[0]:
            yield f"it differs with -ub {batch}, and not with -ub {batch // 2}"
    elif size is not None:
        yield f"it differs from γ {size} on: in batches of {size + 1} tokens and more"
    has_gpu = examined.session.install.gpu is not False  # without a device, -ngl moves nothing
    layers = {
        "target": checked.target.n_layers if has_gpu or run.offload.rpc else 0,
        "drafter": checked.drafter.n_layers
        if run.drafter and (has_gpu or run.offload.lends_to_drafter)
        else 0,
    }
    for model, count in layers.items():
        if not count:
            continue
        first = find_first(
            range(count + 2),  # the output counts as a layer
            lambda number, of=model: replace(run, offload=run.offload.with_layers(**{of: number})),  # type: ignore[misc]
        )
        if first:
            yield f"it differs from {units.counted(first, 'layer')} of the {model} on a device on"
