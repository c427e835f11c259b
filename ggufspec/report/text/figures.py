"""Numbers, versions and settings for people, the same in every table and sentence."""

from __future__ import annotations

from collections.abc import Callable

from ggufspec import units
from ggufspec.analysis import Acceptance, Arm, is_meaningful
from ggufspec.domain import Build, Machine, Role
from ggufspec.llama.install import releases
from ggufspec.stats import Estimate

_ENGINES = {
    "binary": "llama.cpp's own programs, `speculative` to draft; a new process for every run",
    "binary-simple": "llama.cpp's own programs, `speculative-simple` to draft; a new process for every run",
    "server": "`llama-server`, which keeps its models loaded",
    "inprocess": "llama.cpp's library, which keeps its models loaded",
    "running": "servers that ran already, as their clients see them",
}


def engine(name: str) -> str:
    """Return the line above a table that names the engine: engines differ in what they measure."""
    return f"Engine: {name}" + (f" ({_ENGINES[name]})." if name in _ENGINES else ".")


def rate(estimate: Estimate | None) -> str:
    """Return tokens/s with their interval: ``74.0 [73.1, 74.9]``."""
    return spread(estimate, units.format_rate)


def factor(estimate: Estimate | None) -> str:
    """Return a speed-up with its interval: ``1.50× [1.46×, 1.54×]``."""
    return spread(estimate, units.format_factor)


def spread(estimate: Estimate | None, show: Callable[[float], str]) -> str:
    """Return a value with its interval in brackets; for an interval that says nothing, what is missing."""
    if estimate is None:
        return ""
    value = show(estimate.value)
    if estimate.lo is None or estimate.hi is None:
        return value
    ends = f"{show(estimate.lo)}, {show(estimate.hi)}" if is_meaningful(estimate) else "needs more runs"
    return f"{value} [{ends}]"


def three_digits(value: float) -> str:
    """Return a measured quantity with three significant digits."""
    return units.format_number(value, 3)


def p_value(p: float) -> str:
    """Return a p-value with three digits behind the point: ``0.012``, ``< 0.001``."""
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def llama_cpp(build: Build) -> str:
    """Return which llama.cpp measured: ``llama.cpp b9102 (e1a2b3c4d; llama-cpp-python 0.3.23)``.

    A server that ran already is named by its address.
    """
    if build.path.startswith(("http://", "https://")):
        return f"a server at {build.path}"
    return f"llama.cpp {releases.identify(build)}"


def machine(about: Machine) -> str:
    """Return a machine in a line: ``AMD EPYC, 16 cores, 64 GiB, NVIDIA H100 (80 GiB), GPU driver 580.65``."""
    memory = dict(enumerate(about.gpu_bytes))
    gpus = (
        f"{gpu} ({units.format_bytes(memory[number])})" if number in memory else gpu
        for number, gpu in enumerate(about.gpus)
    )
    driver = (f"GPU driver {about.gpu_driver}",) if about.gpu_driver else ()
    parts = (about.cpu, units.counted(about.cores, "core"), units.format_bytes(about.memory_bytes))
    return ", ".join((*parts, *gpus, *driver))


def extent(arm: Arm) -> str:
    """Return how much was measured of an arm, and how: ``8 prompts × 3 repeats, 250 tokens each, …``."""
    spec, traffic = arm.spec, arm.spec.traffic
    texts = arm.prompts if traffic is None else len(traffic.prompts)
    what, up_to = ("recorded request", "up to ") if traffic and traffic.arrivals else ("prompt", "")
    temperature = units.format_number(spec.sampling.temperature)
    return ", ".join(
        (
            f"{units.counted(texts, what)} × {units.counted(arm.repeats, 'repeat')}",
            f"{up_to}{units.counted(spec.n_predict, 'token')} each",
            *([units.counted(spec.threads, "thread")] if spec.servers is None else []),
            "greedy" if spec.sampling.greedy else f"temperature {temperature}",
        )
    )


def unchanged(arm: Arm) -> str:
    """Return on how many prompts an arm's text equals the target's; an empty text if none was compared.

    With several users it is whether all answers do, in all runs.
    """
    if arm.synthetic:
        return "not checked: synthetic acceptance"
    compared = arm.compared if arm.role is Role.DRAFTING else {}
    if arm.traffic is not None and compared:
        return "yes" if all(compared.values()) else "no"
    return f"{sum(compared.values())} of {len(compared)}" if compared else ""


def layers(arm: Arm) -> str:
    """Return how many layers of each model are on the GPU, as far as that is known."""
    return " + ".join(
        str(model.offloaded) if model.total is None else f"{model.offloaded}/{model.total}"
        for model in (arm.layers, arm.draft_layers)
        if model
    )


def by_method(acceptance: Acceptance | None) -> str:
    """Return what each method of a chain drafted, and how much of that was accepted; empty for others."""
    shares = (
        f"{counts.method} {units.format_percent(counts.n_accepted / counts.n_drafted)} of {counts.n_drafted}"
        if counts.n_drafted
        else f"{counts.method} nothing"
        for counts in (acceptance.by_method if acceptance else None) or ()
    )
    return ", ".join(shares)
