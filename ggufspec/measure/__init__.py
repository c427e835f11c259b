"""A bench from request to result: check what was asked for, plan the runs, measure and store each."""

from __future__ import annotations

from ggufspec.measure.api import bench
from ggufspec.measure.configured import DECIDED, locate_models
from ggufspec.measure.deadline import NO_DEADLINE, OVERRUN, RUN_SHARE, Deadline
from ggufspec.measure.models import find_drafters, find_methods
from ggufspec.measure.naming import ModelName, fetch_models, file_of, survey_models
from ggufspec.measure.programs import describe_engine
from ggufspec.measure.request import Request, check_finite, with_tuned
from ggufspec.measure.running import LOADED
from ggufspec.measure.runplan import RunPlan, refuse_endless
from ggufspec.measure.session import Session, identify, prepare_session, unread_files
from ggufspec.measure.sweep import Block, Blocks, sizes

__all__ = [
    "DECIDED",
    "LOADED",
    "NO_DEADLINE",
    "OVERRUN",
    "RUN_SHARE",
    "Block",
    "Blocks",
    "Deadline",
    "ModelName",
    "Request",
    "RunPlan",
    "Session",
    "bench",
    "check_finite",
    "describe_engine",
    "fetch_models",
    "file_of",
    "find_drafters",
    "find_methods",
    "identify",
    "locate_models",
    "prepare_session",
    "refuse_endless",
    "sizes",
    "survey_models",
    "unread_files",
    "with_tuned",
]
