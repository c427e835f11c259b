"""Set the placement of a model in llama.h's structs: devices, shares, and tensors in the processor's memory.

The binding declares these fields as untyped pointers and lacks ggml's functions, which are loaded by name
here.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.messages import ModelLoad

_EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h: LLM_FFN_EXPS_REGEX
_NOTHING = "none"
_registered: set[str] = set()  # addresses of workers; the library keeps them as long as its process


class _Override(ctypes.Structure):
    """``llama_model_tensor_buft_override``: a pattern of tensor names, and the buffer type for them."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def set_placement(lib: Any, params: Any, load: ModelLoad) -> tuple[Any, ...]:
    """Set the placement beside the layers; return buffers that must live until the model is loaded.

    Raises:
        Failure: the library lacks a device or a function.
    """
    _add_workers(lib, load.rpc)  # their devices can be named from here on
    if load.split_mode is not None:
        params.split_mode = getattr(lib, f"LLAMA_SPLIT_MODE_{load.split_mode.upper()}")
    if load.main_gpu is not None:
        params.main_gpu = load.main_gpu
    buffers: list[Any] = []
    if load.tensor_split:
        most = int(lib.llama_max_devices())
        if len(load.tensor_split) > most:
            reason = f"{len(load.tensor_split)} shares, but the library supports at most {most} devices"
            raise Failure(Status.FAILED, reason)
        buffers.append((ctypes.c_float * most)(*load.tensor_split))
        params.tensor_split = ctypes.cast(buffers[-1], ctypes.POINTER(ctypes.c_float))
    if load.devices:
        buffers.append(_devices(lib, load.devices))
        params.devices = ctypes.cast(buffers[-1], ctypes.c_void_p)
    if load.cpu_moe is not None:
        buffers.append(_on_processor(lib, load))
        params.tensor_buft_overrides = ctypes.cast(buffers[-1], ctypes.c_void_p)
    return tuple(buffers)


def _add_workers(lib: Any, addresses: tuple[str, ...]) -> None:
    """Register the devices of workers, as for ``--rpc`` (``add_rpc_devices`` in common/arg.cpp).

    The function that does it is not exported; the backend gives its address.
    """
    for address in addresses:
        if address in _registered:
            continue
        backend = _function(lib, "ggml_backend_reg_by_name", ctypes.c_char_p)(b"RPC")
        if not backend:
            raise Failure(Status.FAILED, "the library has no RPC; `ggufspec build` makes one with it")
        find_address = _function(lib, "ggml_backend_reg_get_proc_address", ctypes.c_void_p, ctypes.c_char_p)
        add_server = find_address(backend, b"ggml_backend_rpc_add_server")
        if not add_server:
            raise Failure(Status.FAILED, "the library's RPC cannot add a worker")
        worker = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p)(add_server)(address.encode())
        if not worker:
            raise Failure(Status.WORKER_UNREACHABLE, f"the library cannot use the worker {address}")
        _function(lib, "ggml_backend_register", ctypes.c_void_p)(worker)
        _registered.add(address)


def _devices(lib: Any, names: tuple[str, ...]) -> Any:
    """Return a NULL-terminated list of devices, as for ``--device``."""
    if names == (_NOTHING,):
        return (ctypes.c_void_p * 1)(None)
    find_device = _function(lib, "ggml_backend_dev_by_name", ctypes.c_char_p)
    devices = [find_device(name.encode()) for name in names]
    unknown = [name for name, device in zip(names, devices, strict=True) if not device]
    if unknown:
        raise Failure(Status.FAILED, f"the library has no device {unknown[0]}")
    return (ctypes.c_void_p * (len(devices) + 1))(*devices, None)


def _on_processor(lib: Any, load: ModelLoad) -> Any:
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


def _function(lib: Any, name: str, *arguments: Any) -> Any:
    """Return a function of ggml that returns a pointer; it is loaded with llama.cpp's library."""
    try:
        function = ctypes.CDLL(lib._lib._name)[name]  # noqa: SLF001  # its path is not public
    except AttributeError as error:
        raise Failure(Status.FAILED, f"the library has no {name}, which this placement needs") from error
    function.argtypes, function.restype = arguments, ctypes.c_void_p
    return function
