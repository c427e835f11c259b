"""What places a model in llama.h's terms: devices, shares, and tensors that stay in the processor's memory.

The binding leaves these fields as bare pointers, and ggml's functions out; both are there to be had by name.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.messages import ModelLoad

_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h: LLM_FFN_EXPS_REGEX
_NOTHING = "none"


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``: tensors by their names, and what kind of buffer they go to."""

    _fields_ = (("pattern", ctypes.c_char_p), ("kind", ctypes.c_void_p))


def put(lib: Any, params: Any, load: ModelLoad) -> tuple[Any, ...]:
    """Set what ``load`` asks for beside the layers; return what has to live until the model is loaded.

    Raises:
        Failure: the library lacks a device or a function.
    """
    if load.split_mode is not None:
        params.split_mode = getattr(lib, f"LLAMA_SPLIT_MODE_{load.split_mode.upper()}")
    if load.main_gpu is not None:
        params.main_gpu = load.main_gpu
    kept: list[Any] = []
    if load.tensor_split:
        most = int(lib.llama_max_devices())
        if len(load.tensor_split) > most:
            reason = f"{len(load.tensor_split)} shares, and the library knows {most} devices at most"
            raise Failure(Status.FAILED, reason)
        kept.append((ctypes.c_float * most)(*load.tensor_split))
        params.tensor_split = ctypes.cast(kept[-1], ctypes.POINTER(ctypes.c_float))
    if load.devices:
        kept.append(_devices(lib, load.devices))
        params.devices = ctypes.cast(kept[-1], ctypes.c_void_p)
    if load.cpu_moe is not None:
        kept.append(_on_processor(lib, load))
        params.tensor_buft_overrides = ctypes.cast(kept[-1], ctypes.c_void_p)
    return tuple(kept)


def _devices(lib: Any, names: tuple[str, ...]) -> Any:
    """Return a list of devices that ends with NULL, as ``--device`` makes it."""
    if names == (_NOTHING,):
        return (ctypes.c_void_p * 1)(None)
    find = _function(lib, "ggml_backend_dev_by_name", ctypes.c_char_p)
    found = [find(name.encode()) for name in names]
    unknown = [name for name, device in zip(names, found, strict=True) if not device]
    if unknown:
        raise Failure(Status.FAILED, f"the library has no device {unknown[0]}")
    return (ctypes.c_void_p * (len(found) + 1))(*found, None)


def _on_processor(lib: Any, load: ModelLoad) -> Any:
    """Return the overrides of ``--cpu-moe`` or ``--n-cpu-moe``, and one more that ends them."""
    kind = _function(lib, "ggml_backend_cpu_buffer_type")()
    if load.cpu_moe == "all":
        patterns = [_EXPERTS]
    else:
        patterns = [rb"blk\.%d" % number + _EXPERTS for number in range(load.cpu_moe or 0)]
    overrides = (_Override * (len(patterns) + 1))()
    for override, pattern in zip(overrides, patterns, strict=False):
        override.pattern, override.kind = pattern, kind
    return overrides


def _function(lib: Any, name: str, *arguments: Any) -> Any:
    """Return a function of ggml that gives a pointer; the library of llama.h brings it along."""
    try:
        found = ctypes.CDLL(lib._lib._name)[name]  # noqa: SLF001  # its path, nowhere else to be had
    except AttributeError as error:
        raise Failure(Status.FAILED, f"the library has no {name}, which this placement needs") from error
    found.argtypes, found.restype = arguments, ctypes.c_void_p
    return found
