"""llama-cpp-python's low-level API on a library that we built; only the worker imports it."""

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
_DEFAULTS = {  # what llama.h of the binding's release says; a struct of another shape reads as something else
    "llama_context_default_params": {"n_ctx": 512, "n_seq_max": 1, "type_k": 1, "type_v": 1},
    "llama_model_default_params": {"split_mode": 1, "main_gpu": 0, "vocab_only": False},
}


def load_binding(library: Path) -> Any:
    """Import the binding for the library in a folder, and let it log to standard error.

    Raises:
        Failure: there is no library, it does not load, or it is of another version than the binding.
    """
    os.environ[_VARIABLE] = str(library)
    try:
        from llama_cpp import llama_cpp as lib
    except FileNotFoundError as error:
        raise Failure(Status.LOAD_FAILED, f"{library} holds no libllama") from error
    except AttributeError as error:
        raise mismatch(str(error).rpartition(": ")[2]) from error
    except (OSError, RuntimeError) as error:
        raise Failure(Status.LOAD_FAILED, f"{library}: {error}") from error
    for name, expected in _DEFAULTS.items():
        params = getattr(lib, name)()
        odd = [key for key, value in expected.items() if getattr(params, key) != value]
        if odd:
            raise mismatch(f"{name} has another {odd[0]}")
    lib.llama_log_set(lib.llama_log_callback(), None)  # the package has put its own there
    _load_plugins(library)
    lib.llama_backend_init()
    return lib


def _load_plugins(library: Path) -> None:
    """Bring backends that are plug-ins; by itself ggml looks beside the executable, which is Python here."""
    found = next((path for end in ("so", "dylib") if (path := library / f"libggml.{end}").exists()), None)
    ggml = ctypes.CDLL(str(found)) if found else None
    if ggml is not None and hasattr(ggml, "ggml_backend_load_all_from_path"):
        ggml.ggml_backend_reg_count.restype = ctypes.c_size_t
        if not ggml.ggml_backend_reg_count():  # what is built in has registered itself by now
            ggml.ggml_backend_load_all_from_path(os.fsencode(library))


def mismatch(why: str) -> Failure:
    """Return the failure of a library and a binding that do not belong together."""
    return Failure(
        Status.LOAD_FAILED,
        f"the library does not belong to the installed llama-cpp-python {binding_release()} ({why}); "
        "`ggufspec build` makes the one that does",
    )


def address_of_logits(lib: Any) -> Callable[[Any], int]:
    """Return ``llama_get_logits`` as a function to a plain address, without a pointer object per call."""
    plain = ctypes.CDLL(lib._lib._name)["llama_get_logits"]  # noqa: SLF001  # its path, nowhere else to be had
    plain.argtypes = [ctypes.c_void_p]
    plain.restype = ctypes.c_void_p
    return plain
