"""``ggufspec.fetch``: from names to references, and from these to files on this machine.

``--largest`` is the largest pair of the catalogue that fits into memory, by the memory plan.
"""

from __future__ import annotations

from dataclasses import replace

from ggufspec import errors, machine
from ggufspec.domain import ModelRun, Offload
from ggufspec.llama.install import installs
from ggufspec.modelfiles import catalog, choosing, hub, memory, pins
from ggufspec.modelfiles.api.checking import check_survey
from ggufspec.options import FetchOptions, takes
from ggufspec.steps import SILENT, Sink
from ggufspec.units import format_bytes

_CONTEXT = 4096  # tokens, with which the largest pair is planned


@takes(FetchOptions)
def fetch(asked: FetchOptions, sink: Sink = SILENT) -> hub.Survey:
    """Download a pair and verify its files, as ``ggufspec fetch`` does; large downloads need no consent.

    Returns:
        The pair with the paths of its files, which becomes the default of ``bench``, and the heads beside a
        target without a drafter. With ``dry_run``, what would be downloaded.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a model is not found, the disk is full, the download fails or the drafter is refused.
    """
    access = replace(hub.Access.of(asked), local_dir=asked.local_dir)
    if asked.largest:
        if asked.pair is not None or asked.target is not None:
            raise ValueError("--largest chooses the pair; do not name one")
        asked = asked.replace(pair=choose_largest(access, sink))
    target, draft = (None if names is None else str(names[0]) for names in (asked.target, asked.draft_model))
    references, name = find_references(asked.pair, target, draft, asked.revision, access)
    survey = hub.survey_fetch(name, references[0], references[1] if len(references) > 1 else None, access)
    if asked.revision is None and not asked.repin:
        pins.check_pins(survey)
    try:
        catalog.drafting_method(survey.pair)
    except errors.UnsupportedMethodError as error:
        sink.say(f"note: {error.message}: no command can measure it")
    if asked.dry_run:
        return survey
    if not asked.no_check:
        check_survey(survey, access)
    fetched = hub.download(survey, access, sink, yes=asked.yes)
    if asked.revision is None:
        pin_files(survey, sink, replace=asked.repin)
    return replace(survey, pair=fetched)


def pin_files(survey: hub.Survey, sink: Sink, *, replace: bool = False) -> None:
    """Pin the files of a catalogue's pair; where that cannot be stored, there is a warning.

    Args:
        survey: what was fetched.
        sink: gets what was pinned.
        replace: pin all of them anew.
    """
    try:
        pinned = pins.pin_files(survey, replace=replace)
    except OSError as error:
        sink.say(f"warning: cannot write {pins.user_file()}: {error.strerror}; nothing was pinned")
        return
    if pinned:
        sink.say(f"pinned in {pins.user_file()}: {', '.join(pinned)}")


def find_references(
    pair: str | None, target: str | None, draft_model: str | None, revision: str | None, access: hub.Access
) -> tuple[list[hub.Reference], str]:
    """Return what is to be fetched, the target first, and its name.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a reference is not one, or no pair has this name.
    """
    if pair is not None and target is not None:
        raise ValueError("name a PAIR or a --target, not both")
    pairs = catalog.load_catalogue()
    is_reference = pair is not None and pair not in pairs and hub.names_model(pair)
    if is_reference:
        pair, target = None, pair
    if draft_model is not None and target is None:
        raise ValueError("--draft-model needs --target")
    if target is None:
        listed = catalog.find_pair(pair or catalog.DEFAULT)
        references = [*map(hub.of_model, listed.models)]
        name = listed.name
    else:
        references = [hub.parse_reference(target, pairs, endpoint=access.endpoint)]
        if draft_model == choosing.AUTO:
            of_target = replace(references[0], revision=references[0].revision or revision)
            head = choosing.find_head(hub.locate(of_target, access), access)
            references.append(replace(hub.of_model(head), revision=references[0].revision))
        elif draft_model is not None:
            references.append(hub.parse_reference(draft_model, pairs, endpoint=access.endpoint))
        name = " + ".join(reference.text for reference in references)
    if is_reference:
        references[0] = replace(references[0], use_default=False)
    if revision is not None:
        if any(reference.revision not in (None, revision) for reference in references):
            raise errors.BadReferenceError(
                "--revision contradicts the revision in a reference", "use only one of them"
            )
        references = [replace(reference, revision=revision) for reference in references]
    return references, name


def choose_largest(access: hub.Access, sink: Sink) -> str:
    """Return the name of the largest pair that fits completely; the sink gets the reason.

    The largest target counts, then the smallest drafter. Headers are read only of pairs whose files alone
    would fit, from the largest down.

    Raises:
        OutOfMemoryError: not even the smallest fits.
    """
    available = sum(gpu.free_bytes for gpu in installs.detect_gpus())
    place, offload = "free on the GPU", Offload(target=ModelRun(layers="all"), drafter=ModelRun(layers="all"))
    if not available:
        available, place, offload = machine.snapshot().memory_bytes, "of memory", Offload().on_processor
    for survey in sorted(
        _survey_catalogue(access, sink), key=lambda survey: (-_sizes(survey)[0], _sizes(survey)[1])
    ):
        target, draft = survey.pair.target, survey.pair.draft
        if draft is None or sum(_sizes(survey)) + memory.RESERVE_BYTES > available:
            continue
        cards = [hub.read_card(model, access) for model in (target, draft)]
        plan = memory.plan(cards[0], cards[1], offload, memory.MemorySettings(context=_CONTEXT))
        needed = plan.gpu_bytes if offload.target.layers == "all" else plan.host_bytes
        if needed + memory.RESERVE_BYTES <= available:
            sink.say(
                f"{survey.pair.name} is the largest pair that fits: {format_bytes(needed)} with a context of "
                f"{_CONTEXT} tokens, of {format_bytes(available)} {place}"
            )
            return survey.pair.name
    raise errors.OutOfMemoryError(
        f"no pair of the catalogue fits into {format_bytes(available)} {place}",
        "name a smaller one with --target",
    )


def _sizes(survey: hub.Survey) -> tuple[int, int]:
    """Return the bytes of a pair's target and of its drafter."""
    draft = survey.pair.draft
    return survey.pair.target.size_bytes or 0, (draft.size_bytes or 0) if draft else 0


def _survey_catalogue(access: hub.Access, sink: Sink) -> list[hub.Survey]:
    """Look up every pair on the Hub; unavailable ones are counted and left out."""
    surveys: list[hub.Survey] = []
    failures: list[errors.GgufspecError] = []
    for pair in sink.each([*catalog.load_catalogue().values()], lambda pair: pair.name):
        try:
            surveys.append(hub.survey_pair(pair, access))
        except errors.GgufspecError as error:
            failures.append(error)
    if failures:
        sink.say(f"{len(failures)} unavailable pairs are left out; the first: {failures[0].message}")
    return surveys
