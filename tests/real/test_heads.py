"""Heads with random weights in real programs: they load, draft, and leave the text as it is."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ggufspec import engines, paths, results
from ggufspec.domain import (
    Drafting,
    Method,
    ModelFile,
    NgramSettings,
    Pair,
    Role,
    RunSpec,
    Sample,
    Status,
)
from ggufspec.llama.install import installs
from ggufspec.llama.install.installs import Install
from ggufspec.modelfiles.compat import read_head
from ggufspec.modelfiles.gguf import validate_file
from tests.support import embedded, shell

SCRIPTS = Path(__file__).parents[2] / "scripts"
TARGET = paths.models_dir() / "demo" / "target.gguf"
NGRAM = NgramSettings(size_n=4, size_m=8, n_min=1)
DRAFTED = {
    "eagle3": Drafting(n_max=3, method=Method.DRAFT_EAGLE3),
    "dflash": Drafting(n_max=3, method=Method.DRAFT_DFLASH),
    "dspark": Drafting(n_max=3, method=Method.DRAFT_DSPARK),
    "mtp": Drafting(n_max=3, method=Method.DRAFT_MTP),
    "chain": Drafting(n_max=3, method=Method.DRAFT_EAGLE3, first=(Method.NGRAM_MOD,), ngram=NGRAM),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models, of which each is made once for all tests."""
    return tmp_path_factory.mktemp("models")


def _head(file: Path, kind: str, *words: str, target: Path = TARGET) -> Path:
    """Return a random head for a target, which is made unless it is there."""
    if not file.exists():
        shell.make("make_random_head", target, "--kind", kind, *words, "-o", file)
    return file


def _spec(folder: Path, kind: str) -> RunSpec:
    made_as = "eagle3" if kind == "chain" else kind
    file = _head(folder / f"{made_as}.gguf", made_as)
    spec = embedded.spec(
        Role.DRAFTING, prompt=embedded.PACKING, n_predict=40, context=256, drafting=DRAFTED[kind]
    )
    if kind == "mtp":
        return replace(spec, pair=Pair(name="p", target=ModelFile(filename=file.name, path=file)))
    return embedded.with_models(spec, draft=file)


def _sample(engine: engines.Engine, spec: RunSpec, folder: Path) -> Sample:
    return embedded.complete(engine, spec, folder / "run").sample


@functools.cache
def _target_text(root: Path, baseline: RunSpec) -> embedded.SureText:
    """Return what a target writes, once for all heads beside it."""
    return embedded.sure_text(installs.find_install(root), baseline)


@pytest.mark.takes(2, together="text of the target")
@pytest.mark.parametrize("kind", DRAFTED)
@pytest.mark.parametrize("engine", ["binary-simple", "server"])
def test_heads_keep_the_text(llama: Install, made: Path, tmp_path: Path, engine: str, kind: str) -> None:
    spec = _spec(made, kind)
    with engines.make(engine, llama, timeout_s=200) as runs:
        alone, sample = _sample(runs, spec.baseline, tmp_path), _sample(runs, spec, tmp_path)
    assert (alone.status, sample.status, sample.n_draft) == (Status.OK, Status.OK, 3)
    assert alone.text
    assert sample.text is not None
    sure = _target_text(llama.root, spec.baseline)
    assert all(map(sure.is_in, (alone.text, sample.text)))
    assert sample.n_drafted
    assert sample.n_rounds
    assert (sample.by_method is not None) == (kind == "chain")
    if sample.by_method is not None:
        names = [counts.method for counts in sample.by_method]
        assert names == ["ngram-mod", "draft-eagle3"]
        assert sum(counts.n_accepted for counts in sample.by_method) == sample.n_accepted


@pytest.mark.parametrize(
    ("engine", "kind", "most"), [("binary-simple", "dflash", 3), ("server", "dspark", 4)]
)
def test_a_trained_block_is_what_the_header_says(
    llama: Install, tmp_path: Path, engine: str, kind: str, most: int
) -> None:
    file = _head(tmp_path / f"{kind}.gguf", kind, "--block", "4")
    spec = _spec(tmp_path, kind)
    head = read_head(validate_file(file))
    longer = replace(spec, drafting=Drafting(n_max=9, method=head.method))
    with engines.make(engine, llama, timeout_s=200) as runs:
        sample = _sample(runs, longer, tmp_path)
    assert (sample.status, sample.n_draft, head.most) == (Status.OK, most, most)


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "dspark"])
def test_a_build_without_heads_refuses_them_before_a_run(legacy: Install, made: Path, kind: str) -> None:
    head = _head(made / f"{kind}.gguf", kind)
    words = ("-m", str(TARGET), "-md", str(head), "-p", "Hello", "-n", "8", "--llama", str(legacy.root))
    done = shell.here("bench", *words)
    error, hint = done.stderr.splitlines()[-2:]
    assert done.returncode not in {0, 2}
    assert error.startswith("error: ")
    assert f"draft-{kind}" in error
    assert hint.startswith("hint: ")
    assert not list(paths.runs_dir().glob("*"))


def test_what_check_says_of_heads_is_what_the_program_does(llama: Install) -> None:
    """A table of right and wrong heads, each given to the program."""
    done = subprocess.run(
        [sys.executable, SCRIPTS / "check_compat.py", "heads", llama.root],
        env=os.environ | {"PYTHONPATH": str(SCRIPTS.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" heads, 0 disagreements\n")


@pytest.mark.parametrize("pair", ["demo-eagle3", "demo-mtp", "demo-dflash"])
def test_own_heads_are_measured_offline(llama: Install, monkeypatch: pytest.MonkeyPatch, pair: str) -> None:
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama.root))
    prompt = "Story: Mira and the brass lantern"
    words = ("bench", "--pair", pair, "--offline", "-n", "40", "-r", "1", "-p", prompt, "-t", "1")
    done = shell.done(*words, "--warmup", "0", "--name", pair)
    assert done.stderr.startswith("engine: binary-simple, because llama-speculative drafts only with")
    bench = results.load(pair)
    drafting = [run for run in bench.current if run.spec.role is Role.DRAFTING]
    assert drafting
    assert all(run.sample.n_accepted for run in drafting)
