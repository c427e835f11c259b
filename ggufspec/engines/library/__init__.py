"""llama.cpp as a library, in a child process whose crash does not end ggufspec."""

from __future__ import annotations

from ggufspec.engines.library.messages import (
    BEFORE_MTP,
    NEAR_TIE,
    DraftLimits,
    ExpertChoices,
    HeadDraft,
    RoundPart,
    TextScores,
    Timing,
)
