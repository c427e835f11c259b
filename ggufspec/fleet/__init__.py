"""Several machines: which of them measures what, and their results as one."""

from __future__ import annotations

from ggufspec.fleet.driving import Drive
from ggufspec.fleet.journal import (
    BlockEnded,
    MachineJoined,
    MachineRefused,
    NodeLost,
    block_key,
    describe_unmeasured,
    list_fleets,
    list_unmeasured,
    new_name,
    read_benches,
    read_fleet,
)
from ggufspec.fleet.nodes import (
    START_HINT,
    Cluster,
    MeasuredBlock,
    Reply,
    examine_nodes,
    plan_fleet,
    prepare_nodes,
    tune_nodes,
)
from ggufspec.fleet.orders import Order, identify_machine, make_order
from ggufspec.fleet.ray_cluster import RayCluster
from ggufspec.fleet.scheduling import AttemptEnding, BlockEnd, Job, Node, Schedule
from ggufspec.fleet.storing import merge
