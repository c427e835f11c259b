"""llama-cpp-python's low-level API, loaded for a given library; only the worker imports it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ggufspec.domain import Status
from ggufspec.engines.failures import Failure
from ggufspec.engines.library.commandline import binding_release

_VARIABLE = "LLAMA_CPP_LIB_PATH"
_DEFAULTS = {  # in llama.h of the binding's release; a struct with other fields has other values there
    "llama_context_default_params": {"n_ctx": 512, "n_seq_max": 1, "type_k": 1, "type_v": 1},
    "llama_model_default_params": {"split_mode": 1, "main_gpu": 0, "vocab_only": False},
}


def load_binding(library: Path) -> Any:
    """Import the binding for the library in a folder, and let it log to standard error.

    Raises:
        Failure: there is no library, it does not load, or it does not match the binding.
    """
    os.environ[_VARIABLE] = str(library)
    try:
        from llama_cpp import llama_cpp as lib
    except FileNotFoundError as error:
        raise Failure(Status.LOAD_FAILED, f"{library} has no libllama") from error
    except AttributeError as error:
        raise mismatch(str(error).rpartition(": ")[2]) from error
    except (OSError, RuntimeError) as error:
        raise Failure(Status.LOAD_FAILED, f"{library}: {error}") from error
    for name, expected in _DEFAULTS.items():
        params = getattr(lib, name)()
        different = [key for key, value in expected.items() if getattr(params, key) != value]
        if different:
            raise mismatch(f"{name} has a different {different[0]}")
    lib.llama_log_set(lib.llama_log_callback(), None)  # the package sets its own
    _load_plugins(library)
    lib.llama_backend_init()
    return lib


def _load_plugins(library: Path) -> None:
    """Load plug-in backends; ggml alone looks for them beside the executable, which is Python here."""
    file = next((path for end in ("so", "dylib") if (path := library / f"libggml.{end}").exists()), None)
    ggml = ctypes.CDLL(str(file)) if file else None
    if ggml is not None and hasattr(ggml, "ggml_backend_load_all_from_path"):
        ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
        if not ggml.ggml_backend_reg_count():  # built-in backends are registered by now
            ggml.ggml_backend_load_all_from_path(os.fsencode(library))


def mismatch(reason: str) -> Failure:
    """Return the failure for a library that does not match the binding."""
    return Failure(
        Status.LOAD_FAILED,
        f"the library does not match the installed llama-cpp-python {binding_release()} ({reason}); "
        "`ggufspec build` makes one that does",
    )


def address_of_logits(lib: Any) -> Callable[[Any], int]:
    """Return ``llama_get_logits`` as a function that returns an integer: faster than a pointer object."""
    get_logits = ctypes.CDLL(lib._lib._name)["llama_get_logits"]  # noqa: SLF001  # its path is not public
    get_logits.argtypes = [ctypes.c_void_p]
    get_logits.restype = ctypes.c_void_p
    return get_logits
