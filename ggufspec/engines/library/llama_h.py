"""llama.h for ctypes: the functions that the worker calls, and the structs that they take.

The two structs of parameters change from build to build. ``layouts.json`` has their fields in order, with the
values that the library sets by default, as read from the headers and sources of many builds by
``scripts/write_layouts.py``. A library is used with the newest layout whose defaults it sets, whatever it is
called and wherever it came from; ``find_layout`` compares them. The header that was installed with a newer
library tells its layout.
"""

from __future__ import annotations

import ctypes
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ggufspec.domain import Failure, Status
from ggufspec.llama.install import find_library, library

LAYOUTS = Path(__file__).with_name("layouts.json")

_POINTER, _TEXT, _FLAG, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_bool, ctypes.c_size_t
_INT, _COUNT, _FLOAT = ctypes.c_int32, ctypes.c_uint32, ctypes.c_float
_TYPES: Mapping[str, Any] = {
    "pointer": _POINTER,
    "int32": _INT,  # enumerations, too
    "uint32": _COUNT,
    "float": _FLOAT,
    "bool": _FLAG,
    "size": _SIZE,
}
_DECLARED = {  # in C
    "int32_t": "int32",
    "int": "int32",
    "uint32_t": "uint32",
    "float": "float",
    "bool": "bool",
    "size_t": "size",
}
_COMMENT = re.compile(r"//[^\n]*|/\*(?!\.).*?\*/", re.DOTALL)

SPLIT_MODES: Mapping[str, int] = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
"""enum llama_split_mode."""

CACHE_TYPES: Mapping[str, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
"""enum ggml_type, whose numbers stand in GGUF files and never change: those that a cache may have."""

FLASH_ATTENTION_ON = 1
"""LLAMA_FLASH_ATTN_TYPE_ENABLED; before b6325 a flag."""

Default = int | float | bool | None
"""The value of a field; None for a pointer that is null."""

DEFAULTS = ("llama_model_default_params", "llama_context_default_params")

_UNTOUCHED = 0xA5
_ROOM_BYTES = 4096  # after a struct, in case the library's is larger


class Batch(ctypes.Structure):
    """struct llama_batch; unchanged since b1400."""

    _fields_ = (
        ("n_tokens", _INT),
        ("token", ctypes.POINTER(_INT)),
        ("embd", ctypes.POINTER(_FLOAT)),
        ("pos", ctypes.POINTER(_INT)),
        ("n_seq_id", ctypes.POINTER(_INT)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(_INT))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


class Embeddings(ctypes.Structure):
    """struct llama_embd: rows of hidden states."""

    _fields_ = (("data", ctypes.POINTER(_FLOAT)), ("n_rows", _SIZE), ("n_embd", _SIZE))


class _ChainParams(ctypes.Structure):
    """struct llama_sampler_chain_params."""

    _fields_ = (("no_perf", _FLAG),)


class _ThreadpoolParams(ctypes.Structure):
    """struct ggml_threadpool_params."""

    _fields_ = (
        ("cpumask", _FLAG * 512),  # GGML_MAX_N_THREADS
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", _COUNT),
        ("strict_cpu", _FLAG),
        ("paused", _FLAG),
    )


@dataclass(frozen=True, kw_only=True)
class StructLayout:
    """The structs of parameters as builds have them from ``since`` on, until the next layout.

    Attributes:
        since: the first build that was seen to have it.
        model: struct llama_model_params.
        context: struct llama_context_params.
        defaults: what ``llama_model_default_params`` and ``llama_context_default_params`` set, by field. A
            header tells none of a field that is new.
    """

    since: int
    model: type[ctypes.Structure]
    context: type[ctypes.Structure]
    defaults: Mapping[type[ctypes.Structure], Mapping[str, Default]]


@cache
def layouts() -> tuple[StructLayout, ...]:
    """Return all layouts that are known, the newest first."""
    entries = json.loads(LAYOUTS.read_text(encoding="utf-8"))
    return tuple(_layout(entry) for entry in reversed(entries))


def _layout(entry: Mapping[str, Any]) -> StructLayout:
    model, context = (_struct(f"llama_{name}_params", entry[name]) for name in ("model", "context"))
    defaults = {
        struct: {field: default for field, _, default in entry[name] if default is not ...}
        for name, struct in (("model", model), ("context", context))
    }
    return StructLayout(since=entry["since"], model=model, context=context, defaults=defaults)


def _struct(name: str, fields: list[tuple[str, str, Default]]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": [(field, _TYPES[kind]) for field, kind, _ in fields]})


_PROTOTYPES: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "llama_backend_init": (None, ()),
    "llama_max_devices": (_SIZE, ()),
    "llama_model_get_vocab": (_POINTER, (_POINTER,)),
    "llama_model_n_layer": (_INT, (_POINTER,)),
    "llama_model_n_embd": (_INT, (_POINTER,)),
    "llama_model_n_embd_out": (_INT, (_POINTER,)),
    "llama_model_n_swa": (_INT, (_POINTER,)),
    "llama_model_meta_val_str": (_INT, (_POINTER, _TEXT, _POINTER, _SIZE)),
    "llama_n_ctx": (_COUNT, (_POINTER,)),
    "llama_n_batch": (_COUNT, (_POINTER,)),
    "llama_n_ubatch": (_COUNT, (_POINTER,)),
    "llama_free": (None, (_POINTER,)),
    "llama_set_n_threads": (None, (_POINTER, _INT, _INT)),
    "llama_set_causal_attn": (None, (_POINTER, _FLAG)),
    "llama_synchronize": (None, (_POINTER,)),
    "llama_decode": (_INT, (_POINTER, Batch)),
    "llama_get_logits": (_POINTER, (_POINTER,)),
    "llama_get_logits_ith": (_POINTER, (_POINTER, _INT)),
    "llama_get_memory": (_POINTER, (_POINTER,)),
    "llama_memory_clear": (None, (_POINTER, _FLAG)),
    "llama_memory_seq_rm": (_FLAG, (_POINTER, _INT, _INT, _INT)),
    "llama_memory_seq_pos_max": (_INT, (_POINTER, _INT)),
    "llama_vocab_type": (_INT, (_POINTER,)),
    "llama_vocab_n_tokens": (_INT, (_POINTER,)),
    "llama_vocab_bos": (_INT, (_POINTER,)),
    "llama_vocab_eos": (_INT, (_POINTER,)),
    "llama_vocab_mask": (_INT, (_POINTER,)),
    "llama_vocab_get_add_bos": (_FLAG, (_POINTER,)),
    "llama_vocab_get_add_eos": (_FLAG, (_POINTER,)),
    "llama_vocab_is_eog": (_FLAG, (_POINTER, _INT)),
    "llama_vocab_get_text": (_TEXT, (_POINTER, _INT)),
    "llama_tokenize": (_INT, (_POINTER, _TEXT, _INT, _POINTER, _INT, _FLAG, _FLAG)),
    "llama_token_to_piece": (_INT, (_POINTER, _INT, _POINTER, _INT, _INT, _FLAG)),
    "llama_sampler_chain_default_params": (_ChainParams, ()),
    "llama_sampler_chain_init": (_POINTER, (_ChainParams,)),
    "llama_sampler_chain_add": (None, (_POINTER, _POINTER)),
    "llama_sampler_init_top_k": (_POINTER, (_INT,)),
    "llama_sampler_init_top_p": (_POINTER, (_FLOAT, _SIZE)),
    "llama_sampler_init_min_p": (_POINTER, (_FLOAT, _SIZE)),
    "llama_sampler_init_temp": (_POINTER, (_FLOAT,)),
    "llama_sampler_init_dist": (_POINTER, (_COUNT,)),
    "llama_sampler_sample": (_INT, (_POINTER, _POINTER, _INT)),
    "llama_sampler_free": (None, (_POINTER,)),
    "llama_attach_threadpool": (None, (_POINTER, _POINTER, _POINTER)),
    "llama_batch_ext_init": (_POINTER, (_POINTER,)),
    "llama_batch_ext_clear": (None, (_POINTER,)),
    "llama_batch_ext_add_token": (_INT, (_POINTER, _INT, _INT)),
    "llama_batch_ext_add_embd": (_INT, (_POINTER, _INT, Embeddings)),
    "llama_batch_ext_set_embd_token": (_FLAG, (_POINTER, _INT, Embeddings)),
    "llama_batch_ext_set_embd_state": (_FLAG, (_POINTER, _INT, Embeddings)),
    "llama_batch_ext_set_pos": (_FLAG, (_POINTER, _INT, _POINTER)),
    "llama_batch_ext_set_output_logits": (_FLAG, (_POINTER, _INT, _FLAG)),
    "llama_process": (_INT, (_POINTER, _INT, _POINTER)),
    "ggml_threadpool_params_init": (None, (_POINTER, _INT)),
    "ggml_threadpool_new": (_POINTER, (_POINTER,)),
    "ggml_backend_reg_by_name": (_POINTER, (_TEXT,)),
    "ggml_backend_reg_get_proc_address": (_POINTER, (_POINTER, _TEXT)),
    "ggml_backend_register": (None, (_POINTER,)),
    "ggml_backend_dev_by_name": (_POINTER, (_TEXT,)),
    "ggml_backend_cpu_buffer_type": (_POINTER, ()),
    "ggml_backend_tensor_get": (None, (_POINTER, _POINTER, _SIZE, _SIZE)),
    "ggml_get_name": (_TEXT, (_POINTER,)),
}
"""What a function returns and takes, by its name; pointers are addresses, or None."""

_FOR_HEADS = (
    "llama_batch_ext_",
    "llama_process",
    "llama_model_n_embd_out",
    "llama_vocab_mask",
)  # b11218 has all

NEEDED = tuple(name for name in _PROTOTYPES if name.startswith("llama_") and not name.startswith(_FOR_HEADS))
"""The functions that every run calls; b5763 has all of them, b5308 has not."""


class Llama:
    """A library of llama.cpp, and its functions by their names; those of ggml come with it."""

    def __init__(self, functions: ctypes.CDLL, layout: StructLayout) -> None:
        self._functions = functions
        self.layout = layout
        self._threadpools: dict[int, Any] = {}  # by their number of threads

    def use_threads(self, context: Any, threads: int) -> None:
        """Let a context evaluate with so many threads.

        They are kept between evaluations, as llama.cpp's own programs do; without OpenMP the library would
        otherwise start new ones for every evaluation. All contexts share them: no two evaluate at a time.
        """
        self.llama_set_n_threads(context, threads, threads)
        if not hasattr(self, "ggml_threadpool_new"):  # a plug-in backend does not export it
            return
        if threads not in self._threadpools:
            params = _ThreadpoolParams()
            self.ggml_threadpool_params_init(ctypes.byref(params), threads)
            self._threadpools[threads] = self.ggml_threadpool_new(ctypes.byref(params))
        self.llama_attach_threadpool(context, self._threadpools[threads], None)

    def __getattr__(self, name: str) -> Any:
        """Return a function.

        Raises:
            AttributeError: the library lacks it.
        """
        function = self.symbol(name, *self._prototype(name))
        setattr(self, name, function)
        return function

    def _prototype(self, name: str) -> tuple[Any, tuple[Any, ...]]:
        layout = self.layout
        by_struct = {
            "llama_model_default_params": (layout.model, ()),
            "llama_context_default_params": (layout.context, ()),
            "llama_model_load_from_file": (_POINTER, (_TEXT, layout.model)),
            "llama_init_from_model": (_POINTER, (_POINTER, layout.context)),
        }
        found = by_struct.get(name) or _PROTOTYPES.get(name)
        if found is None:
            raise AttributeError(name)
        return found

    def symbol(self, name: str, result: Any, arguments: tuple[Any, ...]) -> Any:
        """Return a function by the name that the library exports.

        Raises:
            AttributeError: the library lacks it.
        """
        function = self._functions[name]
        function.restype, function.argtypes = result, arguments
        return function


def load_library(folder: Path) -> Llama:
    """Load the library in a folder, or beside the programs there; it logs to standard error.

    Raises:
        Failure: there is none, it does not load, or its parameters are unknown.
    """
    file = find_library(folder)
    if file is None:
        raise Failure(Status.LOAD_FAILED, f"{folder} has no libllama")
    opened = _open(file)
    if isinstance(opened, str):
        raise Failure(Status.LOAD_FAILED, f"{file} cannot be used: {opened}")
    lib = Llama(*opened)
    library.load_plugins(file.parent)
    lib.llama_backend_init()
    return lib


def _open(file: Path) -> tuple[ctypes.CDLL, StructLayout] | str:
    """Return a library's functions and the layout of its parameters, or why it cannot be used."""
    try:
        functions = ctypes.CDLL(str(file))
    except OSError as error:
        return f"it does not load: {error}"
    absent = next((name for name in (*DEFAULTS, *NEEDED) if not hasattr(functions, name)), None)
    if absent is not None:
        return f"it lacks {absent}"
    layout = find_layout(functions, find_header(file))
    return (functions, layout) if isinstance(layout, StructLayout) else f"its llama.h is unknown: {layout}"


def find_layout(functions: ctypes.CDLL, header: Path | None = None) -> StructLayout | str:
    """Return the newest layout whose defaults the library sets; or how it differs from the newest one.

    Args:
        functions: the loaded library, with both functions of ``DEFAULTS``.
        header: a llama.h that may be the library's own.
    """
    of_header = None if header is None else _read_layout(header)
    differences = []
    for layout in (*layouts(), *filter(None, (of_header,))):
        difference = find_difference(functions, layout)
        if difference is None:
            return layout
        differences.append(difference)
    return differences[0]


def _read_layout(file: Path) -> StructLayout | None:
    """Return the layout that a header declares, with the newest known defaults; None if it is no llama.h."""
    newest = layouts()[0]
    entry: dict[str, Any] = {"since": newest.since}
    try:
        header = read_header(file)
        for name, struct in (("model", newest.model), ("context", newest.context)):
            known = newest.defaults[struct]
            fields = declared(header, f"llama_{name}_params")
            entry[name] = [(field, kind, known.get(field, ...)) for field, kind in fields]
    except (OSError, ValueError):
        return None
    return _layout(entry)


def find_header(library: Path) -> Path | None:
    """Return the llama.h that was installed with a library.

    An installation has it in ``include`` beside ``lib``, a system's package with the libraries in
    ``lib/x86_64-linux-gnu``, a source tree with the build in ``build/bin``.
    """
    folder = library.parent
    places = (root / "include" / "llama.h" for root in (folder.parent, folder.parent.parent))
    return next((path for path in places if path.is_file()), None)


def read_header(file: Path) -> str:
    """Return a header without its comments."""
    return _COMMENT.sub("", file.read_text(encoding="utf-8", errors="replace"))


def declared(header: str, struct: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each field of a struct, in order, and its type as ``layouts.json`` names it.

    Raises:
        ValueError: the header has no such struct, or a field's type is unknown.
    """
    match = re.search(rf"struct {struct} \{{(.*?)\n    \}};", header, re.DOTALL)
    if match is None:
        raise ValueError(f"there is no {struct}")
    for line in match[1].split(";"):
        words = re.sub(r"\benum\b|\bconst\b|\bstruct\b", "", line).split()
        if not words:
            continue
        type_name, names = " ".join(words[:-1]), [words[-1]]
        if "," in line:  # bool a, b
            type_name, names = words[0], [name.strip(" ,") for name in words[1:]]
        for name in names:
            is_pointer = "*" in line or type_name.endswith("callback")
            is_enum = re.search(rf"\benum\b[^;]*\b{name}\b", line) is not None
            kind = "pointer" if is_pointer else "int32" if is_enum else _DECLARED.get(type_name)
            if kind is None:
                raise ValueError(f"{struct} has {name} of an unknown type, {type_name}")
            yield name.lstrip("*"), kind


def find_difference(functions: ctypes.CDLL, layout: StructLayout) -> str | None:
    """Return the first default that is not where a layout has it; None if all are."""
    for name, struct in zip(DEFAULTS, (layout.model, layout.context), strict=True):
        written = bytearray(_call(functions, name, struct))
        for field, ctype in ((item[0], item[1]) for item in struct._fields_):
            where = getattr(struct, field)
            part = slice(where.offset, where.offset + where.size)
            defaults = layout.defaults[struct]
            if field in defaults and written[part] != _bytes(ctype, defaults[field]):
                return f"{name} has a different {field}"
            written[part] = bytes([_UNTOUCHED]) * where.size
        padding, after = written[: ctypes.sizeof(struct)], written[ctypes.sizeof(struct) :]
        if padding.strip(bytes([_UNTOUCHED, 0])):  # compilers leave padding unchanged, or write zeros
            return f"{struct.__name__} has more fields in the library"
        if after.strip(bytes([_UNTOUCHED])):
            return f"{struct.__name__} is larger in the library"
    return None


def _call(functions: ctypes.CDLL, name: str, struct: type[ctypes.Structure]) -> bytes:
    """Return the struct that a function writes, with the bytes after it if they can be seen."""
    size = ctypes.sizeof(struct)
    function = functions[name]
    if platform.machine() in {"x86_64", "AMD64"}:
        # a returned struct is written to an address that the caller passes
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
