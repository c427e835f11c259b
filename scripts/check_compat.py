"""Ask real llama.cpp programs about every pair of vocabularies, and compare with ggufspec's verdict.

    scripts/check_compat.py LLAMA_CPP/models ~/llama.cpp/build/bin [another bin ...]

Each ggml-vocab-*.gguf of llama.cpp's source becomes a tiny model with that vocabulary and zeros for weights.
Every ordered pair of those that a program can load is given to it; exit code 0 is its yes. A matrix for each
program follows, and every disagreement. 19 vocabularies and three programs take about ten minutes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

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


def main(vocabularies: Path, places: list[Path]) -> int:
    disagreements = 0
    with tempfile.TemporaryDirectory() as folder:
        cards = dict(_models(vocabularies, Path(folder)))
        for place in places:
            install = installs.probe(place.resolve(), "argument")
            if install is None:
                sys.exit(f"{place} contains no llama.cpp")
            for program in (Program.TREE, Program.SIMPLE):
                if program in install.programs:
                    disagreements += _check(install, program, cards)
    return disagreements


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
    options = executable.options
    argv = [str(executable.path), "-m", str(target), "-md", str(draft), *RUN]
    if program is Program.SIMPLE and options.mentions("--spec-type", "draft-simple"):
        argv += ["--spec-type", "draft-simple"]
    if "--fit" in options:
        argv += ["--fit", "off"]  # it would load both models twice more
    environment = program_environment(target.parent)
    completed, _, _ = proc.capture(argv, env=environment, cwd=target.parent, timeout_s=120)
    return completed.returncode == 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(bool(main(Path(sys.argv[1]), [Path(place) for place in sys.argv[2:]])))
