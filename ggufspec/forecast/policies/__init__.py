"""Rules for the draft size, replayed over stored rounds before any build has them."""

from __future__ import annotations

from ggufspec.forecast.policies.comparing import ORACLE, PolicyComparison, PolicyGain, compare_rules, policy
from ggufspec.forecast.policies.rules import RULES, Rule, best_sizes, fixed, read_rules, replay
