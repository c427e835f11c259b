"""Train heads for the embedded pair: EAGLE-3 for its target, and a small target with an MTP layer of its own.

    python scripts/train_demo_heads.py --out models/demo

Writes eagle3.gguf (architecture `eagle3`, for target.gguf of that folder) and mtp.gguf (architecture
`glm4moe`: a target whose last layer drafts for it). Needs torch (the CPU build is enough), numpy,
sentencepiece, protobuf and gguf. Seeds are fixed; another machine, thread count or package version rounds
differently and gives heads that differ a little. Checkpoints in --work let an interrupted run go on where it
stopped; --fraction 0.05 is a quick trial.

Each head learns the target's distribution (forward KL divergence) on corpus text and on the target's own
greedy and sampled continuations, for every step of drafts of several tokens: the head then reads its own
states, as it does when it drafts (EAGLE-3, arXiv 2503.01840, section 3.2: training-time test).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
import train_demo_pair as pair
from demo_pair.heads import Eagle3, Head, Mtp, last_state, layer_inputs
from demo_pair.model import Llama, Schedule, Shape, add_shape, add_tokenizer, layer_parts
from gguf import GGMLQuantizationType, quants
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor
from torch.nn import functional

SEED = 20250
EAGLE3_LAYERS = (2, 5, 7)  # whose inputs the head reads
EAGLE3_FFN = 512
MTP_TARGET = Shape(vocab=2048, dim=192, layers=4, heads=3, ffn=512)
MTP_FFN = 512  # half of it is the routed expert, half the shared one
STEPS = 4  # tokens of a draft in training
ROWS = 4  # texts of each training step
TRUNK_RUN = Schedule(steps=300, hold=130, end=300, matrix_rate=0.02, other_rate=0.006)
HEAD_RUN = Schedule(steps=240, hold=80, end=240, matrix_rate=0.02, other_rate=0.003)
_TYPES = {"unknown": 2, "control": 3, "byte": 6}  # sentencepiece's numbers of pieces that are not normal


def load_target(path: Path) -> tuple[Llama, sentencepiece.SentencePieceProcessor]:
    """Read a model of the `llama` architecture and its tokenizer from a GGUF file."""
    reader = gguf.GGUFReader(path)

    def number(key: str) -> int:
        return int(reader.fields[f"llama.{key}"].contents())

    weights = {
        tensor.name.removesuffix(".weight"): torch.tensor(
            quants.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1].tolist())
        )
        for tensor in reader.tensors
    }
    shape = Shape(
        vocab=len(weights["output"]),
        dim=number("embedding_length"),
        layers=number("block_count"),
        heads=number("attention.head_count"),
        ffn=number("feed_forward_length"),
        context=number("context_length"),
    )
    model = Llama(shape)
    parts = {"token_embd": model.embed, "output_norm": model.norm, "output": model.head}
    for index, block in enumerate(model.blocks):
        parts |= {f"blk.{index}.{name}": part for name, part in layer_parts(block).items()}
    with torch.no_grad():
        for name, part in parts.items():
            part.weight.copy_(weights[name])
    return model.requires_grad_(False).eval(), _load_tokenizer(reader)


def _load_tokenizer(reader: gguf.GGUFReader) -> sentencepiece.SentencePieceProcessor:
    """Return the sentencepiece model that a GGUF file's token list describes."""
    tokens, scores, types = (
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type")
    )
    numbers = {
        gguf.TokenType.UNKNOWN: _TYPES["unknown"],
        gguf.TokenType.CONTROL: _TYPES["control"],
        gguf.TokenType.BYTE: _TYPES["byte"],
    }
    model = sentencepiece_model_pb2.ModelProto()
    for token, score, kind in zip(tokens, scores, types, strict=True):
        model.pieces.add(piece=token, score=score, type=numbers.get(kind, 1))
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    trainer.model_type, trainer.byte_fallback = sentencepiece_model_pb2.TrainerSpec.BPE, True
    trainer.vocab_size = len(tokens)
    normalizer.name, normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces = (
        "identity",
        False,
        False,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def fit_head(
    name: str,
    head: Head,
    target: Llama,
    states_of: Callable[[Tensor], Tensor],
    texts: tuple[Tensor, Tensor],
    schedule: Schedule,
    work: Path,
) -> None:
    """Train a head towards the distribution of its target, at every step of its drafts."""
    ids, logs = texts
    states = torch.cat([states_of(rows).half() for rows in ids.split(16)])

    def choices() -> Iterator[Tensor]:
        rng = torch.Generator().manual_seed(SEED)
        for _ in range(schedule.steps):
            yield torch.randint(0, len(ids), (ROWS,), generator=rng)

    def divergence(model: Head, index: Tensor) -> Tensor:
        drafts = model.draft(target, ids[index], states[index].float(), STEPS)
        losses = []
        for step, logits in enumerate(drafts):
            wanted = logs[index, 1 + step : 1 + step + logits.shape[1]].float().flatten(0, 1)
            ours = functional.log_softmax(logits, dim=-1).flatten(0, 1)
            losses.append(functional.kl_div(ours, wanted, log_target=True, reduction="batchmean"))
        return torch.stack(losses).mean()

    pair.fit(name, head, choices(), divergence, schedule, work)


@torch.no_grad()
def agreement(
    head: Head, target: Llama, states_of: Callable[[Tensor], Tensor], texts: tuple[Tensor, Tensor]
) -> list[float]:
    """Return for each step of a draft how often its token is the target's, where all before it were."""
    ids, logs = texts
    ids, logs = ids[-16:], logs[-16:]
    drafts = head.draft(target, ids, states_of(ids), STEPS)
    alive = torch.ones(drafts[0].shape[:2], dtype=torch.bool)
    shares = []
    for step, logits in enumerate(drafts):
        right = logits.argmax(-1) == logs[:, 1 + step : 1 + step + logits.shape[1]].argmax(-1)
        shares.append((right & alive).sum().item() / max(1, int(alive.sum())))
        alive &= right
    return shares


def write_eagle3(
    head: Eagle3, target: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path
) -> None:
    """Write an EAGLE-3 head; its embeddings and output are the target's own."""
    shape, blocks = target.shape, head.blocks
    writer = _writer(path, "eagle3", "ggufspec demo EAGLE-3 head", shape, blocks=1, ffn=EAGLE3_FFN)
    writer.add_array("eagle3.target_layers", EAGLE3_LAYERS)  # gguf's releases have no function for these two
    writer.add_uint32("eagle3.target_hidden_size", shape.dim)
    add_tokenizer(writer, tokenizer)
    parts = {
        "fc": blocks["fc"],
        "output_norm": head.norm,
        "blk.0.attn_norm": blocks["token_norm"],
        "blk.0.attn_norm_2": blocks["state_norm"],
        "blk.0.attn_q": blocks["wq"],
        "blk.0.attn_k": blocks["wk"],
        "blk.0.attn_v": blocks["wv"],
        "blk.0.attn_output": blocks["wo"],
        "blk.0.ffn_norm": blocks["ffn_norm"],
        "blk.0.ffn_gate": blocks["gate"],
        "blk.0.ffn_up": blocks["up"],
        "blk.0.ffn_down": blocks["down"],
    }
    _write(writer, path, {name: part.weight for name, part in parts.items()})


def write_mtp(head: Mtp, target: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path) -> None:
    """Write a target with an MTP layer, as a GLM-4.5 whose other layers are all dense.

    The MTP layer must be a mixture of experts there: half of its feed-forward part becomes the only routed
    expert, whose weight is always 1, and half the shared one.
    """
    shape, blocks, last = target.shape, head.blocks, target.shape.layers
    half = MTP_FFN // 2
    writer = _writer(path, "glm4moe", "ggufspec demo MTP target", shape, blocks=last + 1, ffn=shape.ffn)
    writer.add_nextn_predict_layers(1)
    writer.add_expert_count(1)
    writer.add_expert_used_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_feed_forward_length(half)
    writer.add_leading_dense_block_count(last)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    add_tokenizer(writer, tokenizer)
    weights = {
        "token_embd": target.embed.weight,
        "output_norm": target.norm.weight,
        "output": target.head.weight,
    }
    for index, block in enumerate(target.blocks):
        for name, part in layer_parts(block).items():
            name = {"ffn_norm": "post_attention_norm"}.get(name, name)
            weight = part.weight
            if name in {"attn_q", "attn_k"}:
                weight = _halves(weight, shape.heads)
            weights[f"blk.{index}.{name}"] = weight
    weights |= {
        f"blk.{last}.{name}": weight
        for name, weight in {
            "nextn.eh_proj": blocks["eh_proj"].weight,
            "nextn.enorm": blocks["token_norm"].weight,
            "nextn.hnorm": blocks["state_norm"].weight,
            "nextn.shared_head_norm": head.norm.weight,
            "attn_norm": blocks["attn_norm"].weight,
            "attn_q": _halves(blocks["wq"].weight, shape.heads),
            "attn_k": _halves(blocks["wk"].weight, shape.heads),
            "attn_v": blocks["wv"].weight,
            "attn_output": blocks["wo"].weight,
            "post_attention_norm": blocks["ffn_norm"].weight,
            "ffn_gate_inp": torch.zeros(1, shape.dim),
            "ffn_gate_exps": blocks["gate"].weight[None, :half],
            "ffn_up_exps": blocks["up"].weight[None, :half],
            "ffn_down_exps": blocks["down"].weight[None, :, :half],
            "ffn_gate_shexp": blocks["gate"].weight[half:],
            "ffn_up_shexp": blocks["up"].weight[half:],
            "ffn_down_shexp": blocks["down"].weight[:, half:],
        }.items()
    }
    writer.add_tensor(f"blk.{last}.exp_probs_b.bias", np.zeros(1, dtype=np.float32))
    _write(writer, path, weights)


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder rows for rotations of (i, i + d/2), where ours rotate neighbours."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _writer(path: Path, arch: str, name: str, shape: Shape, *, blocks: int, ffn: int) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path.with_suffix(".tmp"), arch)
    add_shape(writer, name, shape, layers=blocks, ffn=ffn)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    return writer


def _write(writer: gguf.GGUFWriter, path: Path, weights: dict[str, Tensor]) -> None:
    """Write matrices in Q8_0 and the rest in F32, and give the file its name in one step."""
    kind = GGMLQuantizationType.Q8_0
    for name, weight in weights.items():
        values = weight.detach().float().contiguous().numpy()
        if values.ndim > 1 and "ffn_gate_inp" not in name:
            writer.add_tensor(f"{name}.weight", quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".tmp").replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of target.gguf, and for the heads")
    parser.add_argument("--work", type=Path, default=Path("build/heads"), help="folder for checkpoints")
    parser.add_argument("--fraction", type=float, default=1.0, help="part of the steps to train")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(SEED)
    args.work.mkdir(parents=True, exist_ok=True)

    def run(schedule: Schedule) -> Schedule:
        steps, hold, end = (max(4, round(n * args.fraction)) for n in schedule[:3])
        return schedule._replace(steps=steps, hold=min(hold, end - 1), end=end)

    windows = max(96, round(pair.DISTIL_WINDOWS * args.fraction))
    target, tokenizer = load_target(args.out / "target.gguf")
    stream = pair.token_stream(tokenizer, 4_000, 400_000)
    report = {}

    texts = pair.teacher_data(target, stream, windows, SEED, args.work / "target.texts.pt")
    eagle3 = Eagle3(target.shape.dim, target.shape.heads, EAGLE3_FFN, target.shape.context)

    def eagle3_states(ids: Tensor) -> Tensor:
        return layer_inputs(target, ids, EAGLE3_LAYERS)

    fit_head("eagle3", eagle3, target, eagle3_states, texts, run(HEAD_RUN), args.work)
    write_eagle3(eagle3, target, tokenizer, args.out / "eagle3.gguf")
    report["eagle3"] = agreement(eagle3, target, eagle3_states, texts)

    trunk, schedule = Llama(MTP_TARGET), run(TRUNK_RUN)
    data = pair.batches(pair.token_stream(tokenizer, 5_000, pair.STREAM_TOKENS), 512, schedule.steps, 5_000)
    pair.fit("trunk", trunk, data, pair.next_token_loss, schedule, args.work)
    trunk.requires_grad_(False)
    texts = pair.teacher_data(trunk, stream, windows, SEED, args.work / "trunk.texts.pt")
    mtp = Mtp(MTP_TARGET.dim, MTP_TARGET.heads, MTP_FFN, MTP_TARGET.context)
    mtp.norm.load_state_dict(trunk.norm.state_dict())

    def mtp_states(ids: Tensor) -> Tensor:
        return last_state(trunk, ids)

    fit_head("mtp", mtp, trunk, mtp_states, texts, run(HEAD_RUN), args.work)
    write_mtp(mtp, trunk, tokenizer, args.out / "mtp.gguf")
    report["mtp"] = agreement(mtp, trunk, mtp_states, texts)
    held_out = pair.token_stream(tokenizer, 1, 32768)[:32768]
    report["trunk_loss"] = pair.held_out_loss(trunk, held_out)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
