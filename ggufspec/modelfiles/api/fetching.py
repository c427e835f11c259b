"""``ggufspec.fetch``: from names to references, and from these to files on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ggufspec.domain import Pair
from ggufspec.errors import BadReferenceError
from ggufspec.modelfiles import catalog, choosing, hub, pins
from ggufspec.modelfiles.api.checking import check_survey
from ggufspec.notebooks import named_options
from ggufspec.steps import finish


@named_options
def fetch(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    offline: bool = False,
    local_dir: Path | None = None,
    check: bool = True,
    repin: bool = False,
) -> Pair:
    """Download a pair and verify its files, as ``ggufspec fetch`` does; large downloads need no consent.

    Args:
        pair: pair of the catalogue, or a reference to a target; by default the Llama-3 notebook's pair.
        target: a path or a model reference such as "user/repo:Q4_K_M", instead of ``pair``.
        draft_model: likewise, for the drafter.
        revision: branch, tag or commit of all files.
        token: access token for the Hub.
        offline: use only cached files.
        local_dir: store the files here instead of in the Hub's cache.
        check: refuse first a drafter that llama.cpp refuses; its header tells.
        repin: accept files of a catalogue's pair that differ from those that are pinned.

    Returns:
        The pair with the paths of its files; it becomes the default of ``bench``.

    Raises:
        ValueError: the options contradict each other.
        GgufspecError: a model is not found, the disk is full, the download fails or the drafter is refused.
    """
    access = hub.Access(token=token, offline=offline, local_dir=local_dir)
    references, name = find_references(pair, target, draft_model, revision, access)
    survey = hub.survey_fetch(name, references[0], references[1] if len(references) > 1 else None, access)
    if revision is None and not repin:
        pins.check_pins(survey)
    hub.check_room(survey)
    if check:
        check_survey(survey, access)
    fetched = finish(hub.fetch(survey, access))
    if revision is None:
        with suppress(OSError):  # a folder that cannot be written only leaves files without a pin
            pins.pin_files(survey, replace=repin)
    return fetched


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
        references = [hub.of_model(model) for model in (listed.target, listed.draft) if model is not None]
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
            raise BadReferenceError(
                "--revision contradicts the revision in a reference", "use only one of them"
            )
        references = [replace(reference, revision=revision) for reference in references]
    return references, name
