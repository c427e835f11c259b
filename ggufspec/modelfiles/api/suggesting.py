"""``ggufspec.suggest``: smaller models of a target's family, checked and ranked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from ggufspec.domain import ModelFile
from ggufspec.errors import GgufspecError, RemoteFileNotFoundError
from ggufspec.modelfiles import catalog, hub
from ggufspec.modelfiles.api.checking import find_rule
from ggufspec.modelfiles.compat import CompatVerdict, judging
from ggufspec.modelfiles.gguf import ModelCard
from ggufspec.modelfiles.hub import DrafterCandidate, search
from ggufspec.notebooks import named_options

_MOST = 6  # repositories


@dataclass(frozen=True, kw_only=True)
class SuggestedDrafter:
    """A possible drafter: llama.cpp's verdict, and a score (higher is better).

    Attributes:
        file: its best file.
        downloads: of its repository; None offline.
        ratio: its bytes over the target's.
        verdict: whether llama.cpp accepts it.
        score: how promising it is.
    """

    file: ModelFile
    downloads: int | None
    ratio: float
    verdict: CompatVerdict
    score: float

    @property
    def name(self) -> str:
        """A reference to the file."""
        return f"{self.file.repo}/{self.file.filename}"

    @property
    def is_refused(self) -> bool:
        """Whether llama.cpp refuses it."""
        return self.verdict.outcome is judging.CompatOutcome.REFUSED


@named_options
def suggest(
    target: str, *, most: int = _MOST, offline: bool = False, token: str | None = None
) -> tuple[SuggestedDrafter, ...]:
    """Find drafters for a target, the best first, as ``ggufspec suggest`` does; only headers are read.

    Args:
        target: a path or a model reference such as "user/repo:Q4_K_M".
        most: how many repositories to check.
        offline: search only the local cache.
        token: access token for the Hub.

    Returns:
        What was found; drafters that llama.cpp refuses come last. Repositories that cannot be read are left
        out.

    Raises:
        GgufspecError: the target is not available, or no smaller model of its family was found.
    """
    access = hub.Access(token=token, offline=offline)
    model, card = find_target(target, access)
    rule = find_rule()
    drafters = []
    for candidate in find_candidates(model, card, access, most=most):
        with suppress(GgufspecError):  # one broken repository must not end the search
            drafters.append(check_candidate(candidate, card, rule, access))
    return rank_drafters([drafter for drafter in drafters if drafter is not None], model)


def find_target(text: str, access: hub.Access) -> tuple[ModelFile, ModelCard]:
    """Return the model that a reference means, and its header.

    Raises:
        GgufspecError: the text is not a reference, or the model is not available.
    """
    reference = hub.parse_reference(text, catalog.load_catalogue(), endpoint=access.endpoint)
    model = hub.locate(reference, access)
    return model, hub.read_card(model, access)


def find_candidates(
    model: ModelFile, card: ModelCard, access: hub.Access, *, most: int
) -> list[DrafterCandidate]:
    """Return smaller models of a target's family, from the Hub, or from the cache if it may not be asked."""
    if access.is_offline:
        return search.in_cache(model, access)
    return search.on_hub(model, card.architecture, access, most=most)


def check_candidate(
    candidate: DrafterCandidate, target: ModelCard, rule: judging.Rule, access: hub.Access
) -> SuggestedDrafter | None:
    """Return a candidate's best file with llama.cpp's verdict; None if it has no suitable file."""
    file = search.draft_file(candidate, target.size_bytes, access)
    if file is None:
        return None
    ratio = (file.size_bytes or 0) / target.size_bytes
    return SuggestedDrafter(
        file=file,
        downloads=candidate.downloads,
        ratio=ratio,
        verdict=judging.check_pair(target, hub.read_card(file, access), rule),
        score=search.score(ratio, candidate.downloads),
    )


def rank_drafters(drafters: list[SuggestedDrafter], target: ModelFile) -> tuple[SuggestedDrafter, ...]:
    """Return drafters, the best first and refused ones last.

    Raises:
        RemoteFileNotFoundError: there are none.
    """
    if not drafters:
        family = search.family(target.repo or target.filename)
        raise RemoteFileNotFoundError(
            f"no smaller model of the family {family!r} was found",
            "name a drafter: ggufspec fetch --target … --draft-model …",
        )
    return tuple(sorted(drafters, key=lambda drafter: (drafter.is_refused, -drafter.score)))
