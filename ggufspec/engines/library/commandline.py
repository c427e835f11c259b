"""The worker's command line: format one run as arguments, and parse them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ggufspec.domain import Drafting, Experts, Sampling
from ggufspec.engines.library.messages import ModelLoad, WorkerRun

WORKER = (sys.executable, "-P", "-m", "ggufspec.engines.library.worker")


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _shares(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _experts(text: str) -> Experts:
    return "all" if text == "all" else int(text)


_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "model": ("target.path", str),
    "n-gpu-layers": ("target.gpu_layers", int),
    "ctx-size": ("target.context_tokens", int),
    "cache-type": ("target.kv_type", str),
    "ubatch-size": ("target.ubatch_tokens", int),
    "rpc": ("target.rpc", _names),
    "device": ("target.devices", _names),
    "tensor-split": ("target.tensor_split", _shares),
    "split-mode": ("target.split_mode", str),
    "main-gpu": ("target.main_gpu", int),
    "cpu-moe": ("target.cpu_moe", _experts),
    "model-draft": ("drafter.path", str),
    "n-gpu-layers-draft": ("drafter.gpu_layers", int),
    "cache-type-draft": ("drafter.kv_type", str),
    "rpc-draft": ("drafter.rpc", _names),
    "device-draft": ("drafter.devices", _names),
    "cpu-moe-draft": ("drafter.cpu_moe", _experts),
    "threads": ("run.threads", int),
    "n-predict": ("run.n_predict", int),
    "temp": ("sampling.temperature", float),
    "top-k": ("sampling.top_k", int),
    "top-p": ("sampling.top_p", float),
    "min-p": ("sampling.min_p", float),
    "seed": ("sampling.seed", int),
    "draft-max": ("drafting.n_max", int),
    "draft-min": ("drafting.n_min", int),
    "draft-p-min": ("drafting.p_min", float),
}
"""A flag, named as in llama.cpp's programs -> the field that it gives, and how its word is read."""

_OF_BOTH = ("context_tokens", "ubatch_tokens", "tensor_split", "split_mode", "main_gpu")
"""Fields of the target's load that the drafter's has alike."""


def format_library(library: Path) -> tuple[str, ...]:
    """Return the arguments that name the folder of a library."""
    return ("--library", str(library))


def format_command(run: WorkerRun, library: Path) -> tuple[str, ...]:
    """Return the arguments that describe a run."""
    parts: dict[str, object] = {"run": run, "target": run.target, "sampling": run.sampling}
    if run.drafters:
        parts |= {"drafter": run.drafters[0], "drafting": run.drafting}
    words: list[str] = []
    for flag, (field, _) in _FLAGS.items():
        part, _, name = field.partition(".")
        value = getattr(parts.get(part), name, None)
        if value not in {None, ()}:
            words += (f"--{flag}", _format(value))
    return (*format_library(library), *words, f"--prompt={run.prompt}")  # it may begin with a dash


def _format(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_format, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def parse_command(argv: Sequence[str]) -> tuple[Path, WorkerRun | None]:
    """Return the folder of the library, and the run if the arguments describe one."""
    parser = argparse.ArgumentParser(prog="python -m ggufspec.engines.library.worker")
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--prompt", dest="run.prompt")
    for flag, (field, kind) in _FLAGS.items():
        parser.add_argument(f"--{flag}", dest=field, type=kind)
    given = vars(parser.parse_args(argv))
    parts: dict[str, dict[str, Any]] = {}
    for field, value in given.items():
        part, _, name = field.partition(".")
        if value is not None:
            parts.setdefault(part, {})[name] = value
    if "target" not in parts:
        return given["library"], None
    target = ModelLoad(**parts["target"])
    drafters: tuple[ModelLoad, ...] = ()
    if "drafter" in parts:
        shared = {name: getattr(target, name) for name in _OF_BOTH}
        drafters = (ModelLoad(**shared | parts["drafter"]),)
    return given["library"], WorkerRun(
        target=target,
        drafters=drafters,
        sampling=Sampling(**parts["sampling"]),
        drafting=Drafting(**parts["drafting"]) if drafters else None,
        **parts["run"],
    )
