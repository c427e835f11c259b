"""Which tensor gets which type: llama-quantize's rule (src/llama-quant.cpp) for the llama architecture.

`llama_tensor_get_type_impl` of September 2026; what it does for other architectures is left out. File types
that llama-quantize refuses to write without an importance matrix follow the rule with one, all others the
rule without.
"""

from __future__ import annotations

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from random_gguf.shapes import Shape, Tensor

_BASES = {  # type -> the file types that are mostly of it
    **{name: [name] for name in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")},
    "Q2_K": ["Q2_K", "Q2_K_S"],
    "Q3_K": ["Q3_K_S", "Q3_K_M", "Q3_K_L"],
    "Q4_K": ["Q4_K_S", "Q4_K_M"],
    "Q5_K": ["Q5_K_S", "Q5_K_M"],
    "Q6_K": ["Q6_K"],
    "IQ1_S": ["IQ1_S"],
    "IQ1_M": ["IQ1_M"],
    "IQ2_XXS": ["IQ2_XXS"],
    "IQ2_XS": ["IQ2_XS", "IQ2_S"],
    "IQ2_S": ["IQ2_M"],
    "IQ3_XXS": ["IQ3_XXS"],
    "IQ3_S": ["IQ3_XS", "IQ3_S", "IQ3_M"],
    "IQ4_XS": ["IQ4_XS"],
    "IQ4_NL": ["IQ4_NL"],
    "TQ1_0": ["TQ1_0"],
    "TQ2_0": ["TQ2_0"],
}
BASE = {quant: base for base, quants in _BASES.items() for quant in quants}
"""File type -> the type of most of its tensors."""

_FLOATS = {"F32", "F16", "BF16"}
_FEW_EXPERTS = 8  # with so many, as Mixtral has, attention is small beside them and gets more bits
_OUTPUT_RAISED = {"Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M"}
_OUTPUT_RAISED |= {"IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M", "IQ4_NL", "IQ4_XS"}
_IQ1 = {"IQ1_S", "IQ1_M"}
_IQ2_LARGE = {"IQ2_S", "IQ2_M"}
_IQ_SMALL = _IQ1 | _IQ2_LARGE | {"IQ2_XXS", "IQ2_XS"}
_SMALLER_BLOCKS = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_SMALLER_BLOCKS |= {"TQ1_0": "Q4_0", "TQ2_0": "Q4_0"}


def block(kind: str) -> tuple[int, int]:
    """Return how many elements a block of a type holds, and its bytes."""
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    return elements, size


def tensor_type(tensor: Tensor, shape: Shape, quant: str) -> str:
    """Return the type that llama-quantize would give a tensor in a file of type ``quant``."""
    base = BASE[quant]
    if tensor.is_norm or tensor.role == "ffn_gate_inp":  # routers are never quantized
        return "F32"
    if base in _FLOATS:
        return base
    return _fitting(_mixed(tensor, shape, quant, base), tensor.columns)


def _fitting(kind: str, columns: int) -> str:
    """Return a type whose blocks fill rows of so many columns."""
    if columns % block(kind)[0]:
        kind = _SMALLER_BLOCKS.get(kind, "IQ4_NL" if kind.startswith("IQ") else kind)
    return "F16" if columns % block(kind)[0] else kind


def _mixed(tensor: Tensor, shape: Shape, quant: str, base: str) -> str:
    if tensor.layer is None:
        if tensor.role == "output" or shape.tied:
            return _output(quant, base, tensor.columns)
        return _token_embd(quant, base)
    rule = {
        "attn_q": _attn_q,
        "attn_k": _attn_k,
        "attn_v": _attn_v,
        "attn_output": _attn_output,
        "ffn_down": _ffn_down,
        "ffn_gate": _ffn_gate_or_up,
        "ffn_up": _ffn_gate_or_up,
    }[tensor.role.removesuffix("_exps")]
    return rule(quant, tensor.layer, shape) or base


def _more_bits(layer: int, layers: int) -> bool:
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def _output(quant: str, base: str, columns: int) -> str:
    if columns % block(base)[0] or base == "Q8_0":
        return "Q8_0"
    return "Q5_K" if quant in _IQ_SMALL | {"IQ3_XXS"} else "Q6_K"


def _token_embd(quant: str, base: str) -> str:
    if quant in _IQ2_LARGE | {"IQ3_XXS"}:
        return "IQ3_S"
    if quant in _IQ_SMALL:
        return "Q2_K"
    return "Q4_K" if quant in {"TQ1_0", "TQ2_0"} else base


def _attn_q(quant: str, _layer: int, _shape: Shape) -> str | None:
    return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(quant)


def _attn_k(quant: str, layer: int, shape: Shape) -> str | None:
    if shape.experts == _FEW_EXPERTS:
        return "Q4_K" if quant in _IQ_SMALL else "Q8_0"
    return _attn_q(quant, layer, shape)


def _attn_v(quant: str, layer: int, shape: Shape) -> str | None:
    shared = shape.heads // shape.kv_heads >= 4
    if quant in _IQ_SMALL:
        shared |= (shape.experts or 0) >= 4
        return "Q4_K" if shared else "IQ3_S" if quant in _IQ2_LARGE else "Q2_K"
    if shape.experts == _FEW_EXPERTS:
        return "Q8_0"
    kind = {"IQ3_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(quant)
    if quant == "Q2_K":
        kind = "Q4_K" if shared else "Q3_K"
    elif quant in {"Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"} and shared:
        kind = "Q4_K"
    elif quant in {"IQ4_NL", "IQ4_XS"} and shared:
        kind = "Q5_K"
    elif quant == "Q3_K_M":
        kind = "Q5_K" if layer < 2 else "Q4_K"
    elif quant in {"Q4_K_M", "Q5_K_M"} and _more_bits(layer, shape.layers):
        kind = "Q6_K"
    elif quant == "Q4_K_S" and layer < 4:
        kind = "Q5_K"
    is_70b = shape.layers == 80 and shape.heads != shape.kv_heads
    return "Q5_K" if is_70b and (kind or BASE[quant]) in {"Q3_K", "Q4_K"} else kind


def _attn_output(quant: str, _layer: int, shape: Shape) -> str | None:
    if shape.experts == _FEW_EXPERTS:
        return "Q5_K" if quant in _IQ_SMALL | _OUTPUT_RAISED else None
    if quant in _IQ1:
        return "IQ2_XXS"
    if quant in _IQ2_LARGE | {"IQ3_XXS"}:
        return "IQ3_S"
    return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(quant)


def _ffn_down(quant: str, layer: int, shape: Shape) -> str | None:
    first = layer < shape.layers // 8
    if quant in _IQ_SMALL:
        return None if not first else "IQ3_S" if quant in _IQ2_LARGE else "Q2_K"
    if quant == "Q3_K_M":
        return "Q5_K" if layer < shape.layers // 16 else "Q4_K"
    if quant in {"Q4_K_M", "Q5_K_M"}:
        return "Q6_K" if _more_bits(layer, shape.layers) else None
    if quant == "IQ3_M" and shape.experts == _FEW_EXPERTS and _more_bits(layer, shape.layers):
        return "Q4_K"
    if first and quant in {"Q2_K_S", "IQ3_M"}:
        return "Q4_K"
    if first and quant in {"IQ4_NL", "IQ4_XS", "Q4_K_S"}:
        return "Q5_K"
    return {"Q2_K": "Q3_K", "Q3_K_L": "Q5_K"}.get(quant)


def _ffn_gate_or_up(quant: str, layer: int, shape: Shape) -> str | None:
    middle = shape.layers // 8 <= layer < 7 * shape.layers // 8
    return "IQ3_XXS" if quant == "IQ3_XS" and middle else None
