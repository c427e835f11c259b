"""Ask real llama.cpp programs about drafters and targets, and compare with ggufspec's verdict.

    scripts/check_compat.py LLAMA_CPP/models ~/llama.cpp/build/bin [another bin ...]
    scripts/check_compat.py heads ~/llama.cpp/build/bin [another bin ...]

The first asks about every pair of vocabularies: each ggml-vocab-*.gguf of llama.cpp's source becomes a tiny
model with that vocabulary and zeros for weights. Every ordered pair of those that a program can load is given
to it; exit code 0 is its yes. A matrix for each program follows, and every disagreement. 19 vocabularies and
three programs take about ten minutes.

The second asks about heads: a table of right and wrong ones, with random weights, is given to the programs
that draft with heads. A program that exits with 0 and has drafted says yes. ggufspec may refuse a head that a
program takes only where the program compares nothing: vocabularies. Anything else is a disagreement.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import make_random_head
import terminal

from ggufspec import proc
from ggufspec.domain import Program
from ggufspec.llama.install import installs
from ggufspec.llama.install.environment import program_environment
from ggufspec.modelfiles.compat import judging
from ggufspec.modelfiles.gguf import ModelCard, read_card, validate_file
from tests.support import models

RUN = ("-n", "2", "-c", "256", "--temp", "0", "-p", "a", "-t", "1")
MARKS = {
    judging.CompatOutcome.ACCEPTED: "+",
    judging.CompatOutcome.REFUSED: ".",
    judging.CompatOutcome.TRANSLATED: "~",
}


def main() -> int:
    parser = terminal.parser(__doc__)
    parser.add_argument("vocabularies", help="the folder models of llama.cpp's source, or the word heads")
    parser.add_argument("places", nargs="+", type=Path, metavar="BIN", help="folder of programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.vocabularies == "heads":
            pairs = [*_heads(Path(folder))]
            return bool(sum(_check_heads(install, pairs) for install in _installs(options.places)))
        cards = dict(_models(Path(options.vocabularies), Path(folder)))
        return bool(
            sum(
                _check(install, program, cards)
                for install in _installs(options.places)
                for program in (Program.TREE, Program.SIMPLE)
                if program in install.programs
            )
        )


def _installs(places: Sequence[Path]) -> Iterator[installs.Install]:
    for place in places:
        install = installs.probe(place.resolve(), "argument")
        if install is None:
            sys.exit(f"{place} contains no llama.cpp")
        yield install


def _models(vocabularies: Path, folder: Path) -> Iterator[tuple[Path, ModelCard]]:
    for source in sorted(vocabularies.glob("ggml-vocab-*.gguf")):
        vocabulary = {
            key: value for key, value in read_card(source).metadata.items() if key.startswith("tokenizer.")
        }
        path = folder / f"{source.stem.removeprefix('ggml-vocab-')}.gguf"
        models.write_model(path, *models.llama(n_layers=1, n_embd=32, n_ff=32, vocabulary=vocabulary))
        yield path, validate_file(path)


def _check(install: installs.Install, program: Program, cards: dict[Path, ModelCard]) -> int:
    rule = judging.rule_of(install, program)
    print(f"\n{install.executable(program).path} ({install.version}), rule from build {rule.first}")
    loadable = [path for path in cards if _accepts(install, program, path, path)]
    print("cannot be loaded:", ", ".join(path.stem for path in cards if path not in loadable) or "none")
    disagreements = []
    for target in loadable:
        row = ""
        for draft in loadable:
            verdict = judging.check_pair(cards[target], cards[draft], rule)
            real = _accepts(install, program, target, draft)
            row += MARKS[verdict.outcome]
            if real != (verdict.outcome is not judging.CompatOutcome.REFUSED):
                disagreements.append(
                    f"{target.stem} with {draft.stem}: we say {verdict.outcome}, {verdict.reasons}"
                )
        print(f"{target.stem:>16} {row}", flush=True)
    print(f"{len(loadable) ** 2} pairs, {len(disagreements)} disagreements", *disagreements, sep="\n")
    return len(disagreements)


def _accepts(install: installs.Install, program: Program, target: Path, draft: Path) -> bool:
    executable = install.executable(program)
    argv = [str(executable.path), "-m", str(target), "-md", str(draft), *RUN]
    if program is Program.SIMPLE and executable.options.mentions("--spec-type", "draft-simple"):
        argv += ["--spec-type", "draft-simple"]
    return _run(argv, install, program, target.parent)[0] == 0


def _run(argv: list[str], install: installs.Install, program: Program, folder: Path) -> tuple[int, str]:
    if "--fit" in install.executable(program).options:
        argv = [*argv, "--fit", "off"]  # it would load both models twice more
    environment = program_environment(folder) | {"GGML_NO_BACKTRACE": "1"}
    completed, out, err = proc.capture(argv, env=environment, cwd=folder, timeout_s=120)
    return completed.returncode, out + err


LAYERS, WIDTH, FEED_FORWARD, HEADS, VOCABULARY = 3, 64, 128, 2, 400
ALL = ("eagle3", "dflash", "dspark")
BLOCKS = ("dflash", "dspark")


@dataclass(frozen=True, kw_only=True)
class HeadCase:
    """A head that is changed after it was made for a target.

    Attributes:
        name: what is right or wrong with it.
        kinds: the heads that are changed so.
        made_for: the target whose sizes and tokenizer it has.
        target: the target that it is given to.
        keys: keys without the architecture's name -> new values, None to remove one.
        without: tensors that are removed, as a regular expression.
        reduced: the head drafts from that many tokens, by a table d2t.
    """

    name: str
    kinds: tuple[str, ...] = ALL
    made_for: str = "target"
    target: str = "target"
    keys: Mapping[str, Any] = field(default_factory=dict)
    without: str = "$^"
    reduced: int | None = None


CASES = (
    HeadCase(name="its target"),
    HeadCase(name="a target of other weights", target="retrained"),
    HeadCase(name="a narrower target", target="narrow"),
    HeadCase(name="a wider target", target="wide"),
    HeadCase(name="more tokens than the target", made_for="large"),
    HeadCase(name="fewer tokens than the target", target="large"),
    HeadCase(name="one other token", target="renamed"),
    HeadCase(name="reads the output of the last layer", keys={"target_layers": [1, 2, LAYERS]}),
    HeadCase(name="reads a layer that the target lacks", keys={"target_layers": [1, 2, LAYERS + 1]}),
    HeadCase(name="reads no layers", keys={"target_layers": None}),
    HeadCase(name="reads one layer more", keys={"target_layers": [1, 1, 2, 2]}),
    HeadCase(name="an architecture without states of layers", target="glm4moe"),
    HeadCase(name="drafts from a part of the tokens", kinds=("eagle3", "dflash"), reduced=100),
    HeadCase(name="a target size that is not its own", kinds=("eagle3",), keys={"target_hidden_size": 32}),
    HeadCase(name="two layers", kinds=("eagle3",), keys={"block_count": 2}),
    HeadCase(name="no mask token", kinds=BLOCKS, keys={"mask_token_id": None}),
    HeadCase(name="no block size", kinds=BLOCKS, keys={"block_size": None}),
    HeadCase(name="a block of one token", kinds=BLOCKS, keys={"block_size": 1}),
    HeadCase(name="no confidence", kinds=("dspark",), without="conf_proj"),
    HeadCase(name="no weights that join the states", without=r"fc\.weight"),
)


@dataclass(frozen=True, kw_only=True)
class HeadPair:
    """A head and the target that it is given to, as files."""

    name: str
    kind: str
    target: Path
    head: Path


def _heads(folder: Path) -> Iterator[HeadPair]:
    targets = {path.stem: path for path in _targets(folder)}
    for number, case in enumerate(CASES):
        for kind in case.kinds:
            whole, head = folder / "whole.gguf", folder / f"{number}-{kind}.gguf"
            made_for = make_random_head.Target(targets[case.made_for])
            make_random_head.write(whole, made_for, kind, block=8, seed=number)
            _change(whole, head, case)
            yield HeadPair(name=case.name, kind=kind, target=targets[case.target], head=head)


def _targets(folder: Path) -> Iterator[Path]:
    sizes: dict[str, dict[str, int]] = {
        "target": {},
        "retrained": {"seed": 1},
        "narrow": {"embd": 32},
        "wide": {"embd": 128},
        "large": {"vocab": 420},
    }
    for name, changes in sizes.items():
        stated = {"layers": LAYERS, "embd": WIDTH, "ff": FEED_FORWARD, "heads": HEADS, "vocab": VOCABULARY}
        script = Path(__file__).with_name("make_random_gguf.py")
        path = folder / f"{name}.gguf"
        argv = [sys.executable, str(script), "--quant", "F16", "-o", str(path)]
        completed, _, err = proc.capture([*argv, *(f"--{key}={n}" for key, n in (stated | changes).items())])
        if completed.returncode:
            sys.exit(err)
        yield path
    renamed = folder / "renamed.gguf"
    _change(folder / "target.gguf", renamed, HeadCase(name="one other token"), renames=VOCABULARY - 1)
    yield renamed
    other = folder / "glm4moe.gguf"
    make_random_head.write(other, make_random_head.Target(folder / "target.gguf"), "mtp", block=8, seed=0)
    yield other


def _change(whole: Path, changed: Path, case: HeadCase, *, renames: int | None = None) -> None:
    """Copy a GGUF with other keys and tensors."""
    reader = gguf.GGUFReader(whole)
    arch = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(changed, arch)
    keys = {
        name if name in reader.fields else f"tokenizer.ggml.{key}": value
        for key, value in case.keys.items()
        for name in (f"{arch}.{key}",)
    }
    for name, item in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = keys.get(name, item.contents())
        if name == "tokenizer.ggml.tokens" and renames is not None:
            value = [*value[:renames], "another", *value[renames + 1 :]]
        is_array = item.types[0] is gguf.GGUFValueType.ARRAY
        if value is not None:
            writer.add_key_value(name, value, item.types[0], item.types[-1] if is_array else None)
    for tensor in reader.tensors:
        if re.search(case.without, tensor.name) is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    if case.reduced is not None:
        _reduce(writer, reader, arch, case.reduced)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _reduce(writer: gguf.GGUFWriter, reader: gguf.GGUFReader, arch: str, count: int) -> None:
    """Add a head's own output of some tokens, and the table of their ids in the target's vocabulary."""
    import numpy as np

    width = int(reader.fields[f"{arch}.embedding_length"].contents())
    rows = np.random.default_rng(0).standard_normal((count, width), np.float32).astype(np.float16)
    writer.add_tensor("output.weight", rows)
    writer.add_tensor("d2t", np.arange(count, dtype=np.int64) + 100, raw_dtype=gguf.GGMLQuantizationType.I64)


def _check_heads(install: installs.Install, pairs: Sequence[HeadPair]) -> int:
    program = Program.SIMPLE
    rule = judging.rule_of(install, program)
    print(f"\n{install.executable(program).path} ({install.version})")
    print(f"{'head':<40} {'kind':<7} {'llama.cpp':<10} {'ggufspec':<10}")
    disagreements = 0
    for pair in pairs:
        real, words = _draft(install, program, pair)
        verdict = judging.check_pair(
            validate_file(pair.target), validate_file(pair.head), rule, build=install.build_number
        )
        ours = verdict.outcome is judging.CompatOutcome.ACCEPTED
        unseen = real and all("token" in reason for reason in verdict.reasons)
        agrees = ours == real or unseen
        disagreements += not agrees
        said = "; ".join(verdict.reasons) if agrees else f"DISAGREES: {'; '.join(verdict.reasons)} | {words}"
        texts = ["drafts" if yes else "refuses" for yes in (real, ours)]
        print(f"{pair.name:<40} {pair.kind:<7} {texts[0]:<10} {texts[1]:<10} {said}".rstrip(), flush=True)
    print(f"{len(pairs)} heads, {disagreements} disagreements")
    return disagreements


def _draft(install: installs.Install, program: Program, pair: HeadPair) -> tuple[bool, str]:
    """Return whether a program drafted with a head, and the last line of its log."""
    words = ["--spec-type", f"draft-{pair.kind}", "-n", "8", *RUN[2:]]
    argv = [str(install.executable(program).path), "-m", str(pair.target), "-md", str(pair.head), *words]
    for _ in range(5):  # a recent build loses the end of its log now and then
        code, log = _run(argv, install, program, pair.target.parent)
        drafted = re.search(r"n_drafted\s*=\s*(\d+)", log)
        if code or drafted:
            break
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
    return code == 0 and drafted is not None and int(drafted[1]) > 0, f"exit {code}: {last[:200]}"


if __name__ == "__main__":
    sys.exit(main())
