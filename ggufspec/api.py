"""Each command as one function: what the command line calls, and a notebook, with the same names of options.

A function takes the options of its command as one value or as keyword arguments, and returns a value that has
all that the command prints. Those that work for long also take a ``sink``, which gets what they say and draw.
They are beside what they do, and imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import lazy

if TYPE_CHECKING:  # `as` says to type checkers that a name is public
    from ggufspec.analysis import compare as compare, models as models, why as why
    from ggufspec.doctor import prune as prune
    from ggufspec.doctor.drafters import examine as examine
    from ggufspec.forecast.planning import plan as plan
    from ggufspec.forecast.policies import policy as policy
    from ggufspec.forecast.whatif import whatif as whatif, whatif_served as whatif_served
    from ggufspec.llama.build import build as build, list_builds as list_builds
    from ggufspec.llama.logs import parse as parse
    from ggufspec.measure import bench as bench, demo as demo, plan_bench as plan_bench
    from ggufspec.modelfiles.api import check as check, convert as convert, fetch as fetch, suggest as suggest
    from ggufspec.pasting import paste as paste
    from ggufspec.publishing.api import board as board, publish as publish, verify as verify
    from ggufspec.publishing.upstream import issue as issue
    from ggufspec.tuning import (
        auto as auto,
        crossover as crossover,
        forecast_tuning as forecast_tuning,
        serving_command as serving_command,
        tune as tune,
    )
    from ggufspec.tuning.bisect import bisect as bisect

__getattr__, __dir__ = lazy.attach(__name__)
