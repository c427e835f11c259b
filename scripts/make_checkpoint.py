"""Write a head that is a GGUF, and its target, in Hugging Face's format, as `ggufspec convert` reads them.

    python scripts/make_checkpoint.py models/demo/eagle3.gguf models/demo/target.gguf -o checkpoint
    ggufspec convert checkpoint/head --target checkpoint/target --outtype f32

This is the converter's way back: the names of tensors and keys are those that llama.cpp's converter reads
(conversion/llama.py and conversion/qwen.py), weights become F32, or stay F16. The target's folder has its
configuration and tokenizer, without weights. Heads are EAGLE-3, DFlash or DSpark; the target is of the
architecture llama, with a sentencepiece tokenizer, as the embedded one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from ggufspec.llama.convert.checkpoints import Piece, PieceType, write_config, write_tokenizer, write_weights

EAGLE3 = {
    "fc.weight": "fc.weight",
    "d2t": "d2t",
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "norm.weight",
    "enc.output_norm.weight": "input_norm.weight",
    "blk.0.attn_norm.weight": "midlayer.input_layernorm.weight",
    "blk.0.attn_norm_2.weight": "midlayer.hidden_norm.weight",
    "blk.0.ffn_norm.weight": "midlayer.post_attention_layernorm.weight",
}
DFLASH = {
    "fc.weight": "fc.weight",
    "token_embd.weight": "embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "output_norm.weight": "norm.weight",
    "enc.output_norm.weight": "hidden_norm.weight",
    "markov_w1.weight": "markov_head.markov_w1.weight",
    "markov_w2.weight": "markov_head.markov_w2.weight",
    "conf_proj.weight": "confidence_head.proj.weight",
    "conf_proj.bias": "confidence_head.proj.bias",
}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Model:
    """A GGUF whose keys are read without the prefix of its architecture."""

    def __init__(self, path: Path) -> None:
        self.reader = gguf.GGUFReader(path)
        self.arch = str(self.reader.fields["general.architecture"].contents())

    def get(self, key: str) -> Any:
        """Return the value of a key of the architecture or of the tokenizer; None where it is absent."""
        names = (f"{self.arch}.{key}", f"tokenizer.ggml.{key}")
        return next(
            (self.reader.fields[name].contents() for name in names if name in self.reader.fields), None
        )

    def sizes(self) -> dict[str, Any]:
        """Return what both configurations say of widths and counts."""
        keys = {
            "hidden_size": "embedding_length",
            "intermediate_size": "feed_forward_length",
            "num_attention_heads": "attention.head_count",
            "num_key_value_heads": "attention.head_count_kv",
            "num_hidden_layers": "block_count",
            "max_position_embeddings": "context_length",
            "rms_norm_eps": "attention.layer_norm_rms_epsilon",
            "head_dim": "attention.key_length",
            "rope_theta": "rope.freq_base",
        }
        sizes = {name: self.get(key) for name, key in keys.items()}
        return {name: value for name, value in sizes.items() if value is not None}


def write_target(target: Model, folder: Path) -> None:
    """Write the configuration and the tokenizer of a target."""
    folder.mkdir(parents=True)
    tokens = target.get("tokens")
    ids = {f"{role}_token_id": target.get(f"{role}_token_id") for role in ("bos", "eos")}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(tokens)}
    write_config(
        folder, {**config, **target.sizes(), **{key: at for key, at in ids.items() if at is not None}}
    )
    columns = zip(tokens, target.get("scores"), target.get("token_type"), strict=True)
    write_tokenizer(
        folder, (Piece(text=text, score=score, type=PieceType(kind)) for text, score, kind in columns)
    )
    adds = {f"add_{role}_token": target.get(f"add_{role}_token") for role in ("bos", "eos")}
    write_config(folder, {key: adds[key] for key in adds if adds[key] is not None}, "tokenizer_config.json")


def write_head(head: Model, vocab: int, folder: Path) -> None:
    """Write the configuration and the weights of a head."""
    folder.mkdir(parents=True)
    tensors = {tensor.name: _values(tensor) for tensor in head.reader.tensors}
    config = _eagle3_config(head, vocab, tensors) if head.arch == "eagle3" else _dflash_config(head, tensors)
    write_config(folder, {**config, **head.sizes(), "vocab_size": vocab})
    write_weights(folder / "model.safetensors", _published(head, tensors))


def _values(tensor: gguf.ReaderTensor) -> NDArray[Any]:
    """Return the values of a tensor; quantized ones as F32."""
    kinds = gguf.GGMLQuantizationType
    if tensor.tensor_type in {kinds.F16, kinds.F32, kinds.I64}:
        return np.asarray(tensor.data)
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type)


def _eagle3_config(head: Model, vocab: int, tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    drafted = len(tensors["d2t"]) if "d2t" in tensors else vocab
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": drafted,
        "target_hidden_size": head.get("target_hidden_size"),
        "eagle_aux_hidden_state_layer_ids": head.get("target_layers"),
    }
    flags = ("norm_before_residual", "norm_before_fc")
    return config | {name: head.get(name) for name in flags if head.get(name) is not None}


def _dflash_config(head: Model, tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    is_dspark = "markov_w1.weight" in tensors
    config = {
        "architectures": ["Qwen3DSparkModel" if is_dspark else "DFlashDraftModel"],
        "model_type": "qwen3",
        "dflash_config": {
            "block_size": head.get("block_size"),
            "mask_token_id": head.get("mask_token_id"),
            "target_layer_ids": [layer - 1 for layer in head.get("target_layers")],
        },
    }
    anchored = head.get("sample_from_anchor")
    return config if anchored is None else config | {"sample_from_anchor": anchored}


def _published(head: Model, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the tensors under the names and in the order of rows of a published checkpoint."""
    is_eagle3 = head.arch == "eagle3"
    names = EAGLE3 if is_eagle3 else DFLASH
    published = {}
    for name, values in tensors.items():
        if match := re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name):
            layer = "midlayer" if is_eagle3 else f"layers.{match[1]}"
            published[names.get(name) or f"{layer}.{LAYER[match[2]]}.weight"] = (
                _rotary(values, head.get(f"attention.head_count{'_kv' if match[2] == 'attn_k' else ''}"))
                if is_eagle3 and match[2] in {"attn_q", "attn_k"}
                else values
            )
        else:
            published[names[name]] = values - np.arange(len(values)) if name == "d2t" else values
    return published


def _rotary(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Undo the converter's order of the rows of queries and keys: halves again, instead of pairs."""
    pairs = values.reshape(heads, len(values) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("head", type=Path, help="GGUF of an EAGLE-3, DFlash or DSpark head")
    parser.add_argument("target", type=Path, help="GGUF of its target")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FOLDER", help="gets the folders head and target"
    )
    options = parser.parse_args()
    target = Model(options.target)
    write_target(target, options.output / "target")
    write_head(Model(options.head), len(target.get("tokens")), options.output / "head")


if __name__ == "__main__":
    main()
