"""Threads that outlive an evaluation, as llama.cpp's own programs keep them.

A library without OpenMP would otherwise start its threads anew for every single evaluation.
"""

from __future__ import annotations

import ctypes
from typing import Any

_MOST_CORES = 512  # GGML_MAX_N_THREADS


class _Params(ctypes.Structure):
    """struct ggml_threadpool_params."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * _MOST_CORES),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


class Threadpools:
    """One pool per number of threads, shared by all contexts, which never evaluate at once."""

    def __init__(self, lib: Any) -> None:
        self._pools: dict[int, int] = {}
        self._symbols: ctypes.CDLL | None = ctypes.CDLL(lib._lib._name)  # noqa: SLF001  # and its dependencies
        try:
            self._symbols.ggml_threadpool_new.restype = ctypes.c_void_p
        except AttributeError:  # a plug-in backend keeps it to itself
            self._symbols = None

    def attach(self, context: Any, threads: int) -> None:
        """Let a context use the pool of a size, where the library lets us make one."""
        if self._symbols is None:
            return
        pool = self._pools.get(threads)
        if pool is None:
            params = _Params()
            self._symbols.ggml_threadpool_params_init(ctypes.byref(params), ctypes.c_int(threads))
            pool = self._pools[threads] = self._symbols.ggml_threadpool_new(ctypes.byref(params))
        self._symbols.llama_attach_threadpool(
            ctypes.c_void_p(context), ctypes.c_void_p(pool), ctypes.c_void_p(None)
        )
