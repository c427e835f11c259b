"""Set the placement of a model in llama.h's structs: devices, shares, and tensors on the processor."""

from __future__ import annotations

import ctypes
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.llama_h import SPLIT_MODES, Llama
from ggufspec.engines.library.messages import ModelLoad

_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h: LLM_FFN_EXPS_REGEX
_NOTHING = "none"
_registered: set[str] = set()  # addresses of workers; the library keeps them as long as its process


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``: a pattern of tensor names, and the buffer type for them."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def set_placement(lib: Llama, params: Any, load: ModelLoad) -> tuple[Any, ...]:
    """Set the placement beside the layers; return buffers that must live until the model is loaded.

    Raises:
        Failure: the library lacks a device or a function.
    """
    _add_workers(lib, load.rpc)  # their devices can be named from here on
    if load.split_mode is not None:
        params.split_mode = SPLIT_MODES[load.split_mode]
    if load.main_gpu is not None:
        params.main_gpu = load.main_gpu
    buffers: list[Any] = []
    if load.tensor_split:
        most = int(lib.llama_max_devices())
        if len(load.tensor_split) > most:
            reason = f"{len(load.tensor_split)} shares, but the library supports at most {most} devices"
            raise Failure(Status.FAILED, reason)
        buffers.append((ctypes.c_float * most)(*load.tensor_split))
        params.tensor_split = ctypes.cast(buffers[-1], ctypes.c_void_p)
    if load.devices:
        buffers.append(_devices(lib, load.devices))
        params.devices = ctypes.cast(buffers[-1], ctypes.c_void_p)
    if load.cpu_moe is not None:
        buffers.append(_on_processor(lib, load))
        params.tensor_buft_overrides = ctypes.cast(buffers[-1], ctypes.c_void_p)
    return tuple(buffers)


def _add_workers(lib: Llama, addresses: tuple[str, ...]) -> None:
    """Register the devices of workers, as for ``--rpc`` (``add_rpc_devices`` in common/arg.cpp).

    The function that does it is not exported; the backend gives its address.
    """
    for address in addresses:
        if address in _registered:
            continue
        backend = _function(lib, "ggml_backend_reg_by_name")(b"RPC")
        if not backend:
            raise Failure(Status.FAILED, "the library has no RPC; `ggufspec build` makes one with it")
        find_address = _function(lib, "ggml_backend_reg_get_proc_address")
        add_server = find_address(backend, b"ggml_backend_rpc_add_server")
        if not add_server:
            raise Failure(Status.FAILED, "the library's RPC cannot add a worker")
        worker = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(add_server)(address.encode())
        if not worker:
            raise Failure(Status.WORKER_UNREACHABLE, f"the library cannot use the worker {address}")
        _function(lib, "ggml_backend_register")(worker)
        _registered.add(address)


def _devices(lib: Llama, names: tuple[str, ...]) -> Any:
    """Return a NULL-terminated list of devices, as for ``--device``."""
    if names == (_NOTHING,):
        return (ctypes.c_void_p * 1)(None)
    find_device = _function(lib, "ggml_backend_dev_by_name")
    devices = [find_device(name.encode()) for name in names]
    unknown = [name for name, device in zip(names, devices, strict=True) if not device]
    if unknown:
        raise Failure(Status.FAILED, f"the library has no device {unknown[0]}")
    return (ctypes.c_void_p * (len(devices) + 1))(*devices, None)


def _on_processor(lib: Llama, load: ModelLoad) -> Any:
    """Return the overrides of ``--cpu-moe`` or ``--n-cpu-moe``, with an empty one at the end."""
    buffer_type = _function(lib, "ggml_backend_cpu_buffer_type")()
    if load.cpu_moe == "all":
        patterns = [_EXPERTS]
    else:
        patterns = [rb"blk\.%d" % number + _EXPERTS for number in range(load.cpu_moe or 0)]
    overrides = (_Override * (len(patterns) + 1))()
    for override, pattern in zip(overrides, patterns, strict=False):
        override.pattern, override.buffer_type = pattern, buffer_type
    return overrides


def _function(lib: Llama, name: str) -> Any:
    try:
        return getattr(lib, name)
    except AttributeError as error:
        raise Failure(Status.FAILED, f"the library has no {name}, which this placement needs") from error
