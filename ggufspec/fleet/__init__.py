"""Several machines: which of them measures what, and their results as one."""

from __future__ import annotations

from ggufspec.fleet.cluster import START_HINT, Cluster, Reply
from ggufspec.fleet.describing import describe_unmeasured, list_unmeasured
from ggufspec.fleet.driving import Drive, FleetProgress
from ggufspec.fleet.journal import (
    FLEET_VERSION,
    BlockEnded,
    Fleet,
    MachineJoined,
    MachineRefused,
    NodeLost,
    StoredFleet,
    block_key,
    list_fleets,
    new_name,
    read_benches,
    read_fleet,
)
from ggufspec.fleet.machines import describe_hardware, identify_machine
from ggufspec.fleet.merging import merge
from ggufspec.fleet.orders import Order, make_order
from ggufspec.fleet.planning import FleetPlan, examine_nodes, plan_fleet, prepare_nodes
from ggufspec.fleet.ray_cluster import RayCluster
from ggufspec.fleet.scheduling import AttemptEnding, BlockEnd, Job, Node, Schedule
from ggufspec.fleet.simulating import Simulation, Stay, lower_bound, simulate
from ggufspec.fleet.tunings import tune_nodes

__all__ = [
    "FLEET_VERSION",
    "START_HINT",
    "AttemptEnding",
    "BlockEnd",
    "BlockEnded",
    "Cluster",
    "Drive",
    "Fleet",
    "FleetPlan",
    "FleetProgress",
    "Job",
    "MachineJoined",
    "MachineRefused",
    "Node",
    "NodeLost",
    "Order",
    "RayCluster",
    "Reply",
    "Schedule",
    "Simulation",
    "Stay",
    "StoredFleet",
    "block_key",
    "describe_hardware",
    "describe_unmeasured",
    "examine_nodes",
    "identify_machine",
    "list_fleets",
    "list_unmeasured",
    "lower_bound",
    "make_order",
    "merge",
    "new_name",
    "plan_fleet",
    "prepare_nodes",
    "read_benches",
    "read_fleet",
    "simulate",
    "tune_nodes",
]
