"""What can be asked: an option is one field, from which its names, help, value, words and settings follow.

The classes of a command are imported when it runs: all of them together take as long as ``--help`` should.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggufspec.options.calls import takes
    from ggufspec.options.fields import Option, Options, divide_words, only, option
    from ggufspec.options.groups import DECIDED, HubOptions, ModelOptions, RuntimeOptions, TableOptions
    from ggufspec.options.kinds import NO_WORKERS, parse_workers, split_address
    from ggufspec.options.measuring import (
        AddressOption,
        AutoOptions,
        BenchOptions,
        BisectOptions,
        CrossoverOptions,
        DemoOptions,
        FleetBenchOptions,
        FleetMergeOptions,
        FleetShowOptions,
        FleetSweepOptions,
        FleetTuneOptions,
        MeasureOptions,
        RunOptions,
        ServeOptions,
        SweepOptions,
        TalkOptions,
        TuneOptions,
        WorkerOptions,
    )
    from ggufspec.options.planning import (
        CheckOptions,
        ConvertOptions,
        FetchOptions,
        ModelsOptions,
        PairsOptions,
        PlanOptions,
        PromptsOptions,
        SuggestOptions,
        WhatIfOptions,
    )
    from ggufspec.options.results import (
        BoardOptions,
        CompareOptions,
        LoadedBench,
        ParseOptions,
        PublishOptions,
        ReportOptions,
        ShowOptions,
        VerifyOptions,
        WhyOptions,
    )
    from ggufspec.options.setup import (
        AnswerOptions,
        BuildOptions,
        CacheListOptions,
        CompletionOptions,
        DoctorOptions,
        KeyArgument,
        PruneOptions,
        SetOptions,
    )

__all__ = [
    "DECIDED",
    "NO_WORKERS",
    "AddressOption",
    "AnswerOptions",
    "AutoOptions",
    "BenchOptions",
    "BisectOptions",
    "BoardOptions",
    "BuildOptions",
    "CacheListOptions",
    "CheckOptions",
    "CompareOptions",
    "CompletionOptions",
    "ConvertOptions",
    "CrossoverOptions",
    "DemoOptions",
    "DoctorOptions",
    "FetchOptions",
    "FleetBenchOptions",
    "FleetMergeOptions",
    "FleetShowOptions",
    "FleetSweepOptions",
    "FleetTuneOptions",
    "HubOptions",
    "KeyArgument",
    "LoadedBench",
    "MeasureOptions",
    "ModelOptions",
    "ModelsOptions",
    "Option",
    "Options",
    "PairsOptions",
    "ParseOptions",
    "PlanOptions",
    "PromptsOptions",
    "PruneOptions",
    "PublishOptions",
    "ReportOptions",
    "RunOptions",
    "RuntimeOptions",
    "ServeOptions",
    "SetOptions",
    "ShowOptions",
    "SuggestOptions",
    "SweepOptions",
    "TableOptions",
    "TalkOptions",
    "TuneOptions",
    "VerifyOptions",
    "WhatIfOptions",
    "WhyOptions",
    "WorkerOptions",
    "divide_words",
    "only",
    "option",
    "parse_workers",
    "split_address",
    "takes",
]

_HOMES = {
    "calls": "takes",
    "fields": "Option Options divide_words only option",
    "groups": "DECIDED HubOptions ModelOptions RuntimeOptions TableOptions",
    "kinds": "NO_WORKERS parse_workers split_address",
    "measuring": (
        "AddressOption AutoOptions BenchOptions BisectOptions CrossoverOptions DemoOptions "
        "FleetBenchOptions FleetMergeOptions FleetShowOptions FleetSweepOptions FleetTuneOptions "
        "MeasureOptions RunOptions ServeOptions SweepOptions TalkOptions TuneOptions WorkerOptions"
    ),
    "planning": (
        "CheckOptions ConvertOptions FetchOptions ModelsOptions PairsOptions PlanOptions PromptsOptions "
        "SuggestOptions WhatIfOptions"
    ),
    "results": (
        "BoardOptions CompareOptions LoadedBench ParseOptions PublishOptions ReportOptions "
        "ShowOptions VerifyOptions WhyOptions"
    ),
    "setup": (
        "AnswerOptions BuildOptions CacheListOptions CompletionOptions DoctorOptions KeyArgument "
        "PruneOptions SetOptions"
    ),
}
"""Module -> the names of it that others may use."""
_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a name from its module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
