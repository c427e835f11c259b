"""Train heads for the embedded pair: EAGLE-3 and DFlash for its target, and a small target with an MTP layer.

    python scripts/train_demo_heads.py --out models/demo
    python scripts/train_demo_heads.py --out models/demo --head dflash

Writes eagle3.gguf and dflash.gguf (architectures of these names, for target.gguf of that folder) and mtp.gguf
(architecture `glm4moe`: a target whose last layer drafts for it). Needs torch (the CPU build is enough),
numpy, sentencepiece, protobuf and gguf. Seeds are fixed; another machine, thread count or package version
rounds differently and gives heads that differ a little. Checkpoints in --work let an interrupted run go on
where it stopped; --fraction 0.05 is a quick trial.

Each head learns the target's distribution (forward KL divergence) on corpus text and on the target's own
greedy and sampled continuations. EAGLE-3 and MTP learn it for every step of drafts of several tokens: the
head then reads its own states, as it does when it drafts (EAGLE-3, arXiv 2503.01840, section 3.2:
training-time test). DFlash learns it for blocks of every length up to its longest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import gguf
import numpy as np
import sentencepiece
import torch
import train_demo_pair as pair
from demo_pair.heads import DFlash, Eagle3, Head, Mtp, last_state, layer_inputs
from demo_pair.model import Llama, Schedule, Shape, add_shape, add_tokenizer, layer_parts
from gguf import GGMLQuantizationType, quants
from sentencepiece import sentencepiece_model_pb2
from torch import Tensor, nn
from torch.nn import functional

SEED = 20250
EAGLE3_LAYERS = (2, 5, 7)  # whose inputs the head reads
EAGLE3_FFN = 512
DFLASH_LAYERS = (5, 7)
DFLASH_HEADS, DFLASH_HEAD_DIM, DFLASH_FFN = 3, 64, 192
DFLASH_BLOCK = 8  # tokens, of which the first one is the text's last
DFLASH_PLACES = 64  # of each text at which blocks begin in a training step
MTP_TARGET = Shape(vocab=2048, dim=192, layers=4, heads=3, ffn=512)
MTP_FFN = 512  # half of it is the routed expert, half the shared one
STEPS = 4  # tokens of a draft in training
ROWS = 4  # texts of each training step
TRUNK_RUN = Schedule(steps=300, hold=130, end=300, matrix_rate=0.02, other_rate=0.006)
HEAD_RUN = Schedule(steps=240, hold=80, end=240, matrix_rate=0.02, other_rate=0.003)
DFLASH_RUN = Schedule(steps=600, hold=200, end=600, matrix_rate=0.02, other_rate=0.003)
Texts = tuple[Tensor, Tensor]
"""Token ids (texts, time), and the target's log-probabilities of what follows (texts, time, vocab)."""
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
    texts: Texts,
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
def agreement(head: Head, target: Llama, states_of: Callable[[Tensor], Tensor], texts: Texts) -> list[float]:
    """Return for each step of a draft how often its token is the target's, where all before it were."""
    ids, logs = texts
    ids, logs = ids[-16:], logs[-16:]
    drafts = head.draft(target, ids, states_of(ids), STEPS)
    return right_so_far(
        logits.argmax(-1) == logs[:, 1 + step : 1 + step + logits.shape[1]].argmax(-1)
        for step, logits in enumerate(drafts)
    )


def right_so_far(steps: Iterable[Tensor]) -> list[float]:
    """Return for each step how many drafts are right there, of those that were right before it."""
    alive: Tensor | None = None
    shares = []
    for right in steps:
        known = torch.ones_like(right) if alive is None else alive
        alive = right & known
        shares.append(alive.sum().item() / max(1, int(known.sum())))
    return shares


def fit_dflash(
    head: DFlash, target: Llama, texts: Texts, mask: int, schedule: Schedule, work: Path
) -> list[float]:
    """Train a DFlash head on blocks of all lengths; return what ``right_so_far`` says of the longest ones."""
    ids, logs = texts
    states = torch.cat([layer_inputs(target, rows, DFLASH_LAYERS).half() for rows in ids.split(16)])
    rng = torch.Generator().manual_seed(SEED)
    last = ids.shape[1] - DFLASH_BLOCK

    def choices() -> Iterator[Tensor]:
        """Yield the length of a draft, ROWS texts, and the places where blocks begin."""
        for _ in range(schedule.steps):
            steps = torch.randint(1, DFLASH_BLOCK, (1,), generator=rng)
            rows = torch.randint(0, len(ids), (ROWS,), generator=rng)
            yield torch.cat((steps, rows, torch.randint(1, last, (DFLASH_PLACES,), generator=rng)))

    def wanted(rows: Tensor, places: Tensor, steps: int) -> Tensor:
        following = places[:, None] + torch.arange(steps)
        return logs[rows][:, following].float()

    def divergence(model: DFlash, choice: Tensor) -> Tensor:
        steps, rows, places = int(choice[0]), choice[1 : 1 + ROWS], choice[1 + ROWS :]
        logits = model.draft(target, ids[rows], states[rows].float(), places, steps, mask)
        ours = functional.log_softmax(logits, dim=-1).flatten(0, 2)
        theirs = wanted(rows, places, steps).flatten(0, 2)
        return functional.kl_div(ours, theirs, log_target=True, reduction="batchmean")

    pair.fit("dflash", head, choices(), divergence, schedule, work)
    rows, places, steps = torch.arange(len(ids) - 16, len(ids)), torch.arange(1, last, 4), DFLASH_BLOCK - 1
    with torch.no_grad():
        logits = head.draft(target, ids[rows], states[rows].float(), places, steps, mask)
        right = logits.argmax(-1) == wanted(rows, places, steps).argmax(-1)
    return right_so_far(right.unbind(-1))


def write_eagle3(
    head: Eagle3, target: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path
) -> None:
    """Write an EAGLE-3 head; its embeddings and output are the target's own."""
    shape, blocks = target.shape, head.blocks
    writer = make_writer(path, "eagle3", "ggufspec demo EAGLE-3 head", shape, blocks=1, ffn=EAGLE3_FFN)
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
        **_parts_as_they_are(blocks),
    }
    write_tensors(writer, path, {name: part.weight for name, part in parts.items()})


def write_dflash(
    head: DFlash, target: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path
) -> None:
    """Write a DFlash head; its embeddings and output are the target's own."""
    blocks = head.blocks
    writer = make_writer(
        path,
        "dflash",
        "ggufspec demo DFlash head",
        target.shape,
        blocks=1,
        ffn=DFLASH_FFN,
        heads=DFLASH_HEADS,
        head_dim=DFLASH_HEAD_DIM,
    )
    writer.add_array("dflash.target_layers", DFLASH_LAYERS)
    writer.add_uint32("dflash.block_size", DFLASH_BLOCK)
    add_tokenizer(writer, tokenizer)
    writer.add_mask_token_id(tokenizer.unk_id())  # which no text of the target contains
    parts = {
        "fc": blocks["fc"],
        "enc.output_norm": blocks["state_norm"],
        "output_norm": head.norm,
        "blk.0.attn_norm": blocks["attn_norm"],
        **_parts_as_they_are(blocks),
    }
    weights = {name: part.weight for name, part in parts.items()}
    for name in ("q", "k"):
        weights[f"blk.0.attn_{name}"] = _halves(blocks[f"w{name}"].weight, DFLASH_HEADS)
        weights[f"blk.0.attn_{name}_norm"] = _halves(blocks[f"{name}_norm"].weight, 1)
    write_tensors(writer, path, weights)


def _parts_as_they_are(blocks: nn.ModuleDict) -> dict[str, nn.Module]:
    """Return the parts of a layer whose rows no rotation reorders, by llama.cpp's names."""
    names = {
        "attn_v": "wv",
        "attn_output": "wo",
        "ffn_norm": "ffn_norm",
        "ffn_gate": "gate",
        "ffn_up": "up",
        "ffn_down": "down",
    }
    return {f"blk.0.{name}": blocks[part] for name, part in names.items()}


def write_mtp(head: Mtp, target: Llama, tokenizer: sentencepiece.SentencePieceProcessor, path: Path) -> None:
    """Write a target with an MTP layer, as a GLM-4.5 whose other layers are all dense.

    The MTP layer must be a mixture of experts there: half of its feed-forward part becomes the only routed
    expert, whose weight is always 1, and half the shared one.
    """
    shape, blocks, last = target.shape, head.blocks, target.shape.layers
    half = MTP_FFN // 2
    writer = make_writer(path, "glm4moe", "ggufspec demo MTP target", shape, blocks=last + 1, ffn=shape.ffn)
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
    write_tensors(writer, path, weights)


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Reorder rows for rotations of (i, i + d/2), where ours rotate neighbours."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def make_writer(
    path: Path,
    arch: str,
    name: str,
    shape: Shape,
    *,
    blocks: int,
    ffn: int,
    heads: int | None = None,
    head_dim: int | None = None,
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path.with_suffix(".tmp"), arch)
    add_shape(writer, name, shape, layers=blocks, ffn=ffn, heads=heads, head_dim=head_dim)
    writer.add_key_length(head_dim or shape.head_dim)
    writer.add_value_length(head_dim or shape.head_dim)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    return writer


def write_tensors(writer: gguf.GGUFWriter, path: Path, weights: dict[str, Tensor]) -> None:
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
    parser = pair.training_options(__doc__, "folder of target.gguf, and for the heads", Path("build/heads"))
    parser.add_argument("--head", choices=HEADS, help="train this head alone, instead of all three")
    args = pair.begin(parser, SEED)
    training = Training(args.out, args.work, args.fraction)
    heads = HEADS if args.head is None else {args.head: HEADS[args.head]}
    print(json.dumps({name: train(training) for name, train in heads.items()}, indent=2))


class Training:
    """What all heads are trained with; ``fraction`` is the part of the steps and texts that is used."""

    def __init__(self, out: Path, work: Path, fraction: float) -> None:
        self.out, self.work, self._fraction = out, work, fraction
        self.target, self.tokenizer = load_target(out / "target.gguf")

    def run(self, schedule: Schedule) -> Schedule:
        """Return the part of a schedule that is trained."""
        return pair.part_of(schedule, self._fraction)

    def texts(self, target: Llama, name: str) -> Texts:
        """Return texts of the corpus and of a target, with its view of them."""
        stream = pair.token_stream(self.tokenizer, 4_000, 400_000)
        windows = max(96, round(pair.DISTIL_WINDOWS * self._fraction))
        return pair.teacher_data(target, stream, windows, SEED, self.work / f"{name}.texts.pt")


def train_eagle3(training: Training) -> object:
    """Train and write eagle3.gguf; return its agreement with the target."""
    target, shape = training.target, training.target.shape
    texts = training.texts(target, "target")
    head = Eagle3(shape.dim, shape.heads, EAGLE3_FFN, shape.context)

    def states_of(ids: Tensor) -> Tensor:
        return layer_inputs(target, ids, EAGLE3_LAYERS)

    fit_head("eagle3", head, target, states_of, texts, training.run(HEAD_RUN), training.work)
    write_eagle3(head, target, training.tokenizer, training.out / "eagle3.gguf")
    return agreement(head, target, states_of, texts)


def train_dflash(training: Training) -> object:
    """Train and write dflash.gguf; return its agreement with the target."""
    target, shape = training.target, training.target.shape
    head = DFlash(shape.dim, DFLASH_HEADS, DFLASH_HEAD_DIM, DFLASH_FFN, len(DFLASH_LAYERS), shape.context)
    head.norm.load_state_dict(target.norm.state_dict())
    mask, schedule = training.tokenizer.unk_id(), training.run(DFLASH_RUN)
    shares = fit_dflash(head, target, training.texts(target, "target"), mask, schedule, training.work)
    write_dflash(head, target, training.tokenizer, training.out / "dflash.gguf")
    return shares


def train_mtp(training: Training) -> object:
    """Train and write mtp.gguf; return the layer's agreement with its target, and the target's loss."""
    tokenizer, work = training.tokenizer, training.work
    trunk, schedule = Llama(MTP_TARGET), training.run(TRUNK_RUN)
    data = pair.batches(pair.token_stream(tokenizer, 5_000, pair.STREAM_TOKENS), 512, schedule.steps, 5_000)
    pair.fit("trunk", trunk, data, pair.next_token_loss, schedule, work)
    trunk.requires_grad_(False)
    texts = training.texts(trunk, "trunk")
    mtp = Mtp(MTP_TARGET.dim, MTP_TARGET.heads, MTP_FFN, MTP_TARGET.context)
    mtp.norm.load_state_dict(trunk.norm.state_dict())

    def states_of(ids: Tensor) -> Tensor:
        return last_state(trunk, ids)

    fit_head("mtp", mtp, trunk, states_of, texts, training.run(HEAD_RUN), work)
    write_mtp(mtp, trunk, tokenizer, training.out / "mtp.gguf")
    held_out = pair.token_stream(tokenizer, 1, 32768)[:32768]
    return {
        "agreement": agreement(mtp, trunk, states_of, texts),
        "trunk_loss": pair.held_out_loss(trunk, held_out),
    }


HEADS = {"eagle3": train_eagle3, "mtp": train_mtp, "dflash": train_dflash}


if __name__ == "__main__":
    main()
