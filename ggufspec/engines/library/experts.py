"""Which experts a target uses for each token, by llama.cpp's callback for evaluations.

The callback splits a graph behind every tensor that it looks at, which takes time. So it has a context of its
own, beside the one in which runs are timed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ggufspec.engines.library.llama_h import Llama
from ggufspec.engines.library.messages import ExpertChoices, ExpertRun
from ggufspec.engines.library.model import Model, read_in_batches

_CHOSEN = b"ffn_moe_topk-"  # before the layer's number: build_moe_ffn in llama.cpp's src/llama-graph.cpp
_Callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)


class _TensorShape(ctypes.Structure):
    """How struct ggml_tensor begins; ``sizes`` are in elements and ``strides`` in bytes."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("sizes", ctypes.c_int64 * 4),
        ("strides", ctypes.c_size_t * 4),
    )


def trace_experts(target: Model, run: ExpertRun) -> ExpertChoices:
    """Evaluate a text in a second context of the target, and keep what its routers choose.

    Raises:
        Failure: there is no memory for another context, or the text does not fit into it.
    """
    lib = target.lib
    chosen: dict[int, list[tuple[int, ...]]] = {}

    def observe(tensor: int, is_question: bool, _: Any) -> bool:
        name: bytes = lib.ggml_get_name(tensor)
        if not name.startswith(_CHOSEN):
            return not is_question
        if not is_question:
            chosen.setdefault(int(name.removeprefix(_CHOSEN)), []).extend(_read_rows(lib, tensor))
        return True

    callback = _Callback(observe)  # as long as this name lives, llama.cpp may call it
    address = ctypes.cast(callback, ctypes.c_void_p).value
    model = Model(lib, run.target, threads=run.threads, handle=target.handle, cb_eval=address)
    try:
        prompt = model.vocabulary.tokens(run.prompt)
        model.evaluate(prompt[:-1], 0)
        chosen.clear()
        # the last layer evaluates only tokens whose logits are wanted, so that all of them are
        for _ in read_in_batches(model, (*prompt, *run.answer), len(prompt) - 1):
            pass
        model.wait()
    finally:
        model.free_context()
    return ExpertChoices(layers={layer: tuple(rows) for layer, rows in sorted(chosen.items())})


def _read_rows(lib: Llama, tensor: int) -> list[tuple[int, ...]]:
    """Return the experts of each token: the first columns of what sorts all of them, so rows lie apart."""
    shape = _TensorShape.from_address(tensor)
    n_used, n_tokens = shape.sizes[0], shape.sizes[1]
    row = (ctypes.c_int32 * n_used)()
    rows = []
    for token in range(n_tokens):
        lib.ggml_backend_tensor_get(tensor, row, token * shape.strides[1], ctypes.sizeof(row))
        rows.append(tuple(row))
    return rows
