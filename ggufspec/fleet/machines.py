"""What tells machines apart, and which of them are equal."""

from __future__ import annotations

import hashlib
import re

from ggufspec.domain import Machine

_LONGEST_NAME = 40  # characters of a host's name in an id
_DIGITS = 6


def identify_machine(machine: Machine) -> str:
    """Return a machine's id: its name, and a digest of its name and hardware.

    It stays the same over restarts and updates, and is fit for the name of a bench.
    """
    name = re.sub(r"[^A-Za-z0-9-]+", "-", machine.hostname).strip("-")[:_LONGEST_NAME] or "machine"
    facts = "\n".join((machine.hostname, describe_hardware(machine)))
    return f"{name}-{hashlib.sha256(facts.encode()).hexdigest()[:_DIGITS]}"


def describe_hardware(machine: Machine) -> str:
    """Return in words what equal machines have in common: processor, cores, memory in GiB, GPUs."""
    memory = f"{round(machine.memory_bytes / (1 << 30))} GiB"
    return ", ".join((machine.cpu, f"{machine.cores} cores", memory, *machine.gpus))
