"""A bench from request to result: check what was asked for, plan the runs, measure and store each."""

from __future__ import annotations

from ggufspec.measure.api import BenchProgress, bench, demo, plan_bench
from ggufspec.measure.audit import TIE_MARGIN
from ggufspec.measure.configured import choose_sampling, options_of, with_tuned
from ggufspec.measure.deadline import NO_DEADLINE, OVERRUN, RUN_SHARE, Deadline
from ggufspec.measure.models import (
    fetch_in_time,
    file_of,
    find_drafters,
    find_methods,
    survey_models,
    with_fetched,
    with_head,
)
from ggufspec.measure.programs import describe_engine
from ggufspec.measure.runplan import RunPlan, refuse_endless
from ggufspec.measure.session import Session, identify, prepare_session, unread_files
from ggufspec.measure.sweep import Block, Blocks, sizes
