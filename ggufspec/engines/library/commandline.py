"""The worker's command line: format one run as arguments, and parse them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ggufspec.domain import Drafting, Experts, Sampling
from ggufspec.engines.library.messages import ModelLoad, WorkerRun

WORKER = (sys.executable, "-P", "-m", "ggufspec.engines.library.worker")


def format_library(library: Path) -> tuple[str, ...]:
    """Return the arguments that name the folder of a library."""
    return ("--library", str(library))


def format_command(run: WorkerRun, library: Path) -> tuple[str, ...]:
    """Return the arguments that describe a run; flags have the names of llama.cpp's programs."""
    target, drafter, sampling, drafting = run.target, run.drafter, run.sampling, run.drafting
    values: dict[str, object] = {
        "model": target.path,
        "n-gpu-layers": target.gpu_layers,
        "ctx-size": target.context_tokens,
        "cache-type": target.kv_type,
        "ubatch-size": target.ubatch_tokens,
        "rpc": ",".join(target.rpc) or None,
        "device": ",".join(target.devices) or None,
        "tensor-split": ",".join(f"{share:g}" for share in target.tensor_split) or None,
        "split-mode": target.split_mode,
        "main-gpu": target.main_gpu,
        "cpu-moe": target.cpu_moe,
        "threads": run.threads,
        "n-predict": run.n_predict,
        "temp": f"{sampling.temperature:g}",
        "top-k": sampling.top_k,
        "top-p": f"{sampling.top_p:g}",
        "min-p": f"{sampling.min_p:g}",
        "seed": sampling.seed,
    }
    if drafter is not None and drafting is not None:
        values |= {
            "model-draft": drafter.path,
            "n-gpu-layers-draft": drafter.gpu_layers,
            "device-draft": ",".join(drafter.devices) or None,
            "cpu-moe-draft": drafter.cpu_moe,
            "draft-max": drafting.n_max,
            "draft-min": drafting.n_min,
            "draft-p-min": f"{drafting.p_min:g}",
        }
    flags = {name: value for name, value in values.items() if value is not None}
    return (
        *format_library(library),
        *(word for name, value in flags.items() for word in (f"--{name}", str(value))),
        f"--prompt={run.prompt}",
    )


def parse_command(argv: Sequence[str]) -> tuple[Path, WorkerRun | None]:
    """Return the folder of the library, and the run if the arguments describe one."""
    parser = argparse.ArgumentParser(prog="python -m ggufspec.engines.library.worker")
    parser.add_argument("--library", type=Path, required=True)
    for name in ("model", "model-draft", "prompt", "cache-type", "split-mode"):
        parser.add_argument(f"--{name}")
    for name in ("n-gpu-layers", "n-gpu-layers-draft", "ubatch-size", "draft-max", "main-gpu"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("rpc", "device", "device-draft"):
        parser.add_argument(f"--{name}", type=_names, default=())
    for name in ("cpu-moe", "cpu-moe-draft"):
        parser.add_argument(f"--{name}", type=_experts, help="of the first N layers, or all")
    parser.add_argument("--tensor-split", type=_shares, default=())
    for name, default in (("ctx-size", 4096), ("threads", 1), ("n-predict", 128), ("top-k", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--draft-min", type=int, default=0)
    for name, share in (("temp", 0.0), ("top-p", 1.0), ("min-p", 0.0), ("draft-p-min", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=share)
    options = parser.parse_args(argv)
    if options.model is None:
        return options.library, None

    def load(
        path: str,
        layers: int | None,
        devices: tuple[str, ...],
        cpu_moe: Experts | None,
        rpc: tuple[str, ...] = (),
    ) -> ModelLoad:
        return ModelLoad(
            path=path,
            context_tokens=options.ctx_size,
            gpu_layers=layers,
            kv_type=options.cache_type,
            ubatch_tokens=options.ubatch_size,
            devices=devices,
            tensor_split=options.tensor_split,
            split_mode=options.split_mode,
            main_gpu=options.main_gpu,
            cpu_moe=cpu_moe,
            rpc=rpc,
        )

    drafts = options.model_draft is not None
    run = WorkerRun(
        target=load(options.model, options.n_gpu_layers, options.device, options.cpu_moe, options.rpc),
        drafter=load(
            options.model_draft, options.n_gpu_layers_draft, options.device_draft, options.cpu_moe_draft
        )
        if drafts
        else None,
        prompt=options.prompt or "",
        n_predict=options.n_predict,
        threads=options.threads,
        sampling=Sampling(
            temperature=options.temp,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            seed=options.seed,
        ),
        drafting=Drafting(n_max=options.draft_max or 3, n_min=options.draft_min, p_min=options.draft_p_min)
        if drafts
        else None,
    )
    return options.library, run


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _shares(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _experts(text: str) -> Experts:
    return "all" if text == "all" else int(text)
