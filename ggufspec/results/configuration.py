"""A tuned configuration: the recommendation of a tuning as one value, which every command can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ggufspec.domain import (
    Build,
    Estimate,
    FileIdentity,
    Launch,
    Machine,
    RunSpec,
    Serving,
    SpeedJudgement,
)

CONFIGURATION_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What is safe to run for some prompts, without a prompt and a length, and the finding behind it.

    Attributes:
        spec: the models, how they draft, their placement, and llama.cpp's settings. It drafts only where that
            was found to be faster; otherwise it is the target alone.
        tokens_per_s: its speed; an interval of 95 %.
        candidate: the configuration that drafts which the judgement is about; None where none was measured
            with the target's own text.
        judgement: of the candidate over the target alone at its best.
        prompts: number of prompts.
    """

    spec: RunSpec
    tokens_per_s: Estimate
    candidate: RunSpec | None
    judgement: SpeedJudgement | None
    prompts: int

    @property
    def drafts(self) -> bool:
        """Whether to draft."""
        return self.spec.drafting is not None

    @property
    def is_decided(self) -> bool:
        """Whether there is a finding; otherwise the target alone is only what is safe meanwhile."""
        return self.judgement is not None and self.judgement.is_decided


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """A configuration that was faster and cannot be served, and why."""

    spec: RunSpec
    reason: str


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a tuning recommends, what it rests on, and how to run it.

    Attributes:
        id: the bench that confirmed it; its folder has this configuration.
        made_at: ISO 8601, UTC.
        ggufspec_version: the version that tuned.
        overall: the recommendation over all prompts.
        by_category: recommendations for categories that significantly need another one.
        engine: the engine that measured.
        serving: what it is meant to serve. It was measured with memory for all slots: with as many users as
            ``spec.traffic`` names, or without it with one request at a time.
        measured_argv: the command of the recommended runs; values that change with each start are words in
            capitals.
        serving_argv: the command that serves it; empty where this llama.cpp has no server.
        launch: how llama-server answered by exactly that command; None where it was not started.
        passed_over: faster configurations that could not be served.
        warnings: the names of warnings about the measurement, and their advice.
        build: the llama.cpp that measured.
        files: the models, programs and libraries that were measured.
        machine: the machine that measured.
        environment: the variables that may change the speed.
    """

    id: str
    made_at: str
    ggufspec_version: str
    overall: Recommendation
    engine: str
    serving: Serving
    build: Build
    machine: Machine
    by_category: Mapping[str, Recommendation] = field(default_factory=dict)
    measured_argv: tuple[str, ...] = ()
    serving_argv: tuple[str, ...] = ()
    launch: Launch | None = None
    passed_over: tuple[PassedOver, ...] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FileIdentity, ...] | None = None
    environment: Mapping[str, str] | None = None
    schema_name: str = "ggufspec configuration"
    schema_version: int = CONFIGURATION_VERSION

    @property
    def spec(self) -> RunSpec:
        """The run that is safe over all prompts."""
        return self.overall.spec

    @property
    def compared(self) -> RunSpec:
        """What to measure again: the same, or the candidate while nothing is decided."""
        overall = self.overall
        return overall.spec if overall.is_decided or overall.candidate is None else overall.candidate
