"""Drafters in further quantizations: made once by llama-quantize, kept, and tried by a tuning."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ggufspec import paths, tuning
from ggufspec.cli import cli
from ggufspec.domain import Role
from ggufspec.errors import GgufspecError, NoInstallError
from ggufspec.llama.install import installs
from ggufspec.options import TuneOptions
from ggufspec.tuning import planning
from tests.support import fake_server, fakes

DEMO = paths.models_dir() / "demo"
COPIES = """\
folder=$(dirname "$0")
echo "$@" >> "$folder/calls"
[ "$4" = Q2_K ] && { echo 'main: failed to quantize model' >&2; exit 1; }
cp "$2" "$3"
"""


@pytest.fixture
def llama(llama: Path) -> Path:
    fake_server.program(llama / "llama-server")
    fakes.program(llama / "llama-quantize", COPIES)
    return llama


def _calls(llama: Path) -> list[list[str]]:
    file = llama / "calls"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def _drafters(request: TuneOptions) -> list[str]:
    named = request.draft_model
    assert isinstance(named, tuple)
    return [getattr(model, "filename", str(model)) for model in named]


def test_each_drafter_is_made_once_in_each_quantization(llama: Path) -> None:
    install = installs.find_install()
    request, notes = planning.add_quantized(
        TuneOptions(pair="demo", quantize_drafter=("Q4_0", "Q5_K_M")), install
    )
    assert _drafters(request) == ["drafter.gguf", "drafter-Q4_0.gguf", "drafter-Q5_K_M.gguf"]
    assert notes == (
        "drafters: drafter-Q4_0.gguf was made from drafter.gguf by llama-quantize",
        "drafters: drafter-Q5_K_M.gguf was made from drafter.gguf by llama-quantize",
    )
    first, second = _calls(llama)
    assert first[:2] == ["--allow-requantize", str(DEMO / "drafter.gguf")]
    assert (first[3], second[3]) == ("Q4_0", "Q5_K_M")
    again, _ = planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0", "Q5_K_M")), install)
    assert again == request
    assert len(_calls(llama)) == 2
    made = [*paths.quantized_dir().rglob("*")]
    assert sorted(path.name for path in made if path.is_file()) == [
        "drafter-Q4_0.gguf",
        "drafter-Q5_K_M.gguf",
    ]


def test_quantized_drafters_are_listed_and_can_be_removed(llama: Path) -> None:
    planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0",)), installs.find_install())
    listed = CliRunner().invoke(cli, ["cache", "list", "other"])
    assert "drafters that were quantized here" in listed.stdout
    assert CliRunner().invoke(cli, ["cache", "prune", "other/quantized", "--yes"]).exit_code == 0
    assert not paths.quantized_dir().exists()


def test_a_quantization_that_adds_nothing_is_left_out(llama: Path) -> None:
    install = installs.find_install()
    request, notes = planning.add_quantized(
        TuneOptions(pair="demo", quantize_drafter=("Q8_0", "F16")), install
    )
    assert _drafters(request) == ["drafter.gguf"]
    assert notes == (
        "drafters: drafter.gguf is Q8_0, so Q8_0 of it would add nothing",
        "drafters: drafter.gguf is Q8_0, so F16 of it would add nothing",
    )
    assert _calls(llama) == []


def test_another_file_of_the_same_name_is_made_anew(llama: Path, tmp_path: Path) -> None:
    install = installs.find_install()
    target, drafter = DEMO / "target.gguf", tmp_path / "drafter-q8_0.gguf"
    drafter.write_bytes((DEMO / "drafter.gguf").read_bytes())
    for _ in range(2):
        request, _ = planning.add_quantized(
            TuneOptions(target=target, draft_model=drafter, quantize_drafter="Q4_0"), install
        )
        assert _drafters(request) == ["drafter-q8_0.gguf", "drafter-Q4_0.gguf"]
        drafter.write_bytes(drafter.read_bytes() + b"more")
    assert len(_calls(llama)) == 2


def test_what_cannot_be_made_leaves_nothing_behind(llama: Path) -> None:
    install = installs.find_install()
    with pytest.raises(GgufspecError, match=r"cannot make Q2_K of drafter\.gguf: main: failed") as caught:
        planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q2_K",)), install)
    assert "--quantize-drafter" in (caught.value.hint or "")
    made = paths.quantized_dir().rglob("*")
    assert not [path for path in made if path.is_file()]
    (llama / "llama-quantize").unlink()
    with pytest.raises(NoInstallError, match="has no llama-quantize"):
        planning.add_quantized(TuneOptions(pair="demo", quantize_drafter=("Q4_0",)), installs.find_install())
    with pytest.raises(GgufspecError, match="there is no drafter to quantize"):
        planning.add_quantized(
            TuneOptions(target=DEMO / "target.gguf", quantize_drafter="Q4_0"), installs.find_install()
        )


def test_a_tuning_tries_drafters_in_every_quant(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggufspec.engines.check_library", lambda install: None)
    asked = TuneOptions(
        pair="demo", prompt="Hello", n_predict=32, method="draft-model", quantize_drafter=("Q4_0",)
    )
    plan = tuning.prepare_tuning(asked)
    tried = {
        arm.drafter.filename
        for block in plan.blocks
        for arm in block.arms
        if arm.role is Role.DRAFTING and arm.drafter is not None
    }
    assert tried == {"drafter.gguf", "drafter-Q4_0.gguf"}
    assert any("drafter-Q4_0.gguf was made from" in note for note in plan.session.notes)
    assert {prompt.id for prompt in plan.session.suite.prompts} == {"p1"}


def test_quantizations_are_named_as_llama_cpp_names_them(llama: Path) -> None:
    result = CliRunner().invoke(cli, ["tune", "--pair", "demo", "--quantize-drafter", "Q4_0,q9_9"])
    assert result.exit_code == 2
    assert "'Q9_9' is not one of Q8_0, Q6_K, " in " ".join(result.stderr.split())
