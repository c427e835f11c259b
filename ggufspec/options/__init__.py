"""What can be asked: an option is one field, from which its names, help, value, words and settings follow.

The classes of a command are imported when it runs: all of them together take as long as ``--help`` should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ggufspec import lazy

if TYPE_CHECKING:
    from ggufspec.options.fields import Option, Options, divide_words, only, option, takes
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
        AnswerOptions,
        BoardOptions,
        BuildOptions,
        CacheListOptions,
        CompareOptions,
        CompletionOptions,
        DoctorOptions,
        IssueOptions,
        KeyArgument,
        LoadedBench,
        ParseOptions,
        PolicyOptions,
        PruneOptions,
        PublishOptions,
        ReportOptions,
        SetOptions,
        ShowOptions,
        VerifyOptions,
        WhyOptions,
    )

__getattr__, __dir__ = lazy.attach(__name__)
