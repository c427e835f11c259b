"""Train a small mixture of experts beside the embedded pair, whose routers choose as trained ones do.

    python scripts/train_demo_mixture.py --out models/demo

Writes mixture.gguf: the architecture `llama` with 16 experts a layer, of which each token uses two, and the
tokenizer of target.gguf in that folder. Needs what train_demo_heads.py needs. Took 18 minutes on one thread
of a busy machine. Checkpoints in --work let an interrupted run go on; --fraction 0.05 is a quick trial.

The routers get the load-balancing loss of Switch Transformers (arXiv 2101.03961, section 2.2), over all texts
of a training step: texts of one kind may prefer some experts, and no expert is idle.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import train_demo_pair as pair
from demo_pair.model import Block, Llama, Schedule, Shape, add_tokenizer, count_parameters, layer_parts
from torch import Tensor, nn
from torch.nn import functional
from train_demo_heads import Training, make_writer, write_tensors

SEED = 20380
SHAPE = Shape(vocab=2048, dim=192, layers=4, heads=3, ffn=96)
EXPERTS, USED = 16, 2
BALANCE = 0.01  # the weight of the load-balancing loss, as in arXiv 2101.03961
RUN = Schedule(steps=200, hold=80, end=200, matrix_rate=0.02, other_rate=0.006)


class ExpertBlock(Block):
    """A layer whose feed-forward part is a mixture; ``chosen`` and ``balance`` are of the last evaluation.

    Attributes:
        chosen: the experts of each token, [tokens, USED].
        balance: the load-balancing loss, 1 where all experts are used alike.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.router = nn.Linear(shape.dim, EXPERTS, bias=False)
        experts = {
            "gate": (shape.ffn, shape.dim),
            "up": (shape.ffn, shape.dim),
            "down": (shape.dim, shape.ffn),
        }
        for name, size in experts.items():
            weight = torch.empty(EXPERTS, *size).uniform_(-1, 1) / size[1] ** 0.5
            part = nn.Module()
            part.weight = nn.Parameter(torch.zeros_like(weight) if name == "down" else weight)
            setattr(self, name, part)

    def feed_forward(self, h: Tensor) -> Tensor:
        """Send each token to two experts; their weights are the router's, made to add up to 1."""
        flat = h.flatten(0, 1)
        chances = self.router(flat).softmax(-1)
        weights, self.chosen = chances.topk(USED)
        weights = weights / weights.sum(-1, keepdim=True)
        used = functional.one_hot(self.chosen, EXPERTS).sum(1).float().mean(0) / USED
        self.balance = EXPERTS * (used * chances.mean(0)).sum()
        out = torch.zeros_like(flat)
        for expert in range(EXPERTS):
            tokens, slot = (self.chosen == expert).nonzero(as_tuple=True)
            x = flat[tokens]
            inner = functional.silu(x @ self.gate.weight[expert].T) * (x @ self.up.weight[expert].T)
            out.index_add_(0, tokens, weights[tokens, slot, None] * (inner @ self.down.weight[expert].T))
        return out.view_as(h)


class Mixture(Llama):
    """A model all of whose layers are mixtures."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.blocks = nn.ModuleList(ExpertBlock(shape) for _ in range(shape.layers))


def loss_of(model: Mixture, batch: Tensor) -> Tensor:
    loss = pair.next_token_loss(model, batch)
    return loss + BALANCE * torch.stack([block.balance for block in model.blocks]).sum()


@torch.no_grad()
def describe_routers(model: Mixture, stream: Tensor) -> list[dict[str, float]]:
    """Return for each layer how much neighbours share, and how much the least used expert is used."""
    texts = stream[: 16 * 512].view(16, 512)
    model(texts)
    layers = []
    for block in model.blocks:
        used = functional.one_hot(block.chosen, EXPERTS).sum(1).view(16, 512, EXPERTS)
        shared = (used[:, 1:] * used[:, :-1]).sum(-1).float().mean().item()
        shares = used.float().mean((0, 1)) / USED
        by_chance = USED * USED * (shares**2).sum().item()  # of two tokens that are chosen apart
        layers.append({"shared": shared, "by_chance": by_chance, "least_share": shares.min().item()})
    return layers


def write_mixture(model: Mixture, training: Training, path: Path) -> None:
    """Write the model in Q8_0; a router stays in F32, as llama-quantize leaves it."""
    shape = model.shape
    writer = make_writer(path, "llama", "ggufspec demo mixture", shape, blocks=shape.layers, ffn=shape.ffn)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(USED)
    add_tokenizer(writer, training.tokenizer)
    parts = {"token_embd": model.embed, "output_norm": model.norm, "output": model.head}
    for index, block in enumerate(model.blocks):
        names = {"ffn_gate": "ffn_gate_exps", "ffn_up": "ffn_up_exps", "ffn_down": "ffn_down_exps"}
        for name, part in {**layer_parts(block), "ffn_gate_inp": block.router}.items():
            parts[f"blk.{index}.{names.get(name, name)}"] = part
    write_tensors(writer, path, {name: part.weight for name, part in parts.items()})


def main() -> None:
    parser = pair.training_options(__doc__, "folder of target.gguf, for mixture.gguf", Path("build/mixture"))
    args = pair.begin(parser, SEED)
    training = Training(args.out, args.work, args.fraction)
    model, schedule = Mixture(SHAPE), training.run(RUN)
    stream = pair.token_stream(training.tokenizer, 6_000, pair.STREAM_TOKENS)
    pair.fit("mixture", model, pair.batches(stream, 512, schedule.steps, 6_000), loss_of, schedule, args.work)
    write_mixture(model, training, args.out / "mixture.gguf")
    held_out = pair.token_stream(training.tokenizer, 1, 32768)[:32768]
    report = {
        "parameters": count_parameters(model),
        "loss": pair.held_out_loss(model, held_out),
        "routers": describe_routers(model, held_out),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
