"""A bench from request to result: check what was asked for, plan the runs, measure and store each."""

from __future__ import annotations

from ggufspec.measure.api import bench
from ggufspec.measure.configured import options_of
from ggufspec.measure.deadline import NO_DEADLINE, OVERRUN, RUN_SHARE, Deadline
from ggufspec.measure.models import find_drafters, find_methods
from ggufspec.measure.naming import (
    file_of,
    list_names,
    survey_models,
    with_fetched,
    with_head,
    with_models,
)
from ggufspec.measure.programs import describe_engine
from ggufspec.measure.request import choose_sampling, with_tuned
from ggufspec.measure.runplan import RunPlan, refuse_endless
from ggufspec.measure.session import Session, identify, prepare_session, unread_files
from ggufspec.measure.sweep import Block, Blocks, sizes

__all__ = [
    "NO_DEADLINE",
    "OVERRUN",
    "RUN_SHARE",
    "Block",
    "Blocks",
    "Deadline",
    "RunPlan",
    "Session",
    "bench",
    "choose_sampling",
    "describe_engine",
    "file_of",
    "find_drafters",
    "find_methods",
    "identify",
    "list_names",
    "options_of",
    "prepare_session",
    "refuse_endless",
    "sizes",
    "survey_models",
    "unread_files",
    "with_fetched",
    "with_head",
    "with_models",
    "with_tuned",
]
