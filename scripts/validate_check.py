"""Check the verdicts of `ggufspec check --run` on sound and on damaged drafters.

    python scripts/validate_check.py --work FOLDER [--gemma gemma-3-270m-q4_k_m.gguf]

Prints a Markdown table: of each drafter what it has right of the target's text, and the verdict. Sound ones
are the embedded draft model and heads, and quants of the draft model, of its target and of Gemma, which draft
for the model itself. The texts are the pairs' own, those of another world, and words without sense.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import terminal
from damage_drafter import FAULTS, damage

import ggufspec
from ggufspec import paths, prompts
from ggufspec.llama.install import installs

DEMO = paths.models_dir() / "demo"
QUANTS = ("Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
GEMMAS = ("Q2_K", "Q4_0")
SYLLABLES = ("zub", "kra", "fli", "mon", "ter", "quo", "ast", "ven", "dor", "hix", "pal", "ump", "sir")
Case = tuple[str, Path, Path | None, tuple[str, ...]]  # name, target, drafter, texts


def texts() -> dict[str, tuple[str, ...]]:
    draw = random.Random(3)
    words = " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(40))
    suites = {name: [prompt.text for prompt in prompts.suite(name).prompts] for name in ("demo", "general")}
    return {"own": tuple(suites["demo"][::3]), "other": tuple(suites["general"][:3]), "words": (words,)}


def quantized(model: Path, quant: str, folder: Path) -> Path:
    out = folder / f"{model.stem}-{quant}.gguf"
    program = installs.find_install().root / "llama-quantize"
    if not out.exists():
        words = (program, "--allow-requantize", model, out, quant, "1")
        subprocess.run([*map(str, words)], check=True, capture_output=True)
    return out


def sound(folder: Path, gemma: Path | None) -> Iterator[Case]:
    target, read = DEMO / "target.gguf", texts()
    for kind, read_texts in read.items():
        for name in ("drafter", "eagle3", "dflash"):
            yield f"{name}, {kind} texts", target, DEMO / f"{name}.gguf", read_texts
        yield f"mtp, {kind} texts", DEMO / "mtp.gguf", None, read_texts
    for quant in QUANTS:
        yield f"drafter {quant}", target, quantized(DEMO / "drafter.gguf", quant, folder), read["own"]
    yield "target Q4_0", target, quantized(target, "Q4_0", folder), read["own"]
    if gemma is not None:
        for quant in GEMMAS:
            yield f"Gemma {quant}", gemma, quantized(gemma, quant, folder), read["other"]
        yield "Gemma Q2_K, words", gemma, quantized(gemma, "Q2_K", folder), read["words"]


def damaged(folder: Path) -> Iterator[Case]:
    target, own = DEMO / "target.gguf", texts()["own"]
    for name in ("drafter", "eagle3", "dflash"):
        for fault in FAULTS:
            if fault == "other-target" or (fault == "token-map" and name != "drafter"):
                continue  # heads without an output of their own name no tokens
            out = damage(DEMO / f"{name}.gguf", fault, folder / f"{name}-{fault}.gguf")
            yield f"{name}, {fault}", target, out, own
    other = damage(target, "other-target", folder / "other.gguf")
    for name in ("eagle3", "dflash"):
        yield f"{name}, of another target", other, DEMO / f"{name}.gguf", own


def main() -> None:
    parser = terminal.parser(__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--gemma", type=Path)
    parser.add_argument("--only", default="", help="drafters whose names have this text")
    parser.add_argument("--llama", type=Path, help="examine this one")
    asked = parser.parse_args()
    asked.work.mkdir(exist_ok=True)
    terminal.print_head("drafter", "right", "of sure tokens", "rounds as foretold", "verdict", texts=5)
    for name, target, drafter, read in (*sound(asked.work, asked.gemma), *damaged(asked.work)):
        if asked.only not in name:
            continue
        found = ggufspec.examine(
            model=str(target),
            drafter=None if drafter is None else str(drafter),
            prompt=read,
            n_predict=64,
            draft=5,
            threads=1,
            run=True,
            llama=asked.llama,
        )
        guesses, runs = found.guesses, found.agreements
        compared, differing = sum(run.compared for run in runs), sum(len(run.differing) for run in runs)
        right, sure = guesses.right / guesses.tokens, guesses.sure_right / max(1, guesses.sure)
        rounds = f"{compared - differing}/{compared}"
        terminal.print_row(name, f"{right:.0%}", f"{sure:.0%} of {guesses.sure}", rounds, found.verdict)


if __name__ == "__main__":
    main()
