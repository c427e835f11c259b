"""The worker's command: one run as words that can be pasted into a shell, and back."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from ggufspec.domain import Drafting, Experts, Sampling
from ggufspec.engines.library.messages import ModelLoad, Run

WORKER = (sys.executable, "-P", "-m", "ggufspec.engines.library.worker")


def words(run: Run, library: Path) -> tuple[str, ...]:
    """Return the arguments that describe a run; flags are named as llama.cpp's programs name them."""
    target, drafter, sampling, drafting = run.target, run.drafter, run.sampling, run.drafting
    found: dict[str, object] = {
        "library": library,
        "model": target.path,
        "n-gpu-layers": target.gpu_layers,
        "ctx-size": target.context_tokens,
        "cache-type": target.kv_type,
        "ubatch-size": target.ubatch_tokens,
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
        found |= {
            "model-draft": drafter.path,
            "n-gpu-layers-draft": drafter.gpu_layers,
            "device-draft": ",".join(drafter.devices) or None,
            "cpu-moe-draft": drafter.cpu_moe,
            "draft-max": drafting.n_max,
            "draft-min": drafting.n_min,
            "draft-p-min": f"{drafting.p_min:g}",
        }
    given = {name: value for name, value in found.items() if value is not None}
    return (
        *(word for name, value in given.items() for word in (f"--{name}", str(value))),
        f"--prompt={run.prompt}",
    )


def binding_release() -> str:
    """Return the version of the installed Python binding."""
    return metadata.version("llama-cpp-python")


def read_command(argv: Sequence[str]) -> tuple[Path, Run | None]:
    """Return the library's folder, and a run where the words describe one."""
    parser = argparse.ArgumentParser(prog="python -m ggufspec.engines.library.worker")
    parser.add_argument("--library", type=Path, required=True)
    for name in ("model", "model-draft", "prompt", "cache-type", "split-mode"):
        parser.add_argument(f"--{name}")
    for name in ("n-gpu-layers", "n-gpu-layers-draft", "ubatch-size", "draft-max", "main-gpu"):
        parser.add_argument(f"--{name}", type=int)
    for name in ("device", "device-draft"):
        parser.add_argument(f"--{name}", type=_names, default=())
    for name in ("cpu-moe", "cpu-moe-draft"):
        parser.add_argument(f"--{name}", type=_experts, help="of the first N layers, or all")
    parser.add_argument("--tensor-split", type=_shares, default=())
    for name, default in (("ctx-size", 4096), ("threads", 1), ("n-predict", 128), ("top-k", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--draft-min", type=int, default=0)
    for name, share in (("temp", 0.0), ("top-p", 1.0), ("min-p", 0.0), ("draft-p-min", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=share)
    asked = parser.parse_args(argv)
    if asked.model is None:
        return asked.library, None

    def load(path: str, layers: int | None, devices: tuple[str, ...], cpu_moe: Experts | None) -> ModelLoad:
        return ModelLoad(
            path=path,
            context_tokens=asked.ctx_size,
            gpu_layers=layers,
            kv_type=asked.cache_type,
            ubatch_tokens=asked.ubatch_size,
            devices=devices,
            tensor_split=asked.tensor_split,
            split_mode=asked.split_mode,
            main_gpu=asked.main_gpu,
            cpu_moe=cpu_moe,
        )

    drafts = asked.model_draft is not None
    run = Run(
        target=load(asked.model, asked.n_gpu_layers, asked.device, asked.cpu_moe),
        drafter=load(asked.model_draft, asked.n_gpu_layers_draft, asked.device_draft, asked.cpu_moe_draft)
        if drafts
        else None,
        prompt=asked.prompt or "",
        n_predict=asked.n_predict,
        threads=asked.threads,
        sampling=Sampling(
            temperature=asked.temp,
            top_k=asked.top_k,
            top_p=asked.top_p,
            min_p=asked.min_p,
            seed=asked.seed,
        ),
        drafting=Drafting(n_max=asked.draft_max or 3, n_min=asked.draft_min, p_min=asked.draft_p_min)
        if drafts
        else None,
    )
    return asked.library, run


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _shares(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def _experts(text: str) -> Experts:
    return "all" if text == "all" else int(text)
