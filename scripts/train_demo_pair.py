"""Train the embedded demo pair (a target and a drafter that is distilled from it) and write it as GGUF.

    python scripts/train_demo_pair.py --out models/demo --quantize PATH_TO_LLAMA_QUANTIZE

Needs torch (the CPU build is enough), numpy, sentencepiece and gguf, llama.cpp's llama-quantize, and about
4 GiB of memory. Takes about 20 minutes on two quiet AVX-512 cores, and an hour if they are shared. Seeds are
fixed; another machine, thread count or package version rounds differently and gives a pair that differs a
little. Checkpoints in --work let an interrupted run go on where it stopped; --fraction 0.05 is a quick trial.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import sentencepiece
import torch
from demo_pair import corpus
from demo_pair.model import Llama, Optimizer, Schedule, Shape, count_parameters, export
from torch import Tensor
from torch.nn import functional

SEED = 20240
VOCAB = 2048
TARGET = Shape(vocab=VOCAB, dim=512, layers=8, heads=8, ffn=1408)
DRAFTER = Shape(vocab=VOCAB, dim=192, layers=2, heads=3, ffn=512)
TARGET_TYPE, DRAFTER_TYPE = "Q8_0", "Q8_0"
TOKENS_PER_STEP = 4096
STREAM_TOKENS = 260 * TOKENS_PER_STEP
# The target starts shallow, which is cheap, and is then deepened. The drafter learns the corpus before it is
# distilled.
SHALLOW_LAYERS = 2
SHALLOW_RUN = Schedule(steps=130, hold=50, end=130, matrix_rate=0.02, other_rate=0.004)
DEEP_RUN = Schedule(steps=32, hold=8, end=32, matrix_rate=0.01, other_rate=0.001)
DRAFTER_RUN = Schedule(steps=310, hold=130, end=450, matrix_rate=0.02, other_rate=0.006)
DISTIL_RUN = Schedule(steps=80, hold=20, end=80, matrix_rate=0.01, other_rate=0.003)
# How many texts the target judges for the drafter, their tokens, and how many of these are given to it.
DISTIL_WINDOWS, DISTIL_LENGTH, DISTIL_PROMPT = 192, 384, 96


def train_tokenizer(work: Path) -> sentencepiece.SentencePieceProcessor:
    """Train a small byte-fallback BPE vocabulary on the lines of the corpus."""
    model = work / "tokenizer.model"
    if not model.exists():
        lines = [line for text in corpus.documents(SEED, 1500) for line in (" " + text).splitlines() if line]
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_prefix=str(model.with_suffix("")),
            model_type="bpe",
            vocab_size=VOCAB,
            byte_fallback=True,
            character_coverage=1.0,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
        )
    return sentencepiece.SentencePieceProcessor(model_file=str(model))


def encode(tokenizer: sentencepiece.SentencePieceProcessor, text: str) -> list[int]:
    """Encode as llama.cpp does: begin-of-text, then the text with one space before it."""
    return [tokenizer.bos_id(), *tokenizer.encode(" " + text)]


def token_stream(tokenizer: sentencepiece.SentencePieceProcessor, seed: int, tokens: int) -> Tensor:
    """Return at least the given number of tokens of documents, each closed by end-of-text."""
    ids: list[int] = []
    while len(ids) <= tokens:
        for text in corpus.documents(seed, 100):
            ids += [*encode(tokenizer, text), tokenizer.eos_id()]
        seed += 1
    return torch.tensor(ids)


def batches(stream: Tensor, length: int, steps: int, seed: int) -> Iterator[Tensor]:
    """Yield one batch [rows, length + 1] a step; each token of the stream is seen about once."""
    rng = torch.Generator().manual_seed(seed)
    rows = TOKENS_PER_STEP // length
    starts = torch.arange(0, len(stream) - length - 1, length)
    order = torch.cat(
        [torch.randperm(len(starts), generator=rng) for _ in range(steps * rows // len(starts) + 1)]
    )
    for step in range(steps):
        chosen = starts[order[step * rows : (step + 1) * rows]]
        yield torch.stack([stream[s : s + length + 1] for s in chosen])


def next_token_loss(model: Llama, batch: Tensor) -> Tensor:
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: Llama, stream: Tensor, length: int = 512) -> float:
    rows = stream[: len(stream) // length * length].view(-1, length).split(8)
    return sum(next_token_loss(model, row).item() * len(row) for row in rows) / sum(len(row) for row in rows)


def fit(
    name: str,
    model: Llama,
    data: Iterator[Tensor],
    loss_of: Callable[[Llama, Tensor], Tensor],
    schedule: Schedule,
    work: Path,
) -> None:
    """Train on the batches; write a checkpoint now and then, and go on from it after a break."""
    optimizer, steps = Optimizer(model, schedule), schedule.steps
    path, done = work / f"{name}.pt", 0
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    started, total = time.monotonic(), 0.0
    for step, batch in enumerate(data):
        if step < done:
            continue
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step(step)
        total += loss.item()
        if (step + 1) % 10 == 0 or step + 1 == steps:
            seconds = (time.monotonic() - started) / (step + 1 - done)
            loss_now = total / (step % 10 + 1)
            print(f"{name} step {step + 1}/{steps} loss {loss_now:.4f}, {seconds:.1f} s each", flush=True)
            total = 0.0
        if (step + 1) % 10 == 0 or step + 1 == steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, path.with_suffix(".tmp"))
            path.with_suffix(".tmp").replace(path)


def deepen(shallow: Llama, shape: Shape) -> Llama:
    """Grow a model in depth without changing what it computes.

    The trained layers go to the two ends; the new ones between them are copies whose two output projections
    are zero, so that they start as the identity and learn from there.
    """
    deep = Llama(shape)
    for part in ("embed", "norm", "head"):
        getattr(deep, part).load_state_dict(getattr(shallow, part).state_dict())
    kept = len(shallow.blocks)
    for index, block in enumerate(deep.blocks):
        source = min(index * kept // shape.layers, kept - 1)
        block.load_state_dict(shallow.blocks[source].state_dict())
        original = index if source == 0 else index - (shape.layers - kept)
        if original != source:
            torch.nn.init.zeros_(block.wo.weight)
            torch.nn.init.zeros_(block.down.weight)
    return deep


@torch.no_grad()
def teacher_data(target: Llama, stream: Tensor, windows: int, seed: int, path: Path) -> tuple[Tensor, Tensor]:
    """Return texts and the target's log-probabilities on them.

    A third of the windows is corpus text; in the others the target continues a piece of corpus text itself,
    half of them greedily and half by sampling, because the drafter will be asked about the target's text.
    """
    if path.exists():
        saved = torch.load(path)
        return saved["ids"], saved["logs"]
    rng = torch.Generator().manual_seed(seed)
    starts = torch.randint(0, len(stream) - DISTIL_LENGTH, (windows,), generator=rng)
    ids = torch.stack([stream[s : s + DISTIL_LENGTH] for s in starts])
    groups = []
    for index, group in enumerate(ids.split(64)):
        if index % 3:
            temperature = 0.0 if index % 3 == 1 else 0.9
            prompt = group[:, :DISTIL_PROMPT]
            group = target.generate(prompt, DISTIL_LENGTH - DISTIL_PROMPT, temperature, rng)
        groups.append(group)
    ids = torch.cat(groups)
    logs = torch.cat([functional.log_softmax(target(rows), dim=-1).half() for rows in ids.split(16)])
    torch.save({"ids": ids, "logs": logs}, path)
    return ids, logs


def distil(drafter: Llama, ids: Tensor, logs: Tensor, schedule: Schedule, work: Path) -> None:
    """Train the drafter towards the target's distribution (forward KL divergence)."""
    rows = TOKENS_PER_STEP // ids.shape[1]

    def chosen() -> Iterator[Tensor]:
        rng = torch.Generator().manual_seed(SEED)
        for _ in range(schedule.steps):
            yield torch.randint(0, len(ids), (rows,), generator=rng)

    def divergence(model: Llama, index: Tensor) -> Tensor:
        wanted = logs[index].float().flatten(0, 1)
        ours = functional.log_softmax(model(ids[index]), dim=-1).flatten(0, 1)
        return functional.kl_div(ours, wanted, log_target=True, reduction="batchmean")

    fit("distil", drafter, chosen(), divergence, schedule, work)


def write_gguf(
    model: Llama,
    tokenizer: sentencepiece.SentencePieceProcessor,
    name: str,
    quant: str,
    quantize: Path,
    out: Path,
) -> None:
    """Export, quantize with llama.cpp's own tool, and put the file in its place in one step."""
    full, aside = out.with_suffix(".f32.tmp"), out.with_suffix(".tmp")
    export(model, tokenizer, full, name)
    subprocess.run(
        [quantize, full, aside, quant], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    full.unlink()
    aside.replace(out)


def training_options(description: str | None, out: str, work: Path) -> argparse.ArgumentParser:
    """Return the options of a training: where its models and checkpoints go, how much of it, on what."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help=out)
    parser.add_argument("--work", type=Path, default=work, help="folder for checkpoints")
    parser.add_argument("--fraction", type=float, default=1.0, help="part of the steps to train")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def begin(parser: argparse.ArgumentParser, seed: int) -> argparse.Namespace:
    """Parse the options, and make threads, chance and folders what they say."""
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(seed)
    for folder in (args.work, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    return args


def part_of(schedule: Schedule, fraction: float) -> Schedule:
    """Return the part of a schedule that is trained."""
    steps, hold, end = (max(4, round(n * fraction)) for n in schedule[:3])
    return schedule._replace(steps=steps, hold=min(hold, end - 1), end=end)


def main() -> None:
    parser = training_options(__doc__, "folder for target.gguf and drafter.gguf", Path("build/demo"))
    parser.add_argument("--quantize", type=Path, required=True, help="llama.cpp's llama-quantize")
    args = begin(parser, SEED)
    run = partial(part_of, fraction=args.fraction)

    tokenizer = train_tokenizer(args.work)
    held_out = token_stream(tokenizer, 1, 32768)[:32768]

    def fit_corpus(name: str, model: Llama, length: int, schedule: Schedule, seed: int) -> None:
        data = batches(token_stream(tokenizer, seed, STREAM_TOKENS), length, schedule.steps, seed)
        fit(name, model, data, next_token_loss, schedule, args.work)

    shallow = Llama(Shape(VOCAB, TARGET.dim, SHALLOW_LAYERS, TARGET.heads, TARGET.ffn))
    fit_corpus("shallow", shallow, 512, run(SHALLOW_RUN), 1_000)
    target = deepen(shallow, TARGET)
    fit_corpus("deep", target, 1024, run(DEEP_RUN), 2_000)
    drafter = Llama(DRAFTER)
    fit_corpus("drafter", drafter, 512, run(DRAFTER_RUN), 3_000)
    stream = token_stream(tokenizer, 4_000, 400_000)
    windows = max(96, round(DISTIL_WINDOWS * args.fraction))
    ids, logs = teacher_data(target, stream, windows, SEED, args.work / "teacher.pt")
    distil(drafter, ids, logs, run(DISTIL_RUN), args.work)

    write_gguf(
        target, tokenizer, "ggufspec demo target", TARGET_TYPE, args.quantize, args.out / "target.gguf"
    )
    write_gguf(
        drafter, tokenizer, "ggufspec demo drafter", DRAFTER_TYPE, args.quantize, args.out / "drafter.gguf"
    )
    report = {
        "target_parameters": count_parameters(target),
        "drafter_parameters": count_parameters(drafter),
        "shallow_loss": held_out_loss(shallow, held_out),
        "target_loss": held_out_loss(target, held_out),
        "drafter_loss": held_out_loss(drafter, held_out),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
