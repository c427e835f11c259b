"""Whether a drafter works here; if not, whether its file, a build or the text is to blame."""

from __future__ import annotations

from ggufspec.doctor.drafters.examining import ExaminedDrafter, examine
from ggufspec.doctor.drafters.judging import DrafterVerdict, Guesses, count_rounds, judge
