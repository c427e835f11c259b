"""``ggufspec.suggest``: heads for a target and smaller models of its family, checked and ranked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ggufspec.domain import Method, ModelFile
from ggufspec.errors import GgufspecError, NetworkError, RemoteFileNotFoundError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.api.checking import CheckRules, find_rules
from ggufspec.modelfiles.compat import CompatVerdict, judging, mtp_bytes, read_head, usable_methods
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.hub import DrafterCandidate, search
from ggufspec.options import SuggestOptions, takes
from ggufspec.steps import SILENT, Sink


@dataclass(frozen=True, kw_only=True)
class SuggestedDrafter:
    """A possible drafter: llama.cpp's verdict, and a score (higher is better).

    Attributes:
        file: its best file; the target itself, with the size of these layers, where layers for MTP draft.
        method: how it drafts.
        downloads: of its repository; None offline, and beside the target.
        ratio: its bytes over the target's.
        verdict: whether llama.cpp accepts it.
        score: how promising it is.
        in_target: whether nothing has to be fetched for it, as layers of the target draft.
    """

    file: ModelFile
    downloads: int | None
    ratio: float
    verdict: CompatVerdict
    score: float
    method: Method = Method.DRAFT_MODEL
    in_target: bool = False

    @property
    def name(self) -> str:
        """A reference to the file."""
        return self.file.reference

    @property
    def is_refused(self) -> bool:
        """Whether llama.cpp refuses it."""
        return self.verdict.outcome is judging.CompatOutcome.REFUSED


@takes(SuggestOptions)
def suggest(asked: SuggestOptions, sink: Sink = SILENT) -> tuple[SuggestedDrafter, ...]:
    """Find drafters for a target, the best first, as ``ggufspec suggest`` does; only headers are read.

    Returns:
        What was found; drafters that llama.cpp refuses come last. Repositories that cannot be read are left
        out.

    Raises:
        GgufspecError: the target is not available, or no head and no smaller model of its family was found.
    """
    access = hub.Access.of(asked)
    reference = hub.parse_reference(asked.target, catalog.load_catalogue(), endpoint=access.endpoint)
    model = hub.locate(reference, access)
    card = hub.read_card(model, access)
    rules = find_rules()
    drafters = [suggest_layers(model, card, rules)]
    candidates = find_candidates(model, card, access, sink, most=asked.most)
    for candidate in sink.each(candidates, lambda candidate: candidate.repo):
        try:
            drafters.append(check_candidate(candidate, card, rules, access))
        except GgufspecError as error:  # one broken repository must not end the search
            sink.say(f"{candidate.repo}: {error.message}")
    return rank_drafters([drafter for drafter in drafters if drafter is not None], model)


def find_candidates(
    model: ModelFile, card: ModelCard, access: hub.Access, sink: Sink, *, most: int
) -> list[DrafterCandidate]:
    """Return what may draft for a target: files in its folder, and heads and smaller models of its family.

    The latter come from the Hub, or offline from the cache.
    """
    own = search.in_folder(model)
    if access.is_offline:
        return own + search.in_cache(model, access)
    beside = [DrafterCandidate(repo=str(head.repo), file=head) for head in hub.find_heads(model, access)]
    try:
        return own + beside + search.on_hub(model, card.architecture, access, most=most)
    except NetworkError as error:
        if not own:
            raise
        sink.say(f"{error.message}; so only files beside the target are listed")
        return own


def suggest_layers(model: ModelFile, card: ModelCard, rules: CheckRules) -> SuggestedDrafter | None:
    """Return the layers for MTP of a target as its drafter; None if it has none."""
    size_bytes = mtp_bytes(card)
    if not size_bytes:
        return None
    ratio = size_bytes / card.size_bytes
    return SuggestedDrafter(
        file=replace(model, size_bytes=size_bytes),
        downloads=None,
        ratio=ratio,
        verdict=rules.judge(card, card, Method.DRAFT_MTP),
        score=search.score(ratio, None),
        method=Method.DRAFT_MTP,
        in_target=True,
    )


def check_candidate(
    candidate: DrafterCandidate, target: ModelCard, rules: CheckRules, access: hub.Access
) -> SuggestedDrafter | None:
    """Return a candidate's best file with llama.cpp's verdict; None if it has no suitable file."""
    file = search.draft_file(candidate, target.size_bytes, access)
    if file is None:
        return None
    ratio = (file.size_bytes or 0) / target.size_bytes
    drafter = hub.read_card(file, access)
    return SuggestedDrafter(
        file=file,
        downloads=candidate.downloads,
        ratio=ratio,
        verdict=rules.judge(target, drafter),
        score=search.score(ratio, candidate.downloads),
        method=usable_methods(read_head(drafter))[0],
    )


def rank_drafters(drafters: list[SuggestedDrafter], target: ModelFile) -> tuple[SuggestedDrafter, ...]:
    """Return drafters: heads, which were made for their target, then draft models, and refused ones last.

    Raises:
        RemoteFileNotFoundError: there are none.
    """
    if not drafters:
        family = search.family(target.repo or target.filename)
        raise RemoteFileNotFoundError(
            f"no head and no smaller model of the family {family!r} was found",
            "name a drafter: ggufspec fetch --target … --draft-model …",
        )
    return tuple(
        sorted(drafters, key=lambda drafter: (drafter.is_refused, not drafter.method.is_head, -drafter.score))
    )
