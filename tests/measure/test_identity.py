"""Models and llama.cpp are known by their content, in a bench that is resumed and in a comparison."""

from __future__ import annotations

import html
import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ggufspec import machine, results
from ggufspec.analysis import arms, comparing
from ggufspec.domain import FileIdentity, FileUse, MachineDetails, Prompt, Role
from ggufspec.errors import ResultsError
from ggufspec.llama.install import installs
from ggufspec.measure import api, identity
from ggufspec.results import ResultSet
from tests.support import builds, fake_server, fakes, models, shell, values
from tests.support.fake_server import Behaviour

NAME = "mine"
TEXT = "Once upon a time"


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Two models in a folder, and fake programs that note each start."""

    folder: Path
    llama: Path

    @property
    def target(self) -> Path:
        return self.folder / "target.gguf"

    @property
    def drafter(self) -> Path:
        return self.folder / "drafter.gguf"

    @property
    def library(self) -> Path:
        return self.llama / "libllama.so"

    @property
    def n_starts(self) -> int:
        return (self.folder / "starts").read_text().count("\n")

    def words(self, *more: str, target: Path | None = None, draft: Path | None = None) -> list[str]:
        chosen = ["-m", str(target or self.target), "-md", str(draft or self.drafter)]
        return ["bench", *chosen, "-p", TEXT, "-n", "32", "-t", "1", "-c", "128", "--warmup", "0", *more]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    folder = tmp_path / "models"
    folder.mkdir()
    for name, layers in (("target", 2), ("drafter", 1)):
        models.write_model(folder / f"{name}.gguf", *models.llama(n_layers=layers))
    note = f"echo >>{folder}/starts\n"
    llama = fakes.install(tmp_path / "llama", **{name: note + body for name, body in fakes.AT_ONCE.items()})
    (llama / "libllama.so").write_bytes(b"a library")
    (folder / "starts").touch()
    monkeypatch.setenv("GGUFSPEC_LLAMA", str(llama))
    return Setup(folder=folder, llama=llama)


def _overwrite(model: Path) -> None:
    """Change a weight, and nothing that a header or a size could tell."""
    with model.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"changed!")


def _measure(setup: Setup, *more: str, name: str = NAME) -> ResultSet:
    shell.done(*setup.words(*more, "--name", name))
    return results.load(name)


def test_a_bench_stores_what_was_measured(setup: Setup) -> None:
    meta = _measure(setup).meta
    named = {(file.use.value, file.name): file for file in meta.files}
    assert named.keys() == {
        ("model", "target.gguf"),
        ("model", "drafter.gguf"),
        ("program", "llama-completion"),
        ("program", "llama-speculative"),
        ("library", "libllama.so"),
    }
    assert named["model", "target.gguf"].size_bytes == setup.target.stat().st_size
    assert named["library", "libllama.so"].sha256.startswith("31f109ab3834")  # as sha256sum says
    spec = results.load(NAME).runs[0].spec
    assert spec.pair.target.content == named["model", "target.gguf"].sha256


def test_a_bench_stores_where_it_comes_from_and_shows_it(setup: Setup) -> None:
    meta = _measure(setup).meta
    assert meta.software["ggufspec"] == metadata.version("ggufspec")
    assert meta.software["Python"].startswith(platform.python_version())
    assert meta.software["numpy"] == metadata.version("numpy")
    assert meta.build.compiler == "GNU 12.2.0 for Linux x86_64"
    assert meta.machine.details == machine.snapshot().details
    page = shell.here("show", NAME, "--all").stdout
    assert shell.here("report", NAME, "--out", str(setup.folder / "report.html")).returncode == 0
    report = html.unescape((setup.folder / "report.html").read_text())
    for fact in (
        f"numpy {metadata.version('numpy')}",
        "GNU 12.2.0 for Linux x86_64",
        platform.release(),
        f"SHA-256 {meta.suite_sha256[:12]}…",
        f"(schema {results.SCHEMA_VERSION})",
    ):
        assert fact in page
        assert fact in report


def test_prompts_are_known_by_their_content() -> None:
    one, two = Prompt(id="a", text="A"), Prompt(id="b", text="B", category="code")
    known = identity.of_prompts([one, two])
    assert identity.of_prompts([replace(one), two]) == known
    others = ([two, one], [one], [one, replace(two, text="C")], [one, replace(two, followups=("more",))])
    assert len({known, *map(identity.of_prompts, others)}) == 5
    assert identity.of_prompts([Prompt(id="a", text="half a pair: \udc80")])


def test_a_build_of_our_own_records_its_flags(setup: Setup) -> None:
    built = replace(builds.make_build("b1-cpu-12345678"), environment={"CFLAGS": "-O1"})
    install = installs.probe(setup.llama, "own build", built)
    assert install.describe().flags == ("GGML_NATIVE=ON", "CFLAGS=-O1")


TUNED = MachineDetails(governor="performance", smt=False, kernel="6.1")
OTHER = MachineDetails(governor="powersave", smt=True, kernel="6.1", microcode="0x1")


@pytest.mark.parametrize(
    ("what", "before", "after", "differences"),
    [
        ("build", {"compiler": "gcc"}, {"compiler": "clang"}, {"compiler": ("gcc", "clang")}),
        ("build", {"flags": ("LTO", "A")}, {"flags": ("LTO", "B")}, {"build flags": ("A", "B")}),
        ("build", {"flags": ("LTO", "A")}, {"flags": ("LTO",)}, {"build flags": ("A", "none")}),
        ("build", {"flags": ("LTO", "A")}, {"flags": ()}, {}),
        (
            "machine",
            {"details": TUNED},
            {"details": OTHER},
            {"governor": ("performance", "powersave"), "smt": ("False", "True")},
        ),
        ("machine", {"details": TUNED}, {"details": None}, {}),
    ],
)
def test_what_made_a_build_and_how_a_machine_is_set_is_named_where_it_differs(
    what: str, before: dict[str, Any], after: dict[str, Any], differences: dict[str, tuple[str, str]]
) -> None:
    def bench(facts: dict[str, Any]) -> ResultSet:
        stored = values.bench(values.run())
        changed = {what: replace(getattr(values, what.upper()), **facts)}
        return replace(stored, meta=replace(stored.meta, **changed))

    assert comparing.compare(bench(before), bench(after)).differences == differences
    assert replace(values.BUILD, compiler="clang", flags=("LTO",)) == values.BUILD  # they make no other build


def test_a_model_that_was_only_touched_or_moved_goes_on(setup: Setup) -> None:
    n_before = len(_measure(setup, "-r", "1").runs)
    os.utime(setup.target, (1, 1))
    moved = setup.folder / "elsewhere" / "renamed.gguf"
    moved.parent.mkdir()
    setup.drafter.rename(moved)
    starts = setup.n_starts
    shell.done(*setup.words("-r", "2", "--resume", NAME, draft=moved))
    bench = results.load(NAME)
    assert [len(arm.runs) for arm in arms.group(bench)] == [2, 2, 2]
    assert arms.group(bench)[2].gain is not None
    added = bench.runs[n_before:]
    assert setup.n_starts - starts == sum(run.attempts for run in added)
    # a busy machine may disturb runs of the first repeat, which are then measured again
    assert {run.repeat for run in added if not (run.anchor or run.remeasured)} == {1}
    assert {file.name for file in bench.meta.files} >= {"drafter.gguf", "renamed.gguf"}


def test_every_part_of_a_model_counts(setup: Setup, tmp_path: Path) -> None:
    metadata, tensors = models.llama()
    for part, own in enumerate((tensors[:5], tensors[5:])):
        split = {"split.no": part, "split.count": 2} | (metadata if part == 0 else {})
        models.write_model(tmp_path / f"big-0000{part + 1}-of-00002.gguf", split, own)
    first = tmp_path / "big-00001-of-00002.gguf"
    shell.done(*setup.words("-r", "1", "--name", NAME, target=first))
    files = results.load(NAME).meta.files
    assert [file.name for file in files if "big" in file.name] == [
        "big-00001-of-00002.gguf",
        "big-00002-of-00002.gguf",
    ]
    _overwrite(tmp_path / "big-00002-of-00002.gguf")
    again = shell.here(*setup.words("-r", "2", "--resume", NAME, target=first))
    assert (again.returncode, "big-00002-of-00002.gguf is not what" in again.stderr) == (13, True)


def _rebuild(setup: Setup) -> None:
    with (setup.llama / "llama-speculative").open("a") as file:
        file.write("# built again\n")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda setup: _overwrite(setup.target),
            "target.gguf is not what the bench mine was begun with: SHA-256",
        ),
        (lambda setup: _overwrite(setup.drafter), "drafter.gguf is not what the bench mine was begun with"),
        (_rebuild, "llama-speculative is not what the bench mine was begun with"),
        (lambda setup: setup.library.write_bytes(b"A library"), "libllama.so is not what the bench mine was"),
        (
            lambda setup: (setup.llama / "libggml-cpu-haswell.so.1").write_bytes(b"a faster one"),
            "was begun without llama.cpp's libggml-cpu-haswell.so.1",
        ),
        (lambda setup: setup.library.unlink(), "was begun with llama.cpp's libllama.so"),
    ],
)
def test_what_was_changed_is_not_mixed_with_what_it_was(
    setup: Setup, change: Callable[[Setup], object], words: str
) -> None:
    before, starts = _measure(setup, "-r", "1"), setup.n_starts
    change(setup)
    again = shell.here(*setup.words("-r", "2", "--resume", NAME))
    assert (again.returncode, words in again.stderr) == (13, True), again.stderr
    assert "hint: resume it with the same " in again.stderr
    assert (setup.n_starts, results.load(NAME)) == (starts, before)


def test_the_same_llama_cpp_may_be_elsewhere(setup: Setup, tmp_path: Path) -> None:
    _measure(setup, "-r", "1")
    shutil.copytree(setup.llama, tmp_path / "copy")
    shell.done(*setup.words("-r", "2", "--resume", NAME, "--llama", str(tmp_path / "copy")))


def test_libraries_that_the_loader_finds_count(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distributions put programs and libraries in different folders."""
    elsewhere = setup.folder / "lib"
    elsewhere.mkdir()
    for name in ("libllama.so.0", "libggml-cpu.so", "libother.so"):
        (elsewhere / name).write_bytes(name.encode())
    tools = setup.folder / "tools"
    fakes.program(tools / "ldd", "true\n").write_text(
        f"#!/bin/sh\necho '\tlibllama.so.0 => {elsewhere}/libllama.so.0 (0x00007f00)'\n"
        "echo '\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f01)'\n"
    )
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    files = _measure(setup, "-r", "1").meta.files
    libraries = [file.name for file in files if file.use is FileUse.LIBRARY]
    assert sorted(libraries) == ["libggml-cpu.so", "libllama.so", "libllama.so.0"]


def test_a_model_that_changes_while_it_is_measured_ends_the_bench(setup: Setup) -> None:
    program = setup.llama / "llama-speculative"
    program.write_text(
        program.read_text().replace("case", f'[ "$1" = --model ] && printf x >>{setup.target}\ncase', 1)
    )
    done = shell.here(*setup.words("-r", "2", "--name", NAME))
    assert done.returncode == 13
    assert f"{setup.target} was changed while it was measured: SHA-256" in done.stderr
    bench = results.load(NAME)
    assert {run.spec.role for run in bench.runs} <= {Role.TARGET, Role.DRAFTER}
    assert bench.is_complete is False


def test_a_bench_that_says_nothing_of_its_files_is_not_continued(setup: Setup) -> None:
    bench = _measure(setup, "-r", "1")
    stored = results.reopen(NAME)
    results.close(results.amend(stored, files=None))
    again = shell.here(*setup.words("-r", "2", "--resume", NAME))
    assert (again.returncode, "does not say which files it was begun with" in again.stderr) == (13, True)
    assert len(results.load(NAME).runs) == len(bench.runs)


def test_models_of_the_same_name_are_not_joined_in_silence(setup: Setup) -> None:
    first = _measure(setup, "-r", "2", name="first")
    _overwrite(setup.drafter)
    second = _measure(setup, "-r", "2", name="second")
    compared = comparing.compare(first, second)
    assert [row.before.role for row in compared.rows] == [Role.TARGET]
    (before, after) = compared.differences["drafter.gguf"]
    assert before.startswith("SHA-256 ")
    assert before != after
    assert (
        len([name for name in compared.unmatched if name.startswith("drafting target.gguf + drafter.gguf")])
        == 2
    )
    text = shell.here("compare", "first", "second").stdout
    assert f"  drafter.gguf: {before} → {after}" in text
    _overwrite(setup.target)
    third = _measure(setup, "-r", "2", name="third")
    with pytest.raises(
        ResultsError,
        match=r"no arm in common; two models are called target.gguf: SHA-256 .*, and SHA-256 .*; two models "
        r"are called drafter.gguf: SHA-256",
    ):
        comparing.compare(first, third)


def test_models_of_the_same_content_are_joined_whatever_their_names_are(setup: Setup) -> None:
    first = _measure(setup, "-r", "2", name="first")
    renamed = setup.target.rename(setup.folder / "renamed.gguf")
    shell.done(*setup.words("-r", "2", "--name", "second", target=renamed))
    compared = comparing.compare(first, results.load("second"))
    assert len(compared.rows) == 3
    assert compared.unmatched == ()


def test_a_rebuilt_llama_cpp_of_the_same_version_is_named(setup: Setup) -> None:
    first = _measure(setup, "-r", "2", name="first")
    setup.library.write_bytes(b"A library")
    compared = comparing.compare(first, _measure(setup, "-r", "2", name="second"))
    assert compared.differences.keys() == {"libllama.so"}
    assert len(compared.rows) == 3


def test_a_bench_that_does_not_say_what_its_models_hold_is_not_compared() -> None:
    run = values.run()
    unknown = replace(run.spec.pair.target, content=None)
    plain = values.bench(replace(run, spec=replace(run.spec, pair=replace(run.spec.pair, target=unknown))))
    for sides in ((plain, values.bench(run)), (values.bench(run), plain), (plain, plain)):
        with pytest.raises(
            ResultsError, match=r"does not say what target\.gguf holds \(schema \d\)"
        ) as caught:
            comparing.compare(*sides)
        assert "measure it again" in str(caught.value.hint)


def test_a_long_read_is_announced_and_done_once(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for model in (setup.target, setup.drafter):
        os.utime(model, (1, 1))
    size = setup.target.stat().st_size + setup.drafter.stat().st_size
    monkeypatch.setattr(api, "_LONG_BYTES", size)
    monkeypatch.setattr("ggufspec.digests._SETTLED_NS", 0)
    first = shell.here(*setup.words("-r", "1"))
    assert "reading 2 model files (" in first.stderr
    assert "once to compute checksums: about 10.0 s" in first.stderr
    assert "model files" not in shell.here(*setup.words("-r", "1")).stderr
    assert "model files" not in shell.here(*setup.words("-r", "1", "--dry-run")).stderr


def test_a_watch_reads_again_only_what_was_touched(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    sha256 = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    files = [FileIdentity(use=FileUse.MODEL, path=str(file), size_bytes=7, sha256=sha256)]
    identity.check_unchanged(files)
    os.utime(file, (5, 5))
    identity.check_unchanged(files)
    file.unlink()
    with pytest.raises(ResultsError, match="was changed while it was measured"):
        identity.check_unchanged(files)


SPEEDS = {
    "GGML_CUDA_FORCE_MMQ": "1",
    "OMP_NUM_THREADS": "3",
    "GOMP_CPU_AFFINITY": "0-1",
    "KMP_BLOCKTIME": "0",
}
SECRETS = {
    **dict.fromkeys(("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GGML_TOKEN", "my_password"), "s3cret"),
    "DATABASE_URL": "postgres://me:s3cret@host",
    "HTTPS_PROXY": "http://me:s3cret@proxy",
}


def test_variables_that_change_speeds_are_recorded(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SPEEDS:
        monkeypatch.delenv(name, raising=False)
    first = _measure(setup, "-r", "2", name="first")
    for name, value in (SPEEDS | SECRETS).items():
        monkeypatch.setenv(name, value)
    second = _measure(setup, "-r", "2", name="second")
    assert first.meta.environment is not None
    assert second.meta.environment == {**first.meta.environment, **SPEEDS}
    compared = comparing.compare(first, second)
    assert compared.differences == {name: ("not set", value) for name, value in SPEEDS.items()}
    assert "  OMP_NUM_THREADS: not set → 3\n" in shell.here("compare", "first", "second").stdout
    refused = shell.here(*setup.words("-r", "3", "--resume", "first"))
    assert refused.returncode == 13
    assert "GGML_CUDA_FORCE_MMQ is '1', and was not set when the bench first was begun" in refused.stderr
    assert shell.here(*setup.words("-r", "3", "--resume", "second")).returncode == 0


@pytest.mark.parametrize("engine", ["binary", "server"])
def test_secrets_reach_no_program(setup: Setup, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    for name, value in (SPEEDS | SECRETS).items():
        monkeypatch.setenv(name, value)
    seen = setup.folder / "environment"
    fakes.install(setup.llama, **{which: f"env >>{seen}\n{body}" for which, body in fakes.AT_ONCE.items()})
    fake_server.program(setup.llama / "llama-server", Behaviour(at_load=f"env >>{seen}\n"))
    shell.here(*setup.words("-r", "1", "--engine", engine, "--name", NAME))
    text = seen.read_text()
    assert "OMP_NUM_THREADS=3" in text
    assert "PATH=" in text
    assert "s3cret" not in text
    meta = (results.load(NAME).folder / "meta.json").read_text()
    assert "s3cret" not in meta
    assert json.loads(meta)["environment"]["OMP_NUM_THREADS"] == "3"


def test_a_dry_run_shows_the_same_environment(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (SPEEDS | SECRETS).items():
        monkeypatch.setenv(name, value)
    lines = shell.here(*setup.words("--dry-run")).stdout
    assert "OMP_NUM_THREADS=3" in lines
    assert 'PATH="$PATH"' in lines
    assert "LC_ALL=C" in lines
    assert not any(name in lines for name in SECRETS)
    assert "s3cret" not in lines
