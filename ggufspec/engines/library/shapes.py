"""Check that a library's default parameters are where the binding's structs expect them.

Run in a separate process: a library whose structs differ writes to the wrong addresses.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from ggufspec.engines.library.binding import import_binding
from ggufspec.engines.library.commandline import parse_command
from ggufspec.engines.library.messages import Library

PROBE = (sys.executable, "-P", "-m", "ggufspec.engines.library.shapes")
AGREES = "agrees"
"""Printed if every field agrees; otherwise the first difference is printed."""

_UNTOUCHED = 0xA5
_ROOM_BYTES = 4096  # after a struct, in case the library's is larger


Default = int | float | bool | None

# The defaults of release 0.3.36 of llama-cpp-python, field by field. A library whose structs differ has other
# values in some of these fields. A field that a later release adds is refused by name until it has a row.
MODEL: Mapping[str, Default] = {  # src/llama-model.cpp
    "devices": None,
    "tensor_buft_overrides": None,
    "n_gpu_layers": -1,
    "split_mode": 1,
    "load_mode": -1,
    "lazy_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "progress_callback": None,
    "progress_callback_user_data": None,
    "kv_overrides": None,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_host": False,
    "no_alloc": False,
    "load_mtp": False,
}

CONTEXT: Mapping[str, Default] = {  # src/llama-context.cpp
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "n_rs_seq": 0,
    "n_outputs_max": 0,
    "n_outputs_max_per_seq": 1,
    "n_threads": 4,
    "n_threads_batch": 4,
    "ctx_type": 0,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "rope_freq_base": 0.0,
    "rope_freq_scale": 0.0,
    "yarn_ext_factor": -1.0,
    "yarn_attn_factor": -1.0,
    "yarn_beta_fast": -1.0,
    "yarn_beta_slow": -1.0,
    "yarn_orig_ctx": 0,
    "defrag_thold": -1.0,
    "cb_eval": None,
    "cb_eval_user_data": None,
    "type_k": 1,
    "type_v": 1,
    "abort_callback": None,
    "abort_callback_data": None,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "swa_full": True,
    "kv_unified": False,
    "samplers": None,
    "n_samplers": 0,
    "ctx_other": None,
}


def find_difference(library: ctypes.CDLL, structs: Mapping[str, type[ctypes.Structure]]) -> str | None:
    """Return the first default that is not where the binding's struct has it; None if all are.

    Args:
        library: exports the functions.
        structs: function name -> the binding's struct that it returns.
    """
    for function, struct in structs.items():
        defaults = {"llama_model_default_params": MODEL, "llama_context_default_params": CONTEXT}[function]
        written = bytearray(_call(library, function, struct))
        for name, ctype in ((field[0], field[1]) for field in struct._fields_):
            field_value = getattr(struct, name)
            if name not in defaults:
                return f"{struct.__name__}.{name} is a field that this ggufspec does not know"
            part = slice(field_value.offset, field_value.offset + field_value.size)
            if written[part] != _bytes(ctype, defaults[name]):
                return f"{function} has a different {name}"
            written[part] = bytes([_UNTOUCHED]) * field_value.size
        padding, after = written[: ctypes.sizeof(struct)], written[ctypes.sizeof(struct) :]
        if padding.strip(bytes([_UNTOUCHED, 0])):  # compilers leave padding unchanged, or write zeros
            return f"{struct.__name__} has more fields in the library"
        if after.strip(bytes([_UNTOUCHED])):
            return f"{struct.__name__} is larger in the library"
    return None


def _call(library: ctypes.CDLL, name: str, struct: type[ctypes.Structure]) -> bytes:
    """Return the struct that a function writes, with the bytes after it if they can be seen."""
    size = ctypes.sizeof(struct)
    function = library[name]
    if platform.machine() in {
        "x86_64",
        "AMD64",
    }:  # a returned struct is written to an address that the caller passes
        room = (ctypes.c_ubyte * (size + _ROOM_BYTES))(*[_UNTOUCHED] * (size + _ROOM_BYTES))
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
        function(ctypes.addressof(room))
        return bytes(room)

    class Roomy(ctypes.Structure):
        """The struct, and room for a larger one."""

        _fields_ = (("known", struct), ("room", ctypes.c_ubyte * _ROOM_BYTES))

    function.argtypes, function.restype = [], Roomy
    return bytes(function())[:size]


def _bytes(ctype: Any, value: Default) -> bytes:
    return bytes(ctypes.sizeof(ctype)) if value is None else bytes(ctype(value))


def main(library: Library) -> str:
    """Return the line to print for a library."""
    try:
        binding = import_binding(library)
    except (OSError, RuntimeError, FileNotFoundError) as error:
        return f"it does not load: {error}"
    except AttributeError as error:
        return f"it lacks {str(error).rpartition(': ')[2]}"
    structs = {
        "llama_model_default_params": binding.llama_model_params,
        "llama_context_default_params": binding.llama_context_params,
    }
    return find_difference(binding._lib, structs) or AGREES  # noqa: SLF001  # the library is not public


if __name__ == "__main__":
    sys.stdout.write(f"{main(parse_command(sys.argv[1:])[0])}\n")
    sys.stdout.flush()
    os._exit(0)  # skip unloading, in which libraries have crashed
