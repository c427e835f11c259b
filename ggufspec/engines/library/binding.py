"""llama-cpp-python's low-level API, loaded for a given library; only the worker and its check import it."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.engines.library.messages import Library
from ggufspec.llama.install import device_list, releases

_VARIABLE = "LLAMA_CPP_LIB_PATH"
_PUBLIC, _PRIVATE = "llama_cpp", "ggufspec_llama_cpp"  # the package that the files name, and ours
_NEWEST_FUNCTION = "llama_memory_seq_rm"  # of those that the engine calls
_DEFAULTS = {  # in llama.h of the binding's release; a struct with other fields has other values there
    "llama_context_default_params": {"n_ctx": 512, "n_seq_max": 1, "type_k": 1, "type_v": 1},
    "llama_model_default_params": {"split_mode": 1, "main_gpu": 0, "vocab_only": False},
}


def load_binding(library: Library) -> Any:
    """Import the binding for a library, and let it log to standard error.

    Raises:
        Failure: there is no library, it does not load, or it does not match the binding.
    """
    try:
        lib = import_binding(library)
    except FileNotFoundError as error:
        raise Failure(Status.LOAD_FAILED, f"{library.folder} has no libllama") from error
    except AttributeError as error:
        raise mismatch(str(error).rpartition(": ")[2]) from error
    except (OSError, RuntimeError) as error:
        raise Failure(Status.LOAD_FAILED, f"{library.folder}: {error}") from error
    except ImportError as error:
        raise Failure(
            Status.LOAD_FAILED, f"no Python binding loads from {library.binding}: {error}"
        ) from error
    if not hasattr(lib, _NEWEST_FUNCTION):
        oldest = releases.OLDEST_BINDING
        reason = f"the Python binding in {library.binding} has no {_NEWEST_FUNCTION}"
        raise Failure(Status.LOAD_FAILED, f"{reason}: it is older than llama-cpp-python {oldest}")
    for name, expected in _DEFAULTS.items():
        params = getattr(lib, name)()
        different = [key for key, value in expected.items() if getattr(params, key) != value]
        if different:
            raise mismatch(f"{name} has a different {different[0]}")
    lib.llama_log_set(lib.llama_log_callback(), None)  # to standard error
    device_list.load_plugins(library.folder)
    lib.llama_backend_init()
    return lib


def import_binding(library: Library) -> Any:
    """Import the binding's two files for a library, under a private name.

    An installed llama-cpp-python is neither used nor hidden. The files import each other by the package's
    public name, which therefore leads to them while they are loaded, and only then.

    Raises:
        FileNotFoundError, OSError, RuntimeError: the library does not load.
        AttributeError: it lacks a function.
        ImportError: the files cannot be imported.
    """
    os.environ[_VARIABLE] = str(library.folder)
    package = sys.modules[_PRIVATE] = ModuleType(_PRIVATE)
    package.__path__ = [str(library.binding)]
    with _without_bytecode():
        extensions = importlib.import_module(f"{_PRIVATE}._ctypes_extensions")
        with _modules({_PUBLIC: package, f"{_PUBLIC}._ctypes_extensions": extensions}):
            return importlib.import_module(f"{_PRIVATE}.{_PUBLIC}")


@contextmanager
def _without_bytecode() -> Iterator[None]:
    """Write no compiled files into a build's folder."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


@contextmanager
def _modules(aliases: dict[str, ModuleType]) -> Iterator[None]:
    """Let names lead to other modules for a while."""
    before = {name: sys.modules.get(name) for name in aliases}
    sys.modules.update(aliases)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def mismatch(reason: str) -> Failure:
    """Return the failure for a library that does not match the binding."""
    return Failure(
        Status.LOAD_FAILED,
        f"the library does not match its Python binding ({reason}); `ggufspec build` makes both",
    )


def address_of_logits(lib: Any) -> Callable[[Any], int]:
    """Return ``llama_get_logits`` as a function that returns an integer: faster than a pointer object."""
    get_logits = ctypes.CDLL(lib._lib._name)["llama_get_logits"]  # noqa: SLF001  # its path is not public
    get_logits.argtypes = [ctypes.c_void_p]
    get_logits.restype = ctypes.c_void_p
    return get_logits
